# Flags every target of ours is built with (through the interface library glint_flags).
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

add_library(glint_flags INTERFACE)
target_compile_options(glint_flags INTERFACE
  # Contraction and order are written out in the source: the bits must not depend on the compiler's mood.
  $<$<COMPILE_LANGUAGE:CXX>:-ffp-contract=off>
  $<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wpedantic;-Wshadow;-Wconversion;-Wno-sign-conversion;-Wnon-virtual-dtor;-Werror>)
# g++ 12 and 13 have false positives of these in std::string, std::vector and std::optional at -O3 and under the sanitizers.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  target_compile_options(glint_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-restrict;-Wno-stringop-overflow;-Wno-maybe-uninitialized;-Wno-array-bounds>)
endif()
# g++ 13.3 at -O3 takes a switch in a loop apart wrongly: `for (...) switch (type) {...}` with an unchanging `type` ran `default` for
# the first case (seen in tests/cpu/product_test.cc; gone with this flag, and at -O2). g++ 12 does not unswitch switches. It can
# go when no supported compiler shows the fault.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 13)
  target_compile_options(glint_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-fno-unswitch-loops>)
endif()
if(GLINT_MUTATIONS)
  target_compile_definitions(glint_flags INTERFACE GLINT_MUTATIONS)
endif()
if(NOT GLINT_SIMD)
  target_compile_definitions(glint_flags INTERFACE GLINT_NO_SIMD)
endif()
if(GLINT_SANITIZE)
  target_compile_options(glint_flags INTERFACE -fsanitize=${GLINT_SANITIZE} -fno-omit-frame-pointer
                                               -fno-sanitize-recover=all)
  target_link_options(glint_flags INTERFACE -fsanitize=${GLINT_SANITIZE})
  # g++ 13 turns this on by itself and then places 64-byte vectors at unaligned addresses: every AVX-512 test died under it.
  if(GLINT_SANITIZE MATCHES "address" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(glint_flags INTERFACE --param=asan-use-after-return=0)
  endif()
endif()

find_program(GLINT_CCACHE ccache)
if(GLINT_CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${GLINT_CCACHE})
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${GLINT_CCACHE})
endif()
