/* SPDX-License-Identifier: Apache-2.0
 *
 * Eight binary32 lanes with AVX2, as the kernels in ../vector_*.inc want them (list of the functions: ../vector.md).
 */
#ifndef IRONMULE_BACKEND_CPU_VECTOR_AVX2_H
#define IRONMULE_BACKEND_CPU_VECTOR_AVX2_H

#include <immintrin.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define VF_WIDTH 8
#define VF_REGISTERS 16
typedef __m256 vf;

static inline vf vf_load(const float *p) { return _mm256_loadu_ps(p); }
static inline void vf_store(float *p, vf v) { _mm256_storeu_ps(p, v); }
static inline vf vf_set(float x) { return _mm256_set1_ps(x); }
static inline float vf_first(vf v) { return _mm256_cvtss_f32(v); }
static inline __m256i vf_mask(size_t n)
{
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
static inline vf vf_load_part(const float *p, size_t n) { return _mm256_maskload_ps(p, vf_mask(n)); }
static inline void vf_store_part(float *p, vf v, size_t n) { _mm256_maskstore_ps(p, vf_mask(n), v); }

static inline vf vf_add(vf a, vf b) { return _mm256_add_ps(a, b); }
static inline vf vf_sub(vf a, vf b) { return _mm256_sub_ps(a, b); }
static inline vf vf_mul(vf a, vf b) { return _mm256_mul_ps(a, b); }
static inline vf vf_div(vf a, vf b) { return _mm256_div_ps(a, b); }
static inline vf vf_fma(vf a, vf b, vf c) { return _mm256_fmadd_ps(a, b, c); }
static inline vf vf_negate(vf a) { return _mm256_xor_ps(a, _mm256_set1_ps(-0.0f)); }
static inline vf vf_larger(vf a, vf b) { return _mm256_max_ps(a, b); }
static inline vf vf_smaller(vf a, vf b) { return _mm256_min_ps(a, b); }
static inline vf vf_if_le(vf x, vf limit, vf yes, vf no) { return _mm256_blendv_ps(no, yes, _mm256_cmp_ps(x, limit, _CMP_LE_OQ)); }
static inline vf vf_zero_if_le(vf x, vf limit, vf y) { return _mm256_andnot_ps(_mm256_cmp_ps(x, limit, _CMP_LE_OQ), y); }

static inline vf vf_add_exponent(vf p, vf shifted)
{
    return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(p), _mm256_slli_epi32(_mm256_castps_si256(shifted), 23)));
}

static inline vf vf_load_half(const uint16_t *p) { return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)p)); }

static inline void vf_store_half(uint16_t *p, vf v)
{
    _mm_storeu_si128((__m128i *)(void *)p, _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

static inline vf vf_twice_even(vf v) { return _mm256_moveldup_ps(v); }
static inline vf vf_twice_odd(vf v) { return _mm256_movehdup_ps(v); }

static inline vf vf_interleave(const float *a, const float *b)
{
    __m128 x = _mm_loadu_ps(a), y = _mm_loadu_ps(b);
    return _mm256_set_m128(_mm_unpackhi_ps(x, y), _mm_unpacklo_ps(x, y));
}

static inline float vf_sum_tree(vf v)
{
    __m128 b = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    b = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(b, _mm_movehdup_ps(b)));
}

static inline float vf_largest(vf v)
{
    __m128 b = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    b = _mm_max_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_max_ss(b, _mm_movehdup_ps(b)));
}

static inline unsigned vf_equal_bits(vf a, vf b) { return (unsigned)_mm256_movemask_ps(_mm256_cmp_ps(a, b, _CMP_EQ_OQ)); }
static inline bool vf_any_nan(vf v) { return _mm256_movemask_ps(_mm256_cmp_ps(v, v, _CMP_UNORD_Q)) != 0; }

static inline unsigned vf_count_beyond(vf v, float limit)
{
    __m256 magnitude = _mm256_andnot_ps(_mm256_set1_ps(-0.0f), v);
    return (unsigned)__builtin_popcount((unsigned)_mm256_movemask_ps(_mm256_cmp_ps(magnitude, _mm256_set1_ps(limit), _CMP_GT_OQ)));
}

#endif
