# SPDX-License-Identifier: Apache-2.0
# The seeds are templates of tests/data/templates; files named after a digest were found by the fuzzer.
im_fuzz(fuzz_template SOURCES ${CMAKE_CURRENT_SOURCE_DIR}/fuzz_template.c MAX_LEN 4096
  DICT ${CMAKE_CURRENT_SOURCE_DIR}/template.dict)
