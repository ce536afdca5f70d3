/* SPDX-License-Identifier: Apache-2.0
 *
 * Products of few rows: y = W x for up to four vectors at once (rows, and for wide products their rests), limited by the reading of W. A block takes one tile after
 * the other, a warp of it one chunk of the inner dimension (or several) of each, a lane the chain of one output. Weights are copied to shared memory, whole units ahead of their
 * use, the first of them before the block waits for the kernel that makes the activations. The chunks' sums meet in shared memory and are added in order.
 */
#include "backend/cuda/abi.h"
#include "backend/cuda/kernels/copy.cuh"
#include "backend/cuda/kernels/matmul_few.h"
#include "backend/cuda/kernels/num.cuh"
#include "backend/cuda/kernels/weights.cuh"

namespace
{

enum {
    WARP = 32,
    TILE = IM__CUDA_TILE,
    UNIT = IM__CUDA_UNIT,
    GROUPS = UNIT / 32,
    VECTORS = IM__FEW_VECTORS,
    STAGE = IM__FEW_STAGE,
    DEPTH = IM__FEW_DEPTH
};

/* As a float 1.5 * 2^23: an integer below 2^22 in magnitude that is added to these bits and then, as a float, less 1.5 * 2^23 is converted, exactly. */
enum { MAGIC = 0x4b400000 };
__device__ __forceinline__ float converted(int bits) { return __int_as_float(bits) - 12582912.0f; }

/* ---- what a block works on: tiles first, first + blocks, ... of a product ---- */

struct job {
    const im__cuda_product *p;
    uint32_t first, blocks, tiles, chunks;
    uint32_t warp, warps, lane;
};

__device__ __forceinline__ job job_of(const im__cuda_products &all)
{
    uint32_t i = 0;
    while (blockIdx.x >= all.first_block[i + 1]) i++;
    job j;
    j.p = &all.product[i];
    j.first = blockIdx.x - all.first_block[i];
    j.blocks = all.first_block[i + 1] - all.first_block[i];
    j.tiles = (j.p->w.n_out + TILE - 1) / TILE;
    j.chunks = (j.p->w.n_in + UNIT - 1) / UNIT;
    j.warp = threadIdx.x / WARP;
    j.warps = blockDim.x / WARP;
    j.lane = threadIdx.x % WARP;
    return j;
}

__device__ __forceinline__ uint32_t groups_of(const job &j, uint32_t chunk)
{
    return min((j.p->w.n_in - chunk * UNIT) / 32, (uint32_t)GROUPS);
}

/* ---- weights on their way: a warp's units in the order of its work, DEPTH of them asked for ---- */

struct stream {
    uint8_t *slot; /* [DEPTH][unit] */
    uint32_t tile, chunk, turn;
};

/* The next unit, if there is one; in any case one more group of copies. */
__device__ __forceinline__ void ask(const job &j, stream &s)
{
    const im__cuda_matrix &w = j.p->w;
    if (s.tile < j.tiles && s.chunk < j.chunks) {
        uint32_t bytes = s.chunk + 1 < j.chunks ? w.unit_bytes : w.tile_bytes - s.chunk * w.unit_bytes;
        const uint8_t *from = w.data + (uint64_t)s.tile * w.tile_bytes + s.chunk * w.unit_bytes;
        uint8_t *to = s.slot + s.turn * w.unit_bytes;
#pragma unroll 4
        for (uint32_t at = j.lane * 16; at < bytes; at += WARP * 16) im__copy_16(to + at, from + at);
        s.chunk += j.warps;
        if (s.chunk >= j.chunks) s.chunk = j.warp, s.tile += j.blocks;
        s.turn = s.turn + 1 < DEPTH ? s.turn + 1 : 0;
    }
    im__copy_commit();
}

/* ---- activations of a chunk, staged ----
 *
 * 256 bytes of integers, then a record of 16 bytes for each group: its scale, and for its two halves (together, where the form has groups of 32) what the form
 * needs beside the products: the sum, or where there is an offset the bits at which the integer sum starts. */

struct __align__(16) staged_group
{
    float d;
    int first, second, pad;
};

template <class F> __device__ __forceinline__ int beside(int sum)
{
    if (F::HAS_MIN) return __float_as_int((float)sum);
    return MAGIC - F::OFFSET * sum;
}

/* Vector v: row v / planes, its rest when odd and wide. */
__device__ __forceinline__ uint64_t row_of(const job &j, uint32_t v)
{
    return j.p->wide ? v / 2 + (uint64_t)(v % 2) * j.p->act.rest_rows : v;
}

/* The warp's chunks of vectors v0 .. v0 + n - 1, to acts [chunk][N][STAGE]; what is not there is left alone, and what comes of it is never read. */
template <class F, int N> __device__ __forceinline__ void stage(const job &j, uint8_t *acts, uint32_t v0, uint32_t n)
{
    const im__cuda_act &act = j.p->act;
    for (uint32_t chunk = j.warp; chunk < j.chunks; chunk += j.warps) {
        uint32_t groups = groups_of(j, chunk), e = chunk * UNIT;
        for (uint32_t i = j.lane; i < n * 2 * GROUPS; i += WARP) {
            uint32_t v = i / (2 * GROUPS), piece = i % (2 * GROUPS);
            if (piece < 2 * groups)
                im__copy_16(acts + (chunk * N + v) * STAGE + piece * 16, act.q + row_of(j, v0 + v) * act.n + e + piece * 16);
        }
        for (uint32_t i = j.lane; i < n * GROUPS; i += WARP) {
            uint32_t v = i / GROUPS, g = i % GROUPS;
            if (g >= groups) continue;
            uint2 group = *(const uint2 *)&act.group[row_of(j, v0 + v) * (act.n / 32) + e / 32 + g];
            int s0 = (int16_t)group.y, s1 = (int)group.y >> 16;
            staged_group to = {__uint_as_float(group.x), beside<F>(F::GROUP == 16 ? s0 : s0 + s1), beside<F>(s1), 0};
            *(staged_group *)(acts + (chunk * N + v) * STAGE + 256 + g * 16) = to;
        }
    }
    im__copy_commit();
}

/* ---- a group's integer products ---- */

struct sums {
    float first, second; /* of the halves; of groups of 32 only the first */
};

/* Codes of elements 0 .. 15 and 16 .. 31. Of 4 bits the latter are left where they are, 16 times too large. */
struct unpacked {
    uint32_t low[4], high[4];
};

template <class F> __device__ __forceinline__ unpacked unpack(const uint8_t *unit, uint32_t groups, uint32_t output, uint32_t g)
{
    unpacked u;
    uint32_t place = g * TILE + output;
    const uint4 c = *(const uint4 *)(unit + (F::BITS == 8 ? place + g * TILE : place) * 16);
    const uint32_t w[4] = {c.x, c.y, c.z, c.w};
    if (F::BITS == 8) {
        const uint4 d = *(const uint4 *)(unit + (place + g * TILE + TILE) * 16);
        u.high[0] = d.x, u.high[1] = d.y, u.high[2] = d.z, u.high[3] = d.w;
        for (int k = 0; k < 4; k++) u.low[k] = w[k];
    }
    if (F::BITS == 4)
        for (int k = 0; k < 4; k++) u.low[k] = w[k] & 0x0f0f0f0f, u.high[k] = w[k] & 0xf0f0f0f0;
    if (F::BITS == 5) {
        uint32_t top = *(const uint32_t *)(unit + groups * 512 + place * 4);
        for (int k = 0; k < 4; k++) {
            u.low[k] = (w[k] & 0x0f0f0f0f) | (top << (4 - k) & 0x10101010);
            u.high[k] = (w[k] >> 4 & 0x0f0f0f0f) | (top >> k & 0x10101010);
        }
    }
    if (F::BITS == 6) {
        const uint2 top = *(const uint2 *)(unit + groups * 512 + place * 8);
        for (int k = 0; k < 4; k++) {
            u.low[k] = (w[k] & 0x0f0f0f0f) | ((k < 2 ? top.x << (4 - 2 * k) : top.x >> (2 * k - 4)) & 0x30303030);
            u.high[k] = (w[k] >> 4 & 0x0f0f0f0f) | ((k < 2 ? top.y << (4 - 2 * k) : top.y >> (2 * k - 4)) & 0x30303030);
        }
    }
    return u;
}

template <class F> __device__ __forceinline__ sums dots(const unpacked &u, const uint8_t *q, const staged_group &a)
{
    const uint4 x0 = *(const uint4 *)q, x1 = *(const uint4 *)(q + 16);
    const uint32_t x[8] = {x0.x, x0.y, x0.z, x0.w, x1.x, x1.y, x1.z, x1.w};
    const bool starts = F::OFFSET != 0, shifted = F::BITS == 4;
    int low = starts ? a.first : MAGIC, high = F::GROUP == 16 && !shifted ? (starts ? a.second : MAGIC) : 0;
    for (int k = 0; k < 4; k++) {
        low = F::BITS == 8 ? im__dot4(u.low[k], x[k], low) : im__dot4_unsigned(u.low[k], x[k], low);
        high = F::BITS == 8 ? im__dot4(u.high[k], x[4 + k], high) : im__dot4_unsigned(u.high[k], x[4 + k], high);
    }
    if (shifted) high >>= 4;
    if (F::GROUP == 32) return {converted(low + high), 0.0f};
    return {converted(low), converted(shifted ? high + (starts ? a.second : MAGIC) : high)};
}

/* ---- chains ---- */

template <class F>
__device__ __forceinline__ void step(float &p, const im__scale &scale, const staged_group &a, float products, int other)
{
    p = im__fma(scale.s * a.d, products, p);
    if (F::HAS_MIN) p = im__fma(scale.m * a.d, __int_as_float(other), p);
}

template <class F, int N>
__device__ __forceinline__ void chain_group(float p[N], const uint8_t *unit, uint32_t groups, uint32_t output, const uint8_t *acts,
                                            uint32_t g)
{
    unpacked u = unpack<F>(unit, groups, output, g);
    im__scale s0 = im__scale_at<F>(unit, groups, output, F::GROUP == 16 ? 2 * g : g), s1 = s0;
    if (F::GROUP == 16) s1 = im__scale_at<F>(unit, groups, output, 2 * g + 1);
#pragma unroll
    for (int v = 0; v < N; v++) {
        const uint8_t *at = acts + v * STAGE;
        const staged_group a = *(const staged_group *)(at + 256 + g * 16);
        sums x = dots<F>(u, at + g * 32, a);
        step<F>(p[v], s0, a, x.first, a.first);
        if (F::GROUP == 16) step<F>(p[v], s1, a, x.second, a.second);
    }
}

/* sum: [vector][output] of the chunk. */
template <class F, int N>
__device__ __forceinline__ void chains(const uint8_t *unit, uint32_t groups, uint32_t output, const uint8_t *acts, float *sum)
{
    float p[N];
#pragma unroll
    for (int v = 0; v < N; v++) p[v] = 0.0f;
    if (groups == GROUPS) {
#pragma unroll
        for (uint32_t g = 0; g < GROUPS; g++) chain_group<F, N>(p, unit, GROUPS, output, acts, g);
    } else {
        for (uint32_t g = 0; g < groups; g++) chain_group<F, N>(p, unit, groups, output, acts, g);
    }
#pragma unroll
    for (int v = 0; v < N; v++) sum[v * TILE + output] = p[v];
}

/* ---- results ---- */

/* sum: [chunk][n][output]. */
__device__ __forceinline__ float sum_of_chunks(const job &j, const float *sum, uint32_t n, uint32_t v)
{
    const float *at = sum + v * TILE + j.lane;
    float y = at[0];
#pragma unroll 4
    for (uint32_t c = 1; c < j.chunks; c++) y = y + at[c * n * TILE];
    return y;
}

/* By one warp. Vectors v0 .. v0 + n - 1 of `vectors`; a row's planes are neighbours, so they are always together. */
__device__ __forceinline__ void write(const job &j, uint32_t tile, const float *sum, uint32_t v0, uint32_t n, uint32_t vectors)
{
    uint32_t planes = j.p->wide ? 2 : 1, rows = min(vectors - v0, n) / planes, out = tile * TILE + j.lane;
    if (out >= j.p->w.n_out) return;
    for (uint32_t r = 0; r < rows; r++) {
        float y = sum_of_chunks(j, sum, n, r * planes);
        if (planes == 2) y = y + sum_of_chunks(j, sum, n, r * planes + 1);
        if (j.p->bias != NULL) y = y + j.p->bias[out];
        j.p->y[(uint64_t)(v0 / planes + r) * j.p->w.n_out + out] = y;
    }
}

/* All the block's tiles: make(tile, sum) fills [chunk][n][output] with the warp's chunks. One warp after the other writes a tile's results while the others
 * go on to the next tile, whose sums lie elsewhere. */
template <class Fn>
__device__ __forceinline__ void each_tile(const job &j, float *sum, uint32_t v0, uint32_t n, uint32_t vectors, Fn make)
{
    uint32_t turn = 0;
    for (uint32_t tile = j.first; tile < j.tiles; tile += j.blocks, turn++) {
        float *mine = sum + turn % 2 * (j.chunks * n * TILE);
        make(tile, mine);
        __syncthreads();
        if (turn % j.warps == j.warp) write(j, tile, mine, v0, n, vectors);
    }
    __syncthreads();
}

template <class F, int N>
__device__ __forceinline__ void take(const job &j, stream &s, uint8_t *acts, uint32_t v0, uint32_t vectors)
{
    float *sum = (float *)(acts + j.chunks * N * STAGE);
    uint32_t turn = 0;
    stage<F, N>(j, acts, v0, min(vectors - v0, (uint32_t)N));
    im__copy_wait<0>();
    __syncwarp();
    each_tile(j, sum, v0, N, vectors, [&](uint32_t, float *mine) {
        for (uint32_t chunk = j.warp; chunk < j.chunks; chunk += j.warps) {
            im__copy_wait<DEPTH - 1>();
            __syncwarp();
            chains<F, N>(s.slot + turn * j.p->w.unit_bytes, groups_of(j, chunk), j.lane, acts + chunk * N * STAGE,
                         mine + chunk * N * TILE);
            __syncwarp();
            turn = turn + 1 < DEPTH ? turn + 1 : 0;
            ask(j, s);
        }
    });
}

__device__ __forceinline__ void ask_for_first(const job &j, stream &s)
{
    s.tile = j.first, s.chunk = j.warp, s.turn = 0;
    for (uint32_t i = 0; i < DEPTH; i++) ask(j, s);
}

template <int FORM> __device__ __forceinline__ void matmul_few(const im__cuda_products &all)
{
    typedef im__form<FORM> F;
    IM__DYNAMIC(uint8_t, memory);
    job j = job_of(all);
    stream s;
    s.slot = memory + j.warp * (DEPTH * j.p->w.unit_bytes);
    ask_for_first(j, s);
    im__next_kernel_start();
    uint8_t *acts = memory + j.warps * (DEPTH * j.p->w.unit_bytes);
    uint32_t vectors = (all.selected ? all.step->selected : all.step->rows) * (j.p->wide ? 2 : 1);
    im__earlier_kernels_wait();
    for (uint32_t v0 = 0; v0 < vectors; v0 += VECTORS) {
        if (v0 > 0) ask_for_first(j, s);
        if (vectors - v0 == 1)
            take<F, 1>(j, s, acts, v0, vectors);
        else if (vectors - v0 == 2)
            take<F, 2>(j, s, acts, v0, vectors);
        else
            take<F, VECTORS>(j, s, acts, v0, vectors);
    }
    im__copy_wait<0>();
}

/* ---- float weights: the same blocks; weights and activations are read where they are ---- */

template <int FORM> __device__ __forceinline__ void widen_piece(float *to, uint4 piece)
{
    const uint32_t word[4] = {piece.x, piece.y, piece.z, piece.w};
    for (int k = 0; k < 4; k++) {
        if (FORM == IM__CUDA_F32) to[k] = __uint_as_float(word[k]);
        if (FORM == IM__CUDA_F16) to[2 * k] = im__widen(word[k] & 0xffff), to[2 * k + 1] = im__widen(word[k] >> 16);
        if (FORM == IM__CUDA_BF16)
            to[2 * k] = __uint_as_float(word[k] << 16), to[2 * k + 1] = __uint_as_float(word[k] & 0xffff0000);
    }
}

/* Of rows v0 .. v0 + N - 1, those that are there. */
template <int FORM, int N>
__device__ __forceinline__ void float_chains(const job &j, uint32_t tile, uint32_t chunk, uint32_t v0, uint32_t rows, float *sum)
{
    enum { PIECE = FORM == IM__CUDA_F32 ? 4 : 8, AHEAD = 8 };
    uint32_t n_in = j.p->w.n_in, n = min(n_in - chunk * UNIT, (uint32_t)UNIT);
    const uint8_t *at = j.p->w.data + (uint64_t)tile * j.p->w.tile_bytes + (uint64_t)chunk * j.p->w.unit_bytes + j.lane * 16;
    const float *x = j.p->x + (uint64_t)v0 * n_in + chunk * UNIT;
    float p[N];
    for (int v = 0; v < N; v++) p[v] = 0.0f;
    for (uint32_t begin = 0; begin < n; begin += AHEAD * PIECE) {
        uint4 piece[AHEAD];
#pragma unroll
        for (uint32_t k = 0; k < AHEAD; k++)
            if (begin + k * PIECE < n) piece[k] = im__stream_16(at + (begin / PIECE + k) * (TILE * 16));
#pragma unroll
        for (uint32_t k = 0; k < AHEAD; k++) {
            float weight[PIECE];
            widen_piece<FORM>(weight, piece[k]);
#pragma unroll
            for (uint32_t i = 0; i < PIECE; i++) {
                uint32_t e = begin + k * PIECE + i;
                if (e >= n) break;
                for (uint32_t v = 0; v < N; v++)
                    if (v0 + v < rows) p[v] = im__fma(weight[i], x[(uint64_t)v * n_in + e], p[v]);
            }
        }
    }
    for (int v = 0; v < N; v++) sum[v * TILE + j.lane] = p[v];
}

template <int FORM, int N> __device__ __forceinline__ void float_take(const job &j, float *sum, uint32_t v0, uint32_t rows)
{
    each_tile(j, sum, v0, N, rows, [&](uint32_t tile, float *mine) {
        for (uint32_t chunk = j.warp; chunk < j.chunks; chunk += j.warps)
            float_chains<FORM, N>(j, tile, chunk, v0, rows, mine + chunk * N * TILE);
    });
}

template <int FORM> __device__ __forceinline__ void matmul_few_floats(const im__cuda_products &all)
{
    IM__DYNAMIC(uint8_t, memory);
    job j = job_of(all);
    im__next_kernel_start();
    uint32_t rows = all.selected ? all.step->selected : all.step->rows;
    im__earlier_kernels_wait();
    for (uint32_t v0 = 0; v0 < rows; v0 += VECTORS) {
        if (rows - v0 == 1)
            float_take<FORM, 1>(j, (float *)memory, v0, rows);
        else if (rows - v0 == 2)
            float_take<FORM, 2>(j, (float *)memory, v0, rows);
        else
            float_take<FORM, VECTORS>(j, (float *)memory, v0, rows);
    }
}

} // namespace

