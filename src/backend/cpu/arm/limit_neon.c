/* SPDX-License-Identifier: Apache-2.0
 *
 * sdot on sixteen independent sums: 16 products an instruction.
 */
#include "backend/cpu/limits.h"

#include <arm_neon.h>

enum { SUMS = 16, ROUNDS = 60000 };

uint64_t im__burst_neon(uint32_t *sink)
{
    int32x4_t sum[SUMS], all = vdupq_n_s32(0);
    int8x16_t a = vdupq_n_s8((int8_t)(*sink & 15)), b = vdupq_n_s8(3);
    for (int i = 0; i < SUMS; i++) sum[i] = vdupq_n_s32(i);
    for (int r = 0; r < ROUNDS; r++)
        for (int i = 0; i < SUMS; i++) {
            sum[i] = vdotq_s32(sum[i], a, b);
            __asm__ volatile("" : "+w"(sum[i]));
        }
    for (int i = 0; i < SUMS; i++) all = vaddq_s32(all, sum[i]);
    *sink += (uint32_t)vaddvq_s32(all);
    return (uint64_t)ROUNDS * SUMS * 16 * 2;
}
