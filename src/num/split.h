/* SPDX-License-Identifier: Apache-2.0
 *
 * Matrices whose file keeps what belongs to a block in arrays of their own, as MLX does: codes in rows, beside them scales and biases. Whoever reads weights
 * reads blocks (group.h), so blocks are put together when they are read.
 */
#ifndef IRONMULE_NUM_SPLIT_H
#define IRONMULE_NUM_SPLIT_H

#include "num/dtype.h"

/* Rows of n_in / group entries each, contiguous. Borrowed from the file. */
typedef struct im__split {
    const uint8_t *scale; /* NULL: the matrix is stored as blocks */
    const uint8_t *bias;  /* affine types only */
    uint32_t scale_dtype; /* F32, F16 or BF16, of both; I8: the exponents of MXFP4 */
    uint32_t group;       /* elements under one scale: a multiple of the block's length */
} im__split;

/* Elements that are joined at once at most, and the bytes that their blocks take. */
enum { IM__JOINED = 256, IM__JOINED_BYTES = 320 };

/* The type for affine codes of these bits and scales of this type; IM__DTYPE_END: there is none. Codes of 4 and 5 bits with binary16 scales are Q4_1 and Q5_1,
 * whose values they have. */
uint32_t im__split_dtype(uint32_t bits, uint32_t group, uint32_t scale_dtype);

/* Bytes of a row of n codes. */
size_t im__split_row_bytes(uint32_t dtype, size_t n);

/* blocks = those number first .. first + count - 1 of row `row`, whose codes begin at `codes`; n_in: elements of a row. */
void im__split_join(const im__split *s, uint32_t dtype, size_t n_in, const uint8_t *codes, size_t row, size_t first, size_t count,
                    uint8_t *blocks);

#endif
