/* SPDX-License-Identifier: Apache-2.0
 *
 * The one place that knows how quantised blocks are laid out. Every quantised type is, for the arithmetic, a sequence of groups of
 * 32 or 16 small integers with one scale and, for some types, one minimum:
 *
 *     value[i] = s * w[i] + m
 *
 * The reference dot product and the de-quantiser read weights through im__group_read; packers, which only move bits, read codes and stored
 * scales. Nothing else looks into a block.
 */
#ifndef IRONMULE_NUM_GROUP_H
#define IRONMULE_NUM_GROUP_H

#include "num/dtype.h"

typedef struct im__group {
    float s;      /* exact binary32 value of the scale (for K types: super scale times small integer, exact) */
    float m;      /* exact value of the minimum (already with its sign: added); 0 where the format has none. AFFINE8: see below */
    int8_t w[32]; /* group_len integers; the rest is 0 */
} im__group;

/* Affine codes of 8 bits do not fit w: their w is code - 128, and m = fma(128, scale, bias), rounded. */

/* True for types whose groups carry a minimum: Q4_1, Q5_1, Q2_K, Q4_K, Q5_K and the affine ones. */
bool im__dtype_has_min(uint32_t dtype);

/* Reads group `index` (in units of group_len elements) of a row that starts at `row`. The type must be quantised and run. No alignment
 * is required; the caller has checked that the row is that long. */
void im__group_read(uint32_t dtype, const void *row, size_t index, im__group *out);

/* The same block of up to 16 rows. */
enum { IM__ROWS_READ = 16 };
typedef struct im__rows {
    const uint8_t *block[IM__ROWS_READ];
    size_t count;
} im__rows;

/* The integers of 32 elements, number `index` of them in the block, of each row as the file has them, without sign: code = w + 8 (Q4_0), + 16
 * (Q5_0), + 128 (Q8_0, AFFINE8), + 4 (Q3_K), + 32 (Q6_K), the index into its table (IQ4_NL, IQ4_XS, MXFP4), else w. Element 4i + j of row r is byte j,
 * counted from the lowest, of codes[i][r]; 0 for rows that are not there. */
void im__codes_read(uint32_t dtype, const im__rows *rows, size_t index, uint32_t codes[8][IM__ROWS_READ]);

/* The scales of blocks of 32 as they are stored: binary16, of MXFP4 the exponent e of 2^(e - 128). m: the minima; 0 where the format has none. 0 for rows
 * that are not there. Of AFFINEb scale and bias of the block of 64, bfloat16. */
void im__stored_scales(uint32_t dtype, const im__rows *rows, uint16_t s[IM__ROWS_READ], uint16_t m[IM__ROWS_READ]);

/* Those of AFFINEb_F: s and m as im__group has them. 0 for rows that are not there. */
void im__stored_floats(uint32_t dtype, const im__rows *rows, float s[IM__ROWS_READ], float m[IM__ROWS_READ]);

/* The scales of one 256-element block of a type that keeps small integers under a super scale (Q2_K to Q6_K, IQ4_XS). Of its group k,
 * s = d * scale[k] and m = -(dmin * min[k]), both exact. Packers keep these instead of the products, which are larger. */
typedef struct im__super {
    uint16_t d, dmin; /* binary16; dmin is 0 where the format has no minimum */
    int8_t scale[16]; /* one for each group of the block; the rest is 0 */
    uint8_t min[16];
} im__super;

/* Reads the block at b. The type must be one of those above. */
void im__super_read(uint32_t dtype, const uint8_t *b, im__super *out);

/* dst[0..n) = the row's values by the format's exact formula in binary32 (product rounded, then sum rounded), or widened for float types. n is a
 * multiple of the block length. Judged bit for bit against the reference implementation of the formats. */
void im__dequantise_row(uint32_t dtype, const void *row, float *dst, size_t n);

#endif
