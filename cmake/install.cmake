# SPDX-License-Identifier: Apache-2.0
include(CMakePackageConfigHelpers)

install(TARGETS ironmule_shared ironmule_internal EXPORT ironmule
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/ironmule DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")

configure_file(${PROJECT_SOURCE_DIR}/cmake/ironmule.pc.in ${PROJECT_BINARY_DIR}/ironmule.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/ironmule.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/ironmule)
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/ironmuleConfig.cmake.in ${PROJECT_BINARY_DIR}/ironmuleConfig.cmake
  INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/ironmuleConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/ironmuleConfig.cmake ${PROJECT_BINARY_DIR}/ironmuleConfigVersion.cmake
  DESTINATION ${package_dir})
install(EXPORT ironmule NAMESPACE ironmule:: FILE ironmuleTargets.cmake DESTINATION ${package_dir})
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE ${PROJECT_SOURCE_DIR}/README.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
