/* SPDX-License-Identifier: Apache-2.0 */
#include "num/real.h"
#include "ops/reference.h"

#include <math.h>

void im__rms_norm_c(float *y, const float *x, const float *w, size_t n, size_t count, float eps)
{
    for (size_t c = 0; c < count; c++, x += n, y += n) {
        float r = 1.0f / sqrtf(im__lane_sum_squares(x, n) / (float)n + eps);
        for (size_t i = 0; i < n; i++) y[i] = (x[i] * r) * w[i];
    }
}
