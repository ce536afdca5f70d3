/* SPDX-License-Identifier: Apache-2.0
 *
 * sdot on sixteen independent sums: 16 products an instruction.
 */
#include "backend/cpu/limits.h"

#include <arm_neon.h>

enum { SUMS = 16, ROUNDS = 60000 };

/* Sums have names, since what an asm statement takes from an array may stay in memory. */
#define EACH(X) X(s0) X(s1) X(s2) X(s3) X(s4) X(s5) X(s6) X(s7) X(s8) X(s9) X(s10) X(s11) X(s12) X(s13) X(s14) X(s15)
#define START(s) int32x4_t s = all;
#define MULTIPLY(s)                                                                                                                \
    s = vdotq_s32(s, a, b);                                                                                                        \
    __asm__ volatile("" : "+w"(s));
#define ADD(s) all = vaddq_s32(all, s);

uint64_t im__burst_neon(uint32_t *sink)
{
    const int8x16_t a = vdupq_n_s8((int8_t)(*sink & 15)), b = vdupq_n_s8(3);
    int32x4_t all = vdupq_n_s32(0);
    EACH(START)
    for (int r = 0; r < ROUNDS; r++) {
        EACH(MULTIPLY)
    }
    EACH(ADD)
    *sink += (uint32_t)vaddvq_s32(all);
    return (uint64_t)ROUNDS * SUMS * 16 * 2;
}
