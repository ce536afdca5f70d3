/* SPDX-License-Identifier: Apache-2.0 */
#include "num/group.h"

#include "base/bytes.h"
#include "num/half.h"
#include "num/real.h"

#include <assert.h>
#include <string.h>

static float half_at(const uint8_t *p) { return im__f32_of_f16(im__load_u16(p)); }

/* Words of 8 codes: byte i of the word is element i. */
#define EACH(byte) ((byte)*UINT64_C(0x0101010101010101))

/* (byte >> shift) & mask for 8 bytes; shift + width of the mask is at most 8. */
static uint64_t fields(const uint8_t *p, size_t shift, unsigned mask) { return (im__load_u64(p) >> shift) & EACH(mask); }

/* Bit i of `bits`, moved to bit 0 of byte i. */
static uint64_t spread_bits(uint8_t bits)
{
    uint64_t each = EACH(bits) & UINT64_C(0x8040201008040201);
    return ((each + EACH(0x7f)) >> 7) & EACH(1);
}

/* ---- codes: c[i] holds those of elements 8i to 8i + 7 of a group ---- */

/* Sixteen bytes of two 4-bit codes each: the low ones are elements 0 to 15, the high ones 16 to 31. */
static void nibbles(const uint8_t *qs, uint64_t c[4])
{
    for (size_t i = 0; i < 4; i++) c[i] = fields(qs + i % 2 * 8, i / 2 * 4, 15);
}

/* Nibbles as above; the fifth bit of element i is bit i of four bytes. */
static void nibbles_and_bits(const uint8_t *qs, const uint8_t *high, uint64_t c[4])
{
    for (size_t i = 0; i < 4; i++) c[i] = fields(qs + i % 2 * 8, i / 2 * 4, 15) | spread_bits(high[i]) << 4;
}

static void signed_bytes(const uint8_t *qs, uint64_t c[4])
{
    for (size_t i = 0; i < 4; i++) c[i] = im__load_u64(qs + 8 * i) ^ EACH(0x80);
}

/* In super blocks of 256, k is the group. 2-bit codes: 64 bytes are two halves of 32 bytes; in a half the four bit pairs give four runs of
 * 32 elements. */
static uint64_t two_bits(const uint8_t *qs, size_t k, size_t i)
{
    return fields(qs + k / 8 * 32 + k % 2 * 16 + 8 * i, k % 8 / 2 * 2, 3);
}

static void q3_k_codes(const uint8_t *b, size_t k, uint64_t c[2])
{
    for (size_t i = 0; i < 2; i++) c[i] = two_bits(b + 32, k, i) | fields(b + k % 2 * 16 + 8 * i, k / 2, 1) << 2;
}

/* Of Q4_K and Q5_K the low four bits, of which 32 bytes hold two groups. */
static uint64_t four_bits(const uint8_t *qs, size_t k, size_t i) { return fields(qs + k / 2 * 32 + 8 * i, k % 2 * 4, 15); }

static void q5_k_codes(const uint8_t *b, size_t k, uint64_t c[4])
{
    for (size_t i = 0; i < 4; i++) c[i] = four_bits(b + 48, k, i) | fields(b + 16 + 8 * i, k, 1) << 4;
}

/* Halves of 128 elements: 64 bytes of low nibbles (elements 0 to 63 low, 64 to 127 high) and 32 bytes of four bit pairs. */
static void q6_k_codes(const uint8_t *b, size_t k, uint64_t c[2])
{
    const uint8_t *low = b + k / 8 * 64 + k % 4 * 16, *high = b + 128 + k / 8 * 32 + k % 2 * 16;
    for (size_t i = 0; i < 2; i++) c[i] = fields(low + 8 * i, k % 8 / 4 * 4, 15) | fields(high + 8 * i, k % 8 / 2 * 2, 3) << 4;
}

/* Little-endian numbers of at most 7 bytes. */
static uint64_t load_bytes(const uint8_t *p, size_t n)
{
    uint64_t v = 0;
    for (size_t i = 0; i < n; i++) v |= (uint64_t)p[i] << 8 * i;
    return v;
}

static size_t affine_head(uint32_t dtype) { return im__affine_is_wide(dtype) ? 8 : 4; }

