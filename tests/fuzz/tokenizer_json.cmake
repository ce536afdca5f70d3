# SPDX-License-Identifier: Apache-2.0
# Seeds are small tokenizers with texts: each construct that is known, and broken ones.
im_fuzz(fuzz_tokenizer_json SOURCES ${CMAKE_CURRENT_SOURCE_DIR}/fuzz_tokenizer_json.c MAX_LEN 8192
  DICT ${CMAKE_CURRENT_SOURCE_DIR}/tokenizer_json.dict)
