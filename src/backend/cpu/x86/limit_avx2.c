/* SPDX-License-Identifier: Apache-2.0
 *
 * vpmaddubsw, vpmaddwd, vpaddd on eight independent sums: 32 products in three instructions.
 */
#include "backend/cpu/limits.h"

#include <immintrin.h>

enum { SUMS = 8, ROUNDS = 40000 };

uint64_t im__burst_avx2(uint32_t *sink)
{
    const __m256i ones = _mm256_set1_epi16(1);
    __m256i sum[SUMS], a = _mm256_set1_epi8((char)(*sink & 15)), b = _mm256_set1_epi8(3), all = _mm256_setzero_si256();
    for (int i = 0; i < SUMS; i++) sum[i] = _mm256_set1_epi32(i);
    for (int r = 0; r < ROUNDS; r++)
        for (int i = 0; i < SUMS; i++) {
            sum[i] = _mm256_add_epi32(sum[i], _mm256_madd_epi16(_mm256_maddubs_epi16(a, b), ones));
            __asm__ volatile("" : "+x"(sum[i]), "+x"(a)); /* each product is computed anew */
        }
    for (int i = 0; i < SUMS; i++) all = _mm256_add_epi32(all, sum[i]);
    *sink += (uint32_t)_mm256_extract_epi32(all, 0);
    return (uint64_t)ROUNDS * SUMS * 32 * 2;
}
