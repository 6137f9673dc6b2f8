# cuDNN and the headers of cudnn-frontend are found, never required. Sets
# SKRULL_CUDNN_FOUND and makes skrull_cudnn.
#
# The headers are those of SKRULL_CUDNN_FRONTEND_DIR if that is set, else of the
# Python package nvidia-cudnn-frontend, else of what `./dev build` fetched.
set(SKRULL_CUDNN_FRONTEND_DIR "" CACHE PATH
    "Folder of cudnn_frontend.h; empty: that of the Python package")
set(SKRULL_CUDNN_FOUND FALSE)

find_path(CUDNN_INCLUDE_DIR cudnn.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
find_library(CUDNN_LIBRARY cudnn HINTS ${CUDAToolkit_LIBRARY_DIR})
if(NOT CUDNN_INCLUDE_DIR OR NOT CUDNN_LIBRARY)
  message(STATUS "cuDNN: not found, building without its attention backend")
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
find_path(frontend_dir cudnn_frontend.h PATHS ${frontend_dirs} NO_DEFAULT_PATH
          NO_CACHE)
if(NOT frontend_dir)
  message(STATUS "cudnn-frontend: no cudnn_frontend.h in '${frontend_dirs}'; "
                 "building without the cudnn backend. Its headers are in the "
                 "Python package nvidia-cudnn-frontend")
  return()
endif()
file(READ ${frontend_dir}/cudnn_frontend_version.h frontend_version)
foreach(part IN ITEMS MAJOR MINOR PATCH)
  string(REGEX MATCH "CUDNN_FRONTEND_${part}_VERSION ([0-9]+)" _
         "${frontend_version}")
  list(APPEND frontend_parts ${CMAKE_MATCH_1})
endforeach()
list(JOIN frontend_parts . frontend_version)
if(frontend_version VERSION_LESS 1.32)
  message(STATUS "cudnn-frontend: ${frontend_dir} has ${frontend_version}, "
                 "1.32 is needed; building without the cudnn backend")
  return()
endif()

set(SKRULL_CUDNN_FOUND TRUE)
message(STATUS "cuDNN: ${CUDNN_LIBRARY}, cudnn-frontend ${frontend_version}")
add_library(skrull_cudnn INTERFACE)
target_include_directories(skrull_cudnn SYSTEM INTERFACE
  ${CUDNN_INCLUDE_DIR} ${frontend_dir})
# The headers refer to nvrtc for kernels that nothing here uses. Not CUDA::nvrtc:
# in CMake before 3.27 it brings the driver, without which programs then do not
# start.
target_link_libraries(skrull_cudnn INTERFACE
  ${CUDNN_LIBRARY} CUDA::cudart ${CUDA_nvrtc_LIBRARY})
