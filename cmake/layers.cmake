# glint_layer(NAME [libraries it links]): one static library per folder of src/, all .cc (and, with GLINT_CUDA, .cu) files in it
# and below. The links between layers are docs/design.md's table; tests/repo/layering_test.cc holds the includes to it.
# Files named *_avx2.cc, *_avx512.cc, *_avx512vbmi.cc get their instruction sets; they are called only after asking the processor.
set_property(GLOBAL PROPERTY GLINT_LAYERS)
function(glint_layer name)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${name}/*.cc)
  if(NOT GLINT_SIMD)
    list(FILTER sources EXCLUDE REGEX "_(avx2|avx512|avx512vbmi)\\.cc$")
  endif()
  if(GLINT_CUDA)
    file(GLOB_RECURSE cuda_sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${name}/*.cu)
  endif()
  if(NOT sources)  # only headers so far
    set(sources ${PROJECT_BINARY_DIR}/empty.cc)
    file(CONFIGURE OUTPUT ${sources} CONTENT "")
  endif()
  add_library(glint_${name} STATIC ${sources} ${cuda_sources})
  target_include_directories(glint_${name} PUBLIC ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
  target_link_libraries(glint_${name} PUBLIC ${ARGN} glint_flags)
  set_property(GLOBAL APPEND PROPERTY GLINT_LAYERS glint_${name})
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
    foreach(source IN LISTS sources)
      if(source MATCHES "_avx2\\.cc$")
        set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS "-mavx2;-mfma;-mf16c")
      # g++ 12 warns of its own "undefined" values in avx512fintrin.h; g++ 13 does not.
      elseif(source MATCHES "_avx512\\.cc$")
        set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS
          "-mavx512f;-mavx512bw;-mavx512dq;-mavx512vl;-mavx512vnni;-mavx2;-mfma;-mf16c;-Wno-uninitialized")
      elseif(source MATCHES "_avx512vbmi\\.cc$")
        set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS
          "-mavx512f;-mavx512bw;-mavx512dq;-mavx512vl;-mavx512vnni;-mavx512vbmi;-mgfni;-mavx2;-mfma;-mf16c;-Wno-uninitialized")
      endif()
    endforeach()
  endif()
endfunction()
