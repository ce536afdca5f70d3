/* SPDX-License-Identifier: Apache-2.0 */
#include "num/real.h"
#include "ops/reference.h"

#include <float.h>

/* The largest |x[i]|; +inf when an element is not finite. */
static float largest_magnitude(const float *x, size_t n)
{
    float a = 0;
    for (size_t i = 0; i < n; i++) {
        float magnitude = im__f32_of_bits(im__bits_of_f32(x[i]) & 0x7fffffff);
        if (!(magnitude <= FLT_MAX)) return im__f32_of_bits(0x7f800000);
        if (magnitude > a) a = magnitude;
    }
    return a;
}

/* Returns the scale. A group that is all but zero has scale and integers 0; one that is not finite has scale NaN and integers 0, so that
 * every output made from it is NaN. */
static float quantise_group(int8_t q[IM__ACT_GROUP], const float x[IM__ACT_GROUP])
{
    float a = largest_magnitude(x, IM__ACT_GROUP);
    bool usable = a >= 0x1p-64f && a <= FLT_MAX;
    float factor = 127.0f / a;
    for (size_t i = 0; i < IM__ACT_GROUP; i++) q[i] = usable ? (int8_t)im__round_even(x[i] * factor) : 0;
    if (usable) return a / 127.0f;
    return a <= FLT_MAX ? 0.0f : im__f32_of_bits(0x7fc00000);
}

void im__quantise_c(const im__act *act, size_t row, const float *x)
{
    int8_t *q = act->q + row * act->n;
    for (size_t g = 0; g < act->n / IM__ACT_GROUP; g++)
        act->d[row * (act->n / IM__ACT_GROUP) + g] = quantise_group(q + g * IM__ACT_GROUP, x + g * IM__ACT_GROUP);

    for (size_t g = 0; g < act->n / 16; g++) {
        int sum = 0;
        for (size_t i = 0; i < 16; i++) sum += q[g * 16 + i];
        act->sum[row * (act->n / 16) + g] = (int16_t)sum;
    }
}

void im__quantise_rest(const im__act *act, size_t row, const float *x, float *rest)
{
    const int8_t *q = act->q + row * act->n;
    const float *d = act->d + row * (act->n / IM__ACT_GROUP);
    for (size_t g = 0; g < act->n / IM__ACT_GROUP; g++)
        for (size_t i = g * IM__ACT_GROUP; i < (g + 1) * IM__ACT_GROUP; i++) rest[i] = x[i] - d[g] * (float)q[i];
}
