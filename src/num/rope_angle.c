/* SPDX-License-Identifier: Apache-2.0
 *
 * Rotary angles in binary64: only + - * / and comparisons, so the same bits everywhere. Series are Taylor's, their cut-off below 1e-17.
 */
#include "num/real.h"

static double two_to(int n)
{
    uint64_t bits = (uint64_t)(n + 1023) << 52;
    double power;
    memcpy(&power, &bits, sizeof power);
    return power;
}

static double nearest(double x) { return (x + 0x1.8p52) - 0x1.8p52; } /* |x| < 2^51 */

/* x = m * 2^e with m near 1; log m = 2 atanh(s), s = (m - 1) / (m + 1), |s| < 0.172. */
static double log_double(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    int e = (int)(bits >> 52) - 1023;
    double m = x * two_to(-e / 2) * two_to(-(e - e / 2));
    if (m > 1.4142135623730951) m /= 2, e++;
    double s = (m - 1) / (m + 1), square = s * s, series = 0;
    for (int k = 25; k >= 3; k -= 2) series = (series + 1.0 / k) * square;
    return e * 0x1.62e42fefa2p-1 + (2 * (s * series + s) + e * 0x1.9ef35793c7673p-41);
}

static double exp_double(double x)
{
    double n = nearest(x * 0x1.71547652b82fep+0);
    double r = (x - n * 0x1.62e42fefa2p-1) - n * 0x1.9ef35793c7673p-41, series = 1;
    for (int k = 14; k >= 1; k--) series = series * r / k + 1;
    return series * two_to((int)n);
}

double im__rope_frequency(double theta, unsigned i, unsigned dim)
{
    return exp_double(-2.0 * (double)i / (double)dim * log_double(theta));
}

/* |r| <= pi/4 and a little. */
static double sin_series(double r)
{
    double square = r * r, series = 0;
    for (int k = 18; k >= 2; k -= 2) series = (series + 1) * -square / (k * (k + 1));
    return r + r * series;
}

static double cos_series(double r)
{
    double square = r * r, series = 0;
    for (int k = 17; k >= 1; k -= 2) series = (series + 1) * -square / (k * (k + 1));
    return 1 + series;
}

void im__rope_angle(int64_t position, double frequency, float *cosine, float *sine)
{
    /* Both halves of the product are exact: the upper half of the frequency has 26 bits. */
    uint64_t bits;
    memcpy(&bits, &frequency, sizeof bits);
    bits &= ~UINT64_C(0x7ffffff);
    double upper;
    memcpy(&upper, &bits, sizeof upper);
    double p = (double)position, high = p * upper, low = p * (frequency - upper);

    /* pi/2 in three parts, the first two of 28 bits: quarter * part is exact. */
    double quarter = nearest((high + low) * 0x1.45f306dc9c883p-1);
    double r = (high - quarter * 0x1.921fb54p+0) - quarter * 0x1.10b461p-30;
    r += low - quarter * 0x1.a62633145c06ep-58;

    double s = sin_series(r), c = cos_series(r);
    switch ((int64_t)quarter & 3) {
    case 0: *cosine = (float)c, *sine = (float)s; break;
    case 1: *cosine = (float)-s, *sine = (float)c; break;
    case 2: *cosine = (float)-c, *sine = (float)-s; break;
    default: *cosine = (float)s, *sine = (float)-c; break;
    }
}
