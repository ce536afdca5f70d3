/* SPDX-License-Identifier: Apache-2.0
 *
 * A float environment that a program may have set for itself: rounding down, and subnormals flushed to zero where the machine can.
 */
#ifndef IRONMULE_TESTS_HOSTILE_FLOATS_H
#define IRONMULE_TESTS_HOSTILE_FLOATS_H

#include <fenv.h>
#include <stdbool.h>
#include <stdint.h>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

static inline void hostile_floats(void)
{
    fesetround(FE_DOWNWARD);
#if defined(__x86_64__)
    _mm_setcsr(_mm_getcsr() | 0x8040); /* results to zero, operands to zero */
#elif defined(__aarch64__)
    uint64_t control;
    __asm__ volatile("mrs %0, fpcr" : "=r"(control));
    __asm__ volatile("msr fpcr, %0" : : "r"(control | 1u << 24));
#endif
}

static inline void friendly_floats(void) { fesetenv(FE_DFL_ENV); }

/* Both as by default; volatile, so that the processor computes it and not the compiler. */
static inline bool subnormals_are_kept(void)
{
    volatile float small = 0x1p-126f, half = 0.5f, tiny = 0x1p-140f, large = 0x1p+100f;
    return small * half != 0 && tiny * large == 0x1p-40f;
}

static inline bool sums_round_to_nearest(void)
{
    volatile float one = 1.0f, little = 0x1p-30f;
    return one - little == 1.0f && one + little == 1.0f && -one + little == -1.0f && -one - little == -1.0f;
}

#endif
