# find_package(skrull CONFIG [COMPONENTS layout planner ...]): one
# export set; what a consumer must find besides depends on the components it
# asks for (skrull-config.cmake.in).
include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/skrull)

install(EXPORT skrull-targets NAMESPACE skrull:: DESTINATION ${package_dir})
configure_package_config_file(
  ${CMAKE_CURRENT_LIST_DIR}/skrull-config.cmake.in
  ${PROJECT_BINARY_DIR}/skrull-config.cmake
  INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(
  ${PROJECT_BINARY_DIR}/skrull-config-version.cmake
  COMPATIBILITY SameMinorVersion)  # below 1.0 a minor version may break
install(FILES ${PROJECT_BINARY_DIR}/skrull-config.cmake
              ${PROJECT_BINARY_DIR}/skrull-config-version.cmake
        DESTINATION ${package_dir})

# Public headers only: how a policy works inside is not API.
set(include_dir ${CMAKE_INSTALL_INCLUDEDIR}/skrull)
foreach(name IN ITEMS chunk_plan cost_model error job layout plan plan_checker
                      plan_digest planner rank_plan)
  install(FILES ${PROJECT_SOURCE_DIR}/server/planner/${name}.h
          DESTINATION ${include_dir}/planner)
endforeach()
install(FILES ${PROJECT_SOURCE_DIR}/server/convert.h
        DESTINATION ${include_dir}/server)
install(DIRECTORY ${PROJECT_BINARY_DIR}/gen/skrull/v1
        DESTINATION ${include_dir} FILES_MATCHING PATTERN "*.pb.h")
install(DIRECTORY ${PROJECT_SOURCE_DIR}/client/cpp/
        DESTINATION ${include_dir}/client
        FILES_MATCHING PATTERN "*.h" PATTERN internal EXCLUDE)
install(FILES ${PROJECT_SOURCE_DIR}/client/c_api/skrull_client.h
        DESTINATION ${include_dir}/c_api)
install(FILES ${PROJECT_SOURCE_DIR}/cuda/attention_table.h
        DESTINATION ${include_dir}/cuda)
install(FILES ${PROJECT_SOURCE_DIR}/cuda/c_api/skrull_exec.h
              ${PROJECT_SOURCE_DIR}/cuda/c_api/skrull_exec_chunks.h
        DESTINATION ${include_dir}/cuda/c_api)

install(FILES ${PROJECT_SOURCE_DIR}/LICENSE
        DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(FILES ${PROJECT_SOURCE_DIR}/deploy/debian/copyright
        DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT daemon)

# cmake --install BUILD --component device_check --prefix DIR: skrull-device-check
# and those of the shared objects that it opens that are built, in one flat folder
# that can be carried to another machine.
foreach(target IN ITEMS skrull-device-check skrull_device_cuda
                        skrull_backend_cuda skrull_backend_cudnn
                        skrull_comm_nccl skrull_gemm_cuda)
  if(TARGET ${target})
    install(TARGETS ${target} DESTINATION . COMPONENT device_check
            EXCLUDE_FROM_ALL OPTIONAL)
  endif()
endforeach()
