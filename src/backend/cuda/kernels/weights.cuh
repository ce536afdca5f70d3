/* SPDX-License-Identifier: Apache-2.0
 *
 * What the forms of abi.h are made of, as numbers that the compiler knows, and single elements of a tile.
 */
#ifndef IRONMULE_CUDA_WEIGHTS_CUH
#define IRONMULE_CUDA_WEIGHTS_CUH

#include "backend/cuda/abi.h"
#include "backend/cuda/kernels/num.cuh"

typedef enum im__scale_kind {
    IM__SCALE_HALF,
    IM__SCALE_HALF_MIN,
    IM__SCALE_FLOAT,
    IM__SCALE_BF16_MIN,
    IM__SCALE_SUPER,
    IM__SCALE_SUPER_MIN
} im__scale_kind;

/* Of a quantised form: bits of a code, elements under one scale, offset, kind of scale. */
template <int FORM> struct im__form;
#define IM__FORM(form, bits, len, offset, kind)                                                                                    \
    template <> struct im__form<form> {                                                                                            \
        static constexpr int BITS = bits, GROUP = len, OFFSET = offset, SCALE = kind;                                              \
        static constexpr bool HAS_MIN = kind == IM__SCALE_HALF_MIN || kind == IM__SCALE_SUPER_MIN || kind == IM__SCALE_BF16_MIN;   \
        static constexpr uint32_t CODE_BYTES = bits * 128; /* of 32 elements of all outputs */                                     \
    };
IM__FORM(IM__CUDA_4_HALF, 4, 32, 8, IM__SCALE_HALF)
IM__FORM(IM__CUDA_4_HALF_MIN, 4, 32, 0, IM__SCALE_HALF_MIN)
IM__FORM(IM__CUDA_5_HALF, 5, 32, 16, IM__SCALE_HALF)
IM__FORM(IM__CUDA_5_HALF_MIN, 5, 32, 0, IM__SCALE_HALF_MIN)
IM__FORM(IM__CUDA_8_HALF, 8, 32, 0, IM__SCALE_HALF)
IM__FORM(IM__CUDA_4_SUPER_MIN_16, 4, 16, 0, IM__SCALE_SUPER_MIN)
IM__FORM(IM__CUDA_4_SUPER_16, 4, 16, 4, IM__SCALE_SUPER)
IM__FORM(IM__CUDA_4_SUPER_MIN, 4, 32, 0, IM__SCALE_SUPER_MIN)
IM__FORM(IM__CUDA_5_SUPER_MIN, 5, 32, 0, IM__SCALE_SUPER_MIN)
IM__FORM(IM__CUDA_6_SUPER_16, 6, 16, 32, IM__SCALE_SUPER)
IM__FORM(IM__CUDA_8_SUPER, 8, 32, 0, IM__SCALE_SUPER)
IM__FORM(IM__CUDA_8_FLOAT, 8, 32, 0, IM__SCALE_FLOAT)
IM__FORM(IM__CUDA_4_BF16_MIN, 4, 32, 0, IM__SCALE_BF16_MIN)
IM__FORM(IM__CUDA_8_BF16_MIN, 8, 32, 0, IM__SCALE_BF16_MIN)
#undef IM__FORM

/* Four codes, one a byte (in 8 bits signed), of elements 4 i .. 4 i + 3 of group g of a unit of `groups` groups of 32. */
template <class F> IM__DEVICE uint32_t im__codes_at(const uint8_t *unit, uint32_t groups, uint32_t output, uint32_t g, uint32_t i)
{
    uint32_t place = g * IM__CUDA_TILE + output, half = i / 4;
    if (F::BITS == 8) return *(const uint32_t *)(unit + ((g * 2 + half) * IM__CUDA_TILE + output) * 16 + i % 4 * 4);
    uint32_t codes = *(const uint32_t *)(unit + place * 16 + i % 4 * 4) >> 4 * half & 0x0f0f0f0f;
    const uint8_t *top = unit + groups * 512;
    if (F::BITS == 5) codes |= (*(const uint32_t *)(top + place * 4) >> i & 0x01010101) << 4;
    if (F::BITS == 6) codes |= (*(const uint32_t *)(top + place * 8 + half * 4) >> i % 4 * 2 & 0x03030303) << 4;
    return codes;
}

