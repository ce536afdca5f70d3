/* SPDX-License-Identifier: Apache-2.0
 *
 * Tensor element types as GGUF numbers them, and the shape of their storage: a row of `n` elements is n / block_len blocks of
 * block_bytes each. Known to the reader are all types that exist; `runs` says which of them the engine computes with.
 *
 * Types of our own, behind GGUF's numbers: the affine ones of MLX, value = scale * code + bias, with codes of 2, 3, 4, 5, 6 or 8 bits in one little-endian
 * stream. MLX keeps codes, scales and biases of a matrix in three arrays; a block is what belongs together (im__split puts it together):
 *
 *     AFFINEb      64 elements: bfloat16 scale, bfloat16 bias, 8 b bytes of codes
 *     AFFINEb_F    32 elements: binary32 scale, binary32 bias, 4 b bytes of codes; for other kinds of scale and for groups of 32
 */
#ifndef IRONMULE_NUM_DTYPE_H
#define IRONMULE_NUM_DTYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum im__dtype {
    IM__F32 = 0,
    IM__F16 = 1,
    IM__Q4_0 = 2,
    IM__Q4_1 = 3,
    IM__Q5_0 = 6,
    IM__Q5_1 = 7,
    IM__Q8_0 = 8,
    IM__Q8_1 = 9,
    IM__Q2_K = 10,
    IM__Q3_K = 11,
    IM__Q4_K = 12,
    IM__Q5_K = 13,
    IM__Q6_K = 14,
    IM__Q8_K = 15,
    IM__IQ2_XXS = 16,
    IM__IQ2_XS = 17,
    IM__IQ3_XXS = 18,
    IM__IQ1_S = 19,
    IM__IQ4_NL = 20,
    IM__IQ3_S = 21,
    IM__IQ2_S = 22,
    IM__IQ4_XS = 23,
    IM__I8 = 24,
    IM__I16 = 25,
    IM__I32 = 26,
    IM__I64 = 27,
    IM__F64 = 28,
    IM__IQ1_M = 29,
    IM__BF16 = 30,
    IM__TQ1_0 = 34,
    IM__TQ2_0 = 35,
    IM__MXFP4 = 39,
    IM__NVFP4 = 40,
    IM__Q1_0 = 41,
    IM__GGUF_DTYPES = 42, /* a file may not use the numbers from here on */
    IM__AFFINE2 = 64,
    IM__AFFINE3 = 65,
    IM__AFFINE4 = 66,
    IM__AFFINE5 = 67,
    IM__AFFINE6 = 68,
    IM__AFFINE8 = 69,
    IM__AFFINE2_F = 70,
    IM__AFFINE3_F = 71,
    IM__AFFINE4_F = 72,
    IM__AFFINE5_F = 73,
    IM__AFFINE6_F = 74,
    IM__AFFINE8_F = 75,
    IM__DTYPE_END = 76
} im__dtype;

typedef struct im__dtype_info {
    const char *name;   /* "Q4_K"; NULL for numbers that GGUF never gave or has withdrawn */
    uint16_t block_len; /* elements in a block */
    uint16_t block_bytes;
    uint8_t group_len; /* elements that share one scale (32 or 16); 0 for float and for types that do not run */
    bool runs;         /* the engine can compute with it */
} im__dtype_info;

/* Never NULL: an unknown number gives an entry without a name. */
const im__dtype_info *im__dtype_get(uint32_t dtype);

bool im__dtype_is_float(uint32_t dtype); /* F32, F16, BF16 */

/* Bits of a code of the affine types; 0 for every other type. */
static inline unsigned im__affine_bits(uint32_t dtype)
{
    static const uint8_t bits[] = {2, 3, 4, 5, 6, 8};
    return dtype >= IM__AFFINE2 && dtype <= IM__AFFINE8_F ? bits[(dtype - IM__AFFINE2) % 6] : 0;
}
static inline bool im__affine_is_wide(uint32_t dtype) { return dtype >= IM__AFFINE2_F; } /* of the affine ones: AFFINEb_F */

/* Bytes of a row of n elements; 0 when n is no multiple of block_len, the type is unknown or the product overflows. */
size_t im__dtype_row_bytes(uint32_t dtype, size_t n);

#endif
