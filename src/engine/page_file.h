/* SPDX-License-Identifier: Apache-2.0
 *
 * A KV page as a file of the prefix cache. Pure functions on bytes.
 *
 *     0  8 bytes   "IMKVPAGE"
 *     8  u32       version of this layout
 *    12  u32       pool
 *    16  16 bytes  fingerprint: whatever fixes the bits of a page (model, build, numerics)
 *    32  16 bytes  name of the page (prefix.h)
 *    48  u32       pages of the text up to this one, u32 0
 *    56  u64       bytes of the page
 *    64  16 bytes  XXH3-128 over everything else
 *    80            the ids of the whole text up to the end of the page, i32 each
 *                  the page
 *
 * Numbers are little-endian; the page itself is as the machine has it, which the fingerprint covers. A file is right when it is what this engine would have written for this
 * text, to the last byte; a file that is not is of no use, whatever it is.
 */
#ifndef IRONMULE_ENGINE_PAGE_FILE_H
#define IRONMULE_ENGINE_PAGE_FILE_H

#include "engine/prefix.h"

#define IM__PAGE_FILE_HEADER 80

typedef struct im__page_key {
    im__pool_kind pool;
    unsigned char fingerprint[16];
    im__page_name name;
    const int32_t *ids; /* [pages * IM__PAGE] the text up to the end of the page */
    uint32_t pages;
    size_t bytes; /* of the page */
} im__page_key;

size_t im__page_file_size(const im__page_key *key);
/* `file`: im__page_file_size bytes, whose last key->bytes hold the page already. Fills in the rest. */
void im__page_file_seal(const im__page_key *key, void *file);
/* The page inside a file of `size` bytes, or NULL when it is not the one of this key. */
const void *im__page_file_check(const im__page_key *key, const void *file, size_t size);

#endif
