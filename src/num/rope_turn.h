/* SPDX-License-Identifier: Apache-2.0
 *
 * Cosine and sine of a rotary angle in binary64: only + - * / and comparisons, so the same bits everywhere. One text for every compiler that makes them; it
 * says with IM__FUNCTION what stands before a function there. Series are Taylor's, their cut-off below 1e-17.
 */
#ifndef IRONMULE_NUM_ROPE_TURN_H
#define IRONMULE_NUM_ROPE_TURN_H

#include <stdint.h>
#include <string.h>

#ifndef IM__FUNCTION
#define IM__FUNCTION static inline
#endif

/* |r| <= pi/4 and a little, both. */
IM__FUNCTION double im__sin_series(double r)
{
    double square = r * r, series = 0;
    for (int k = 18; k >= 2; k -= 2) series = (series + 1) * -square / (k * (k + 1));
    return r + r * series;
}

IM__FUNCTION double im__cos_series(double r)
{
    double square = r * r, series = 0;
    for (int k = 17; k >= 1; k -= 2) series = (series + 1) * -square / (k * (k + 1));
    return 1 + series;
}

/* As im__rope_angle of num/real.h. */
IM__FUNCTION void im__rope_turn(int64_t position, double frequency, float *cosine, float *sine)
{
    /* Both halves of the product are exact: the upper half of the frequency has 26 bits. */
    uint64_t bits;
    memcpy(&bits, &frequency, sizeof bits);
    bits &= ~UINT64_C(0x7ffffff);
    double upper;
    memcpy(&upper, &bits, sizeof upper);
    double p = (double)position, high = p * upper, low = p * (frequency - upper);

    /* pi/2 in three parts, the first two of 28 bits: quarter * part is exact. */
    double quarter = ((high + low) * 0x1.45f306dc9c883p-1 + 0x1.8p52) - 0x1.8p52; /* the nearest integer */
    double r = (high - quarter * 0x1.921fb54p+0) - quarter * 0x1.10b461p-30;
    r += low - quarter * 0x1.a62633145c06ep-58;

    double s = im__sin_series(r), c = im__cos_series(r);
    int64_t turn = (int64_t)quarter & 3;
    double x = turn & 1 ? s : c, y = turn & 1 ? c : s;
    *cosine = (float)(turn == 1 || turn == 2 ? -x : x);
    *sine = (float)(turn >= 2 ? -y : y);
}

#endif
