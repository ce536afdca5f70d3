# SPDX-License-Identifier: Apache-2.0
im_test(test_template SOURCES test_template.c template_cases.c LINK PkgConfig::jansson LABELS tsan)
add_executable(template_driver template_driver.c template_cases.c)
target_link_libraries(template_driver PRIVATE ironmule_internal PkgConfig::jansson)
