# SPDX-License-Identifier: Apache-2.0
im_test(test_file_map SOURCES test_file_map.c)
im_test(test_half SOURCES test_half.c)
im_test(test_group SOURCES test_group.c)
im_test(test_split SOURCES test_split.c)
im_test(test_gguf SOURCES test_gguf.c)
im_test(test_safetensors SOURCES test_safetensors.c)

# Programs that open one file after the other for a script.
list(JOIN CMAKE_CROSSCOMPILING_EMULATOR " " emulator)
function(hostile_test name probe)
  add_executable(${probe} ${probe}.c)
  target_link_libraries(${probe} PRIVATE ironmule_internal)
  string(STRIP "${emulator} $<TARGET_FILE:${probe}>" command)
  im_script_test(${name} SCRIPT ${name}.py ARGS ${command})
endfunction()
hostile_test(test_gguf_hostile gguf_probe)
hostile_test(test_model_hostile model_probe)
