/* SPDX-License-Identifier: Apache-2.0
 *
 * The operations on rows with NEON: those of ../vector_*.inc four lanes wide, and quantise.
 */
#include "backend/cpu/arm/vector_neon.h"
#include "backend/cpu/ops_levels.h"

#include "backend/cpu/vector_ops.inc"

#include "backend/cpu/vector_attention.inc"

/* ---- quantise: a group of 32 is eight vectors ---- */

#define GROUP_VECTORS (IM__ACT_GROUP / 4)

/* The largest magnitude; NaN when there is one. */
static inline float largest_magnitude(const float32x4_t x[GROUP_VECTORS])
{
    float32x4_t a = vabsq_f32(x[0]);
    for (int v = 1; v < GROUP_VECTORS; v++) a = vmaxq_f32(a, vabsq_f32(x[v]));
    return vmaxvq_f32(a);
}

/* The integers lie in -127 .. 127: narrowing loses nothing. */
static inline int8x16_t round_16(const float32x4_t x[4], float factor)
{
    int16x8_t low =
        vcombine_s16(vmovn_s32(vcvtnq_s32_f32(vmulq_n_f32(x[0], factor))), vmovn_s32(vcvtnq_s32_f32(vmulq_n_f32(x[1], factor))));
    int16x8_t high =
        vcombine_s16(vmovn_s32(vcvtnq_s32_f32(vmulq_n_f32(x[2], factor))), vmovn_s32(vcvtnq_s32_f32(vmulq_n_f32(x[3], factor))));
    return vcombine_s8(vmovn_s16(low), vmovn_s16(high));
}

static inline float quantise_group(int8_t *q, int16_t *sum, const float *from)
{
    float32x4_t x[GROUP_VECTORS];
    for (int v = 0; v < GROUP_VECTORS; v++) x[v] = vld1q_f32(from + 4 * v);
    float a = largest_magnitude(x);
    bool finite = a < INFINITY, usable = a >= 0x1p-64f && finite;
    int8x16_t low = vdupq_n_s8(0), high = low;
    if (usable) {
        float factor = 127.0f / a;
        low = round_16(x, factor);
        high = round_16(x + 4, factor);
    }
    vst1q_s8(q, low);
    vst1q_s8(q + 16, high);
    sum[0] = vaddlvq_s8(low);
    sum[1] = vaddlvq_s8(high);
    if (usable) return a / 127.0f;
    return finite ? 0.0f : NAN;
}

static void quantise(const im__act *act, size_t row, const float *x)
{
    int8_t *q = act->q + row * act->n;
    float *d = act->d + row * (act->n / IM__ACT_GROUP);
    int16_t *sum = act->sum + row * (act->n / 16);
    for (size_t g = 0; g < act->n / IM__ACT_GROUP; g++) d[g] = quantise_group(q + 32 * g, sum + 2 * g, x + 32 * g);
}

/* ---- the table ---- */

void im__ops_neon(im__ops *ops)
{
    ops->quantise = quantise;
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
