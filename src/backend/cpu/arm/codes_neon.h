/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading packed weights (layout: ../pack.h) with NEON. A line of 64 bytes is four registers, j = 0 .. 3; register j holds one quad (4 elements)
 * of outputs 4j .. 4j + 3, one output in each 32-bit lane: what sdot multiplies by a quad of the row.
 *
 * Codes become signed bytes. Those that fit (top <= 127) stay as they are and sums start at -offset * Σq; the others have offset 128, which
 * turning the highest bit over takes away.
 */
#ifndef IRONMULE_BACKEND_CPU_CODES_NEON_H
#define IRONMULE_BACKEND_CPU_CODES_NEON_H

#include "backend/cpu/pack.h"

#include <arm_neon.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

/* Before a loop of constant length whose values are to live in registers. */
#if defined(__clang__)
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

enum { RECORDS = IM__CHUNK / IM__RECORD, QUADS = IM__RECORD / 4, REGISTERS = 4 };

INLINE bool im__fits_signed(im__form f) { return f.top <= 127; }

/* What sums of code * q start from, per unit of Σq. */
INLINE int32_t im__start_factor(im__form f) { return im__fits_signed(f) ? -(int32_t)f.offset : 0; }

/* Each byte moved left, or right when `left` is negative; zeros come in. The cases vanish: `left` is constant wherever this is used. */
INLINE uint8x16_t im__moved(uint8x16_t v, int left)
{
    switch (left) {
    case 4: return vshlq_n_u8(v, 4);
    case 3: return vshlq_n_u8(v, 3);
    case 2: return vshlq_n_u8(v, 2);
    case 1: return vshlq_n_u8(v, 1);
    case -1: return vshrq_n_u8(v, 1);
    case -2: return vshrq_n_u8(v, 2);
    case -3: return vshrq_n_u8(v, 3);
    case -4: return vshrq_n_u8(v, 4);
    case -5: return vshrq_n_u8(v, 5);
    case -6: return vshrq_n_u8(v, 6);
    default: return v;
    }
}

/* Bits of `source`, moved by `left`, where `mask` has ones, and the bits of `low`. */
INLINE uint8x16_t im__with_bits(uint8x16_t low, uint8x16_t source, int left, uint8_t mask)
{
    return vorrq_u8(low, vandq_u8(im__moved(source, left), vdupq_n_u8(mask)));
}

INLINE void im__unpack_nibbles(const uint8_t *p, uint8x16_t code[QUADS])
{
    for (int i = 0; i < QUADS / 2; i++) {
        uint8x16_t v = vld1q_u8(p + i * IM__LINE);
        code[2 * i] = vandq_u8(v, vdupq_n_u8(15));
        code[2 * i + 1] = vshrq_n_u8(v, 4);
    }
}

/* Two lines of pairs, each pair put at bit `bit` (0 or 4) of its code. */
INLINE void im__unpack_pairs(const uint8_t *p, int bit, uint8x16_t code[QUADS])
{
    for (int q = 0; q < QUADS; q++)
        code[q] = im__with_bits(code[q], vld1q_u8(p + q / 4 * IM__LINE), bit - q % 4 * 2, (uint8_t)(3 << bit));
}

INLINE void im__unpack_bits(const uint8_t *p, int bit, uint8x16_t code[QUADS])
{
    for (int q = 0; q < QUADS; q++) code[q] = im__with_bits(code[q], vld1q_u8(p), bit - q, (uint8_t)(1 << bit));
}

INLINE void im__unpack_codes(im__form f, const uint8_t *p, uint8x16_t code[QUADS])
{
    if (f.bits == 8) {
        for (int q = 0; q < QUADS; q++) code[q] = vld1q_u8(p + q * IM__LINE);
    } else if (f.bits < 4) {
        for (int q = 0; q < QUADS; q++) code[q] = vdupq_n_u8(0);
        im__unpack_pairs(p, 0, code);
        if (f.bits == 3) im__unpack_bits(p + 2 * IM__LINE, 2, code);
    } else {
        im__unpack_nibbles(p, code);
        if (f.bits == 5) im__unpack_bits(p + 4 * IM__LINE, 4, code);
        if (f.bits == 6) im__unpack_pairs(p + 4 * IM__LINE, 4, code);
    }
}

/* Register j of every line of a record, as signed bytes. */
INLINE void im__unpack_register(im__form f, const uint8_t *record, size_t j, int8x16_t w[QUADS])
{
    uint8x16_t code[QUADS];
    const uint8x16_t turn = vdupq_n_u8(im__fits_signed(f) ? 0 : 128);
    im__unpack_codes(f, record + 16 * j, code);
    if (f.table != IM__TABLE_NONE) {
        const uint8x16_t table = veorq_u8(vld1q_u8(im__form_table(f.table)), turn);
        for (int q = 0; q < QUADS; q++) w[q] = vreinterpretq_s8_u8(vqtbl1q_u8(table, code[q]));
    } else {
        for (int q = 0; q < QUADS; q++) w[q] = vreinterpretq_s8_u8(im__fits_signed(f) ? code[q] : veorq_u8(code[q], turn));
    }
}

/* ---- scales of outputs 4j .. 4j + 3 ---- */

INLINE float32x4_t im__four_halves(const uint8_t *p) { return vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(p))); }

INLINE float32x4_t im__four_bf16(const uint8_t *p)
{
    return vreinterpretq_f32_u32(vshll_n_u16(vreinterpret_u16_u8(vld1_u8(p)), 16));
}

