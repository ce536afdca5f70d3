/* SPDX-License-Identifier: Apache-2.0 */
#include "num/split.h"

#include "base/bytes.h"
#include "num/half.h"

#include <string.h>

uint32_t im__split_dtype(uint32_t bits, uint32_t group, uint32_t scale_dtype)
{
    if (!im__dtype_is_float(scale_dtype) || (group != 32 && group != 64 && group != 128)) return IM__DTYPE_END;
    for (uint32_t i = 0; i < 6; i++)
        if (im__affine_bits(IM__AFFINE2 + i) == bits)
            return (scale_dtype == IM__BF16 && group >= 64 ? IM__AFFINE2 : IM__AFFINE2_F) + i;
    return IM__DTYPE_END;
}

size_t im__split_row_bytes(uint32_t dtype, size_t n) { return n / 8 * (dtype == IM__MXFP4 ? 4 : im__affine_bits(dtype)); }

static uint32_t float_bits(uint32_t dtype, const uint8_t *array, size_t index)
{
    if (dtype == IM__F32) return im__load_u32(array + 4 * index);
    uint16_t half = im__load_u16(array + 2 * index);
    return dtype == IM__BF16 ? (uint32_t)half << 16 : im__bits_of_f32(im__f32_of_f16(half));
}

static void store_u32(uint8_t *p, uint32_t v)
{
    for (int i = 0; i < 4; i++) p[i] = (uint8_t)(v >> 8 * i);
}

/* From pairs of neighbours to elements i and i + 16 in one byte. */
static void join_mxfp4(const uint8_t codes[16], uint8_t exponent, uint8_t *block)
{
    block[0] = exponent;
    for (int i = 0; i < 16; i++) {
        unsigned low = codes[i / 2] >> i % 2 * 4 & 15, high = codes[8 + i / 2] >> i % 2 * 4 & 15;
        block[1 + i] = (uint8_t)(low | high << 4);
    }
}

/* Scale and bias number `index`; returns their bytes. */
static size_t join_scales(const im__split *s, uint32_t dtype, size_t index, uint8_t *block)
{
    if (im__affine_is_wide(dtype)) {
        store_u32(block, float_bits(s->scale_dtype, s->scale, index));
        store_u32(block + 4, float_bits(s->scale_dtype, s->bias, index));
        return 8;
    }
    memcpy(block, s->scale + 2 * index, 2);
    memcpy(block + 2, s->bias + 2 * index, 2);
    return 4;
}

void im__split_join(const im__split *s, uint32_t dtype, size_t n_in, const uint8_t *codes, size_t row, size_t first, size_t count,
                    uint8_t *blocks)
{
    const im__dtype_info *info = im__dtype_get(dtype);
    const size_t per_scale = s->group / info->block_len, scales = row * (n_in / s->group);
    const size_t bytes = im__split_row_bytes(dtype, info->block_len);
    for (size_t i = first; i < first + count; i++, blocks += info->block_bytes) {
        size_t scale = scales + i / per_scale;
        if (dtype == IM__MXFP4)
            join_mxfp4(codes + i * bytes, s->scale[scale], blocks);
        else
            memcpy(blocks + join_scales(s, dtype, scale, blocks), codes + i * bytes, bytes);
    }
}
