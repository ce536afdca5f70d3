# SPDX-License-Identifier: Apache-2.0
# `cpack -G DEB` in the build folder makes a package for Debian and Ubuntu of the program, the library and what goes with them.
set(CPACK_PACKAGE_NAME ironmule)
set(CPACK_PACKAGE_VENDOR IronMule)
set(CPACK_PACKAGE_CONTACT "The IronMule authors")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "runs language models on your own machine")
set(CPACK_PACKAGE_DESCRIPTION "Answers of a model file are the same bits on any kernel, with any number of threads, alone or in a batch.
Program, OpenAI-compatible server, C library.")
set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE)
set(CPACK_STRIP_FILES ON)
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS ca-certificates)
include(CPack)
