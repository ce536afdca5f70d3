# SPDX-License-Identifier: Apache-2.0
# The seeds are a whole file, one with another version and one with another page.
im_fuzz(fuzz_page_file SOURCES ${CMAKE_CURRENT_SOURCE_DIR}/fuzz_page_file.c MAX_LEN 1024)
