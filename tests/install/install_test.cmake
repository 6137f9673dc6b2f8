# Installs BUILD_DIR to a prefix and, for each component of the package, builds
# and runs the CONSUMER program that uses it. Packages that a component must not
# need are hidden from CMake.
function(run)
  execute_process(COMMAND ${ARGV} RESULT_VARIABLE failed
                  OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(failed)
    list(JOIN ARGV " " command)
    message(FATAL_ERROR "failed: ${command}\n${output}")
  endif()
endfunction()

set(prefix ${WORK_DIR}/prefix)
file(REMOVE_RECURSE ${prefix} ${WORK_DIR}/consumers)
run(${CMAKE_COMMAND} --install ${BUILD_DIR} --prefix ${prefix})

set(hidden_from_layout absl Protobuf gRPC OpenSSL)
set(hidden_from_exec_c absl Protobuf gRPC OpenSSL)
set(hidden_from_client_c absl Protobuf gRPC OpenSSL)
set(hidden_from_planner Protobuf gRPC OpenSSL)
set(hidden_from_client_local gRPC)
set(hidden_from_client)
set(hidden_from_client_fallback)
foreach(component IN ITEMS layout exec_c client_c planner client_local client
                           client_fallback)
  set(build ${WORK_DIR}/consumers/${component})
  set(hidden)
  foreach(package IN LISTS hidden_from_${component})
    list(APPEND hidden -DCMAKE_DISABLE_FIND_PACKAGE_${package}=ON)
  endforeach()
  run(${CMAKE_COMMAND} -S ${CONSUMER} -B ${build} -G ${GENERATOR}
      -DCMAKE_CXX_COMPILER=${CXX} -DCMAKE_CXX_COMPILER_LAUNCHER=${CXX_LAUNCHER}
      -DCMAKE_BUILD_TYPE=Debug -DCMAKE_PREFIX_PATH=${prefix}
      -DCOMPONENT=${component} ${hidden})
  run(${CMAKE_COMMAND} --build ${build})
  run(${build}/use_${component})
  message(STATUS "${component}: ok")
endforeach()

# A component that does not exist is an error that names it.
execute_process(
  COMMAND ${CMAKE_COMMAND} -S ${CONSUMER} -B ${WORK_DIR}/consumers/unknown
          -G ${GENERATOR} -DCMAKE_CXX_COMPILER=${CXX}
          -DCMAKE_PREFIX_PATH=${prefix} -DCOMPONENT=warp_drive
  RESULT_VARIABLE failed OUTPUT_QUIET ERROR_VARIABLE output)
if(NOT failed OR NOT output MATCHES "no component warp_drive")
  message(FATAL_ERROR "an unknown component was accepted:\n${output}")
endif()
