/* SPDX-License-Identifier: Apache-2.0
 *
 * Weights of a unit in shared memory as fragments of tensor cores, and their scales. A lane holds outputs lane / 4 and 8 more of 16.
 */
#ifndef IRONMULE_BACKEND_CUDA_KERNELS_MATMUL_MANY_WEIGHTS_CUH
#define IRONMULE_BACKEND_CUDA_KERNELS_MATMUL_MANY_WEIGHTS_CUH

#include "backend/cuda/kernels/matmul_many.h"
#include "backend/cuda/kernels/num.cuh"
#include "backend/cuda/kernels/ptx_mma.cuh"

/* Codes with an offset of 2^(7 - k) are moved to the top of their bytes: (code << k) ^ 128 = 2^k (code - offset) as a signed byte, one step where a subtraction
 * in each byte takes three. The sums are divided by 2^k when they become floats, for nothing. */
template <int form>
constexpr int im__many_up = form == IM__CUDA_4_HALF       ? 4
                            : form == IM__CUDA_5_HALF     ? 3
                            : form == IM__CUDA_6_SUPER_16 ? 2
                            : form == IM__CUDA_4_SUPER_16 ? 5
                                                          : 0;

/* Codes, of which each byte has its low bits in `low` and its high ones in `high`, as signed bytes: moved up, or as they are. */
template <int form, bool moved> __device__ __forceinline__ uint32_t im__many_signed(uint32_t low, uint32_t high)
{
    constexpr int up = im__many_up<form>;
    constexpr uint32_t offset = 0x01010101u << (7 - up);
    const uint32_t codes = low | high;
    if (up == 0) return codes;
    return moved ? (codes << up) ^ 0x80808080u : ((codes | 0x80808080u) - offset) ^ 0x80808080u;
}

/* Both words of one output: elements 4w .. 4w + 3 and 16 + 4w .. of group g. */
template <int form, bool moved>
__device__ __forceinline__ void im__many_words(uint32_t &first, uint32_t &second, const uint8_t *unit, int groups, int g,
                                               int output, int w)
{
    constexpr int bits = im__many_bits(form);
    if constexpr (bits == 8) {
        const uint8_t *at = unit + g * 1024 + output * 16 + w * 4;
        first = *(const uint32_t *)at;
        second = *(const uint32_t *)(at + 512);
        return;
    }
    const uint32_t x = *(const uint32_t *)(unit + g * 512 + output * 16 + w * 4), low = x & 0x0f0f0f0fu;
    if constexpr (moved && bits == 4 && im__many_up<form> == 4) { /* the second half lies right already */
        first = im__many_signed<form, moved>(low, 0);
        second = (x & 0xf0f0f0f0u) ^ 0x80808080u;
        return;
    }
    const uint32_t high = (x >> 4) & 0x0f0f0f0fu;
    uint32_t top = 0, top2 = 0;
    if constexpr (bits == 5) {
        const uint32_t t = *(const uint32_t *)(unit + groups * 512 + (g * 32 + output) * 4) >> w;
        top = (t & 0x01010101u) << 4;
        top2 = t & 0x10101010u;
    } else if constexpr (bits == 6) {
        const uint2 t = *(const uint2 *)(unit + groups * 512 + (g * 32 + output) * 8);
        top = ((t.x >> 2 * w) & 0x03030303u) << 4;
        top2 = ((t.y >> 2 * w) & 0x03030303u) << 4;
    }
    first = im__many_signed<form, moved>(low, top);
    second = im__many_signed<form, moved>(high, top2);
}

/* Fragment of 16 outputs from `output` on. */
template <int form, bool moved>
__device__ __forceinline__ void im__many_fragment(uint32_t (&a)[4], const uint8_t *unit, int groups, int g, int output, int lane)
{
    im__many_words<form, moved>(a[0], a[2], unit, groups, g, output + lane / 4, lane % 4);
    im__many_words<form, moved>(a[1], a[3], unit, groups, g, output + lane / 4 + 8, lane % 4);
}

/* What a unit says of one output: its scales and minima, read as they are needed. */
template <int form> struct im__many_scales {
    const uint8_t *at; /* of group 0 */
    float d, dmin;     /* super scales */

    __device__ __forceinline__ void open(const uint8_t *unit, int groups, int output)
    {
        const uint8_t *scales = unit + im__many_code_bytes(form, (uint32_t)groups);
        constexpr bool has_min = im__many_has_min(form);
        d = dmin = 0;
        if constexpr (form == IM__CUDA_8_FLOAT) {
            at = scales + output * 4;
        } else if constexpr (!im__many_is_super(form)) {
            at = scales + output * (has_min ? 4 : 2);
        } else if constexpr (has_min) {
            const uint32_t both = ((const uint32_t *)scales)[output];
            d = im__widen(both & 0xffffu);
            dmin = im__widen(both >> 16);
            at = scales + 128 + output * 2;
        } else {
            d = im__widen(((const uint16_t *)scales)[output]);
            at = scales + 64 + output;
        }
    }

    /* Group k (of 32 or 16): exact products. m stays as it is where there is no minimum. */
    __device__ __forceinline__ void read(float &s, float &m, int k) const
    {
        constexpr bool has_min = im__many_has_min(form);
        if constexpr (form == IM__CUDA_8_FLOAT) {
            s = *(const float *)(at + k * 128);
        } else if constexpr (!im__many_is_super(form)) {
            if constexpr (im__many_is_bf16_min(form)) {
                const uint32_t both = *(const uint32_t *)(at + k * 128);
                s = im__widen_bf16(both & 0xffffu);
                m = im__widen_bf16(both >> 16);
                if constexpr (im__many_bits(form) == 8) m = im__fma(128.0f, s, m);
            } else if constexpr (has_min) {
                const uint32_t both = *(const uint32_t *)(at + k * 128);
                s = im__widen(both & 0xffffu);
                m = im__widen(both >> 16);
            } else {
                s = im__widen(*(const uint16_t *)(at + k * 64));
            }
        } else if constexpr (has_min) {
            const uint32_t both = *(const uint16_t *)(at + k * 64);
            s = d * (float)(both & 0xffu);
            m = dmin * (float)(both >> 8);
        } else {
            s = d * (float)*(const int8_t *)(at + k * 32);
        }
    }
};

#endif