#define KERNEL(name, form, body)                                                                                                   \
    extern "C" __global__ void __launch_bounds__(32 * IM__FEW_MOST_WARPS)                                                          \
        im_matmul_few_##name(const __grid_constant__ im__cuda_products p)                                                          \
    {                                                                                                                              \
        body<form>(p);                                                                                                             \
    }
KERNEL(4_half, IM__CUDA_4_HALF, matmul_few)
KERNEL(4_half_min, IM__CUDA_4_HALF_MIN, matmul_few)
KERNEL(5_half, IM__CUDA_5_HALF, matmul_few)
KERNEL(5_half_min, IM__CUDA_5_HALF_MIN, matmul_few)
KERNEL(8_half, IM__CUDA_8_HALF, matmul_few)
KERNEL(4_super_min_16, IM__CUDA_4_SUPER_MIN_16, matmul_few)
KERNEL(4_super_16, IM__CUDA_4_SUPER_16, matmul_few)
KERNEL(4_super_min, IM__CUDA_4_SUPER_MIN, matmul_few)
KERNEL(5_super_min, IM__CUDA_5_SUPER_MIN, matmul_few)
KERNEL(6_super_16, IM__CUDA_6_SUPER_16, matmul_few)
KERNEL(8_super, IM__CUDA_8_SUPER, matmul_few)
KERNEL(8_float, IM__CUDA_8_FLOAT, matmul_few)
KERNEL(4_bf16_min, IM__CUDA_4_BF16_MIN, matmul_few)
KERNEL(8_bf16_min, IM__CUDA_8_BF16_MIN, matmul_few)
KERNEL(f32, IM__CUDA_F32, matmul_few_floats)
KERNEL(f16, IM__CUDA_F16, matmul_few_floats)
KERNEL(bf16, IM__CUDA_BF16, matmul_few_floats)