/* Eight codes are as many bytes as a code has bits. */
static void affine_codes(uint32_t dtype, const uint8_t *b, size_t k, uint64_t c[4])
{
    const unsigned bits = im__affine_bits(dtype);
    const uint8_t *p = b + affine_head(dtype) + k * 4 * bits;
    for (size_t i = 0; i < 4; i++, p += bits) {
        uint64_t packed = bits == 8 ? im__load_u64(p) : load_bytes(p, bits);
        c[i] = bits == 8 ? packed : 0;
        for (unsigned j = 0; bits < 8 && j < 8; j++) c[i] |= (packed >> j * bits & ((1u << bits) - 1)) << 8 * j;
    }
}

/* Group k of block b. */
static inline void group_codes(uint32_t dtype, const uint8_t *b, size_t k, uint64_t *c)
{
    switch (dtype) {
    case IM__Q4_0:
    case IM__IQ4_NL: nibbles(b + 2, c); break;
    case IM__Q4_1: nibbles(b + 4, c); break;
    case IM__Q5_0: nibbles_and_bits(b + 6, b + 2, c); break;
    case IM__Q5_1: nibbles_and_bits(b + 8, b + 4, c); break;
    case IM__Q8_0: signed_bytes(b + 2, c); break;
    case IM__MXFP4: nibbles(b + 1, c); break;
    case IM__IQ4_XS: nibbles(b + 8 + 16 * k, c); break;
    case IM__Q2_K:
        for (size_t i = 0; i < 2; i++) c[i] = two_bits(b + 16, k, i);
        break;
    case IM__Q3_K: q3_k_codes(b, k, c); break;
    case IM__Q4_K:
        for (size_t i = 0; i < 4; i++) c[i] = four_bits(b + 16, k, i);
        break;
    case IM__Q5_K: q5_k_codes(b, k, c); break;
    case IM__Q6_K: q6_k_codes(b, k, c); break;
    default: assert(im__affine_bits(dtype) != 0); affine_codes(dtype, b, k, c);
    }
}

/* ---- codes of many rows: w[i][row] is the i-th word of 4 of their codes or bytes ---- */

typedef uint32_t words[IM__ROWS_READ];

static void load_words(const im__rows *r, size_t at, size_t n, words *w)
{
    for (size_t row = 0; row < r->count; row++)
        for (size_t i = 0; i < n; i++) w[i][row] = im__load_u32(r->block[row] + at + 4 * i);
    for (size_t row = r->count; row < IM__ROWS_READ; row++)
        for (size_t i = 0; i < n; i++) w[i][row] = 0;
}

/* to |= ((w >> right) & mask) << left, the mask in every byte. */
static void add_fields(words *to, const words *w, size_t n, unsigned right, unsigned mask, unsigned left)
{
    const uint32_t each = mask * 0x01010101u;
    for (size_t i = 0; i < n; i++)
        for (size_t row = 0; row < IM__ROWS_READ; row++) to[i][row] |= ((w[i][row] >> right) & each) << left;
}

static void add_loaded(const im__rows *r, size_t at, unsigned right, unsigned mask, unsigned left, words *to)
{
    words w[8];
    load_words(r, at, 8, w);
    add_fields(to, w, 8, right, mask, left);
}

/* Sixteen bytes of two 4-bit codes each, as in nibbles(). */
static void add_nibbles(const im__rows *r, size_t at, words *to)
{
    words w[4];
    load_words(r, at, 4, w);
    add_fields(to, w, 4, 0, 15, 0);
    add_fields(to + 4, w, 4, 4, 15, 0);
}

/* Bit i of four bytes is the fifth bit of element i. */
static void add_fifth_bits(const im__rows *r, size_t at, words *to)
{
    words bits[1];
    load_words(r, at, 1, bits);
    for (size_t i = 0; i < 8; i++)
        for (size_t row = 0; row < IM__ROWS_READ; row++) {
            uint32_t four = bits[0][row] >> (4 * i) & 15;
            to[i][row] |= ((four | four << 7 | four << 14 | four << 21) & 0x01010101u) << 4;
        }
}

static void flip_signs(words *to)
{
    for (size_t i = 0; i < 8; i++)
        for (size_t row = 0; row < IM__ROWS_READ; row++) to[i][row] ^= 0x80808080u;
}

