# SPDX-License-Identifier: Apache-2.0
im_fuzz(fuzz_safetensors SOURCES ${CMAKE_CURRENT_SOURCE_DIR}/fuzz_safetensors.c MAX_LEN 8192 DICT ${CMAKE_CURRENT_SOURCE_DIR}/safetensors.dict)