INLINE float32x4_t im__four_floats(const uint8_t *p) { return vreinterpretq_f32_u8(vld1q_u8(p)); }

INLINE uint32x4_t im__four_bytes(const uint8_t *p)
{
    uint32_t word;
    memcpy(&word, p, sizeof word);
    return vmovl_u16(vget_low_u16(vmovl_u8(vcreate_u8(word))));
}

INLINE float32x4_t im__four_signed(const uint8_t *p)
{
    uint32_t word;
    memcpy(&word, p, sizeof word);
    return vcvtq_f32_s32(vmovl_s16(vget_low_s16(vmovl_s8(vcreate_s8(word)))));
}

/* 2^(e - 128); the two smallest are subnormal. */
INLINE float32x4_t im__four_powers(const uint8_t *p)
{
    const uint32x4_t e = im__four_bytes(p), one = vdupq_n_u32(1);
    uint32x4_t normal = vshlq_n_u32(vsubq_u32(e, one), 23), small = vshlq_u32(vdupq_n_u32(0x00200000), vreinterpretq_s32_u32(e));
    return vreinterpretq_f32_u32(vbslq_u32(vcgtq_u32(e, one), normal, small));
}

/* Scale and minimum of group g of a chunk with `groups` groups; `p` is where its scales begin. The products are exact: 11 bits times at most 8. */
INLINE void im__unpack_scale(im__form f, const uint8_t *p, size_t groups, size_t g, size_t j, float32x4_t *s, float32x4_t *m)
{
    const uint8_t *halves = p + 8 * j, *bytes = p + 4 * j;
    *m = vdupq_n_f32(0);
    switch (f.scales) {
    case IM__SCALES_HALF: *s = im__four_halves(halves + 32 * g); break;
    case IM__SCALES_HALF_MIN:
        *s = im__four_halves(halves + 64 * g);
        *m = im__four_halves(halves + 64 * g + 32);
        break;
    case IM__SCALES_EXPONENT: *s = im__four_powers(bytes + 16 * g); break;
    case IM__SCALES_SUPER: *s = vmulq_f32(im__four_halves(halves), im__four_signed(bytes + 32 + 16 * g)); break;
    case IM__SCALES_SUPER_MIN:
        *s = vmulq_f32(im__four_halves(halves), vcvtq_f32_u32(im__four_bytes(bytes + 64 + 16 * g)));
        *m = vmulq_f32(im__four_halves(halves + 32), vcvtq_f32_u32(im__four_bytes(bytes + 64 + 16 * (groups + g))));
        break;
    case IM__SCALES_SUPER_NIBBLE: {
        const uint32x4_t both = im__four_bytes(bytes + 64 + 16 * g);
        *s = vmulq_f32(im__four_halves(halves), vcvtq_f32_u32(vandq_u32(both, vdupq_n_u32(15))));
        *m = vmulq_f32(im__four_halves(halves + 32), vcvtq_f32_u32(vshrq_n_u32(both, 4)));
        break;
    }
    case IM__SCALES_FLOAT_MIN:
        *s = im__four_floats(p + 16 * j + 128 * g);
        *m = im__four_floats(p + 16 * j + 128 * g + 64);
        break;
    case IM__SCALES_BF16_PAIRS:
        *s = im__four_bf16(halves + g / 2 * 64);
        *m = im__four_bf16(halves + g / 2 * 64 + 32);
        if (f.offset) *m = vfmaq_n_f32(*m, *s, f.offset);
        break;
    }
}

/* ---- arithmetic ---- */

/* start + Σ over four quads: those of the row are the lanes of q. */
INLINE int32x4_t im__dot_quads(int32x4_t start, const int8x16_t w[4], int8x16_t q)
{
    start = vdotq_laneq_s32(start, w[0], q, 0);
    start = vdotq_laneq_s32(start, w[1], q, 1);
    start = vdotq_laneq_s32(start, w[2], q, 2);
    return vdotq_laneq_s32(start, w[3], q, 3);
}

/* The float part of one group. */
INLINE float32x4_t im__step(im__form f, float32x4_t p, float32x4_t s, float32x4_t m, float d, int32x4_t isum, float sum)
{
    p = vfmaq_f32(p, vmulq_n_f32(s, d), vcvtq_f32_s32(isum));
    return f.has_min ? vfmaq_n_f32(p, vmulq_n_f32(m, d), sum) : p;
}

/* ---- results ---- */

/* Where the results of four outputs in a row go. */
typedef struct im__target {
    const float *bias; /* NULL: none */
    size_t outs;       /* that exist; 4 or more: all */
    bool first, last;  /* chunk of the row */
} im__target;

INLINE void im__put(const im__target *t, float *y, float32x4_t p)
{
    if (t->outs >= 4) {
        if (!t->first) p = vaddq_f32(vld1q_f32(y), p);
        if (t->last && t->bias) p = vaddq_f32(p, vld1q_f32(t->bias));
        vst1q_f32(y, p);
        return;
    }
    float part[4];
    vst1q_f32(part, p);
    for (size_t o = 0; o < t->outs; o++) {
        float total = t->first ? part[o] : y[o] + part[o];
        y[o] = t->last && t->bias ? total + t->bias[o] : total;
    }
}

/* The target of register j of the panel whose first output is `out`. */
INLINE im__target im__target_of(const float *bias, size_t out, size_t out_end, size_t j, bool first, bool last)
{
    const size_t o = out + 4 * j;
    return (im__target){bias ? bias + o : NULL, o < out_end ? out_end - o : 0, first, last};
}

#endif
