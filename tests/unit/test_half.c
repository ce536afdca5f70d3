/* SPDX-License-Identifier: Apache-2.0
 *
 * Half precision against its definition (IEEE 754), in double arithmetic: every half, and a sweep of floats that meets each rounding
 * boundary between neighbouring halves.
 */
#include "num/half.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* Value of a finite half by the book; 0x7c00 as if the exponent range went on, for the rounding limit. */
static double by_definition(unsigned h)
{
    int exponent = (int)(h >> 10 & 31), mantissa = (int)(h & 1023);
    double value = exponent == 0 ? ldexp(mantissa, -24) : ldexp(1024 + mantissa, exponent - 25);
    return h & 0x8000 ? -value : value;
}

static void every_half_widens_exactly(void **state)
{
    (void)state;
    for (unsigned h = 0; h < 0x10000; h++) {
        float wide = im__f32_of_f16((uint16_t)h);
        assert_int_equal(signbit(wide) != 0, h >> 15);
        if ((h & 0x7fff) > 0x7c00)
            assert_true(isnan(wide));
        else if ((h & 0x7fff) == 0x7c00)
            assert_true(isinf(wide));
        else
            assert_true((double)wide == by_definition(h));
    }
}

static void every_half_survives_the_round_trip(void **state)
{
    (void)state;
    for (unsigned h = 0; h < 0x10000; h++) {
        unsigned expected = (h & 0x7fff) > 0x7c00 ? h | 0x0200 : h; /* NaN becomes quiet */
        assert_int_equal(im__f16_of_f32(im__f32_of_f16((uint16_t)h)), expected);
    }
}

/* Nearest half of a positive float, ties to even, by bisection over the ordered halves. */
static unsigned nearest(double x)
{
    unsigned low = 0, high = 0x7c00;
    if (x >= by_definition(0x7c00)) return 0x7c00;
    while (high - low > 1) {
        unsigned middle = (low + high) / 2;
        if (by_definition(middle) <= x)
            low = middle;
        else
            high = middle;
    }
    double below = x - by_definition(low), above = by_definition(high) - x;
    if (below != above) return below < above ? low : high;
    return low & 1 ? high : low;
}

static void check_narrow(uint32_t bits)
{
    float f = im__f32_of_bits(bits);
    unsigned expected = nearest((double)f);
    assert_int_equal(im__f16_of_f32(f), expected);
    assert_int_equal(im__f16_of_f32(-f), expected | 0x8000);
}

static void rounding_boundaries_go_to_even(void **state)
{
    (void)state;
    for (unsigned h = 0; h < 0x7c00; h++) {
        float half_way = (float)((by_definition(h) + by_definition(h + 1)) / 2); /* exact: one bit more than a half */
        uint32_t bits = im__bits_of_f32(half_way);
        for (uint32_t near = bits - 2; near != bits + 3; near++) check_narrow(near);
    }
}

static void floats_across_the_range_round_to_nearest(void **state)
{
    (void)state;
    for (uint32_t bits = 0; bits < 0x7f800000; bits += 8191) check_narrow(bits);
    check_narrow(0x7f7fffff);
}

static void what_is_not_finite_stays_so(void **state)
{
    (void)state;
    assert_int_equal(im__f16_of_f32(INFINITY), 0x7c00);
    assert_int_equal(im__f16_of_f32(-INFINITY), 0xfc00);
    for (uint32_t bits = 0x7f800001; bits < 0x80000000; bits += 65521) {
        assert_true((im__f16_of_f32(im__f32_of_bits(bits)) & 0x7fff) > 0x7c00);
        assert_true(im__f16_of_f32(im__f32_of_bits(bits | 0x80000000)) > 0xfc00);
    }
}

static void bfloat_is_the_upper_half_of_a_float(void **state)
{
    (void)state;
    for (uint32_t b = 0; b < 0x10000; b++) assert_int_equal(im__bits_of_f32(im__f32_of_bf16((uint16_t)b)), b << 16);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_half_widens_exactly),      cmocka_unit_test(every_half_survives_the_round_trip),
        cmocka_unit_test(rounding_boundaries_go_to_even), cmocka_unit_test(floats_across_the_range_round_to_nearest),
        cmocka_unit_test(what_is_not_finite_stays_so),    cmocka_unit_test(bfloat_is_the_upper_half_of_a_float),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
