/* SPDX-License-Identifier: Apache-2.0
 *
 * The functions of the numeric contract (docs/numerics.md) for kernels; the names are those of num/real.h, and so are the bits. A kernel includes this and never
 * num/real.h. The compiler neither contracts nor approximates: -fmad=false -prec-div=true -prec-sqrt=true -ftz=false.
 */
#ifndef IRONMULE_CUDA_NUM_CUH
#define IRONMULE_CUDA_NUM_CUH

#include "backend/cuda/kernels/ptx.cuh"

#ifdef __CUDACC__
#include <cuda_fp16.h>

/* A variable in shared memory, and the dynamic shared memory, as the emulator of the tests needs to be told of them. */
#define IM__SHARED(type, name) __shared__ type name
#define IM__DYNAMIC(type, name)                                                                                                    \
    extern __shared__ __align__(128) unsigned char im__dynamic[];                                                                  \
    type *name = (type *)im__dynamic
#define IM__KEPT(x) asm volatile("" : "+f"(x))
#else
#define IM__KEPT(x) ((void)0)
#endif

#define IM__FUNCTION IM__DEVICE
#include "num/rope_turn.h"

enum { IM__LANES = 128 };

#define IM__INFINITY __uint_as_float(0x7f800000)
#define IM__NAN __uint_as_float(0x7fc00000)

IM__DEVICE uint32_t im__bits(float x) { return __float_as_uint(x); }
IM__DEVICE float im__fma(float a, float b, float c) { return __fmaf_rn(a, b, c); }

/* binary16 (the low bits) and bfloat16, widened exactly. */
IM__DEVICE float im__widen(uint32_t half) { return __half2float(__ushort_as_half((unsigned short)half)); }
IM__DEVICE float im__widen_bf16(uint32_t bits) { return __uint_as_float(bits << 16); }
/* Rounded to binary16, to nearest even. */
IM__DEVICE uint32_t im__half(float x) { return __half_as_ushort(__float2half_rn(x)); }

/* Every branch is a selection, so that several can be under way in a thread. */
IM__DEVICE float im__exp(float x)
{
    float shifted = im__fma(x, 0x1.715476p+0f, 0x1.8p+23f), n = shifted - 0x1.8p+23f;
    float r = im__fma(n, 0x1.05c61p-29f, im__fma(n, -0x1.62e43p-1f, x));
    float p = 0x1.6a2458p-10f;
    p = im__fma(p, r, 0x1.1239d6p-7f);
    p = im__fma(p, r, 0x1.5558f2p-5f);
    p = im__fma(p, r, 0x1.555492p-3f);
    p = im__fma(p, r, 0x1.fffffcp-2f);
    p = im__fma(p, r, 1.0f);
    p = im__fma(p, r, 1.0f);
    float y = __uint_as_float(__float_as_uint(p) + (__float_as_uint(shifted) << 23));
    IM__KEPT(y); /* the compiler would branch around the polynomial */
    y = x <= 0x1.62e42ep+6f ? y : x * IM__INFINITY;
    return x <= -0x1.62e43p+5f ? 0.0f : y;
}

IM__DEVICE float im__silu(float x) { return x / (1.0f + im__exp(-x)); }

IM__DEVICE float im__gelu(float x)
{
    float slope = im__fma(x * x, -0x1.2444f2p-4f, -0x1.988454p+0f);
    return x / (1.0f + im__exp(x * slope));
}

IM__DEVICE float im__softcap(float x, float cap)
{
    float e = im__exp(2.0f * (x / cap));
    return cap * (1.0f - 2.0f / (1.0f + e));
}

/* The end of the lane rule: the sums of lanes l, l + 32, l + 64, l + 96 in lane l of a whole warp become the total in every lane. Addition commutes, so
 * an exchange gives each lane the bits of lane 0. */
IM__DEVICE float im__lanes_total(float a0, float a32, float a64, float a96)
{
    float a = (a0 + a64) + (a32 + a96);
    for (int h = 16; h > 0; h /= 2) a = a + __shfl_xor_sync(0xffffffff, a, h);
    return a;
}

IM__DEVICE float im__norm_factor(float total, float n, float eps) { return 1.0f / sqrtf(total / n + eps); }

/* Of a group whose largest magnitude has these bits (anything above those of the largest finite number: some element is not finite): what its elements are
 * multiplied by, 0 if all its integers are 0, and its scale. */
typedef struct im__group_scale {
    float factor, d;
} im__group_scale;

IM__DEVICE im__group_scale im__scale_of(uint32_t magnitude)
{
    float a = __uint_as_float(magnitude);
    im__group_scale s;
    bool finite = magnitude < 0x7f800000, usable = finite && magnitude >= 0x1f800000; /* 2^-64 */
    s.factor = usable ? 127.0f / a : 0.0f;
    s.d = usable ? a / 127.0f : finite ? 0.0f : IM__NAN;
    return s;
}

/* The integer in the low byte. A factor of 0 gives 0 whatever x is. */
IM__DEVICE uint32_t im__quantised(float x, float factor)
{
    return factor != 0.0f ? __float_as_uint(x * factor + 0x1.8p23f) & 0xff : 0;
}

#endif
