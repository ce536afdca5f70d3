/* SPDX-License-Identifier: Apache-2.0
 *
 * The operations on rows with AVX-512.
 */
#include "backend/cpu/ops_levels.h"

#include "vector_avx512.h"

#include "../vector_ops.inc"

#include "../vector_attention.inc"

/* Quantising stays with AVX2: half of its time is a maximum across lanes, and 256 bits measured 1.4 times as fast. */
void im__ops_avx512(im__ops *ops)
{
    ops->rms_norm = rms_norm;
    ops->rope = rope;
    ops->kv_store = kv_store;
    ops->attention = attention;
    ops->glu = glu;
    ops->add = add;
    ops->scale = scale;
    ops->softcap = softcap;
    ops->argmax = argmax;
}
