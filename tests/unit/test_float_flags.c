/* SPDX-License-Identifier: Apache-2.0
 *
 * The compiler neither contracts nor reassociates (docs/numerics.md, section 1). The expected bits are worked out in double, whose
 * 53 bits hold every intermediate value here exactly. Planted builds of the same source under wrong flags must be told apart, or the
 * probe proves nothing.
 */
#include "float_probe.h"

#include <float.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { COUNT = 4096 };

/* 1 + 2^-12 squared is 1 + 2^-11 + 2^-24: the last term is lost in one rounding, kept by a fused multiply-add. */
static const float near_one = 1.0f + 0x1p-12f;

static int can_run(void)
{
#if defined(__x86_64__)
    return __builtin_cpu_supports("fma") && __builtin_cpu_supports("avx2");
#else
    return 1;
#endif
}

static uint32_t bits(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

static void fill(float *x)
{
    uint32_t seed = 1;
    for (int i = 0; i < COUNT; i++) {
        seed = seed * 1664525u + 1013904223u;
        x[i] = (float)(seed >> 8) * 0x1p-24f + (i % 7 == 0 ? 4096.0f : 0.0f);
    }
}

static float sum_in_order(const float *x)
{
    volatile float s = 0; /* volatile: one rounded store for each addition, whatever the flags */
    for (int i = 0; i < COUNT; i++) s = s + x[i];
    return s;
}

static void house_flags_keep_every_rounding(void **state)
{
    (void)state;
    const float_probe *p = &float_probe_house;
    static float x[COUNT];
    fill(x);
    assert_int_equal(FLT_EVAL_METHOD, 0);
    assert_int_equal(bits(p->multiply_add(near_one, near_one, -1.0f)), bits(0x1p-11f));
    assert_int_equal(bits(p->sum(x, COUNT)), bits(sum_in_order(x)));
    assert_int_equal(bits(p->halve(0x1p-140f)), bits(0x1p-141f));
    assert_int_equal(bits(p->cancel(1.0f, 0x1p-30f)), bits(0.0f));
    for (int a = 1; a < 200; a++)
        for (int b = 1; b < 200; b++) assert_int_equal(bits(p->quotient((float)a, (float)b)), bits((float)((double)a / (double)b)));
}

static void planted_contraction_is_caught(void **state)
{
    (void)state;
    float fused = float_probe_contracted.multiply_add(near_one, near_one, -1.0f);
    assert_int_equal(bits(fused), bits(0x1p-11f + 0x1p-24f));
}

static void planted_reassociation_is_caught(void **state)
{
    (void)state;
    float cancelled = float_probe_reassociated.cancel(1.0f, 0x1p-30f);
    assert_int_equal(bits(cancelled), bits(0x1p-30f));
}

int main(void)
{
    if (!can_run()) {
        printf("this processor has no fma: the probe cannot see a contraction here\n");
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(house_flags_keep_every_rounding),
        cmocka_unit_test(planted_contraction_is_caught),
        cmocka_unit_test(planted_reassociation_is_caught),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
