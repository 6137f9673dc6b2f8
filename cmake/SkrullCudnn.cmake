# cuDNN and the headers of cudnn-frontend are found, never required. Sets
# SKRULL_CUDNN_FOUND and makes skrull_cudnn.
#
# The headers are those of SKRULL_CUDNN_FRONTEND_DIR if that is set, else of the
# Python package nvidia-cudnn-frontend if that is new enough, else of what
# `./dev build` fetched.
set(SKRULL_CUDNN_FRONTEND_DIR "" CACHE PATH
    "Folder of cudnn_frontend.h; empty: that of the Python package")
set(SKRULL_CUDNN_FOUND FALSE)

find_path(CUDNN_INCLUDE_DIR cudnn.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
find_library(CUDNN_LIBRARY cudnn HINTS ${CUDAToolkit_LIBRARY_DIR})
if(NOT CUDNN_INCLUDE_DIR OR NOT CUDNN_LIBRARY)
  message(STATUS "cuDNN: not found, building without its attention backend")
  return()
endif()

# The numbers that a header defines under the names, joined to "9.19.0"; 0 if
# one is missing.
function(skrull_read_version out file)
  set(text "")
  if(EXISTS ${file})
    file(READ ${file} text)
  endif()
  set(version "")
  foreach(name IN LISTS ARGN)
    if(NOT text MATCHES "#define ${name} ([0-9]+)")
      set(version 0)
      break()
    endif()
    list(APPEND version ${CMAKE_MATCH_1})
  endforeach()
  list(JOIN version . version)
  set(${out} ${version} PARENT_SCOPE)
endfunction()

skrull_read_version(cudnn_version ${CUDNN_INCLUDE_DIR}/cudnn_version.h
                    CUDNN_MAJOR CUDNN_MINOR CUDNN_PATCHLEVEL)
if(cudnn_version VERSION_LESS 9)
  message(STATUS "cuDNN: ${CUDNN_INCLUDE_DIR} has ${cudnn_version}, 9 is "
                 "needed; building without its attention backend")
  return()
endif()

set(frontend_dirs ${SKRULL_CUDNN_FRONTEND_DIR})
if(NOT SKRULL_CUDNN_FRONTEND_DIR)
  find_package(Python3 QUIET COMPONENTS Interpreter)
  if(Python3_Interpreter_FOUND)
    execute_process(
      COMMAND ${Python3_EXECUTABLE} -c "import importlib.metadata as m
print(m.distribution('nvidia-cudnn-frontend').locate_file('include'), end='')"
      OUTPUT_VARIABLE package_dir ERROR_QUIET)
  endif()
  set(frontend_dirs ${package_dir}
      ${PROJECT_SOURCE_DIR}/build/cudnn-frontend/include)
endif()
# The first that is new enough: an older package must not hide a newer folder.
set(frontend_dir "")
set(frontend_versions "")
foreach(dir IN LISTS frontend_dirs)
  if(NOT EXISTS ${dir}/cudnn_frontend.h)
    continue()
  endif()
  skrull_read_version(
    frontend_version ${dir}/cudnn_frontend_version.h
    CUDNN_FRONTEND_MAJOR_VERSION CUDNN_FRONTEND_MINOR_VERSION
    CUDNN_FRONTEND_PATCH_VERSION)
  if(frontend_version VERSION_GREATER_EQUAL 1.32)
    set(frontend_dir ${dir})
    break()
  endif()
  string(APPEND frontend_versions " ${dir} has ${frontend_version}.")
endforeach()
if(NOT frontend_dir)
  message(STATUS "cudnn-frontend: no cudnn_frontend.h of 1.32 or later in "
                 "'${frontend_dirs}';${frontend_versions} building without the "
                 "cudnn backend. Its headers are in the Python package "
                 "nvidia-cudnn-frontend")
  return()
endif()

set(SKRULL_CUDNN_FOUND TRUE)
message(STATUS "cuDNN: ${CUDNN_LIBRARY} ${cudnn_version}, "
               "cudnn-frontend ${frontend_version}")
add_library(skrull_cudnn INTERFACE)
target_include_directories(skrull_cudnn SYSTEM INTERFACE
  ${CUDNN_INCLUDE_DIR} ${frontend_dir})
# The headers refer to nvrtc for kernels that nothing here uses. Not CUDA::nvrtc:
# in CMake before 3.27 it brings the driver, without which programs then do not
# start. The static runtime: docs/decisions/static-cuda-runtime.md.
target_link_libraries(skrull_cudnn INTERFACE
  ${CUDNN_LIBRARY} CUDA::cudart_static ${CUDA_nvrtc_LIBRARY})
