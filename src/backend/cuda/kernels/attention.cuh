/* SPDX-License-Identifier: Apache-2.0
 *
 * What the attention kernels share: widening what the cache stores, asynchronous copies, and which keys a row sees.
 */
#ifndef IRONMULE_CUDA_ATTENTION_CUH
#define IRONMULE_CUDA_ATTENTION_CUH

#include "backend/cuda/kernels/attention.h"
/*TEMP*/
#ifdef __CUDACC__
#include <cuda_fp16.h>
#ifndef IM__DYNAMIC
#define IM__DYNAMIC(type, name)                                                                                                    \
    extern __shared__ __align__(128) uint8_t im__dynamic[];                                                                        \
    type *name = (type *)im__dynamic
#endif
#endif
#define im__fma(a, b, c) __fmaf_rn(a, b, c)
#define IM__INFINITY __int_as_float(0x7f800000)
static __device__ __forceinline__ float im__widen(uint32_t h) { return __half2float(__ushort_as_half((unsigned short)h)); }
static __device__ __forceinline__ float im__exp(float x)
{
    float t = __fmaf_rn(x, 0x1.715476p+0f, 0x1.8p+23f), n = t - 0x1.8p+23f;
    float r = __fmaf_rn(n, 0x1.05c61p-29f, __fmaf_rn(n, -0x1.62e43p-1f, x));
    float p = 0x1.6a2458p-10f;
    p = __fmaf_rn(p, r, 0x1.1239d6p-7f);
    p = __fmaf_rn(p, r, 0x1.5558f2p-5f);
    p = __fmaf_rn(p, r, 0x1.555492p-3f);
    p = __fmaf_rn(p, r, 0x1.fffffcp-2f);
    p = __fmaf_rn(p, r, 1.0f);
    p = __fmaf_rn(p, r, 1.0f);
    float y = __int_as_float(__float_as_int(p) + (__float_as_int(t) << 23));
    y = x <= 0x1.62e42ep+6f ? y : x * IM__INFINITY;
    return x <= -0x1.62e43p+5f ? 0.0f : y;
}
static __device__ __forceinline__ float im__softcap(float x, float cap)
{
    float e = im__exp(2.0f * (x / cap));
    return cap * (1.0f - 2.0f / (1.0f + e));
}
static __device__ __forceinline__ void im__copy_16(void *to, const void *from)
{
#if defined(__CUDACC__) && __CUDA_ARCH__ >= 800
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"((uint32_t)__cvta_generic_to_shared(to)), "l"(from) : "memory");
#else
    *(uint4 *)to = *(const uint4 *)from;
#endif
}
static __device__ __forceinline__ void im__copy_commit(void)
{
#if defined(__CUDACC__) && __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
template <int N> static __device__ __forceinline__ void im__copy_wait(void)
{
#if defined(__CUDACC__) && __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
#endif
}
static __device__ __forceinline__ uint32_t im__bits(float x) { return __float_as_uint(x); }
static __device__ __forceinline__ float2 im__load_others(const float *from) { return __ldcg((const float2 *)from); }

/* What a binary16 cache and a binary32 cache are made of. */
typedef uint16_t im__half_bits;

/* Two neighbours, widened. */
static __device__ __forceinline__ float2 im__two(const im__half_bits *at)
{
    uint32_t w = *(const uint32_t *)at;
    return make_float2(im__widen(w & 0xffff), im__widen(w >> 16));
}

static __device__ __forceinline__ float2 im__two(const float *at) { return *(const float2 *)at; }

/* ---- rows --------------------------------------------------------------------------------------------------------------------------- */

/* One row and the keys that it sees. */
typedef struct im__seen {
    uint32_t r;           /* row of q and out */
    uint32_t begin, end;  /* keys */
    uint32_t first, last; /* blocks */
    const int32_t *table;
} im__seen;

static __device__ __forceinline__ im__seen im__row_sees(const im__cuda_attention &a, uint32_t r)
{
    const im__cuda_step &step = *a.step;
    const im__cuda_row &row = step.row[a.selected ? step.source[r] : r];
    im__seen s;
    s.r = r;
    s.end = (uint32_t)row.position + 1;
    s.begin = a.window != 0 && s.end > a.window ? s.end - a.window : 0;
    s.first = s.begin / IM__ATTENTION_PAGE;
    s.last = (s.end - 1) / IM__ATTENTION_PAGE;
    s.table = step.pages + row.table[a.kv.which];
    return s;
}

#endif
