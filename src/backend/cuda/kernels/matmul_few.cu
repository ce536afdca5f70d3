/* SPDX-License-Identifier: Apache-2.0
 *
 * Products of few rows: y = W x for up to four vectors at once (rows, and for wide products their rests), limited by the reading of W. A lane of a warp owns the chain of one output
 * in one chunk: it asks for all its weights of the chunk at once (before it waits for the kernel that makes the activations), the warp stages the chunk's activations, and each
 * lane runs its chain. The chunks' sums meet in shared memory and are added in order.
 */
#include "backend/cuda/abi.h"
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
    STAGE = IM__FEW_STAGE
};

/* As a float 1.5 * 2^23: an integer below 2^22 in magnitude that is added to these bits and then, as a float, less 1.5 * 2^23 is converted, exactly. */
enum { MAGIC = 0x4b400000 };
__device__ __forceinline__ float converted(int bits) { return __int_as_float(bits) - 12582912.0f; }

/* ---- what a block and a lane work on ---- */

struct job {
    const im__cuda_product *p;
    uint32_t tile, split, part; /* outputs part * outs .. of the tile */
    uint32_t outs;              /* of the block */
    uint32_t output, sub;       /* the lane's output in the tile; which of the warp's `split` chunks */
    uint32_t chunks, rows;
};

__device__ __forceinline__ job job_of(const im__cuda_products &all)
{
    uint32_t i = 0;
    while (blockIdx.x >= all.first_block[i + 1]) i++;
    job j;
    j.p = &all.product[i];
    uint32_t tiles = (j.p->w.n_out + TILE - 1) / TILE, block = blockIdx.x - all.first_block[i], lane = threadIdx.x % WARP;
    j.split = (all.first_block[i + 1] - all.first_block[i]) / tiles;
    j.tile = block / j.split;
    j.part = block % j.split;
    j.outs = TILE / j.split;
    j.output = j.part * j.outs + lane % j.outs;
    j.sub = lane / j.outs;
    j.chunks = (j.p->w.n_in + UNIT - 1) / UNIT;
    j.rows = 0;
    return j;
}

__device__ __forceinline__ uint32_t groups_of(const job &j, uint32_t chunk)
{
    uint32_t left = chunk < j.chunks ? (j.p->w.n_in - chunk * UNIT) / 32 : 0;
    return min(left, (uint32_t)GROUPS);
}

__device__ __forceinline__ const uint8_t *unit_of(const job &j, uint32_t chunk)
{
    return j.p->w.data + (uint64_t)j.tile * j.p->w.tile_bytes + (uint64_t)chunk * j.p->w.unit_bytes;
}

/* ---- weights of a lane's chunk, as they are stored ---- */

template <class F> struct weights {
    uint4 codes[GROUPS][F::BITS == 8 ? 2 : 1];
    uint2 top[F::BITS == 5 || F::BITS == 6 ? GROUPS : 1];
    uint32_t scale[F::GROUP == 16 ? 2 * GROUPS : GROUPS];
    uint32_t super;
};

template <class F> __device__ __forceinline__ void ask_for_scale(weights<F> &w, const uint8_t *scales, uint32_t output, uint32_t k)
{
    uint32_t place = k * TILE + output;
    if (F::SCALE == IM__SCALE_HALF) w.scale[k] = im__stream_2(scales + place * 2);
    if (F::SCALE == IM__SCALE_HALF_MIN || F::SCALE == IM__SCALE_FLOAT) w.scale[k] = im__stream_4(scales + place * 4);
    if (F::SCALE == IM__SCALE_SUPER) w.scale[k] = (uint32_t)im__stream_s8(scales + 64 + place);
    if (F::SCALE == IM__SCALE_SUPER_MIN) w.scale[k] = im__stream_2(scales + 128 + place * 2);
}

template <class F>
__device__ __forceinline__ void ask_for_group(weights<F> &w, const uint8_t *unit, uint32_t groups, uint32_t output, uint32_t g)
{
    const uint8_t *top = unit + groups * 512, *scales = unit + groups * F::CODE_BYTES;
    uint32_t place = g * TILE + output;
    if (F::BITS == 8) {
        w.codes[g][0] = im__stream_16(unit + (place + g * TILE) * 16);
        w.codes[g][F::BITS == 8] = im__stream_16(unit + (place + g * TILE + TILE) * 16);
    } else {
        w.codes[g][0] = im__stream_16(unit + place * 16);
    }
    if (F::BITS == 5) w.top[g % (sizeof w.top / sizeof *w.top)].x = im__stream_4(top + place * 4);
    if (F::BITS == 6) w.top[g % (sizeof w.top / sizeof *w.top)] = im__stream_8(top + place * 8);
    if (F::GROUP == 16) {
        ask_for_scale<F>(w, scales, output, 2 * g);
        ask_for_scale<F>(w, scales, output, 2 * g + 1);
    } else {
        ask_for_scale<F>(w, scales, output, g);
    }
}

