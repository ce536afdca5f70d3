/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading packed weights (backend/cpu/pack.h) with AVX-512: codes as bytes, 16 outputs x 4 elements to a register, and scales.
 */
#ifndef IRONMULE_BACKEND_CPU_X86_UNPACK_AVX512_H
#define IRONMULE_BACKEND_CPU_X86_UNPACK_AVX512_H

#include "backend/cpu/pack.h"

#include <immintrin.h>

#define INLINE static inline __attribute__((always_inline))

enum { RECORDS = IM__CHUNK / IM__RECORD, QUADS = IM__RECORD / 4 };

/* Packed bytes are asked for this far ahead: hardware prefetch alone stops at each page. */
enum { AHEAD = 4096 };

INLINE __m512i load(const uint8_t *p) { return _mm512_loadu_si512(p); }

INLINE void fetch_lines(const uint8_t *p, size_t bytes)
{
    for (size_t i = 0; i < bytes; i += IM__LINE) _mm_prefetch((const char *)p + i, _MM_HINT_T1);
}

/* Bits of `source`, moved by `left` (or right when negative), where `mask` has ones; the other bits of `low`. */
INLINE __m512i with_bits(__m512i low, __m512i source, int left, int mask)
{
    __m512i moved = left > 0   ? _mm512_slli_epi16(source, (unsigned)left)
                    : left < 0 ? _mm512_srli_epi16(source, (unsigned)-left)
                               : source;
    return _mm512_ternarylogic_epi64(low, moved, _mm512_set1_epi8((char)mask), 0xf8); /* low | (moved & mask) */
}

INLINE void unpack_nibbles(const uint8_t *p, __m512i *line)
{
    const __m512i mask = _mm512_set1_epi8(15);
    for (int j = 0; j < 4; j++) {
        __m512i v = load(p + j * IM__LINE);
        line[2 * j] = _mm512_and_si512(v, mask);
        line[2 * j + 1] = _mm512_and_si512(_mm512_srli_epi16(v, 4), mask);
    }
}

/* Two lines of pairs, each pair put at bit `bit` of its code (0 or 4). */
INLINE void add_pairs(const uint8_t *p, int bit, __m512i *line)
{
    for (int q = 0; q < 8; q++) line[q] = with_bits(line[q], load(p + q / 4 * IM__LINE), bit - q % 4 * 2, 3 << bit);
}

INLINE void add_bits(const uint8_t *p, int bit, __m512i *line)
{
    for (int q = 0; q < 8; q++) line[q] = with_bits(line[q], load(p), bit - q, 1 << bit);
}

INLINE void unpack_record(im__form f, const uint8_t *p, __m512i line[8])
{
    if (f.bits == 8) {
        for (int q = 0; q < 8; q++) line[q] = load(p + q * IM__LINE);
    } else if (f.bits < 4) {
        for (int q = 0; q < 8; q++) line[q] = _mm512_setzero_si512();
        add_pairs(p, 0, line);
        if (f.bits == 3) add_bits(p + 2 * IM__LINE, 2, line);
    } else {
        unpack_nibbles(p, line);
        if (f.bits == 5) add_bits(p + 4 * IM__LINE, 4, line);
        if (f.bits == 6) add_pairs(p + 4 * IM__LINE, 4, line);
    }
    if (f.table != IM__TABLE_NONE) {
        const __m512i table = _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)im__form_table(f.table)));
        for (int q = 0; q < 8; q++) line[q] = _mm512_shuffle_epi8(table, line[q]);
    }
}

INLINE __m512 load_half(const uint8_t *p) { return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p)); }
INLINE __m128i load_bytes(const uint8_t *p) { return _mm_loadu_si128((const __m128i *)p); }
INLINE __m512 float_of_unsigned(__m128i bytes) { return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(bytes)); }

/* 2^(e - 128); the two smallest are subnormal. */
INLINE __m512 power_of(const uint8_t *exponents)
{
    __m512i e = _mm512_cvtepu8_epi32(load_bytes(exponents)), one = _mm512_set1_epi32(1);
    __m512i normal = _mm512_slli_epi32(_mm512_sub_epi32(e, one), 23), small = _mm512_sllv_epi32(_mm512_set1_epi32(0x00200000), e);
    return _mm512_castsi512_ps(_mm512_mask_blend_epi32(_mm512_cmple_epu32_mask(e, one), normal, small));
}

INLINE __m512 load_bf16(const uint8_t *p)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p)), 16));
}

/* Scale and minimum of group g of a chunk with `groups` groups. The products are exact: 11 bits times at most 8. */
INLINE void unpack_scale(im__form f, const uint8_t *p, size_t groups, size_t g, __m512 *s, __m512 *m)
{
    const __m128i low = _mm_set1_epi8(15);
    *m = _mm512_setzero_ps();
    switch (f.scales) {
    case IM__SCALES_HALF: *s = load_half(p + 32 * g); break;
    case IM__SCALES_HALF_MIN:
        *s = load_half(p + 64 * g);
        *m = load_half(p + 64 * g + 32);
        break;
    case IM__SCALES_EXPONENT: *s = power_of(p + 16 * g); break;
    case IM__SCALES_SUPER:
        *s = _mm512_mul_ps(load_half(p), _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(load_bytes(p + 32 + 16 * g))));
        break;
    case IM__SCALES_SUPER_MIN:
        *s = _mm512_mul_ps(load_half(p), float_of_unsigned(load_bytes(p + 64 + 16 * g)));
        *m = _mm512_mul_ps(load_half(p + 32), float_of_unsigned(load_bytes(p + 64 + 16 * (groups + g))));
        break;
    case IM__SCALES_SUPER_NIBBLE: {
        __m128i both = load_bytes(p + 64 + 16 * g);
        *s = _mm512_mul_ps(load_half(p), float_of_unsigned(_mm_and_si128(both, low)));
        *m = _mm512_mul_ps(load_half(p + 32), float_of_unsigned(_mm_and_si128(_mm_srli_epi16(both, 4), low)));
        break;
    }
    case IM__SCALES_FLOAT_MIN:
        *s = _mm512_loadu_ps(p + 128 * g);
        *m = _mm512_loadu_ps(p + 128 * g + 64);
        break;
    case IM__SCALES_BF16_PAIRS:
        *s = load_bf16(p + g / 2 * 64);
        *m = load_bf16(p + g / 2 * 64 + 32);
        if (f.offset) *m = _mm512_fmadd_ps(_mm512_set1_ps(f.offset), *s, *m);
        break;
    }
}

/* A chunk of a panel, unpacked. */
typedef struct chunk {
    __m512i line[IM__CHUNK / 4];
    __m512 s[IM__CHUNK / 16], m[IM__CHUNK / 16];
} chunk;

/* weights: codes lose their offset, so the bytes are signed. */
INLINE void unpack_chunk(im__form f, bool weights, const uint8_t *packed, size_t records, chunk *c)
{
    const size_t groups = records * IM__RECORD / f.group;
    const uint8_t *record = packed + im__scale_bytes(f, groups);
    for (size_t g = 0; g < groups; g++) unpack_scale(f, packed, groups, g, &c->s[g], &c->m[g]);
    for (size_t i = 0; i < records; i++, record += f.bits * IM__LINE) {
        fetch_lines(record + AHEAD, f.bits * IM__LINE);
        __m512i *line = c->line + QUADS * i;
        unpack_record(f, record, line);
        for (int q = 0; weights && f.offset && q < QUADS; q++) line[q] = _mm512_sub_epi8(line[q], _mm512_set1_epi8((char)f.offset));
    }
}

#endif
