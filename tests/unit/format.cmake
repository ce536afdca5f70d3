# SPDX-License-Identifier: Apache-2.0
im_test(test_file_map SOURCES test_file_map.c)
im_test(test_half SOURCES test_half.c)
im_test(test_group SOURCES test_group.c)
im_test(test_gguf SOURCES test_gguf.c)

add_executable(gguf_probe gguf_probe.c)
target_link_libraries(gguf_probe PRIVATE ironmule_internal)
list(JOIN CMAKE_CROSSCOMPILING_EMULATOR " " gguf_emulator)
string(STRIP "${gguf_emulator} $<TARGET_FILE:gguf_probe>" gguf_probe_command)
im_script_test(test_gguf_hostile SCRIPT test_gguf_hostile.py ARGS ${gguf_probe_command})