template <class F> __device__ __forceinline__ void ask(weights<F> &w, const job &j, uint32_t chunk)
{
    uint32_t groups = groups_of(j, chunk);
    const uint8_t *unit = unit_of(j, chunk), *scales = unit + groups * F::CODE_BYTES;
    if (groups == GROUPS) {
#pragma unroll
        for (uint32_t g = 0; g < GROUPS; g++) ask_for_group<F>(w, unit, GROUPS, j.output, g);
    } else {
#pragma unroll
        for (uint32_t g = 0; g < GROUPS; g++)
            if (g < groups) ask_for_group<F>(w, unit, groups, j.output, g);
    }
    if (F::SCALE == IM__SCALE_SUPER && groups > 0) w.super = im__stream_2(scales + j.output * 2);
    if (F::SCALE == IM__SCALE_SUPER_MIN && groups > 0) w.super = im__stream_4(scales + j.output * 4);
}

template <class F> __device__ __forceinline__ im__scale scale_of(const weights<F> &w, uint32_t k)
{
    uint32_t stored = w.scale[k];
    im__scale r = {0.0f, 0.0f};
    if (F::SCALE == IM__SCALE_HALF) r.s = im__widen(stored);
    if (F::SCALE == IM__SCALE_HALF_MIN) r.s = im__widen(stored & 0xffff), r.m = im__widen(stored >> 16);
    if (F::SCALE == IM__SCALE_FLOAT) r.s = __uint_as_float(stored);
    if (F::SCALE == IM__SCALE_SUPER) r.s = im__widen(w.super) * converted(MAGIC + (int)stored);
    if (F::SCALE == IM__SCALE_SUPER_MIN) {
        r.s = im__widen(w.super & 0xffff) * converted(MAGIC + (int)(stored & 0xff));
        r.m = im__widen(w.super >> 16) * converted(MAGIC + (int)(stored >> 8));
    }
    return r;
}

/* ---- activations of a chunk, staged ----
 *
 * 256 bytes of integers, then a record of 16 bytes for each group: its scale, and for its two halves (together, where the form has groups of 32) what the form
 * needs beside the products: the sum, or where there is an offset the bits at which the integer sum starts. */

struct staged_group {
    float d;
    int first, second, pad;
};

template <class F> __device__ __forceinline__ int beside(int sum)
{
    if (F::HAS_MIN) return __float_as_int((float)sum);
    return MAGIC - F::OFFSET * sum;
}

/* Of the warp's chunks first .. first + split - 1, for vectors v0 .. v0 + n - 1. Vector v: row v / planes, its rest when odd and wide. */
template <class F, int N>
__device__ __forceinline__ void stage(uint8_t *to, const job &j, uint32_t first, uint32_t v0, uint32_t vectors)
{
    const im__cuda_act &act = j.p->act;
    uint32_t lane = threadIdx.x % WARP, planes = j.p->wide ? 2 : 1;
    for (uint32_t k = lane; k < j.split * (UNIT / 16); k += WARP) {
        uint32_t chunk = first + k / 16, e = chunk * UNIT + k % 16 * 16;
        if (e >= j.p->w.n_in) continue;
#pragma unroll
        for (uint32_t v = 0; v < N; v++) {
            if (v0 + v >= vectors) continue;
            uint64_t row = (v0 + v) / planes + (uint64_t)((v0 + v) % planes) * act.rest_rows;
            uint8_t *at = to + (k / 16 * VECTORS + v) * STAGE;
            *(uint4 *)(at + k % 16 * 16) = *(const uint4 *)(act.q + row * act.n + e);
            if (k % 2 != 0) continue;
            uint2 group = *(const uint2 *)&act.group[row * (act.n / 32) + e / 32];
            int s0 = (int16_t)group.y, s1 = (int)group.y >> 16;
            staged_group g = {__uint_as_float(group.x), beside<F>(F::GROUP == 16 ? s0 : s0 + s1), beside<F>(s1), 0};
            *(staged_group *)(at + 256 + k % 16 / 2 * 16) = g;
        }
    }
}

