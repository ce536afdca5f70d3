/* SPDX-License-Identifier: Apache-2.0
 *
 * binary16 and bfloat16 to binary32 (exact) and binary32 to binary16 (round to nearest even, subnormals kept). Plain integer code, so that
 * it means the same on every machine; kernels use the instructions that agree with it.
 */
#ifndef IRONMULE_NUM_HALF_H
#define IRONMULE_NUM_HALF_H

#include <stdint.h>
#include <string.h>

static inline float im__f32_of_bits(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static inline uint32_t im__bits_of_f32(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

static inline float im__f32_of_bf16(uint16_t b) { return im__f32_of_bits((uint32_t)b << 16); }

static inline float im__f32_of_f16(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = (h >> 10) & 31, mantissa = h & 0x3ff;
    if (exponent == 31) return im__f32_of_bits(sign | 0x7f800000 | (mantissa << 13));
    if (exponent != 0) return im__f32_of_bits(sign | ((exponent + 112) << 23) | (mantissa << 13));
    float value = (float)mantissa * 0x1p-24f; /* subnormal or zero: exact */
    return im__f32_of_bits(sign | im__bits_of_f32(value));
}

/* Infinities and NaN are kept (NaN becomes quiet); a finite value beyond the range becomes infinity, as IEEE 754 rounds. */
static inline uint16_t im__f16_of_f32(float f)
{
    uint32_t bits = im__bits_of_f32(f), sign = (bits >> 16) & 0x8000, magnitude = bits & 0x7fffffff;
    if (magnitude > 0x7f800000) return (uint16_t)(sign | 0x7e00 | ((magnitude >> 13) & 0x3ff));
    if (magnitude >= 0x477ff000) return (uint16_t)(sign | 0x7c00); /* 65520 and above */
    if (magnitude < 0x38800000) {                                  /* below 2^-14: count units of 2^-24, the addition rounds */
        float units = im__f32_of_bits(magnitude) + 0.5f;           /* ulp of [0.5, 1) is 2^-24 */
        return (uint16_t)(sign | (im__bits_of_f32(units) - 0x3f000000));
    }
    uint32_t odd = (magnitude >> 13) & 1;
    return (uint16_t)(sign | ((magnitude - 0x38000000 + 0xfff + odd) >> 13));
}

#endif
