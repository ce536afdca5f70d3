# SPDX-License-Identifier: Apache-2.0
include(CMakePackageConfigHelpers)

install(TARGETS ironmule_shared ironmule_internal EXPORT ironmule
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/ironmule DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")

# An installed tree may be moved, or be made for another place than the one that was configured.
file(RELATIVE_PATH prefix_from_pc /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
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

# Manual pages and completion come from the program's own tables, so it must be able to run here.
if(TARGET ironmule AND NOT CMAKE_CROSSCOMPILING)
  set(pages ${PROJECT_BINARY_DIR}/pages)
  add_custom_command(OUTPUT ${pages}/ironmule.1 ${pages}/ironmule.bash ${pages}/_ironmule ${pages}/ironmule.fish
    COMMAND ${CMAKE_COMMAND} -E make_directory ${pages}
    COMMAND ironmule manual --folder ${pages}
    COMMAND ironmule completion bash > ${pages}/ironmule.bash
    COMMAND ironmule completion zsh > ${pages}/_ironmule
    COMMAND ironmule completion fish > ${pages}/ironmule.fish
    DEPENDS ironmule COMMENT "Manual pages and completion" VERBATIM)
  add_custom_target(pages ALL DEPENDS ${pages}/ironmule.1 ${pages}/ironmule.bash ${pages}/_ironmule ${pages}/ironmule.fish)
  install(DIRECTORY ${pages}/ DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 FILES_MATCHING PATTERN "*.1")
  install(FILES ${pages}/ironmule.bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME ironmule)
  foreach(folder site-functions vendor-completions) # the second is where Debian's zsh looks below /usr
    install(FILES ${pages}/_ironmule DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/${folder})
  endforeach()
  install(FILES ${pages}/ironmule.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
endif()

# The unit names the program where it is installed, which only the installation knows.
if(TARGET ironmule AND CMAKE_SYSTEM_NAME STREQUAL Linux)
  install(CODE "set(program \"\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_BINDIR}/ironmule\")
    configure_file(\"${PROJECT_SOURCE_DIR}/packaging/ironmule.service\" \"${PROJECT_BINARY_DIR}/ironmule.service\" @ONLY)")
  install(FILES ${PROJECT_BINARY_DIR}/ironmule.service DESTINATION lib/systemd/system)
endif()