/* ---- a group's integer products ---- */

struct sums {
    float first, second; /* of the halves; of groups of 32 only the first */
};

/* Words of codes: low nibbles of the 16 bytes are elements 0 .. 15, high ones 16 .. 31, which are taken 16 times too large. */
template <class F> struct unpacked {
    uint32_t low[4], high[4];
};

template <class F> __device__ __forceinline__ unpacked<F> unpack(const weights<F> &w, uint32_t g)
{
    unpacked<F> u;
    const uint32_t *c = (const uint32_t *)&w.codes[g][0];
    if (F::BITS == 8) {
        const uint32_t *d = (const uint32_t *)&w.codes[g][F::BITS == 8];
        for (int k = 0; k < 4; k++) u.low[k] = c[k], u.high[k] = d[k];
        return u;
    }
    uint2 top = w.top[g % (sizeof w.top / sizeof *w.top)];
    for (int k = 0; k < 4; k++) {
        if (F::BITS == 4) u.low[k] = c[k] & 0x0f0f0f0f, u.high[k] = c[k] & 0xf0f0f0f0;
        if (F::BITS == 5) {
            u.low[k] = (c[k] & 0x0f0f0f0f) | (top.x << (4 - k) & 0x10101010);
            u.high[k] = (c[k] >> 4 & 0x0f0f0f0f) | (top.x >> k & 0x10101010);
        }
        if (F::BITS == 6) {
            u.low[k] = (c[k] & 0x0f0f0f0f) | ((k < 2 ? top.x << (4 - 2 * k) : top.x >> (2 * k - 4)) & 0x30303030);
            u.high[k] = (c[k] >> 4 & 0x0f0f0f0f) | ((k < 2 ? top.y << (4 - 2 * k) : top.y >> (2 * k - 4)) & 0x30303030);
        }
    }
    return u;
}

