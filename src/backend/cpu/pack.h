/* SPDX-License-Identifier: Apache-2.0
 *
 * The packed layout that every CPU kernel reads. Vector lanes run across outputs (one output is one chain of the contract), so 16
 * rows of the matrix, a panel, are interleaved by 4 consecutive elements: a line of 64 bytes holds elements 4q .. 4q + 3 (a quad)
 * of outputs 0 .. 15, byte 4 * output + (element mod 4). That is one AVX-512 register, two of AVX2, four of NEON, one tile row of
 * AMX.
 *
 *     matrix = panels of 16 outputs | panel = chunks of 256 elements | chunk = scales, then records of 32 elements (8 quads)
 *
 * Integers are kept as unsigned codes: code = w + offset, or an index into a table of (value + offset). A record of b-bit codes is
 * b lines:
 *
 *     4 bits  line j: quad 2j in the low nibbles, quad 2j + 1 in the high ones           (4 lines)
 *     5 bits  as 4 bits, then one line of top bits: bit q of a byte belongs to quad q    (5)
 *     6 bits  as 4 bits, then two lines of top pairs: bits 2q of line h: quad 4h + q     (6)
 *     2 bits  two lines of pairs, as above                                               (2)
 *     3 bits  as 2 bits, then one line of top bits                                       (3)
 *     8 bits  line q: quad q                                                             (8)
 *
 * Scales of a chunk, G groups, arrays [..][16 outputs], the whole rounded up to 64 bytes:
 *
 *     HALF          half s[G]                        SUPER         half d, int8 scale[G]
 *     HALF_MIN      half {s, m}[G]                   SUPER_MIN     half d, -dmin, uint8 scale[G], min[G]
 *     EXPONENT      uint8 e[G], s = 2^(e - 128)      SUPER_NIBBLE  half d, -dmin, uint8 (scale | min << 4)[G]
 *     FLOAT_MIN     float {s, m}[G]                  BF16_PAIRS    bfloat16 {s, bias}[G / 2], each of two groups; m = fma(offset, s, bias)
 *
 * Float weights: panels of [element][16 outputs] in their own type. Outputs beyond n_out are packed as zeros.
 */
#ifndef IRONMULE_BACKEND_CPU_PACK_H
#define IRONMULE_BACKEND_CPU_PACK_H

#include "num/dtype.h"
#include "ops/ops.h"

enum { IM__PANEL = 16, IM__CHUNK = 256, IM__RECORD = 32, IM__LINE = 64 };

typedef enum im__scales {
    IM__SCALES_HALF,
    IM__SCALES_HALF_MIN,
    IM__SCALES_EXPONENT,
    IM__SCALES_SUPER,
    IM__SCALES_SUPER_MIN,
    IM__SCALES_SUPER_NIBBLE,
    IM__SCALES_FLOAT_MIN,
    IM__SCALES_BF16_PAIRS
} im__scales;

typedef enum im__table { IM__TABLE_NONE, IM__TABLE_IQ4, IM__TABLE_MXFP4 } im__table;

/* The packed form of a type; bits == 0: it has none. */
typedef struct im__form {
    uint8_t bits;   /* of a code */
    uint8_t top;    /* the largest code + offset that a kernel multiplies by: what fits int16 sums depends on it */
    uint8_t offset; /* Σ w q = Σ (w + offset) q - offset Σ q */
    uint8_t group;  /* elements under one scale: 32 or 16 */
    bool has_min;
    im__scales scales;
    im__table table;
} im__form;

