/* SPDX-License-Identifier: Apache-2.0
 *
 * vpdpbusd on sixteen independent sums: 64 products an instruction.
 */
#include "backend/cpu/limits.h"

#include <immintrin.h>

enum { SUMS = 16, ROUNDS = 60000 };

uint64_t im__burst_avx512(uint32_t *sink)
{
    __m512i sum[SUMS], a = _mm512_set1_epi8((char)(*sink & 15)), b = _mm512_set1_epi8(3), all = _mm512_setzero_si512();
    for (int i = 0; i < SUMS; i++) sum[i] = _mm512_set1_epi32(i);
    for (int r = 0; r < ROUNDS; r++)
        for (int i = 0; i < SUMS; i++) {
            sum[i] = _mm512_dpbusd_epi32(sum[i], a, b);
            __asm__ volatile("" : "+v"(sum[i]));
        }
    for (int i = 0; i < SUMS; i++) all = _mm512_add_epi32(all, sum[i]);
    *sink += (uint32_t)_mm512_reduce_add_epi32(all);
    return (uint64_t)ROUNDS * SUMS * 64 * 2;
}
