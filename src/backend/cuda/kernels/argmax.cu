/* SPDX-License-Identifier: Apache-2.0
 *
 * The greedy choice. Blocks find the best of their share of a row; the last one that is done writes the row's, and leaves the counters as it found them.
 */
#include "backend/cuda/kernels/argmax.h"
#include "backend/cuda/kernels/num.cuh"

typedef unsigned long long im__choice;

static __device__ im__choice im__best[IM__ARGMAX_ROWS];
static __device__ uint32_t im__arrived[IM__ARGMAX_ROWS];

/* A number that is larger for the better choice: a NaN before all, then the larger logit (zeros of both signs are one), then the lower index. */
static __device__ __forceinline__ im__choice choice_of(float logit, uint32_t index)
{
    uint32_t bits = im__bits(logit + 0.0f), order = bits & 0x80000000 ? ~bits : bits | 0x80000000;
    if (logit != logit) order = 0xffffffff;
    return (im__choice)order << 32 | (0xffffffffu - index);
}

static __device__ __forceinline__ im__choice better(im__choice a, im__choice b) { return a > b ? a : b; }

static __device__ im__choice best_of_share(const float *row, uint32_t begin, uint32_t end)
{
    im__choice best = 0;
#pragma unroll 8
    for (uint32_t i = begin + threadIdx.x; i < end; i += IM__ARGMAX_THREADS) best = better(best, choice_of(row[i], i));
    return best;
}

static __device__ im__choice best_of_block(im__choice mine)
{
    typedef im__choice choices[IM__ARGMAX_THREADS / 32];
    IM__SHARED(choices, of_warp);
    for (int by = 16; by > 0; by /= 2) mine = better(mine, __shfl_xor_sync(0xffffffff, mine, by));
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = mine;
    __syncthreads();
    im__choice best = 0;
    for (uint32_t w = 0; w < IM__ARGMAX_THREADS / 32; w++) best = better(best, of_warp[w]);
    return best;
}

extern "C" __global__ void __launch_bounds__(IM__ARGMAX_THREADS)
    im_argmax(const float *logits, uint32_t vocab, uint32_t rows, int32_t *out)
{
    uint32_t r = blockIdx.y, begin = blockIdx.x * IM__ARGMAX_SHARE, end = min(begin + (uint32_t)IM__ARGMAX_SHARE, vocab);
    im__next_kernel_start();
    im__earlier_kernels_wait();
    if (r >= rows) return;
    im__choice best = best_of_block(best_of_share(logits + (uint64_t)r * vocab, begin, end));
    if (threadIdx.x != 0) return;
    atomicMax(&im__best[r], best);
    __threadfence();
    if (atomicAdd(&im__arrived[r], 1u) + 1 < gridDim.x) return;
    __threadfence();
    best = atomicExch(&im__best[r], (im__choice)0);
    im__arrived[r] = 0;
    out[r] = vocab == 0 || best >> 32 == 0xffffffff ? -1 : (int32_t)(0xffffffffu - (uint32_t)best);
}
