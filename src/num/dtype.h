/* SPDX-License-Identifier: Apache-2.0
 *
 * Tensor element types as GGUF numbers them, and the shape of their storage: a row of `n` elements is n / block_len blocks of
 * block_bytes each. Known to the reader are all types that exist; `im__dtype_runs` says which of them the engine computes with.
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
    IM__DTYPE_END = 42
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

/* Bytes of a row of n elements; 0 when n is no multiple of block_len, the type is unknown or the product overflows. */
size_t im__dtype_row_bytes(uint32_t dtype, size_t n);

#endif
