# glint_layer(NAME [layers it links]): one static library per folder of src/, all .cc files in it and below.
# Files named *_avx2.cc, *_avx512.cc get their instruction sets; they are called only after asking the processor.
function(glint_layer name)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${name}/*.cc)
  add_library(glint_${name} STATIC ${sources})
  target_include_directories(glint_${name} PUBLIC
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/src> $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>)
  target_link_libraries(glint_${name} PUBLIC ${ARGN} $<BUILD_INTERFACE:glint_flags>)
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
    foreach(source IN LISTS sources)
      if(source MATCHES "_avx2\\.cc$")
        set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS "-mavx2;-mfma;-mf16c")
      elseif(source MATCHES "_avx512\\.cc$")
        set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS
          "-mavx512f;-mavx512bw;-mavx512dq;-mavx512vl;-mavx512vnni;-mavx2;-mfma;-mf16c")
      endif()
    endforeach()
  endif()
endfunction()
