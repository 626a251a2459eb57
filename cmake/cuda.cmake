# The CUDA backend's compiler and flags. nvcc compiles without a GPU; nothing here asks for one.
if(NOT CMAKE_CUDA_COMPILER AND EXISTS /usr/local/cuda/bin/nvcc)
  set(CMAKE_CUDA_COMPILER /usr/local/cuda/bin/nvcc)  # where NVIDIA's packages put it, without touching PATH
endif()
find_package(CUDAToolkit 12.0 REQUIRED)
if(GLINT_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES ${GLINT_CUDA_ARCHITECTURES})
else()
  # Code for Ampere and Ada and for Hopper, and PTX that drivers translate for what comes later. Not PTX of 80: code compiled for less
  # than 90 has neither early launches nor clusters in it.
  set(CMAKE_CUDA_ARCHITECTURES 80-real 90a-real 90-virtual)
  if(CUDAToolkit_VERSION VERSION_GREATER_EQUAL 12.8)
    list(APPEND CMAKE_CUDA_ARCHITECTURES 120a-real)
  endif()
endif()
enable_language(CUDA)
if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake 3.25 has not heard that nvcc 12 speaks C++20
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
endif()
set(CMAKE_CUDA_STANDARD 20)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
set(CMAKE_CUDA_EXTENSIONS OFF)

target_compile_options(glint_flags INTERFACE
  # As for the host: an fma is where the source says fma. Warnings of nvcc's front end and of ptxas are errors.
  "$<$<COMPILE_LANGUAGE:CUDA>:-fmad=false;--Werror=all-warnings;-Xcompiler=-Wall,-Wextra,-Werror,-ffp-contract=off>")
