/* SPDX-License-Identifier: Apache-2.0
 *
 * Products of float weights and float rows, AVX-512. Layout, lane map and limits: matmul_float.inc.
 */
#include "backend/cpu/matmul_list.h"

#include <immintrin.h>

#define INLINE static inline __attribute__((always_inline))
#define DEFINE_KERNEL(name, dtype, run) IM__MATMUL_KERNEL(name, dtype, avx512, IM__CPU_AVX512, run)

enum { LANES = 16, CHAINS = 16, ONE_ROW_PANELS = 8, FEW_ROWS_PANELS = 4, MANY_ROWS_PANELS = 2 };

typedef __m512 vec;

INLINE vec vec_zero(void) { return _mm512_setzero_ps(); }
INLINE vec vec_set(float x) { return _mm512_set1_ps(x); }
INLINE vec vec_load(const float *p) { return _mm512_loadu_ps(p); }
INLINE vec vec_load_f16(const uint8_t *p) { return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p)); }
INLINE vec vec_load_bf16(const uint8_t *p)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p)), 16));
}
INLINE void vec_store(float *p, vec v) { _mm512_storeu_ps(p, v); }
INLINE vec vec_add(vec a, vec b) { return _mm512_add_ps(a, b); }
INLINE vec vec_fma(vec a, vec b, vec c) { return _mm512_fmadd_ps(a, b, c); }
INLINE void vec_fetch(const uint8_t *p) { _mm_prefetch((const char *)p, _MM_HINT_T1); }

#include "backend/cpu/x86/matmul_float.inc"
