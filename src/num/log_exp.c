/* SPDX-License-Identifier: Apache-2.0
 *
 * Series are Taylor's, their cut-off below 1e-17. log 2 is kept in two parts, the first so short that its product with an exponent is exact.
 */
#include "num/log_exp.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

#define LOG_2_HIGH 0x1.62e42fefa2p-1
#define LOG_2_LOW 0x1.9ef35793c7673p-41

static double two_to(int n)
{
    uint64_t bits = (uint64_t)(n + 1023) << 52;
    double power;
    memcpy(&power, &bits, sizeof power);
    return power;
}

/* x = m * 2^e with m near 1; log m = 2 atanh(s), s = (m - 1) / (m + 1), |s| < 0.172. */
double im__log_double(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    int e = (int)(bits >> 52) - 1023;
    double m = x * two_to(-e / 2) * two_to(-(e - e / 2));
    if (m > 1.4142135623730951) m /= 2, e++;
    double s = (m - 1) / (m + 1), square = s * s, series = 0;
    for (int k = 25; k >= 3; k -= 2) series = (series + 1.0 / k) * square;
    return e * LOG_2_HIGH + (2 * (s * series + s) + e * LOG_2_LOW);
}

/* x = n log 2 + r, |r| <= log 2 / 2 and a little. */
double im__exp_double(double x)
{
    static const double inverse_factorial[] = {
        /* clang-format off */
        1.0,               1.0,              1.0 / 2,            1.0 / 6,
        1.0 / 24,          1.0 / 120,        1.0 / 720,          1.0 / 5040,
        1.0 / 40320,       1.0 / 362880,     1.0 / 3628800,      1.0 / 39916800,
        1.0 / 479001600,   1.0 / 6227020800, 1.0 / 87178291200,
        /* clang-format on */
    };
    if (x < -708) return 0;
    if (!(x <= 709)) return x * (double)INFINITY;
    double n = (x * 0x1.71547652b82fep+0 + 0x1.8p52) - 0x1.8p52;
    double r = (x - n * LOG_2_HIGH) - n * LOG_2_LOW, series = inverse_factorial[14];
    for (int k = 13; k >= 0; k--) series = series * r + inverse_factorial[k];
    return series * two_to((int)n);
}
