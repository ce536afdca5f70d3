/* SPDX-License-Identifier: Apache-2.0 */
#include "num/real.h"
#include "ops/reference.h"

void im__glu_c(float *y, const float *gate, const float *up, size_t n, im__glu kind)
{
    for (size_t i = 0; i < n; i++) y[i] = (kind == IM__GLU_SILU ? im__silu(gate[i]) : im__gelu(gate[i])) * up[i];
}

void im__softcap_c(float *y, size_t n, float cap)
{
    for (size_t i = 0; i < n; i++) y[i] = im__softcap(y[i], cap);
}
