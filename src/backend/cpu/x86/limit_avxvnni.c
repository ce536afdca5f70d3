/* SPDX-License-Identifier: Apache-2.0
 *
 * vpdpbusd on twelve independent sums of 8: 32 products an instruction.
 */
#include "backend/cpu/limits.h"

#include <immintrin.h>

enum { SUMS = 12, ROUNDS = 80000 };

/* Sums have names, since what an asm statement takes from an array may stay in memory. */
#define EACH(X) X(s0) X(s1) X(s2) X(s3) X(s4) X(s5) X(s6) X(s7) X(s8) X(s9) X(s10) X(s11)
#define START(s) __m256i s = all;
#define MULTIPLY(s)                                                                                                                \
    s = _mm256_dpbusd_avx_epi32(s, a, b);                                                                                          \
    __asm__ volatile("" : "+x"(s));
#define ADD(s) all = _mm256_add_epi32(all, s);

uint64_t im__burst_avxvnni(uint32_t *sink)
{
    const __m256i a = _mm256_set1_epi8((char)(*sink & 15)), b = _mm256_set1_epi8(3);
    __m256i all = _mm256_setzero_si256();
    EACH(START)
    for (int r = 0; r < ROUNDS; r++) {
        EACH(MULTIPLY)
    }
    EACH(ADD)
    *sink += (uint32_t)_mm256_extract_epi32(all, 0);
    return (uint64_t)ROUNDS * SUMS * 32 * 2;
}
