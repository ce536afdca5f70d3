/* SPDX-License-Identifier: Apache-2.0
 *
 * The operations on rows with AVX-512.
 */
#include "backend/cpu/ops_levels.h"

#include "vector_avx512.h"

#include "../vector_ops.inc"

#include "../vector_attention.inc"

/* ---- quantising ---- */

/* Sixteen q in the low bytes of the lanes to memory; returns their sum. */
static inline int16_t store_sixteen(int8_t *q, __m512i v)
{
    _mm_storeu_si128((__m128i *)(void *)q, _mm512_cvtepi32_epi8(v));
    return (int16_t)_mm512_reduce_add_epi32(v);
}

/* The magnitudes are compared as integers: in that order NaN stands above infinity, and both above every number. */
static float quantise_group(int8_t *q, int16_t *sum, const float *x)
{
    __m512 low = _mm512_loadu_ps(x), high = _mm512_loadu_ps(x + 16);
    __m512i magnitude = _mm512_max_epi32(_mm512_castps_si512(_mm512_abs_ps(low)), _mm512_castps_si512(_mm512_abs_ps(high)));
    uint32_t largest = (uint32_t)_mm512_reduce_max_epi32(magnitude);
    float a = im__f32_of_bits(largest);
    if (a >= 0x1p-64f && largest < 0x7f800000) {
        __m512 factor = _mm512_set1_ps(127.0f / a);
        sum[0] = store_sixteen(q, _mm512_cvtps_epi32(_mm512_mul_ps(low, factor)));
        sum[1] = store_sixteen(q + 16, _mm512_cvtps_epi32(_mm512_mul_ps(high, factor)));
        return a / 127.0f;
    }
    memset(q, 0, 32);
    sum[0] = sum[1] = 0;
    return largest < 0x7f800000 ? 0.0f : im__f32_of_bits(0x7fc00000);
}

static void quantise(const im__act *act, size_t row, const float *x)
{
    size_t groups = act->n / IM__ACT_GROUP;
    int8_t *q = act->q + row * act->n;
    int16_t *sum = act->sum + row * groups * 2;
    for (size_t g = 0; g < groups; g++) act->d[row * groups + g] = quantise_group(q + 32 * g, sum + 2 * g, x + 32 * g);
}

void im__ops_avx512(im__ops *ops)
{
    *ops = (im__ops){
        .quantise = quantise,
        .rms_norm = rms_norm,
        .rope = rope,
        .kv_store = kv_store,
        .attention = attention,
        .glu = glu,
        .add = add,
        .scale = scale,
        .softcap = softcap,
        .argmax = argmax,
    };
}
