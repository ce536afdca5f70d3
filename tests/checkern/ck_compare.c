/* SPDX-License-Identifier: Apache-2.0 */
#include "ck_memory.h"

#include <stdio.h>
#include <string.h>

#define LANES 16 /* in which lane a difference lies is reported for the widest vector */

static size_t element_bytes(ck_kind kind)
{
    switch (kind) {
    case CK_F32:
    case CK_I32: return 4;
    case CK_F16:
    case CK_I16: return 2;
    case CK_I8: break;
    }
    return 1;
}

static uint32_t element(ck_kind kind, const unsigned char *data, size_t i)
{
    uint32_t word = 0;
    uint16_t half = 0;
    switch (kind) {
    case CK_F32:
    case CK_I32: memcpy(&word, data + 4 * i, 4); return word;
    case CK_F16:
    case CK_I16: memcpy(&half, data + 2 * i, 2); return half;
    case CK_I8: break;
    }
    return data[i];
}

static bool is_nan(uint32_t bits) { return (bits & 0x7fffffff) > 0x7f800000; }

static bool same(ck_kind kind, uint32_t got, uint32_t want)
{
    if (got == want) return true;
    return kind == CK_F32 && is_nan(got) && is_nan(want) && got != CK_POISON && want != CK_POISON;
}

static int64_t place(ck_kind kind, uint32_t bits) /* on a line on which neighbours differ by one */
{
    switch (kind) {
    case CK_F32: return bits & 0x80000000 ? -(int64_t)(bits & 0x7fffffff) : (int64_t)bits;
    case CK_F16: return bits & 0x8000 ? -(int64_t)(bits & 0x7fff) : (int64_t)bits;
    case CK_I8: return (int8_t)bits;
    case CK_I16: return (int16_t)bits;
    case CK_I32: break;
    }
    return (int32_t)bits;
}

static void describe(const ck_block *b, size_t i, uint32_t got, uint32_t want, size_t different, char *text, size_t size)
{
    int digits = (int)(2 * element_bytes(b->kind));
    int64_t distance = place(b->kind, got) - place(b->kind, want);
    char note[64];
    snprintf(note, sizeof note, "%lld in the last place", (long long)distance);
    if (b->kind == CK_F32 && got == CK_POISON) snprintf(note, sizeof note, "never written");
    if (b->kind == CK_F32 && want == CK_POISON) snprintf(note, sizeof note, "must not be written");
    snprintf(text, size, "%s[%zu][%zu] is 0x%0*x, wanted 0x%0*x (%s), lane %zu, first of %zu differences", b->name, i / b->row,
             i % b->row, digits, (unsigned)got, digits, (unsigned)want, note, i % b->row % LANES, different);
}

bool ck_block_equal(const ck_block *b, char *text, size_t size)
{
    size_t count = b->bytes / element_bytes(b->kind), first = 0, different = 0;
    if (memcmp(b->data, b->want, b->bytes) == 0) return true;
    for (size_t i = 0; i < count; i++) {
        if (same(b->kind, element(b->kind, b->data, i), element(b->kind, b->want, i))) continue;
        if (different++ == 0) first = i;
    }
    if (different == 0) return true;
    describe(b, first, element(b->kind, b->data, first), element(b->kind, b->want, first), different, text, size);
    return false;
}

uint64_t ck_block_digest(const ck_block *b, uint64_t digest) /* FNV-1a over 32-bit words */
{
    size_t count = b->bytes / element_bytes(b->kind);
    for (size_t i = 0; i < count; i++) {
        uint32_t word = element(b->kind, b->want, i);
        if (b->kind == CK_F32 && is_nan(word) && word != CK_POISON) word = 0x7fc00000;
        digest = (digest ^ word) * 0x100000001b3u;
    }
    return digest;
}
