/* SPDX-License-Identifier: Apache-2.0
 *
 * The contract's float functions without branches in the usual case, so that several can be in flight, and the quantising of groups that lie across a warp.
 */
#pragma once

#include "decode_port.cuh"

/* ---- division and root without range checks ----
 *
 * For operands between 2^-60 and 2^60: y = RN(1/b) by one Newton step, then q + (a - bq) y is RN(a/b) (Markstein); the root likewise. Compared with the exact
 * ones over every mantissa (bench of the decoder, `exact`). */
INLINE float exact_rcp(float b)
{
    float r = rcp_approx(b);
    return fmaf(r, fmaf(-b, r, 1.0f), r);
}
INLINE float exact_div(float a, float b, float rcp_b) /* rcp_b = RN(1/b) */
{
    float q = a * rcp_b;
    return fmaf(fmaf(-b, q, a), rcp_b, q);
}
INLINE float exact_sqrt(float x)
{
    float s = rsqrt_approx(x), g = x * s, h = 0.5f * s;
    return fmaf(fmaf(-g, g, x), h, g);
}
INLINE bool in_range(float x) { return x > 0x1p-60f && x < 0x1p60f; }
INLINE bool in_range_or_zero(float x) { return in_range(fabsf(x)) || x == 0.0f; }

INLINE float divide(float a, float b) { return in_range_or_zero(a) && in_range(fabsf(b)) ? exact_div(a, b, exact_rcp(b)) : a / b; }

/* 1 / sqrt(total / n + eps) */
template <int N> INLINE float norm_factor(float total, float eps)
{
    constexpr float n = (float)N, rcp_n = 1.0f / (float)N;
    if (!in_range(total) || !(eps < 0x1p60f)) return 1.0f / sqrtf(total / n + eps);
    return exact_rcp(exact_sqrt(exact_div(total, n, rcp_n) + eps));
}

/* ---- section 6 ---- */

INLINE float contract_exp(float x)
{
    float t = fmaf(x, 0x1.715476p+0f, 0x1.8p+23f), n = t - 0x1.8p+23f, r = fmaf(n, -0x1.62e43p-1f, x), p = 0x1.6a2458p-10f;
    r = fmaf(n, 0x1.05c61p-29f, r);
    p = fmaf(p, r, 0x1.1239d6p-7f);
    p = fmaf(p, r, 0x1.5558f2p-5f);
    p = fmaf(p, r, 0x1.555492p-3f);
    p = fmaf(p, r, 0x1.fffffcp-2f);
    p = fmaf(p, r, 1.0f);
    p = fmaf(p, r, 1.0f);
    float y = f32_of(bits_of(p) + (bits_of(t) << 23));
    if (!(x <= 0x1.62e42ep+6f)) y = x * f32_of(0x7f800000); /* infinity, or NaN for NaN */
    return x <= -0x1.62e43p+5f ? 0.0f : y;
}

INLINE float contract_gelu(float x)
{
    float slope = fmaf(x * x, -0x1.2444f2p-4f, -0x1.988454p+0f);
    return divide(x, 1.0f + contract_exp(x * slope));
}

/* ---- sums ---- */

/* The last five steps of the lane rule: the sum of the warp's values. Addition commutes, so every lane gets lane 0's bits. */
INLINE float warp_tree(float a)
{
    UNROLL for (int h = 16; h > 0; h >>= 1) a = a + shfl_xor(a, h);
    return a;
}

/* Sum of squares of 256 elements, 8 a lane: element lane + 32 k. Virtual lane lane + 32 j takes elements j and j + 4. */
INLINE float head_sum_squares(const float *x)
{
    float a[4];
    UNROLL for (int j = 0; j < 4; j++) a[j] = fmaf(x[j + 4], x[j + 4], fmaf(x[j], x[j], 0.0f));
    return warp_tree((a[0] + a[2]) + (a[1] + a[3]));
}

/* ---- quantising: a lane holds one element of each of N groups ---- */

/* The unusual groups: all but zero, not finite, or out of the range of the short division. */
INLINE void quantise_slowly(float x, float largest, int &q, float &d)
{
    bool usable = largest >= 0x1p-64f && largest <= 0x1.fffffep+127f;
    q = usable ? round_even(x * (127.0f / largest)) : 0;
    d = usable ? largest / 127.0f : largest < 0x1p-64f ? 0.0f : f32_of(0x7fc00000);
}

template <int N> INLINE void quantise(const float *x, int *q, float *d)
{
    float largest[N];
    bool usual = true;
    UNROLL for (int i = 0; i < N; i++)
    {
        largest[i] = f32_of(warp_max(bits_of(fabsf(x[i]))));
        usual &= in_range(largest[i]);
    }
    UNROLL for (int i = 0; i < N; i++)
    {
        d[i] = exact_div(largest[i], 127.0f, 1.0f / 127.0f);
        q[i] = round_even(x[i] * exact_div(127.0f, largest[i], exact_rcp(largest[i])));
    }
    if (!usual) UNROLL for (int i = 0; i < N; i++) quantise_slowly(x[i], largest[i], q[i], d[i]);
}

/* ---- what a record says about the sum of its integers: the words that a form's products begin with ----
 *
 * MAGIC is 1.5 * 2^23 as bits: integer + MAGIC, read as a float, minus 1.5 * 2^23 is the exact conversion. Codes are stored with an offset, which the sum of
 * the activations takes away. */
enum { MAGIC = 0x4B400000 };

template <int FORM> INLINE u32 sum_word(int sum)
{
    if (FORM == IM__CUDA_4_HALF) return (u32)(MAGIC - 8 * sum);
    if (FORM == IM__CUDA_5_HALF) return (u32)(MAGIC - 16 * sum);
    if (FORM == IM__CUDA_6_SUPER_16) return (u32)(MAGIC - 32 * sum);
    return bits_of((float)sum);
}
