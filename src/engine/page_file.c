/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/page_file.h"

#include "base/bytes.h"

#include <string.h>
#include <xxhash.h>

enum { VERSION = 1, CHECKSUM = 64 };

static const unsigned char magic[8] = {'I', 'M', 'K', 'V', 'P', 'A', 'G', 'E'};

static void store_u32(unsigned char *p, uint32_t v)
{
    for (int i = 0; i < 4; i++) p[i] = (unsigned char)(v >> 8 * i);
}

static void store_u64(unsigned char *p, uint64_t v)
{
    store_u32(p, (uint32_t)v);
    store_u32(p + 4, (uint32_t)(v >> 32));
}

static size_t id_bytes(const im__page_key *key) { return (size_t)key->pages * IM__PAGE * sizeof(int32_t); }

size_t im__page_file_size(const im__page_key *key) { return IM__PAGE_FILE_HEADER + id_bytes(key) + key->bytes; }

/* Everything in front of the ids but the checksum. */
static void header(const im__page_key *key, unsigned char out[IM__PAGE_FILE_HEADER])
{
    memset(out, 0, IM__PAGE_FILE_HEADER);
    memcpy(out, magic, sizeof magic);
    store_u32(out + 8, VERSION);
    store_u32(out + 12, (uint32_t)key->pool);
    memcpy(out + 16, key->fingerprint, 16);
    store_u64(out + 32, key->name.low);
    store_u64(out + 40, key->name.high);
    store_u32(out + 48, key->pages);
    store_u64(out + 56, key->bytes);
}

static void store_ids(const im__page_key *key, unsigned char *out)
{
    for (size_t i = 0; i < (size_t)key->pages * IM__PAGE; i++) store_u32(out + 4 * i, (uint32_t)key->ids[i]);
}

static bool same_ids(const im__page_key *key, const unsigned char *in)
{
    for (size_t i = 0; i < (size_t)key->pages * IM__PAGE; i++)
        if (im__load_u32(in + 4 * i) != (uint32_t)key->ids[i]) return false;
    return true;
}

/* The header goes in with the checksum at 0, so the sum of a file is that of its body seeded with that of its header. */
static void checksum(const unsigned char head[IM__PAGE_FILE_HEADER], const void *body, size_t n, unsigned char out[16])
{
    XXH128_canonical_t sum;
    XXH128_canonicalFromHash(&sum, XXH3_128bits_withSeed(body, n, XXH3_64bits(head, IM__PAGE_FILE_HEADER)));
    memcpy(out, sum.digest, 16);
}

void im__page_file_seal(const im__page_key *key, void *file)
{
    unsigned char *f = file;
    header(key, f);
    store_ids(key, f + IM__PAGE_FILE_HEADER);
    checksum(f, f + IM__PAGE_FILE_HEADER, id_bytes(key) + key->bytes, f + CHECKSUM);
}

const void *im__page_file_check(const im__page_key *key, const void *file, size_t size)
{
    const unsigned char *f = file;
    unsigned char want[IM__PAGE_FILE_HEADER];
    if (size != im__page_file_size(key)) return NULL;
    header(key, want);
    checksum(want, f + IM__PAGE_FILE_HEADER, size - IM__PAGE_FILE_HEADER, want + CHECKSUM);
    if (memcmp(f, want, IM__PAGE_FILE_HEADER) != 0 || !same_ids(key, f + IM__PAGE_FILE_HEADER)) return NULL;
    return f + size - key->bytes;
}
