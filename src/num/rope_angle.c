/* SPDX-License-Identifier: Apache-2.0
 *
 * Rotary angles in binary64: only + - * / and comparisons, so the same bits everywhere. Series are Taylor's, their cut-off below 1e-17.
 */
#include "num/log_exp.h"
#include "num/real.h"

static double nearest(double x) { return (x + 0x1.8p52) - 0x1.8p52; } /* |x| < 2^51 */

double im__rope_frequency(double theta, unsigned i, unsigned dim)
{
    return im__exp_double(-2.0 * (double)i / (double)dim * im__log_double(theta));
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
