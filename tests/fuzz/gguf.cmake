# SPDX-License-Identifier: Apache-2.0
# The corpus comes from tools/make-gguf-seeds; files named after a digest were found by the fuzzer.
im_fuzz(fuzz_gguf SOURCES ${CMAKE_CURRENT_SOURCE_DIR}/fuzz_gguf.c MAX_LEN 8192)
