/* SPDX-License-Identifier: Apache-2.0
 * An input is a file of the prefix cache, read as the page of a fixed text. What is accepted is to the byte what the engine would have written with that page. */
#include "engine/page_file.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { BYTES = 64, SIZE = IM__PAGE_FILE_HEADER + IM__PAGE * 4 + BYTES };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int32_t ids[IM__PAGE];
    unsigned char again[SIZE];
    im__page_key key = {.fingerprint = "a fingerprint", .ids = ids, .pages = 1, .bytes = BYTES};
    for (int i = 0; i < IM__PAGE; i++) ids[i] = i * i;
    im__page_names(ids, 0, 1, &key.name);
    const void *page = im__page_file_check(&key, data, size);
    if (page == NULL) return 0;
    if (size != SIZE || page != data + SIZE - BYTES) abort();
    memcpy(again + SIZE - BYTES, page, BYTES);
    im__page_file_seal(&key, again);
    if (memcmp(again, data, SIZE) != 0) abort();
    return 0;
}
