/* SPDX-License-Identifier: Apache-2.0 */
#include "ops/reference.h"

void im__add_c(float *y, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) y[i] = y[i] + x[i];
}

void im__scale_c(float *y, const float *x, size_t n, float by)
{
    for (size_t i = 0; i < n; i++) y[i] = x[i] * by;
}

int32_t im__argmax_c(const float *x, size_t n)
{
    size_t best = 0;
    for (size_t i = 0; i < n; i++) {
        if (x[i] != x[i]) return -1;
        if (x[i] > x[best]) best = i;
    }
    return n > 0 ? (int32_t)best : -1;
}
