# The installed package: find_package(cairn CONFIG) gives cairn::cairn, and with COMPONENTS metrics also cairn::metrics.
include(CMakePackageConfigHelpers)

set(cairn_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/cairn)
install(TARGETS cairn EXPORT cairn-targets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY include/cairn DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} PATTERN metrics.h EXCLUDE)
install(EXPORT cairn-targets NAMESPACE cairn:: DESTINATION ${cairn_package_dir})
configure_package_config_file(cmake/cairn-config.cmake.in ${CMAKE_CURRENT_BINARY_DIR}/cairn-config.cmake
  INSTALL_DESTINATION ${cairn_package_dir})
write_basic_package_version_file(${CMAKE_CURRENT_BINARY_DIR}/cairn-config-version.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/cairn-config.cmake ${CMAKE_CURRENT_BINARY_DIR}/cairn-config-version.cmake
  cmake/FindLiburing.cmake
  DESTINATION ${cairn_package_dir})
if(CAIRN_BUILD_METRICS)
  # Targets of their own: who does not ask for them needs none of what they need.
  install(TARGETS cairn_metrics EXPORT cairn-metrics-targets
    ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT metrics)
  install(FILES include/cairn/metrics.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/cairn COMPONENT metrics)
  install(EXPORT cairn-metrics-targets NAMESPACE cairn:: DESTINATION ${cairn_package_dir} COMPONENT metrics)
endif()
if(CAIRN_BUILD_TOOLS)
  install(TARGETS cairn_tool RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
