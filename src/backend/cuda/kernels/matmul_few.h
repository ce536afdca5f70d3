/* SPDX-License-Identifier: Apache-2.0
 *
 * Launching im_matmul_few_<form>(const im__cuda_products p), products of few rows, bound by the reading of weights: for the host and the kernels.
 *
 *     im__few_launch l = im__matmul_few_plan(&p, rows, &device);      settles p.first_block, too
 *     grid p.first_block[p.count] x 1 x 1, l.threads threads, l.shared bytes of dynamic shared memory
 *
 * A launch with more rows than it was planned for is right, too, if it was planned for two or more (one vector's memory does not hold two); four vectors (rows,
 * twice when wide) cost one trip through the weights. May be a dependent launch (programmatic stream serialisation).
 */
#ifndef IRONMULE_CUDA_MATMUL_FEW_H
#define IRONMULE_CUDA_MATMUL_FEW_H

#include "backend/cuda/abi.h"

enum {
    IM__FEW_ROWS = 4,             /* up to so many rows it is worth it */
    IM__FEW_VECTORS = 4,          /* taken together */
    IM__FEW_DEPTH = 2,            /* units that a warp has asked for at a time */
    IM__FEW_MOST_WARPS = 20,      /* of a block */
    IM__FEW_STAGE = 256 + 8 * 16, /* bytes of a chunk of one vector */
    IM__FEW_REGISTERS = 96        /* a thread's, at most */
};

/* What of a device counts here: multiprocessors, bytes of shared memory of each, bytes that a block may have. */
typedef struct im__few_device {
    uint32_t processors, shared, shared_of_block;
} im__few_device;

typedef struct im__few_launch {
    uint32_t threads, shared;
} im__few_launch;

static inline uint32_t im__few_tiles(const im__cuda_matrix *w) { return (w->n_out + IM__CUDA_TILE - 1) / IM__CUDA_TILE; }

static inline uint32_t im__few_chunks(const im__cuda_matrix *w) { return (w->n_in + IM__CUDA_UNIT - 1) / IM__CUDA_UNIT; }

/* What a block needs for a product: its warps' weights, the activations, and two tiles' sums. Float weights are read where they are. */
static inline uint32_t im__few_shared(const im__cuda_matrix *w, uint32_t vectors, uint32_t warps)
{
    uint32_t chunks = im__few_chunks(w), sums = 2 * chunks * vectors * IM__CUDA_TILE * 4;
    if (w->form >= IM__CUDA_F32) return sums;
    return warps * IM__FEW_DEPTH * w->unit_bytes + chunks * vectors * IM__FEW_STAGE + sums;
}

static inline im__few_launch im__few_launch_of(const im__cuda_products *p, uint32_t rows, uint32_t warps)
{
    im__few_launch l = {32 * warps, 0};
    for (uint32_t i = 0; i < p->count; i++) {
        uint32_t vectors = rows * (p->product[i].wide ? 2 : 1), most = IM__FEW_VECTORS;
        uint32_t shared = im__few_shared(&p->product[i].w, vectors > 2 ? most : vectors, warps);
        if (shared > l.shared) l.shared = shared;
    }
    return l;
}

/* As many warps as chunks, or the next smaller number that shares them out evenly and has the memory. As many blocks as can be there at once: further tiles
 * wait for the blocks of the first ones. */
static inline im__few_launch im__matmul_few_plan(im__cuda_products *p, uint32_t rows, const im__few_device *d)
{
    uint32_t chunks = 1, tiles = 0, warps, turns = 1;
    for (uint32_t i = 0; i < p->count; i++) {
        if (im__few_chunks(&p->product[i].w) > chunks) chunks = im__few_chunks(&p->product[i].w);
        tiles += im__few_tiles(&p->product[i].w);
    }
    im__few_launch l;
    do {
        warps = (chunks + turns - 1) / turns;
        turns++;
        l = im__few_launch_of(p, rows, warps);
    } while (warps > 1 && (warps > IM__FEW_MOST_WARPS || l.shared > d->shared_of_block));
    uint32_t by_memory = d->shared / (l.shared + 1024), by_registers = 65536 / (l.threads * IM__FEW_REGISTERS);
    uint32_t each = by_memory < by_registers ? by_memory : by_registers, room = d->processors * (each > 1 ? each : 1);
    for (uint32_t i = 0; i < p->count; i++) {
        uint32_t mine = im__few_tiles(&p->product[i].w), blocks = tiles <= room ? mine : (uint32_t)((uint64_t)mine * room / tiles);
        p->first_block[i + 1] = p->first_block[i] + (blocks > 1 ? blocks : 1);
    }
    return l;
}

#endif