/* Record k of super blocks of 256. */
static void read_super_codes(uint32_t dtype, const im__rows *r, size_t k, words *to)
{
    const unsigned pair = (unsigned)(k % 4 * 2), nibble = (unsigned)(k % 2 * 4), bit = (unsigned)k;
    switch (dtype) {
    case IM__Q2_K: add_loaded(r, 16 + k / 4 * 32, pair, 3, 0, to); break;
    case IM__Q3_K:
        add_loaded(r, 32 + k / 4 * 32, pair, 3, 0, to);
        add_loaded(r, 0, bit, 1, 2, to);
        break;
    case IM__Q4_K: add_loaded(r, 16 + k / 2 * 32, nibble, 15, 0, to); break;
    case IM__Q5_K:
        add_loaded(r, 48 + k / 2 * 32, nibble, 15, 0, to);
        add_loaded(r, 16, bit, 1, 4, to);
        break;
    case IM__Q6_K:
        add_loaded(r, k / 4 * 64 + k % 2 * 32, (unsigned)(k % 4 / 2 * 4), 15, 0, to);
        add_loaded(r, 128 + k / 4 * 32, pair, 3, 4, to);
        break;
    default: add_nibbles(r, 8 + 16 * k, to); break; /* IQ4_XS */
    }
}

/* Record k of each block. */
static void read_affine_codes(uint32_t dtype, const im__rows *r, size_t k, words *to)
{
    for (size_t row = 0; row < r->count; row++) {
        uint64_t c[4];
        affine_codes(dtype, r->block[row], k, c);
        for (size_t i = 0; i < 8; i++) to[i][row] = (uint32_t)(c[i / 2] >> i % 2 * 32);
    }
}

static void read_codes(uint32_t dtype, const im__rows *r, words *to)
{
    switch (dtype) {
    case IM__Q4_0:
    case IM__IQ4_NL: add_nibbles(r, 2, to); break;
    case IM__Q4_1: add_nibbles(r, 4, to); break;
    case IM__Q5_0:
        add_nibbles(r, 6, to);
        add_fifth_bits(r, 2, to);
        break;
    case IM__Q5_1:
        add_nibbles(r, 8, to);
        add_fifth_bits(r, 4, to);
        break;
    case IM__Q8_0:
        load_words(r, 2, 8, to);
        flip_signs(to);
        break;
    default: add_nibbles(r, 1, to); break; /* MXFP4 */
    }
}

void im__codes_read(uint32_t dtype, const im__rows *rows, size_t index, uint32_t codes[8][IM__ROWS_READ])
{
    memset(codes, 0, 8 * sizeof *codes);
    if (im__affine_bits(dtype) != 0)
        read_affine_codes(dtype, rows, index, codes);
    else if (im__dtype_get(dtype)->block_len == 32)
        read_codes(dtype, rows, codes);
    else
        read_super_codes(dtype, rows, index, codes);
}

/* ---- weights ---- */

/* w = code - offset, for types without a table. */
static unsigned offset_of(uint32_t dtype)
{
    switch (dtype) {
    case IM__Q4_0: return 8;
    case IM__Q5_0: return 16;
    case IM__AFFINE8:
    case IM__AFFINE8_F:
    case IM__Q8_0: return 128;
    case IM__Q3_K: return 4;
    case IM__Q6_K: return 32;
    default: return 0;
    }
}