template <class F> __device__ __forceinline__ sums dots(const unpacked<F> &u, const uint8_t *q, const staged_group &a)
{
    const uint4 x0 = *(const uint4 *)q, x1 = *(const uint4 *)(q + 16);
    const uint32_t x[8] = {x0.x, x0.y, x0.z, x0.w, x1.x, x1.y, x1.z, x1.w};
    bool starts = F::OFFSET != 0, shifted = F::BITS == 4;
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
__device__ __forceinline__ void chain_group(float p[N], const weights<F> &w, const uint8_t *acts, uint32_t g)
{
    unpacked<F> u = unpack(w, g);
    im__scale s0 = scale_of(w, F::GROUP == 16 ? 2 * g : g), s1 = F::GROUP == 16 ? scale_of(w, 2 * g + 1) : s0;
#pragma unroll
    for (int v = 0; v < N; v++) {
        const uint8_t *at = acts + v * STAGE;
        staged_group a = *(const staged_group *)(at + 256 + g * 16);
        sums x = dots<F>(u, at + g * 32, a);
        step<F>(p[v], s0, a, x.first, a.first);
        if (F::GROUP == 16) step<F>(p[v], s1, a, x.second, a.second);
    }
}

/* sum: [chunk][vector][output of the block]. */
template <class F, int N>
__device__ __forceinline__ void chains(const job &j, const weights<F> &w, uint32_t chunk, const uint8_t *acts, float *sum)
{
    uint32_t groups = groups_of(j, chunk);
    float p[N];
#pragma unroll
    for (int v = 0; v < N; v++) p[v] = 0.0f;
    if (groups == GROUPS) {
#pragma unroll
        for (uint32_t g = 0; g < GROUPS; g++) chain_group<F, N>(p, w, acts, g);
    } else {
#pragma unroll
        for (uint32_t g = 0; g < GROUPS; g++)
            if (g < groups) chain_group<F, N>(p, w, acts, g);
    }
    if (groups == 0) return;
#pragma unroll
    for (int v = 0; v < N; v++) sum[(chunk * N + v) * j.outs + j.output % j.outs] = p[v];
}

/* ---- results ---- */

__device__ __forceinline__ float sum_of_chunks(const job &j, const float *sum, uint32_t vectors, uint32_t v, uint32_t o)
{
    float y = sum[v * j.outs + o];
    for (uint32_t c = 1; c < j.chunks; c++) y = y + sum[(c * vectors + v) * j.outs + o];
    return y;
}

/* Vectors v0 .. of `together` that lie in `sum`; a row's planes are neighbours, so they are always together. */
__device__ __forceinline__ void write(const job &j, const float *sum, uint32_t v0, uint32_t together, uint32_t vectors)
{
    uint32_t planes = j.p->wide ? 2 : 1, left = vectors - v0, rows = (left < together ? left : together) / planes;
    for (uint32_t i = threadIdx.x; i < rows * j.outs; i += blockDim.x) {
        uint32_t r = i / j.outs, o = i % j.outs, out = j.tile * TILE + j.part * j.outs + o;
        if (out >= j.p->w.n_out) continue;
        float y = sum_of_chunks(j, sum, together, r * planes, o);
        if (planes == 2) y = y + sum_of_chunks(j, sum, together, r * planes + 1, o);
        if (j.p->bias != NULL) y = y + j.p->bias[out];
        j.p->y[(uint64_t)(v0 / planes + r) * j.p->w.n_out + out] = y;
    }
}

/* All chunks for vectors v0 .. v0 + N - 1. `w` holds the weights of the warp's first chunks. */
template <class F, int N>
__device__ __forceinline__ void take(const job &j, weights<F> &w, uint8_t *memory, uint32_t v0, uint32_t vectors)
{
    uint32_t warp = threadIdx.x / WARP, warps = blockDim.x / WARP;
    uint8_t *acts = memory + warp * (j.split * VECTORS * STAGE);
    float *sum = (float *)(memory + warps * (j.split * VECTORS * STAGE));
    for (uint32_t first = warp * j.split; first < j.chunks; first += warps * j.split) {
        if (v0 > 0 || first >= warps * j.split) ask<F>(w, j, first + j.sub);
        stage<F, N>(acts, j, first, v0, vectors);
        __syncwarp();
        chains<F, N>(j, w, first + j.sub, acts + j.sub * (VECTORS * STAGE), sum);
        __syncwarp();
    }
    __syncthreads();
    write(j, sum, v0, N, vectors);
    __syncthreads();
}

template <int FORM> __device__ __forceinline__ void matmul_few(const im__cuda_products &all)
{
    typedef im__form<FORM> F;
    IM__DYNAMIC(uint8_t, memory);
    job j = job_of(all);
    weights<F> w;
    ask<F>(w, j, threadIdx.x / WARP * j.split + j.sub);
    im__next_kernel_start();
    uint32_t vectors = (all.selected ? all.step->selected : all.step->rows) * (j.p->wide ? 2 : 1);
    im__earlier_kernels_wait();
    for (uint32_t v0 = 0; v0 < vectors; v0 += VECTORS) {
        if (vectors - v0 == 1)
            take<F, 1>(j, w, memory, v0, vectors);
        else if (vectors - v0 == 2)
            take<F, 2>(j, w, memory, v0, vectors);
        else
            take<F, VECTORS>(j, w, memory, v0, vectors);
    }
}

/* ---- float weights: the same blocks; activations are read where they are ---- */

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
__device__ __forceinline__ void float_chains(const job &j, uint32_t chunk, uint32_t v0, uint32_t rows, float *sum)
{
    enum { PIECE = FORM == IM__CUDA_F32 ? 4 : 8, AHEAD = 8 };
    uint32_t n_in = j.p->w.n_in, n = chunk < j.chunks ? min(n_in - chunk * UNIT, (uint32_t)UNIT) : 0;
    const uint8_t *at = unit_of(j, chunk) + j.output * 16;
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
    if (n == 0) return;
    for (int v = 0; v < N; v++) sum[(chunk * N + v) * j.outs + j.output % j.outs] = p[v];
}

template <int FORM, int N> __device__ __forceinline__ void float_take(const job &j, float *sum, uint32_t v0, uint32_t rows)
{
    uint32_t step = blockDim.x / WARP * j.split;
    for (uint32_t first = threadIdx.x / WARP * j.split; first < j.chunks; first += step)
        float_chains<FORM, N>(j, first + j.sub, v0, rows, sum);
    __syncthreads();
    write(j, sum, v0, N, rows);
    __syncthreads();
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
KERNEL(f32, IM__CUDA_F32, matmul_few_floats)
KERNEL(f16, IM__CUDA_F16, matmul_few_floats)
KERNEL(bf16, IM__CUDA_BF16, matmul_few_floats)
