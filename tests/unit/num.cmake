# SPDX-License-Identifier: Apache-2.0
im_test(test_real SOURCES test_real.c LINK m)
im_script_test(test_no_libm SCRIPT test_no_libm.py LABELS host
  ARGS "$<TARGET_OBJECTS:num>" "$<TARGET_OBJECTS:ops>" "$<TARGET_OBJECTS:backend_cpu>"
       "$<TARGET_OBJECTS:engine>")

# The plain C functions against a second implementation of docs/numerics.md.
add_executable(contract_probe contract_probe.c)
target_link_libraries(contract_probe PRIVATE ironmule_internal)
list(JOIN CMAKE_CROSSCOMPILING_EMULATOR " " contract_emulator)
string(STRIP "${contract_emulator} $<TARGET_FILE:contract_probe>" contract_command)
separate_arguments(contract_command UNIX_COMMAND "${contract_command}")
im_script_test(test_contract SCRIPT test_contract.py ARGS ${contract_command})
