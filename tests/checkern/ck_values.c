/* SPDX-License-Identifier: Apache-2.0 */
#include "ck_values.h"

#include "num/dtype.h"
#include "num/half.h"

#include <string.h>

/* splitmix64: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014 */
uint32_t ck_next(ck_rng *r)
{
    uint64_t z = r->state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (uint32_t)(z >> 32);
}

ck_rng ck_rng_of(uint64_t seed, const char *label)
{
    ck_rng r = {seed};
    for (; *label; label++) {
        r.state ^= (unsigned char)*label;
        r.state = (uint64_t)ck_next(&r) << 32 | ck_next(&r);
    }
    return r;
}

uint32_t ck_below(ck_rng *r, uint32_t n) { return (uint32_t)((uint64_t)ck_next(r) * n >> 32); }

uint32_t ck_between(ck_rng *r, uint32_t low, uint32_t high) { return low + ck_below(r, high - low + 1); }

float ck_unit(ck_rng *r) { return (float)((int32_t)ck_next(r) >> 8) * 0x1p-23f; }

const char *ck_flavour_name(ck_flavour f)
{
    static const char *const name[] = {"plain", "wide", "zeros", "subnormal", "extreme", "cancel", "spikes", "nonfinite"};
    return name[f];
}

static float power_of_two(int exponent) { return im__f32_of_bits((uint32_t)(exponent + 127) << 23); }

static float bell(ck_rng *r)
{
    float a = ck_unit(r), b = ck_unit(r), c = ck_unit(r), d = ck_unit(r);
    return ((a + b) + (c + d)) * 0.5f; /* exact: multiples of 2^-23 below 4 */
}

static float any_finite(ck_rng *r)
{
    uint32_t sign = ck_next(r) & 0x80000000, pick = ck_below(r, 8);
    if (pick == 0) return im__f32_of_bits(sign | 0x7f7fffff);
    if (pick == 1) return im__f32_of_bits(sign | 0x00800000);
    return im__f32_of_bits(sign | (ck_next(r) % 0x7f800000));
}

static float near_subnormal(ck_rng *r)
{
    uint32_t sign = ck_next(r) & 0x80000000;
    if (ck_below(r, 4) == 0) return im__f32_of_bits(sign | ck_below(r, 4));
    return im__f32_of_bits(sign | (ck_next(r) & 0x01ffffff));
}

static float nonfinite(ck_rng *r)
{
    switch (ck_below(r, 12)) {
    case 0: return im__f32_of_bits(0x7fc00000);
    case 1: return im__f32_of_bits(0x7f800000);
    case 2: return im__f32_of_bits(0xff800000);
    default: return bell(r);
    }
}

static float one(ck_rng *r, ck_flavour f, float scale, float last, size_t i)
{
    uint32_t sign;
    switch (f) {
    case CK_PLAIN: return bell(r) * scale;
    case CK_WIDE: return ck_unit(r) * power_of_two((int)ck_below(r, 41) - 20);
    case CK_ZEROS: sign = ck_next(r) & 0x80000000; return ck_below(r, 6) == 0 ? ck_unit(r) : im__f32_of_bits(sign);
    case CK_SUBNORMAL: return near_subnormal(r);
    case CK_EXTREME: return any_finite(r);
    case CK_CANCEL: return i % 2 ? im__f32_of_bits((im__bits_of_f32(last) ^ 0x80000000) + ck_below(r, 3)) : bell(r) * scale;
    case CK_SPIKES: return ck_below(r, 32) == 0 ? ck_unit(r) * 3000.0f : bell(r) * 0.01f;
    case CK_NONFINITE: break;
    }
    return nonfinite(r);
}

void ck_floats(ck_rng *r, ck_flavour f, float *x, size_t n)
{
    float scale = power_of_two((int)ck_below(r, 9) - 4), last = 1;
    for (size_t i = 0; i < n; i++) {
        last = one(r, f, scale, last, i);
        memcpy(&x[i], &last, sizeof last);
    }
}

uint16_t ck_half(ck_rng *r, ck_flavour f)
{
    uint16_t sign = (uint16_t)(ck_next(r) & 0x8000);
    switch (f) {
    case CK_PLAIN: return (uint16_t)(sign | ck_between(r, 0x1400, 0x3800)); /* 2^-10 .. 0.5 */
    case CK_ZEROS: return ck_below(r, 3) ? sign : (uint16_t)(sign | 0x3c00);
    case CK_SUBNORMAL: return (uint16_t)(sign | ck_below(r, 0x0600));
    case CK_EXTREME: return (uint16_t)(sign | (ck_below(r, 2) ? 0x7bff : ck_below(r, 0x7c00)));
    default: return ck_half(r, (ck_flavour[]){CK_PLAIN, CK_ZEROS, CK_SUBNORMAL, CK_EXTREME}[ck_below(r, 4)]);
    }
}