/* FP4 (E2M1) values are halves of small integers, so the integers are stored doubled and the scale is 2^(e - 127 - 1). */
static const int8_t *table_of(uint32_t dtype)
{
    static const int8_t iq4[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
    static const int8_t doubled[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
    return dtype == IM__MXFP4 ? doubled : dtype == IM__IQ4_NL || dtype == IM__IQ4_XS ? iq4 : NULL;
}

/* Eight at a time. Codes below 128 with an offset of at most 128: no byte borrows from the next. */
static void put_weights(int8_t w[8], uint64_t codes, unsigned offset)
{
    uint64_t weights = (offset == 128 ? codes : (codes | EACH(0x80)) - EACH(offset)) ^ EACH(0x80);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    weights = __builtin_bswap64(weights);
#endif
    memcpy(w, &weights, 8);
}

static void read_weights(uint32_t dtype, const uint8_t *b, size_t k, size_t count, int8_t w[32])
{
    uint64_t c[4] = {0};
    const int8_t *table = table_of(dtype);
    group_codes(dtype, b, k, c);
    for (size_t i = 0; i < count; i++) put_weights(w + 8 * i, c[i], offset_of(dtype));
    for (size_t i = 0; table != NULL && i < 8 * count; i++) w[i] = table[w[i]];
}

/* ---- scales ---- */

static float power_of(uint32_t e) { return im__f32_of_bits(e < 2 ? 0x00200000u << e : (e - 1) << 23); }

/* Sixteen 6-bit scales in 12 bytes: low four bits in the nibbles of bytes 0 to 7, high two in the bit pairs of bytes 8 to 11. */
static int q3_scale(const uint8_t *s, size_t k)
{
    int low = (s[k % 8] >> (k / 8 * 4)) & 15, high = (s[8 + k % 4] >> (k / 4 * 2)) & 3;
    return (low | high << 4) - 32;
}

/* Eight 6-bit scales and eight 6-bit minima in 12 bytes: those of groups 0 to 3 in the low six bits of bytes 0 to 3 and 4 to 7; of
 * groups 4 to 7 the low four bits in the nibbles of bytes 8 to 11, the high two on top of bytes 0 to 3 and 4 to 7. */
static void q4_scale_min(const uint8_t *s, size_t k, int *scale, int *min)
{
    if (k < 4) {
        *scale = s[k] & 63;
        *min = s[k + 4] & 63;
    } else {
        *scale = (s[k + 4] & 15) | s[k - 4] >> 6 << 4;
        *min = s[k + 4] >> 4 | s[k] >> 6 << 4;
    }
}

static int iq4_xs_scale(const uint8_t *b, size_t k)
{
    int low = (b[4 + k / 2] >> (k % 2 * 4)) & 15, high = (im__load_u16(b + 2) >> (2 * k)) & 3;
    return (low | high << 4) - 32;
}

static float affine_scale(uint32_t dtype, const uint8_t *b)
{
    return im__affine_is_wide(dtype) ? im__f32_of_bits(im__load_u32(b)) : im__f32_of_bf16(im__load_u16(b));
}

static float affine_bias(uint32_t dtype, const uint8_t *b)
{
    return im__affine_is_wide(dtype) ? im__f32_of_bits(im__load_u32(b + 4)) : im__f32_of_bf16(im__load_u16(b + 2));
}

/* The minimum that belongs to integers which have lost the offset. */
static float affine_min(uint32_t dtype, const uint8_t *b)
{
    float bias = affine_bias(dtype, b);
    return offset_of(dtype) == 0 ? bias : im__fma((float)offset_of(dtype), affine_scale(dtype, b), bias);
}

static void read_scale(uint32_t dtype, const uint8_t *b, size_t k, im__group *g)
{
    int scale, min;
    switch (dtype) {
    case IM__Q4_1:
    case IM__Q5_1: g->m = half_at(b + 2); /* fall through */
    case IM__Q4_0:
    case IM__Q5_0:
    case IM__Q8_0:
    case IM__IQ4_NL: g->s = half_at(b); break;
    case IM__MXFP4: g->s = power_of(b[0]); break;
    case IM__Q2_K:
        g->s = half_at(b + 80) * (float)(b[k] & 15);
        g->m = -(half_at(b + 82) * (float)(b[k] >> 4));
        break;
    case IM__Q3_K: g->s = half_at(b + 108) * (float)q3_scale(b + 96, k); break;
    case IM__Q4_K:
    case IM__Q5_K:
        q4_scale_min(b + 4, k, &scale, &min);
        g->s = half_at(b) * (float)scale;
        g->m = -(half_at(b + 2) * (float)min);
        break;
    case IM__Q6_K: g->s = half_at(b + 208) * (float)(int8_t)b[192 + k]; break;
    case IM__IQ4_XS: g->s = half_at(b) * (float)iq4_xs_scale(b, k); break;
    default: g->s = affine_scale(dtype, b); g->m = affine_min(dtype, b);
    }
}

void im__stored_scales(uint32_t dtype, const im__rows *rows, uint16_t s[IM__ROWS_READ], uint16_t m[IM__ROWS_READ])
{
    const bool has_min = im__dtype_has_min(dtype), is_byte = dtype == IM__MXFP4;
    for (size_t i = 0; i < rows->count; i++) {
        s[i] = is_byte ? rows->block[i][0] : im__load_u16(rows->block[i]);
        m[i] = has_min ? im__load_u16(rows->block[i] + 2) : 0;
    }
    for (size_t i = rows->count; i < IM__ROWS_READ; i++) s[i] = m[i] = 0;
}

void im__stored_floats(uint32_t dtype, const im__rows *rows, float s[IM__ROWS_READ], float m[IM__ROWS_READ])
{
    for (size_t i = 0; i < IM__ROWS_READ; i++) {
        s[i] = i < rows->count ? affine_scale(dtype, rows->block[i]) : 0;
        m[i] = i < rows->count ? affine_min(dtype, rows->block[i]) : 0;
    }
}

bool im__dtype_has_min(uint32_t dtype)
{
    if (im__affine_bits(dtype) != 0) return true;
    return dtype == IM__Q4_1 || dtype == IM__Q5_1 || dtype == IM__Q2_K || dtype == IM__Q4_K || dtype == IM__Q5_K;
}

void im__group_read(uint32_t dtype, const void *row, size_t index, im__group *out)
{
    const im__dtype_info *info = im__dtype_get(dtype);
    assert(info->group_len != 0);
    size_t per_block = info->block_len / info->group_len, k = index % per_block;
    const uint8_t *b = (const uint8_t *)row + index / per_block * info->block_bytes;
    *out = (im__group){0};
    read_scale(dtype, b, k, out);
    read_weights(dtype, b, k, info->group_len / 8u, out->w);
}

/* Offsets of the super scale and the super minimum; 0 stands for "none" in the second. */
static void super_offsets(uint32_t dtype, size_t *d, size_t *dmin)
{
    *d = dtype == IM__Q2_K ? 80 : dtype == IM__Q3_K ? 108 : dtype == IM__Q6_K ? 208 : 0;
    *dmin = dtype == IM__Q2_K ? 82 : dtype == IM__Q4_K || dtype == IM__Q5_K ? 2 : 0;
}

static void super_nibbles(const uint8_t *b, im__super *out)
{
    for (size_t k = 0; k < 16; k++) {
        out->scale[k] = b[k] & 15;
        out->min[k] = b[k] >> 4;
    }
}

void im__super_read(uint32_t dtype, const uint8_t *b, im__super *out)
{
    const im__dtype_info *info = im__dtype_get(dtype);
    size_t d, dmin, groups = (size_t)info->block_len / info->group_len;
    super_offsets(dtype, &d, &dmin);
    *out = (im__super){.d = im__load_u16(b + d), .dmin = dmin ? im__load_u16(b + dmin) : 0};
    if (dtype == IM__Q6_K) memcpy(out->scale, b + 192, 16);
    if (dtype == IM__Q2_K) super_nibbles(b, out);
    if (dtype == IM__Q3_K)
        for (size_t k = 0; k < groups; k++) out->scale[k] = (int8_t)q3_scale(b + 96, k);
    if (dtype == IM__IQ4_XS)
        for (size_t k = 0; k < groups; k++) out->scale[k] = (int8_t)iq4_xs_scale(b, k);
    if (dtype == IM__Q4_K || dtype == IM__Q5_K)
        for (size_t k = 0; k < 8; k++) {
            int scale, min;
            q4_scale_min(b + 4, k, &scale, &min);
            out->scale[k] = (int8_t)scale;
            out->min[k] = (uint8_t)min;
        }
}

static void widen_row(uint32_t dtype, const uint8_t *row, float *dst, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (dtype == IM__F32) dst[i] = im__f32_of_bits(im__load_u32(row + 4 * i));
        if (dtype == IM__F16) dst[i] = im__f32_of_f16(im__load_u16(row + 2 * i));
        if (dtype == IM__BF16) dst[i] = im__f32_of_bf16(im__load_u16(row + 2 * i));
    }
}

/* From the codes, not from the integers of the groups: scale times code, rounded, plus bias, rounded. */
static void dequantise_affine(uint32_t dtype, const uint8_t *b, float *dst, size_t n)
{
    const im__dtype_info *info = im__dtype_get(dtype);
    for (size_t done = 0; done < n; done += info->block_len, b += info->block_bytes) {
        const float scale = affine_scale(dtype, b), bias = affine_bias(dtype, b);
        for (size_t k = 0; k < info->block_len / 32u; k++) {
            uint64_t c[4];
            affine_codes(dtype, b, k, c);
            for (size_t i = 0; i < 32; i++) {
                float product = scale * (float)(c[i / 8] >> i % 8 * 8 & 255);
                dst[done + 32 * k + i] = product + bias;
            }
        }
    }
}

void im__dequantise_row(uint32_t dtype, const void *row, float *dst, size_t n)
{
    if (im__dtype_is_float(dtype)) {
        widen_row(dtype, row, dst, n);
        return;
    }
    if (im__affine_bits(dtype) != 0) {
        dequantise_affine(dtype, row, dst, n);
        return;
    }
    size_t len = im__dtype_get(dtype)->group_len;
    bool has_min = im__dtype_has_min(dtype);
    assert(len != 0 && n % im__dtype_get(dtype)->block_len == 0);
    for (size_t k = 0; k < n / len; k++) {
        im__group g;
        im__group_read(dtype, row, k, &g);
        for (size_t i = 0; i < len; i++) {
            float product = g.s * (float)g.w[i]; /* adding a zero minimum would turn -0 into +0 */
            dst[k * len + i] = has_min ? product + g.m : product;
        }
    }
}
