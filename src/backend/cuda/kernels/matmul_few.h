/* SPDX-License-Identifier: Apache-2.0
 *
 * Launching im_matmul_few_<form>(const im__cuda_products p), products of few rows, bound by the reading of weights: for the host and the kernels.
 *
 * A block makes 32, 16 or 8 outputs of one product: a tile split in 1, 2 or 4. Its warps share out the chunks of the inner dimension. Any number of rows is right;
 * four vectors (rows, twice when wide) cost one trip through the weights.
 *
 *     split = im__matmul_few_split(tiles of all products together, multiprocessors)
 *     first_block[i + 1] = first_block[i] + tiles of product i * split
 *     grid first_block[count] x 1 x 1, im__matmul_few_threads(largest n_in, split) threads, im__matmul_few_shared(largest n_in, split) bytes of dynamic
 *     shared memory
 *
 * The kernel finds the split from the blocks of its product. May be a dependent launch (programmatic stream serialisation).
 */
#ifndef IRONMULE_CUDA_MATMUL_FEW_H
#define IRONMULE_CUDA_MATMUL_FEW_H

#include <stdint.h>

enum {
    IM__FEW_MOST_WARPS = 16,
    IM__FEW_VECTORS = 4, /* taken together */
    IM__FEW_STAGE =
        (256 + 8 * 16) + 16, /* bytes of a chunk of one vector, and what keeps the chunks of a warp in different banks */
    IM__FEW_ROWS = 8         /* up to so many rows it is worth it */
};

/* More blocks than tiles where there are too few tiles to occupy the machine. */
static inline uint32_t im__matmul_few_split(uint32_t tiles, uint32_t multiprocessors)
{
    return tiles >= 2 * multiprocessors ? 1 : tiles >= multiprocessors ? 2 : 4;
}

static inline uint32_t im__matmul_few_warps(uint32_t n_in, uint32_t split)
{
    uint32_t chunks = (n_in + 255) / 256, warps = (chunks + split - 1) / split;
    uint32_t most = IM__FEW_MOST_WARPS;
    return warps < 1 ? 1 : warps > most ? most : warps;
}

static inline uint32_t im__matmul_few_threads(uint32_t n_in, uint32_t split) { return 32 * im__matmul_few_warps(n_in, split); }

/* The warps' activations, and the chunks' sums. */
static inline uint32_t im__matmul_few_shared(uint32_t n_in, uint32_t split)
{
    uint32_t chunks = (n_in + 255) / 256, sums = chunks * (32 / split) * IM__FEW_VECTORS * 4;
    return im__matmul_few_warps(n_in, split) * split * IM__FEW_VECTORS * IM__FEW_STAGE + sums;
}

#endif
