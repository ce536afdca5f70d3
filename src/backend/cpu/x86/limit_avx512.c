/* SPDX-License-Identifier: Apache-2.0
 *
 * vpdpbusd on twelve independent sums: 64 products an instruction.
 */
#include "backend/cpu/limits.h"

#include <immintrin.h>

enum { SUMS = 12, ROUNDS = 80000 };

/* Sums have names, since what an asm statement takes from an array may stay in memory. */
#define EACH(X) X(s0) X(s1) X(s2) X(s3) X(s4) X(s5) X(s6) X(s7) X(s8) X(s9) X(s10) X(s11)
#define START(s) __m512i s = all;
#define MULTIPLY(s)                                                                                                                \
    s = _mm512_dpbusd_epi32(s, a, b);                                                                                              \
    __asm__ volatile("" : "+v"(s));
#define ADD(s) all = _mm512_add_epi32(all, s);

uint64_t im__burst_avx512(uint32_t *sink)
{
    const __m512i a = _mm512_set1_epi8((char)(*sink & 15)), b = _mm512_set1_epi8(3);
    __m512i all = _mm512_setzero_si512();
    EACH(START)
    for (int r = 0; r < ROUNDS; r++) {
        EACH(MULTIPLY)
    }
    EACH(ADD)
    *sink += (uint32_t)_mm512_reduce_add_epi32(all);
    return (uint64_t)ROUNDS * SUMS * 64 * 2;
}
