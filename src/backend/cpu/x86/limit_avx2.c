/* SPDX-License-Identifier: Apache-2.0
 *
 * vpmaddubsw, vpmaddwd, vpaddd on eight independent sums: 32 products in three instructions.
 */
#include "backend/cpu/limits.h"

#include <immintrin.h>

enum { SUMS = 8, ROUNDS = 40000 };

/* Sums have names, since what an asm statement takes from an array may stay in memory. Each product is computed anew: nobody knows that a
 * stays as it is. */
#define EACH(X) X(s0) X(s1) X(s2) X(s3) X(s4) X(s5) X(s6) X(s7)
#define START(s) __m256i s = all;
#define MULTIPLY(s)                                                                                                                \
    s = _mm256_add_epi32(s, _mm256_madd_epi16(_mm256_maddubs_epi16(a, b), ones));                                                  \
    __asm__ volatile("" : "+x"(s), "+x"(a));
#define ADD(s) all = _mm256_add_epi32(all, s);

uint64_t im__burst_avx2(uint32_t *sink)
{
    const __m256i ones = _mm256_set1_epi16(1), b = _mm256_set1_epi8(3);
    __m256i a = _mm256_set1_epi8((char)(*sink & 15)), all = _mm256_setzero_si256();
    EACH(START)
    for (int r = 0; r < ROUNDS; r++) {
        EACH(MULTIPLY)
    }
    EACH(ADD)
    *sink += (uint32_t)_mm256_extract_epi32(all, 0);
    return (uint64_t)ROUNDS * SUMS * 32 * 2;
}
