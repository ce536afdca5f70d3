/* SPDX-License-Identifier: Apache-2.0
 *
 * Four binary32 lanes with NEON, as the kernels in ../vector_*.inc want them (list of the functions: ../vector.md).
 */
#ifndef IRONMULE_BACKEND_CPU_VECTOR_NEON_H
#define IRONMULE_BACKEND_CPU_VECTOR_NEON_H

#include <arm_neon.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define VF_WIDTH 4
#define VF_REGISTERS 32
typedef float32x4_t vf;

static inline vf vf_load(const float *p) { return vld1q_f32(p); }
static inline void vf_store(float *p, vf v) { vst1q_f32(p, v); }
static inline vf vf_set(float x) { return vdupq_n_f32(x); }
static inline float vf_first(vf v) { return vgetq_lane_f32(v, 0); }

static inline vf vf_load_part(const float *p, size_t n)
{
    float part[4] = {0};
    for (size_t l = 0; l < n; l++) part[l] = p[l];
    return vld1q_f32(part);
}

static inline void vf_store_part(float *p, vf v, size_t n)
{
    float part[4];
    vst1q_f32(part, v);
    for (size_t l = 0; l < n; l++) p[l] = part[l];
}

static inline vf vf_add(vf a, vf b) { return vaddq_f32(a, b); }
static inline vf vf_sub(vf a, vf b) { return vsubq_f32(a, b); }
static inline vf vf_mul(vf a, vf b) { return vmulq_f32(a, b); }
static inline vf vf_div(vf a, vf b) { return vdivq_f32(a, b); }
static inline vf vf_fma(vf a, vf b, vf c) { return vfmaq_f32(c, a, b); }
static inline vf vf_negate(vf a) { return vnegq_f32(a); }
static inline vf vf_larger(vf a, vf b) { return vbslq_f32(vcgtq_f32(a, b), a, b); }
static inline vf vf_smaller(vf a, vf b) { return vbslq_f32(vcltq_f32(a, b), a, b); }
static inline vf vf_if_le(vf x, vf limit, vf yes, vf no) { return vbslq_f32(vcleq_f32(x, limit), yes, no); }
static inline vf vf_zero_if_le(vf x, vf limit, vf y)
{
    return vreinterpretq_f32_u32(vbicq_u32(vreinterpretq_u32_f32(y), vcleq_f32(x, limit)));
}

static inline vf vf_add_exponent(vf p, vf shifted)
{
    return vreinterpretq_f32_u32(vaddq_u32(vreinterpretq_u32_f32(p), vshlq_n_u32(vreinterpretq_u32_f32(shifted), 23)));
}

static inline vf vf_load_half(const uint16_t *p) { return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p))); }
static inline void vf_store_half(uint16_t *p, vf v) { vst1_u16(p, vreinterpret_u16_f16(vcvt_f16_f32(v))); }

static inline vf vf_twice_even(vf v) { return vtrn1q_f32(v, v); }
static inline vf vf_twice_odd(vf v) { return vtrn2q_f32(v, v); }

static inline vf vf_interleave(const float *a, const float *b)
{
    float32x2_t x = vld1_f32(a), y = vld1_f32(b);
    return vcombine_f32(vzip1_f32(x, y), vzip2_f32(x, y));
}

static inline float vf_sum_tree(vf v)
{
    float32x2_t half = vadd_f32(vget_low_f32(v), vget_high_f32(v));
    return vget_lane_f32(half, 0) + vget_lane_f32(half, 1);
}

static inline float vf_largest(vf v) { return vmaxvq_f32(v); }
static inline unsigned vf_equal_bits(vf a, vf b) { return vaddvq_u32(vandq_u32(vceqq_f32(a, b), (uint32x4_t){1, 2, 4, 8})); }
static inline bool vf_any_nan(vf v) { return vminvq_u32(vceqq_f32(v, v)) == 0; }
static inline unsigned vf_count_beyond(vf v, float limit) { return vaddvq_u32(vshrq_n_u32(vcagtq_f32(v, vdupq_n_f32(limit)), 31)); }

#endif
