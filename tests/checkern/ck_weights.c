/* SPDX-License-Identifier: Apache-2.0 */
#include "ck_values.h"

#include "num/dtype.h"
#include "num/half.h"

#include <string.h>

/* Where a block keeps its half-precision scales; the rest of it may hold any bytes. */
typedef struct layout {
    uint32_t dtype;
    int half[2]; /* offsets; -1: none */
} layout;

static const layout layouts[] = {
    {IM__Q4_0, {0, -1}},   {IM__Q4_1, {0, 2}},    {IM__Q5_0, {0, -1}},   {IM__Q5_1, {0, 2}}, {IM__Q8_0, {0, -1}},
    {IM__Q2_K, {80, 82}},  {IM__Q3_K, {108, -1}}, {IM__Q4_K, {0, 2}},    {IM__Q5_K, {0, 2}}, {IM__Q6_K, {208, -1}},
    {IM__IQ4_NL, {0, -1}}, {IM__IQ4_XS, {0, -1}}, {IM__MXFP4, {-1, -1}},
};

static void fill_bytes(ck_rng *r, unsigned char *p, size_t n)
{
    static const unsigned char corner[] = {0x00, 0xff, 0x80, 0x7f, 0x88, 0x77, 0x0f, 0xf0};
    uint32_t kind = ck_below(r, 4);
    unsigned char fixed = corner[ck_below(r, sizeof corner)], start = (unsigned char)ck_next(r);
    for (size_t i = 0; i < n; i++) {
        unsigned char counting = (unsigned char)(start + i * 0x11);
        p[i] = kind == 0 ? fixed : kind == 1 ? counting : (unsigned char)(ck_next(r) >> 24);
    }
}

static const layout *find(uint32_t dtype)
{
    for (size_t i = 0; i < sizeof layouts / sizeof layouts[0]; i++)
        if (layouts[i].dtype == dtype) return &layouts[i];
    return NULL;
}

/* Scale and bias of the affine types: the upper halves of floats, or floats. */
static void affine_scales(ck_rng *r, ck_flavour f, uint32_t dtype, unsigned char *block)
{
    float x[2];
    ck_floats(r, f, x, 2);
    for (int i = 0; i < 2; i++) {
        uint32_t bits = im__bits_of_f32(x[i]);
        uint16_t upper = (uint16_t)(bits >> 16);
        if (im__affine_is_wide(dtype))
            memcpy(block + 4 * i, &bits, 4);
        else
            memcpy(block + 2 * i, &upper, 2);
    }
}

static void quantised_block(ck_rng *r, ck_flavour f, uint32_t dtype, unsigned char *block, size_t bytes)
{
    const layout *l = find(dtype);
    fill_bytes(r, block, bytes);
    if (dtype == IM__MXFP4) block[0] = (unsigned char)(f == CK_PLAIN ? ck_between(r, 110, 130) : ck_below(r, 255));
    if (im__affine_bits(dtype) != 0) affine_scales(r, f, dtype, block);
    for (int i = 0; l != NULL && i < 2; i++) {
        uint16_t h = ck_half(r, f);
        if (l->half[i] >= 0) memcpy(block + l->half[i], &h, sizeof h);
    }
}

static void narrow_floats(ck_rng *r, ck_flavour f, uint32_t dtype, uint16_t *row, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        float x;
        ck_floats(r, f, &x, 1);
        uint16_t h = dtype == IM__F16 ? ck_half(r, f) : (uint16_t)(im__bits_of_f32(x) >> 16);
        memcpy(&row[i], &h, sizeof h);
    }
}

void ck_weights(ck_rng *r, ck_flavour f, uint32_t dtype, void *row, size_t n)
{
    const im__dtype_info *info = im__dtype_get(dtype);
    if (dtype == IM__F32)
        ck_floats(r, f, row, n);
    else if (im__dtype_is_float(dtype))
        narrow_floats(r, f, dtype, row, n);
    else
        for (size_t i = 0; i < n / info->block_len; i++)
            quantised_block(r, f, dtype, (unsigned char *)row + i * info->block_bytes, info->block_bytes);
}