/* With a constant argument this folds away: kernels are written once and specialised by it. */
static inline im__form im__form_of(uint32_t dtype)
{
    switch (dtype) {
    case IM__Q4_0: return (im__form){4, 15, 8, 32, false, IM__SCALES_HALF, IM__TABLE_NONE};
    case IM__Q4_1: return (im__form){4, 15, 0, 32, true, IM__SCALES_HALF_MIN, IM__TABLE_NONE};
    case IM__Q5_0: return (im__form){5, 31, 16, 32, false, IM__SCALES_HALF, IM__TABLE_NONE};
    case IM__Q5_1: return (im__form){5, 31, 0, 32, true, IM__SCALES_HALF_MIN, IM__TABLE_NONE};
    case IM__Q8_0: return (im__form){8, 255, 128, 32, false, IM__SCALES_HALF, IM__TABLE_NONE};
    case IM__Q2_K: return (im__form){2, 3, 0, 16, true, IM__SCALES_SUPER_NIBBLE, IM__TABLE_NONE};
    case IM__Q3_K: return (im__form){3, 7, 4, 16, false, IM__SCALES_SUPER, IM__TABLE_NONE};
    case IM__Q4_K: return (im__form){4, 15, 0, 32, true, IM__SCALES_SUPER_MIN, IM__TABLE_NONE};
    case IM__Q5_K: return (im__form){5, 31, 0, 32, true, IM__SCALES_SUPER_MIN, IM__TABLE_NONE};
    case IM__Q6_K: return (im__form){6, 63, 32, 16, false, IM__SCALES_SUPER, IM__TABLE_NONE};
    case IM__IQ4_NL: return (im__form){4, 241, 128, 32, false, IM__SCALES_HALF, IM__TABLE_IQ4};
    case IM__IQ4_XS: return (im__form){4, 241, 128, 32, false, IM__SCALES_SUPER, IM__TABLE_IQ4};
    case IM__MXFP4: return (im__form){4, 24, 12, 32, false, IM__SCALES_EXPONENT, IM__TABLE_MXFP4};
    case IM__AFFINE2: return (im__form){2, 3, 0, 32, true, IM__SCALES_BF16_PAIRS, IM__TABLE_NONE};
    case IM__AFFINE3: return (im__form){3, 7, 0, 32, true, IM__SCALES_BF16_PAIRS, IM__TABLE_NONE};
    case IM__AFFINE4: return (im__form){4, 15, 0, 32, true, IM__SCALES_BF16_PAIRS, IM__TABLE_NONE};
    case IM__AFFINE5: return (im__form){5, 31, 0, 32, true, IM__SCALES_BF16_PAIRS, IM__TABLE_NONE};
    case IM__AFFINE6: return (im__form){6, 63, 0, 32, true, IM__SCALES_BF16_PAIRS, IM__TABLE_NONE};
    case IM__AFFINE8: return (im__form){8, 255, 128, 32, true, IM__SCALES_BF16_PAIRS, IM__TABLE_NONE};
    case IM__AFFINE2_F: return (im__form){2, 3, 0, 32, true, IM__SCALES_FLOAT_MIN, IM__TABLE_NONE};
    case IM__AFFINE3_F: return (im__form){3, 7, 0, 32, true, IM__SCALES_FLOAT_MIN, IM__TABLE_NONE};
    case IM__AFFINE4_F: return (im__form){4, 15, 0, 32, true, IM__SCALES_FLOAT_MIN, IM__TABLE_NONE};
    case IM__AFFINE5_F: return (im__form){5, 31, 0, 32, true, IM__SCALES_FLOAT_MIN, IM__TABLE_NONE};
    case IM__AFFINE6_F: return (im__form){6, 63, 0, 32, true, IM__SCALES_FLOAT_MIN, IM__TABLE_NONE};
    case IM__AFFINE8_F: return (im__form){8, 255, 128, 32, true, IM__SCALES_FLOAT_MIN, IM__TABLE_NONE};
    default: return (im__form){0};
    }
}

/* Value + offset for each code of a form with a table; NULL for one without. */
static inline const uint8_t *im__form_table(im__table table)
{
    static const uint8_t iq4[16] = {1, 24, 45, 63, 79, 93, 106, 118, 129, 141, 153, 166, 181, 197, 217, 241};
    static const uint8_t mxfp4[16] = {12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0};
    return table == IM__TABLE_IQ4 ? iq4 : table == IM__TABLE_MXFP4 ? mxfp4 : NULL;
}

static inline size_t im__scale_bytes(im__form f, size_t groups)
{
    size_t bytes = 0;
    switch (f.scales) {
    case IM__SCALES_HALF: bytes = 32 * groups; break;
    case IM__SCALES_HALF_MIN: bytes = 64 * groups; break;
    case IM__SCALES_EXPONENT: bytes = 16 * groups; break;
    case IM__SCALES_SUPER: bytes = 32 + 16 * groups; break;
    case IM__SCALES_SUPER_MIN: bytes = 64 + 32 * groups; break;
    case IM__SCALES_SUPER_NIBBLE: bytes = 64 + 16 * groups; break;
    case IM__SCALES_FLOAT_MIN: bytes = 128 * groups; break;
    case IM__SCALES_BF16_PAIRS: bytes = 64 * ((groups + 1) / 2); break;
    }
    return (bytes + IM__LINE - 1) / IM__LINE * IM__LINE;
}

/* Bytes of a chunk of `records` records (8 in all but the last chunk of a row). */
static inline size_t im__chunk_bytes(im__form f, size_t records)
{
    return im__scale_bytes(f, records * IM__RECORD / f.group) + records * f.bits * IM__LINE;
}

static inline size_t im__panel_bytes(im__form f, size_t n_in)
{
    size_t rest = n_in % IM__CHUNK / IM__RECORD;
    return n_in / IM__CHUNK * im__chunk_bytes(f, IM__CHUNK / IM__RECORD) + (rest ? im__chunk_bytes(f, rest) : 0);
}

/* Bytes of one panel of a float type. */
static inline size_t im__float_panel_bytes(uint32_t dtype, size_t n_in) { return n_in * IM__PANEL * (dtype == IM__F32 ? 4 : 2); }

/* Bytes of a packed matrix (to be 64-byte aligned); 0 when the type has no packed form, the row length is no multiple of its block, a
 * dimension is 0 or the size overflows. */
size_t im__packed_bytes(uint32_t dtype, size_t n_out, size_t n_in);

/* Packs rows out_begin .. out_end - 1 of w->data into their panels; out_begin is a multiple of 16, out_end too unless it is n_out. Every byte of
 * these panels is written. Any number of threads may pack disjoint ranges. */
void im__pack(const im__weight *w, void *packed, size_t out_begin, size_t out_end);

#endif