/* m: the minimum of a product. bias: of BF16_MIN what is stored, which values are made with. */
typedef struct im__scale {
    float s, m, bias;
} im__scale;

/* Scale and minimum of group k (of the form's own length) of a unit of `groups` groups of 32. */
template <class F> IM__DEVICE im__scale im__scale_at(const uint8_t *unit, uint32_t groups, uint32_t output, uint32_t k)
{
    const uint8_t *scales = unit + groups * F::CODE_BYTES;
    uint32_t place = k * IM__CUDA_TILE + output;
    im__scale r = {0.0f, 0.0f, 0.0f};
    if (F::SCALE == IM__SCALE_HALF) r.s = im__widen(((const uint16_t *)scales)[place]);
    if (F::SCALE == IM__SCALE_FLOAT) r.s = ((const float *)scales)[place];
    if (F::SCALE == IM__SCALE_HALF_MIN) {
        uint32_t both = ((const uint32_t *)scales)[place];
        r.s = im__widen(both & 0xffff), r.m = im__widen(both >> 16);
    }
    if (F::SCALE == IM__SCALE_BF16_MIN) {
        uint32_t both = ((const uint32_t *)scales)[place];
        r.s = im__widen_bf16(both & 0xffff), r.bias = im__widen_bf16(both >> 16);
        r.m = F::BITS == 8 ? im__fma(128.0f, r.s, r.bias) : r.bias;
    }
    if (F::SCALE == IM__SCALE_SUPER) r.s = im__widen(((const uint16_t *)scales)[output]) * (float)(int8_t)scales[64 + place];
    if (F::SCALE == IM__SCALE_SUPER_MIN) {
        uint32_t both = ((const uint32_t *)scales)[output], kl = ((const uint16_t *)(scales + 128))[place];
        r.s = im__widen(both & 0xffff) * (float)(kl & 0xff), r.m = im__widen(both >> 16) * (float)(kl >> 8);
    }
    return r;
}

/* The values of elements e .. e + 3 (e a multiple of 4) of row `out`: the product rounded, then the sum. */
template <int FORM> IM__DEVICE float4 im__values_at(const im__cuda_matrix &w, uint32_t out, uint32_t e)
{
    typedef im__form<FORM> F;
    uint32_t unit = e / IM__CUDA_UNIT, inner = e % IM__CUDA_UNIT, left = w.n_in - unit * IM__CUDA_UNIT;
    uint32_t groups = min(left, (uint32_t)IM__CUDA_UNIT) / 32, output = out % IM__CUDA_TILE;
    const uint8_t *at = w.data + (uint64_t)(out / IM__CUDA_TILE) * w.tile_bytes + (uint64_t)unit * w.unit_bytes;
    uint32_t codes = im__codes_at<F>(at, groups, output, inner / 32, inner % 32 / 4);
    im__scale scale = im__scale_at<F>(at, groups, output, inner / F::GROUP);
    float v[4];
    for (int i = 0; i < 4; i++) {
        const bool affine8 = F::SCALE == IM__SCALE_BF16_MIN && F::BITS == 8;
        v[i] = scale.s * (float)((int)(int8_t)(codes >> 8 * i) - (affine8 ? -128 : F::OFFSET));
        if (F::HAS_MIN) v[i] = v[i] + (F::SCALE == IM__SCALE_BF16_MIN ? scale.bias : scale.m);
    }
    return make_float4(v[0], v[1], v[2], v[3]);
}

/* Element e of row `out` of a float matrix. */
IM__DEVICE float im__float_at(const im__cuda_matrix &w, uint32_t out, uint32_t e)
{
    uint32_t size = w.form == IM__CUDA_F32 ? 4 : 2, piece = 16 / size;
    uint32_t unit = e / IM__CUDA_UNIT, inner = e % IM__CUDA_UNIT;
    const uint8_t *at = w.data + (uint64_t)(out / IM__CUDA_TILE) * w.tile_bytes + (uint64_t)unit * w.unit_bytes;
    at += (inner / piece * IM__CUDA_TILE + out % IM__CUDA_TILE) * 16 + inner % piece * size;
    if (w.form == IM__CUDA_F32) return *(const float *)at;
    return w.form == IM__CUDA_F16 ? im__widen(*(const uint16_t *)at) : im__widen_bf16(*(const uint16_t *)at);
}

#endif
