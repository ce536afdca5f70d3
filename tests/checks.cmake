# SPDX-License-Identifier: Apache-2.0
# Checks of the tree and of the build as a whole. Once natively is enough for them.
function(im__check name)
  add_test(NAME ${name} COMMAND ${Python3_EXECUTABLE} -B ${ARGN})
  set_tests_properties(${name} PROPERTIES LABELS host SKIP_RETURN_CODE 77 TIMEOUT 120)
endfunction()

set(tools ${PROJECT_SOURCE_DIR}/tools)
im__check(check_layers ${tools}/check-layers)
im__check(check_layers_self_test ${tools}/check-layers --self-test)
im__check(check_style ${tools}/check-style)
im__check(check_symbols ${tools}/check-symbols $<TARGET_FILE:ironmule_shared>)
im__check(check_headers ${tools}/check-headers ${CMAKE_C_COMPILER})
im__check(check_flags ${tools}/check-flags ${PROJECT_BINARY_DIR})
im__check(check_shell ${tools}/check-shell)
im__check(check_flags_self_test ${tools}/check-flags --self-test)
