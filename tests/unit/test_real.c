/* SPDX-License-Identifier: Apache-2.0
 *
 * The functions of the numeric contract against the platform's libm in higher precision: expl has an own error below 2^-63, some 2^-39 of a
 * binary32's unit in the last place, and fmaf is correctly rounded.
 */
#include "num/log_exp.h"
#include "num/real.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

#include <cmocka.h>

static uint64_t seed = 88172645463325252u;

static uint32_t word(void)
{
    seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
    return (uint32_t)(seed >> 20);
}

/* ---- fma ---- */

static bool same(float a, float b) { return (isnan(a) && isnan(b)) || im__bits_of_f32(a) == im__bits_of_f32(b); }

/* A number whose exponent field lies in [low, low + span). */
static float with_exponent(unsigned low, unsigned span)
{
    return im__f32_of_bits((word() & 0x807fffff) | ((low + word() % span) << 23));
}

static void check_fma(float a, float b, float c)
{
    float expected = fmaf(a, b, c);
    if (same(im__fma(a, b, c), expected) && same(im__fma_exact(a, b, c), expected)) return;
    fail_msg("fma(%a, %a, %a) = %a, exact routine %a, expected %a", (double)a, (double)b, (double)c, (double)im__fma(a, b, c),
             (double)im__fma_exact(a, b, c), (double)expected);
}

static void fma_is_correctly_rounded(void **state)
{
    (void)state;
    for (int i = 0; i < 400000; i++) {
        check_fma(im__f32_of_bits(word()), im__f32_of_bits(word()), im__f32_of_bits(word())); /* anything */
        check_fma(with_exponent(0, 80), with_exponent(0, 90), with_exponent(0, 4));           /* subnormal results */
        check_fma(with_exponent(180, 70), with_exponent(180, 70), with_exponent(250, 5));     /* overflow */
        float a = with_exponent(100, 50), b = with_exponent(100, 50);
        check_fma(a, b, -(a * b)); /* cancellation down to the rounding error */
        /* short operands make sums that lie on midpoints */
        a = im__f32_of_bits(im__bits_of_f32(a) & ~0xfffu), b = im__f32_of_bits(im__bits_of_f32(b) & ~0xfffu);
        float c = a * b * im__f32_of_bits((97 + word() % 60) << 23);
        check_fma(a, b, c);
        check_fma(a, b, im__f32_of_bits(im__bits_of_f32(c) & ~0xffu));
    }
}

/* Double rounding goes wrong here: the exact sum lies just beside a midpoint of binary32, too close for binary64 to tell. */
static void fma_survives_double_rounding(void **state)
{
    (void)state;
    check_fma(1.0f + 0x1p-12f, 1.0f + 0x1p-12f, 0x1p-60f);
    check_fma(1.0f + 0x1p-12f, 1.0f + 0x1p-12f, -0x1p-60f);
    /* 2^-150 - 2^-196, and an odd number of 2^-149 */
    check_fma(0x1.000002p-75f, 0x1.fffffcp-76f, 0x1.000004p-127f);
    assert_true(same(im__fma(0x1.000002p-75f, 0x1.fffffcp-76f, 0x1.000004p-127f), 0x1.000004p-127f));
    assert_true(same(im__fma(1.0f + 0x1p-12f, 1.0f + 0x1p-12f, 0x1p-60f), 1.0f + 0x1p-11f + 0x1p-23f));
    assert_true(same(im__fma(1.0f + 0x1p-12f, 1.0f + 0x1p-12f, -0x1p-60f), 1.0f + 0x1p-11f));
}

/* ---- exp ---- */

static void exp_is_close(void **state)
{
    (void)state;
    double worst = 0;
    long count = 0;
    for (uint32_t sign = 0; sign < 2; sign++)
        for (uint32_t bits = 0x2f000000; bits <= 0x42b17217; bits += 2039) {
            float x = im__f32_of_bits(bits | sign << 31);
            if (x <= -0x1.62e43p+5f) break;
            int exponent;
            long double real = expl((long double)x);
            frexpl(real, &exponent);
            double error = fabs((double)ldexpl((long double)im__exp(x) - real, 24 - exponent));
            if (error > worst) worst = error;
            count++;
        }
    assert_true(count > 300000);
    if (worst >= 0.91) fail_msg("error of exp: %g units in the last place", worst);
}

static void exp_at_its_ends(void **state)
{
    (void)state;
    const float inf = INFINITY;
    assert_true(same(im__exp(0.0f), 1.0f) && same(im__exp(-0.0f), 1.0f) && same(im__exp(0x1p-149f), 1.0f));
    assert_true(same(im__exp(-0x1.62e43p+5f), 0.0f) && same(im__exp(-1000.0f), 0.0f) && same(im__exp(-inf), 0.0f));
    assert_true(im__exp(-0x1.62e42ep+5f) >= 0x1p-64f);
    assert_true(isfinite(im__exp(0x1.62e42ep+6f)) && isinf(im__exp(0x1.62e43p+6f)) && same(im__exp(inf), inf));
    assert_true(isnan(im__exp(NAN)) && isnan(im__exp(-NAN)));
}

/* ---- functions made with it ---- */

static void check_close(const char *name, float x, float y, double expected, double unit)
{
    double error = fabs((double)y - expected);
    /* 2^-120: where exp overflows, a number smaller than that has become 0 */
    if (!(error <= 3 * 0x1p-23 * fabs(expected) + unit + 0x1p-120))
        fail_msg("%s(%a) = %a, expected %a", name, (double)x, (double)y, expected);
}

