# CUDA and NCCL are found automatically and never required, unless
# SKRULL_ENABLE_CUDA is ON. Sets SKRULL_CUDA_FOUND.
include(CheckLanguage)
set(SKRULL_CUDA_FOUND FALSE)
if(SKRULL_ENABLE_CUDA)  # AUTO is true
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
      set(CMAKE_CUDA_ARCHITECTURES 80-real 90a-real 100-real 100-virtual)
    endif()
    enable_language(CUDA)
    find_package(CUDAToolkit REQUIRED)
    find_path(NCCL_INCLUDE_DIR nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
    find_library(NCCL_LIBRARY nccl HINTS ${CUDAToolkit_LIBRARY_DIR})
    set(SKRULL_CUDA_FOUND TRUE)
    message(STATUS "CUDA ${CUDAToolkit_VERSION}, NCCL: ${NCCL_LIBRARY}")
  elseif(NOT SKRULL_ENABLE_CUDA STREQUAL "AUTO")
    message(FATAL_ERROR "SKRULL_ENABLE_CUDA is ON but nvcc was not found; "
                        "put it on PATH or set CMAKE_CUDA_COMPILER")
  else()
    message(STATUS "CUDA: nvcc not found, building without")
  endif()
endif()
