# SPDX-License-Identifier: Apache-2.0
# Seeds are small vocabularies with texts, made by hand; files named after a digest were found by the fuzzer.
im_fuzz(fuzz_tokenizer SOURCES ${CMAKE_CURRENT_SOURCE_DIR}/fuzz_tokenizer.c MAX_LEN 4096)