static void activations_are_close(void **state)
{
    (void)state;
    for (float x = -80; x < 80; x += 0.0371f) {
        double u = sqrt(2 / 3.14159265358979323846) * ((double)x + 0.044715 * (double)x * (double)x * (double)x);
        check_close("silu", x, im__silu(x), (double)x / (1 + exp(-(double)x)), 0);
        check_close("softcap", x, im__softcap(x, 30), 30 * tanh((double)x / 30), 30 * 0x1p-22);
        /* the argument of exp is rounded: an error of half a unit of the last place of 2u comes in */
        check_close("gelu", x, im__gelu(x), (double)x / (1 + exp(-2 * u)), fabs((double)x) * exp(-fabs(2 * u)) * fabs(u) * 0x1p-21);
    }
}

static void activations_at_their_ends(void **state)
{
    (void)state;
    const float inf = INFINITY, huge = 0x1.fffffep+127f;
    assert_true(same(im__silu(0), 0) && same(im__gelu(0), 0) && same(im__softcap(0, 50), 0));
    assert_true(same(im__silu(huge), huge) && same(im__gelu(huge), huge) && same(im__softcap(huge, 50), 50));
    assert_true(im__silu(-huge) == 0 && im__gelu(-huge) == 0 && same(im__softcap(-huge, 50), -50));
    assert_true(same(im__softcap(inf, 50), 50) && same(im__softcap(-inf, 50), -50));
    assert_true(isnan(im__silu(NAN)) && isnan(im__gelu(NAN)) && isnan(im__softcap(NAN, 50)));
}

static void rounding_goes_to_even(void **state)
{
    (void)state;
    for (float x = -200; x <= 200; x += 0.0625f) assert_true(im__round_even(x) == rintf(x));
    assert_true(im__round_even(0.5f) == 0 && im__round_even(1.5f) == 2 && im__round_even(-2.5f) == -2 &&
                im__round_even(126.5f) == 126);
}

/* ---- rotary angles ---- */

static void angles_are_close(void **state)
{
    (void)state;
    for (int i = 0; i < 20000; i++) {
        int64_t position = (int64_t)(word() % (i % 2 ? 1u << 11 : 1u << 20)) * (i % 3 ? 1 : -1);
        double f = im__rope_frequency(i % 5 ? 10000 : 500000, (unsigned)i % 64, 128) * (i % 7 ? 1 : 1.9);
        float c, s;
        im__rope_angle(position, f, &c, &s);
        long double angle = (long double)position * (long double)f; /* 20 + 53 bits do not fit 64: an error of 2^-44 at most */
        assert_true(fabsl((long double)c - cosl(angle)) <= 0x1p-25L + 0x1p-43L);
        assert_true(fabsl((long double)s - sinl(angle)) <= 0x1p-25L + 0x1p-43L);
    }
}

static void frequencies_are_close(void **state)
{
    (void)state;
    for (double theta = 100; theta < 1e9; theta *= 3.7)
        for (unsigned i = 0; i < 64; i++) {
            long double real = powl((long double)theta, -2.0L * i / 128);
            assert_true(fabsl((long double)im__rope_frequency(theta, i, 128) / real - 1) < 1e-14L);
        }
    assert_true(im__rope_frequency(10000, 0, 64) == 1);
}

static void exponentials_in_double_are_close(void **state)
{
    (void)state;
    for (double x = -708; x <= 709; x += 0.00737) {
        long double error = (long double)im__exp_double(x) / expl((long double)x) - 1;
        if (!(fabsl(error) < 4e-16L)) fail_msg("exp(%a) is off by %Lg", x, error);
    }
    for (double x = 0x1p-60; x < 1; x *= 1.37)
        assert_true(fabsl((long double)im__exp_double(-x) - expl(-(long double)x)) < 2.3e-16L);
    assert_true(im__exp_double(0.0) == 1 && im__exp_double(-0.0) == 1);
    assert_true(im__exp_double(-709) == 0 && im__exp_double(-1e300) == 0 && im__exp_double(-INFINITY) == 0);
    assert_true(im__exp_double(710) == INFINITY && im__exp_double(INFINITY) == INFINITY && isnan(im__exp_double(NAN)));
}

static void logarithms_in_double_are_close(void **state)
{
    (void)state;
    for (double x = 0x1p-1022; x < 1e308; x *= 1.0173) {
        long double real = logl((long double)x), unit = fabsl(real) > 1 ? fabsl(real) : 1;
        if (!(fabsl((long double)im__log_double(x) - real) < 4e-16L * unit)) fail_msg("log(%a) = %a", x, im__log_double(x));
    }
    assert_true(im__log_double(1) == 0 && isnan(im__log_double(NAN)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fma_is_correctly_rounded),
        cmocka_unit_test(fma_survives_double_rounding),
        cmocka_unit_test(exp_is_close),
        cmocka_unit_test(exp_at_its_ends),
        cmocka_unit_test(activations_are_close),
        cmocka_unit_test(activations_at_their_ends),
        cmocka_unit_test(rounding_goes_to_even),
        cmocka_unit_test(angles_are_close),
        cmocka_unit_test(frequencies_are_close),
        cmocka_unit_test(exponentials_in_double_are_close),
        cmocka_unit_test(logarithms_in_double_are_close),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
