# Finds nvcc and CuTe's headers, and defines hyla_add_kernels(). Without nvcc the library has the CPU backend only.
set(HYLA_WITH_CUDA OFF)
if(NOT HYLA_CUDA STREQUAL "OFF")
  include(CheckLanguage)
  if(NOT CMAKE_CUDA_COMPILER AND EXISTS /usr/local/cuda/bin/nvcc)
    set(CMAKE_CUDA_COMPILER /usr/local/cuda/bin/nvcc)
  endif()
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    set(CMAKE_CUDA_ARCHITECTURES OFF)  # per target: sm_90a needs the -gencode form
    enable_language(CUDA)
    if(CMAKE_CUDA_COMPILER_VERSION VERSION_GREATER_EQUAL 12.8)
      set(HYLA_WITH_CUDA ON)
    elseif(HYLA_CUDA STREQUAL "ON")
      message(FATAL_ERROR "HYLA_CUDA=ON needs nvcc >= 12.8, found ${CMAKE_CUDA_COMPILER_VERSION}")
    else()
      message(STATUS "hyla: nvcc ${CMAKE_CUDA_COMPILER_VERSION} is older than 12.8: CPU backend only")
    endif()
  elseif(HYLA_CUDA STREQUAL "ON")
    message(FATAL_ERROR "HYLA_CUDA=ON, but no nvcc was found: put it on PATH or set CMAKE_CUDA_COMPILER")
  else()
    message(STATUS "hyla: no nvcc found: CPU backend only")
  endif()
endif()

if(HYLA_WITH_CUDA)
  # CuTe's headers come with the PyPI package nvidia-cutlass.
  file(GLOB hyla_cutlass_candidates ${PROJECT_SOURCE_DIR}/.venv/lib/python3*/site-packages/cutlass_library/source/include)
  find_path(HYLA_CUTLASS_DIR cute/tensor.hpp HINTS ${hyla_cutlass_candidates}
            DOC "Folder of CuTe's headers (cutlass_library/source/include of the PyPI package nvidia-cutlass)")
  if(NOT HYLA_CUTLASS_DIR)
    message(FATAL_ERROR "CuTe's headers were not found: pip install nvidia-cutlass==4.2.0.0 into .venv, or set HYLA_CUTLASS_DIR")
  endif()
  find_package(CUDAToolkit REQUIRED)
  # CMake 3.25 does not know how to ask this nvcc for C++20.
  if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
    set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
  endif()
  set(CMAKE_CUDA_STANDARD 20)
  set(CMAKE_CUDA_STANDARD_REQUIRED ON)
  # Every compile goes through a check that fails on spills and serialized wgmma.
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${PROJECT_SOURCE_DIR}/tools/checked_nvcc ${HYLA_CCACHE})
endif()

# hyla_add_kernels(NAME SOURCES...): object library of .cu files for sm_90a, linked into hyla.
function(hyla_add_kernels name)
  add_library(${name} OBJECT ${ARGN})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/core/include
                             ${PROJECT_SOURCE_DIR}/ops/kda/include ${PROJECT_SOURCE_DIR}/ops/extend/include ${HYLA_CUTLASS_DIR})
  target_compile_options(${name} PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:-gencode=arch=compute_90a,code=sm_90a -Xptxas=-v
                         --expt-relaxed-constexpr -lineinfo>)
  target_link_libraries(hyla PRIVATE $<BUILD_INTERFACE:${name}>)
  target_sources(hyla PRIVATE $<TARGET_OBJECTS:${name}>)
endfunction()
