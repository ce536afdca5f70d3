/* SPDX-License-Identifier: Apache-2.0
 *
 * The operations on rows with AVX2.
 */
#include "backend/cpu/ops_levels.h"

#include "vector_avx2.h"

#include "../vector_ops.inc"

#include "../vector_attention.inc"

/* ---- quantising ---- */

static inline __m256i magnitude(__m256 v) { return _mm256_castps_si256(_mm256_andnot_ps(_mm256_set1_ps(-0.0f), v)); }

static inline uint32_t largest_lane(__m256i v)
{
    __m128i a = _mm_max_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    a = _mm_max_epi32(a, _mm_shuffle_epi32(a, 0x4e));
    a = _mm_max_epi32(a, _mm_shuffle_epi32(a, 0xb1));
    return (uint32_t)_mm_cvtsi128_si32(a);
}

/* The two sums of sixteen signed bytes: as unsigned ones moved up by 128. */
static inline void sums_of_sixteen(int16_t *sum, __m256i q)
{
    __m256i eights = _mm256_sad_epu8(_mm256_xor_si256(q, _mm256_set1_epi8(-128)), _mm256_setzero_si256());
    __m256i sixteens = _mm256_add_epi64(eights, _mm256_shuffle_epi32(eights, 0x4e));
    sum[0] = (int16_t)(_mm256_extract_epi16(sixteens, 0) - 16 * 128);
    sum[1] = (int16_t)(_mm256_extract_epi16(sixteens, 8) - 16 * 128);
}

/* The magnitudes are compared as integers: in that order NaN stands above infinity, and both above every number. */
static float quantise_group(int8_t *q, int16_t *sum, const float *x)
{
    __m256 v0 = _mm256_loadu_ps(x), v1 = _mm256_loadu_ps(x + 8), v2 = _mm256_loadu_ps(x + 16), v3 = _mm256_loadu_ps(x + 24);
    uint32_t largest = largest_lane(
        _mm256_max_epi32(_mm256_max_epi32(magnitude(v0), magnitude(v1)), _mm256_max_epi32(magnitude(v2), magnitude(v3))));
    float a = im__f32_of_bits(largest);
    if (a >= 0x1p-64f && largest < 0x7f800000) {
        __m256 factor = _mm256_set1_ps(127.0f / a);
        __m256i i0 = _mm256_cvtps_epi32(_mm256_mul_ps(v0, factor)), i1 = _mm256_cvtps_epi32(_mm256_mul_ps(v1, factor));
        __m256i i2 = _mm256_cvtps_epi32(_mm256_mul_ps(v2, factor)), i3 = _mm256_cvtps_epi32(_mm256_mul_ps(v3, factor));
        /* packing works in halves of 16 bytes: fours of v0 v1 v2 v3 low, then high */
        __m256i packed = _mm256_packs_epi16(_mm256_packs_epi32(i0, i1), _mm256_packs_epi32(i2, i3));
        packed = _mm256_permutevar8x32_epi32(packed, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
        _mm256_storeu_si256((__m256i *)(void *)q, packed);
        sums_of_sixteen(sum, packed);
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

void im__ops_avx2(im__ops *ops)
{
    ops->quantise = quantise;
    ops->rms_norm = rms_norm;
    ops->rope = rope;
    ops->kv_store = kv_store;
    ops->attention = attention;
    ops->glu = glu;
    ops->add = add;
    ops->scale = scale;
    ops->softcap = softcap;
    ops->argmax = argmax;
}
