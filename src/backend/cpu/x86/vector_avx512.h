/* SPDX-License-Identifier: Apache-2.0
 *
 * Sixteen binary32 lanes with AVX-512, as the kernels in ../vector_*.inc want them (list of the functions: ../vector.md).
 */
#ifndef IRONMULE_BACKEND_CPU_VECTOR_AVX512_H
#define IRONMULE_BACKEND_CPU_VECTOR_AVX512_H

#include <immintrin.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define VF_WIDTH 16
#define VF_REGISTERS 32
typedef __m512 vf;

static inline vf vf_load(const float *p) { return _mm512_loadu_ps(p); }
static inline void vf_store(float *p, vf v) { _mm512_storeu_ps(p, v); }
static inline vf vf_set(float x) { return _mm512_set1_ps(x); }
static inline float vf_first(vf v) { return _mm512_cvtss_f32(v); }
static inline __mmask16 vf_mask(size_t n) { return (__mmask16)((1u << n) - 1); }
static inline vf vf_load_part(const float *p, size_t n) { return _mm512_maskz_loadu_ps(vf_mask(n), p); }
static inline void vf_store_part(float *p, vf v, size_t n) { _mm512_mask_storeu_ps(p, vf_mask(n), v); }

static inline vf vf_add(vf a, vf b) { return _mm512_add_ps(a, b); }
static inline vf vf_sub(vf a, vf b) { return _mm512_sub_ps(a, b); }
static inline vf vf_mul(vf a, vf b) { return _mm512_mul_ps(a, b); }
static inline vf vf_div(vf a, vf b) { return _mm512_div_ps(a, b); }
static inline vf vf_fma(vf a, vf b, vf c) { return _mm512_fmadd_ps(a, b, c); }
static inline vf vf_negate(vf a) { return _mm512_xor_ps(a, _mm512_set1_ps(-0.0f)); }
static inline vf vf_larger(vf a, vf b) { return _mm512_max_ps(a, b); }
static inline vf vf_smaller(vf a, vf b) { return _mm512_min_ps(a, b); }
static inline vf vf_if_le(vf x, vf limit, vf yes, vf no)
{
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(x, limit, _CMP_LE_OQ), no, yes);
}
static inline vf vf_zero_if_le(vf x, vf limit, vf y) { return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, limit, _CMP_NLE_UQ), y); }

static inline vf vf_add_exponent(vf p, vf shifted)
{
    return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(p), _mm512_slli_epi32(_mm512_castps_si512(shifted), 23)));
}

static inline vf vf_load_half(const uint16_t *p) { return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)p)); }

static inline void vf_store_half(uint16_t *p, vf v)
{
    _mm256_storeu_si256((__m256i *)(void *)p, _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

static inline vf vf_twice_even(vf v) { return _mm512_moveldup_ps(v); }
static inline vf vf_twice_odd(vf v) { return _mm512_movehdup_ps(v); }

static inline vf vf_interleave(const float *a, const float *b)
{
    const __m512i order = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    return _mm512_permutex2var_ps(_mm512_castps256_ps512(_mm256_loadu_ps(a)), order, _mm512_castps256_ps512(_mm256_loadu_ps(b)));
}

static inline float vf_sum_tree(vf v)
{
    __m256 a = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
    __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    b = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(b, _mm_movehdup_ps(b)));
}

static inline float vf_largest(vf v) { return _mm512_reduce_max_ps(v); }
static inline unsigned vf_equal_bits(vf a, vf b) { return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ); }
static inline bool vf_any_nan(vf v) { return _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q) != 0; }

static inline unsigned vf_count_beyond(vf v, float limit)
{
    return (unsigned)__builtin_popcount(_mm512_cmp_ps_mask(_mm512_abs_ps(v), _mm512_set1_ps(limit), _CMP_GT_OQ));
}

#endif
