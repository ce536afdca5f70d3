/* SPDX-License-Identifier: Apache-2.0 */
#include "num/real.h"
#include "ops/reference.h"

void im__rope_c(float *x, size_t heads, size_t head_dim, size_t rot_dim, const float *cosine, const float *sine, bool adjacent)
{
    for (size_t h = 0; h < heads; h++, x += head_dim)
        for (size_t i = 0; i < rot_dim / 2; i++) {
            float *first = x + (adjacent ? 2 * i : i), *second = x + (adjacent ? 2 * i + 1 : i + rot_dim / 2);
            float x0 = *first, x1 = *second;
            *first = im__fma(x0, cosine[i], -(x1 * sine[i]));
            *second = im__fma(x0, sine[i], x1 * cosine[i]);
        }
}
