/* SPDX-License-Identifier: Apache-2.0
 *
 * The functions of the numeric contract (docs/numerics.md, section 6): our own polynomials in a fixed order of steps, so that every
 * backend gets the same bits. A fused multiply-add happens exactly where the code says im__fma. Vector kernels repeat these steps lane
 * by lane. All functions are pure and expect the default floating-point environment (round to nearest even, subnormals kept).
 *
 * NaN has no bits: where a result is NaN, any NaN is right (processors differ in sign and payload), and comparisons treat all NaN as equal.
 */
#ifndef IRONMULE_NUM_REAL_H
#define IRONMULE_NUM_REAL_H

#include "num/half.h"

#include <stddef.h>
#include <stdint.h>

/* Version of the contract: results of two builds with the same number have the same bits. */
#define IM__NUMERICS_VERSION 1

/* im__fma where the machine has no instruction for it. */
float im__fma_exact(float a, float b, float c);

/* The correctly rounded fused multiply-add a * b + c of IEEE 754: the instruction where the target of this translation unit has one, our
 * own exact routine elsewhere; the bits are the same, so that files compiled for different levels may be mixed. */
static inline float im__fma(float a, float b, float c)
{
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
    return __builtin_fmaf(a, b, c);
#else
    /* The product of two binary32 is exact in binary64; the sum is rounded once there and once more on the way back. The two roundings
     * differ from one only if the first lands on a midpoint between two binary32, or where binary32 is subnormal: the exact routine. */
    double sum = (double)a * (double)b + (double)c;
    uint64_t bits;
    memcpy(&bits, &sum, sizeof bits);
    int midpoint = (bits & 0x1fffffff) == 0x10000000, tiny = (bits << 1) < (UINT64_C(897) << 53); /* 2^-126 */
    return midpoint || tiny ? im__fma_exact(a, b, c) : (float)sum;
#endif
}

/* e^x: exactly 1 at 0, exactly 0 at and below the binary32 next to -64 ln 2 (and at -inf), +inf above the range, NaN for NaN; error
 * below 1 ulp elsewhere. */
float im__exp(float x);

/* x * sigmoid(x) = x / (1 + e^-x) */
float im__silu(float x);

/* GELU, tanh form: x / (1 + e^(-2u)), u = sqrt(2/pi) (x + 0.044715 x^3), in the order of steps that the body shows. */
float im__gelu(float x);

/* cap * tanh(x / cap), tanh(t) = 1 - 2 / (1 + e^(2t)). */
float im__softcap(float x, float cap);

/* The nearest integer, ties to even, of |x| <= 2^22. */
static inline float im__round_even(float x) { return (x + 0x1.8p23f) - 0x1.8p23f; }

/* The lane rule (section 3): 128 virtual lanes, halving tree. Sum of x[0..n), and of their squares. */
#define IM__LANES 128
float im__lane_sum(const float *x, size_t n);
float im__lane_sum_squares(const float *x, size_t n);

/* theta^(-2 i / dim), the frequency of rotary pair i; theta is finite and at least 2^-1022, dim > 0. */
double im__rope_frequency(double theta, unsigned i, unsigned dim);

/* cos and sin of position * frequency (the product of the two is not rounded), rounded to binary32; error before rounding below 1e-12.
 * |position| <= 2^24, 0 <= frequency <= 2. */
void im__rope_angle(int64_t position, double frequency, float *cosine, float *sine);

#endif
