/* SPDX-License-Identifier: Apache-2.0
 *
 * The binary32 functions of the contract. Constants are hexadecimal: the bits are the definition.
 */
#include "num/real.h"

#include <float.h>

_Static_assert(FLT_EVAL_METHOD == 0, "binary32 expressions must be evaluated in binary32");

float im__fma_exact(float a, float b, float c)
{
    double product = (double)a * (double)b, addend = c; /* exact */
    double sum = product + addend;
    double part = sum - product, rest = (product - (sum - part)) + (addend - part); /* sum + rest is exact */
    /* Rounding to odd: an inexact sum is moved to the odd one of its two neighbours, so that it is never a midpoint of binary32. A rest
     * that is NaN (infinite operands) compares false. */
    if (rest < 0 || rest > 0) {
        uint64_t bits;
        memcpy(&bits, &sum, sizeof bits);
        if ((bits & 1) == 0) bits += (rest > 0) == (sum > 0) ? 1 : (uint64_t)-1;
        memcpy(&sum, &bits, sizeof sum);
    }
    return (float)sum;
}

float im__exp(float x)
{
    if (x <= -0x1.62e43p+5f) return 0.0f;
    if (!(x <= 0x1.62e42ep+6f)) return x * im__f32_of_bits(0x7f800000); /* +inf, or NaN for NaN */

    float shifted = im__fma(x, 0x1.715476p+0f, 0x1.8p+23f); /* n = round(x / ln 2) in the low bits */
    float n = shifted - 0x1.8p+23f;
    float r = im__fma(n, -0x1.62e43p-1f, x); /* exact */
    r = im__fma(n, 0x1.05c61p-29f, r);

    float p = 0x1.6a2458p-10f;
    p = im__fma(p, r, 0x1.1239d6p-7f);
    p = im__fma(p, r, 0x1.5558f2p-5f);
    p = im__fma(p, r, 0x1.555492p-3f);
    p = im__fma(p, r, 0x1.fffffcp-2f);
    p = im__fma(p, r, 1.0f);
    p = im__fma(p, r, 1.0f);
    return im__f32_of_bits(im__bits_of_f32(p) + (im__bits_of_f32(shifted) << 23)); /* p * 2^n, always a normal number */
}

float im__silu(float x) { return x / (1.0f + im__exp(-x)); }

float im__gelu(float x)
{
    float slope = im__fma(x * x, -0x1.2444f2p-4f, -0x1.988454p+0f); /* -2 sqrt(2/pi) (0.044715 x^2 + 1) */
    return x / (1.0f + im__exp(x * slope));
}

float im__softcap(float x, float cap)
{
    float e = im__exp(2.0f * (x / cap));
    return cap * (1.0f - 2.0f / (1.0f + e));
}

static float halving_tree(float lane[IM__LANES])
{
    for (size_t half = IM__LANES / 2; half > 0; half /= 2)
        for (size_t l = 0; l < half; l++) lane[l] = lane[l] + lane[l + half];
    return lane[0];
}

float im__lane_sum(const float *x, size_t n)
{
    float lane[IM__LANES] = {0};
    for (size_t i = 0; i < n; i++) lane[i % IM__LANES] += x[i];
    return halving_tree(lane);
}

float im__lane_sum_squares(const float *x, size_t n)
{
    float lane[IM__LANES] = {0};
    for (size_t i = 0; i < n; i++) lane[i % IM__LANES] = im__fma(x[i], x[i], lane[i % IM__LANES]);
    return halving_tree(lane);
}
