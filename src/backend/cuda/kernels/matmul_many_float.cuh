/* SPDX-License-Identifier: Apache-2.0
 *
 * Products of many rows with float weights: a chain of fma over each chunk of 256. A block takes 64 outputs of 64 rows, a thread 4 by 4 of them (outputs and
 * rows 16 apart), 32 elements of the inner dimension at a time through shared memory.
 */
#ifndef IRONMULE_BACKEND_CUDA_KERNELS_MATMUL_MANY_FLOAT_CUH
#define IRONMULE_BACKEND_CUDA_KERNELS_MATMUL_MANY_FLOAT_CUH

#include "backend/cuda/kernels/matmul_many.cuh"

enum { IM__MANY_FLOAT_STEP = 32, IM__MANY_FLOAT_STRIDE = 64 + 1 };

struct im__many_float_step {
    float w[IM__MANY_FLOAT_STEP][IM__MANY_FLOAT_STRIDE]; /* [element][output] */
    float x[IM__MANY_FLOAT_STEP][IM__MANY_FLOAT_STRIDE]; /* [element][row] */
};

/* Element k of an output: a unit is [16 bytes' worth of elements][output][16 B]. */
template <int form> __device__ __forceinline__ float im__many_weight(const im__cuda_matrix &w, uint32_t output, uint32_t k)
{
    constexpr uint32_t size = form == IM__CUDA_F32 ? 4 : 2, in_piece = 16 / size;
    const uint32_t in_unit = k % IM__CUDA_UNIT;
    const uint8_t *at = w.data + (size_t)(output / IM__CUDA_TILE) * w.tile_bytes + (size_t)(k / IM__CUDA_UNIT) * w.unit_bytes +
                        (in_unit / in_piece * IM__CUDA_TILE + output % IM__CUDA_TILE) * 16 + in_unit % in_piece * size;
    if (form == IM__CUDA_F32) return *(const float *)at;
    const uint32_t bits = *(const uint16_t *)at;
    return form == IM__CUDA_F16 ? im__widen(bits) : im__widen_bf16(bits);
}

/* Elements begin .. of the inner dimension into shared memory. What lies beyond n_in is not used; beyond the outputs or rows it is a copy. */
template <int form>
__device__ __forceinline__ void im__many_float_fetch(im__many_float_step &s, const im__many_place &at, uint32_t begin)
{
    const im__cuda_product &p = at.product;
    for (uint32_t i = threadIdx.x; i < IM__MANY_FLOAT_STEP * 64; i += IM__MANY_FLOAT_THREADS) {
        const uint32_t k = i % IM__MANY_FLOAT_STEP, j = i / IM__MANY_FLOAT_STEP;
        if (begin + k >= p.w.n_in) continue;
        s.x[k][j] = p.x[(size_t)min(at.row + j, at.rows - 1) * p.w.n_in + begin + k];
    }
    for (uint32_t i = threadIdx.x; i < IM__MANY_FLOAT_STEP * 64; i += IM__MANY_FLOAT_THREADS) {
        const uint32_t o = i % 64, k = i / 64;
        if (begin + k < p.w.n_in)
            s.w[k][o] = im__many_weight<form>(p.w, min(at.tile * IM__CUDA_TILE + o, p.w.n_out - 1), begin + k);
    }
}

template <int form>
__device__ __forceinline__ void im__many_float_products(const im__cuda_products &products, im__many_float_step &s)
{
    im__many_place at;
    const bool some = im__many_find(at, products, IM__MANY_FLOAT_OUT, IM__MANY_FLOAT_ROWS);
    im__next_kernel_start();
    im__earlier_kernels_wait();
    if (!some) return;
    const im__cuda_product &p = at.product;
    const uint32_t o = threadIdx.x % 16, r = threadIdx.x / 16;
    float y[4][4], sum[4][4];
    for (int i = 0; i < 16; i++) y[i / 4][i % 4] = -0.0f, sum[i / 4][i % 4] = 0;
    for (uint32_t begin = 0; begin < p.w.n_in; begin += IM__MANY_FLOAT_STEP) {
        __syncthreads();
        im__many_float_fetch<form>(s, at, begin);
        __syncthreads();
        const uint32_t n = min((uint32_t)IM__MANY_FLOAT_STEP, p.w.n_in - begin);
        for (uint32_t k = 0; k < n; k++)
#pragma unroll
            for (int i = 0; i < 4; i++)
#pragma unroll
                for (int j = 0; j < 4; j++) sum[i][j] = __fmaf_rn(s.w[k][o + 16 * i], s.x[k][r + 16 * j], sum[i][j]);
        if ((begin + n) % IM__CUDA_UNIT != 0 && begin + n < p.w.n_in) continue;
#pragma unroll
        for (int i = 0; i < 16; i++) {
            y[i / 4][i % 4] = __fadd_rn(y[i / 4][i % 4], sum[i / 4][i % 4]);
            sum[i / 4][i % 4] = 0;
        }
    }
#pragma unroll
    for (int i = 0; i < 16; i++) {
        const uint32_t output = at.tile * IM__CUDA_TILE + o + 16 * (i / 4), row = at.row + r + 16 * (i % 4);
        if (output >= p.w.n_out || row >= at.rows) continue;
        p.y[(size_t)row * p.w.n_out + output] = p.bias ? __fadd_rn(y[i / 4][i % 4], p.bias[output]) : y[i / 4][i % 4];
    }
}

#define FLOAT_KERNEL(text, form)                                                                                                   \
    extern "C" __global__ void __launch_bounds__(IM__MANY_FLOAT_THREADS)                                                           \
        im_matmul_many_##text(const __grid_constant__ im__cuda_products products)                                                  \
    {                                                                                                                              \
        IM__SHARED(im__many_float_step, step);                                                                                     \
        im__many_float_products<form>(products, step);                                                                             \
    }

#endif
