/* SPDX-License-Identifier: Apache-2.0
 *
 * The one place that knows how quantised blocks are laid out. Every quantised type is, for the arithmetic, a sequence of groups of
 * 32 or 16 small integers with one scale and, for some types, one minimum:
 *
 *     value[i] = s * w[i] + m
 *
 * The reference dot product, the packers of all backends and the de-quantiser read weights through im__group_read and nothing else.
 */
#ifndef IRONMULE_NUM_GROUP_H
#define IRONMULE_NUM_GROUP_H

#include "num/dtype.h"

typedef struct im__group {
    float s;      /* exact binary32 value of the scale (for K types: super scale times small integer, exact) */
    float m;      /* exact value of the minimum (already with its sign: added); 0 where the format has none */
    int8_t w[32]; /* group_len integers; the rest is 0 */
} im__group;

/* True for types whose groups carry a minimum: Q4_1, Q5_1, Q2_K, Q4_K, Q5_K. */
bool im__dtype_has_min(uint32_t dtype);

/* Reads group `index` (in units of group_len elements) of a row that starts at `row`. The type must be quantised and run. No alignment
 * is required; the caller has checked that the row is that long. */
void im__group_read(uint32_t dtype, const void *row, size_t index, im__group *out);

/* The scales of one 256-element block of a type that keeps small integers under a super scale (Q2_K to Q6_K, IQ4_XS). Of its group k,
 * s = d * scale[k] and m = -(dmin * min[k]), both exact. Packers keep these instead of the products, which are larger. */
typedef struct im__super {
    uint16_t d, dmin; /* binary16; dmin is 0 where the format has no minimum */
    int8_t scale[16]; /* one for each group of the block; the rest is 0 */
    uint8_t min[16];
} im__super;

/* Reads block `index` of a row. The type must be one of those above. */
void im__super_read(uint32_t dtype, const void *row, size_t index, im__super *out);

/* dst[0..n) = the row's values by the format's exact formula in binary32 (product rounded, then sum rounded), or widened for float types. n is a
 * multiple of the block length. Judged bit for bit against the reference implementation of the formats. */
void im__dequantise_row(uint32_t dtype, const void *row, float *dst, size_t n);

#endif
