/* SPDX-License-Identifier: Apache-2.0
 *
 * Products of float weights and float rows, AVX2 with FMA and F16C. Layout, lane map and limits: matmul_float.inc.
 */
#include "backend/cpu/matmul_list.h"

#include <immintrin.h>

#define INLINE static inline __attribute__((always_inline))
#define DEFINE_KERNEL(name, dtype, run) IM__MATMUL_KERNEL(name, dtype, avx2, IM__CPU_AVX2, run)

enum { LANES = 8, CHAINS = 12, ONE_ROW_PANELS = 4, FEW_ROWS_PANELS = 2, MANY_ROWS_PANELS = 1 };

typedef __m256 vec;

INLINE vec vec_zero(void) { return _mm256_setzero_ps(); }
INLINE vec vec_set(float x) { return _mm256_set1_ps(x); }
INLINE vec vec_load(const float *p) { return _mm256_loadu_ps(p); }
INLINE vec vec_load_f16(const uint8_t *p) { return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p)); }
INLINE vec vec_load_bf16(const uint8_t *p)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p)), 16));
}
INLINE void vec_store(float *p, vec v) { _mm256_storeu_ps(p, v); }
INLINE vec vec_add(vec a, vec b) { return _mm256_add_ps(a, b); }
INLINE vec vec_fma(vec a, vec b, vec c) { return _mm256_fmadd_ps(a, b, c); }
INLINE void vec_fetch(const uint8_t *p) { _mm_prefetch((const char *)p, _MM_HINT_T1); }

#include "backend/cpu/x86/matmul_float.inc"
