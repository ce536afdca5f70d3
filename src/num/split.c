/* SPDX-License-Identifier: Apache-2.0 */
#include "num/split.h"

#include "base/bytes.h"
#include "num/half.h"

#include <string.h>

uint32_t im__split_dtype(uint32_t bits, uint32_t group, uint32_t scale_dtype)
{
    if (!im__dtype_is_float(scale_dtype) || (group != 32 && group != 64 && group != 128)) return IM__DTYPE_END;
    if (scale_dtype == IM__F16 && (bits == 4 || bits == 5)) return bits == 4 ? IM__Q4_1 : IM__Q5_1;
    for (uint32_t i = 0; i < 6; i++)
        if (im__affine_bits(IM__AFFINE2 + i) == bits)
            return (scale_dtype == IM__BF16 && group >= 64 ? IM__AFFINE2 : IM__AFFINE2_F) + i;
    return IM__DTYPE_END;
}

static unsigned bits_of(uint32_t dtype)
{
    return dtype == IM__MXFP4 || dtype == IM__Q4_1 ? 4 : dtype == IM__Q5_1 ? 5 : im__affine_bits(dtype);
}

size_t im__split_row_bytes(uint32_t dtype, size_t n) { return n / 8 * bits_of(dtype); }

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

static unsigned code_at(const uint8_t *codes, unsigned bits, size_t i)
{
    size_t bit = i * bits;
    unsigned both = codes[bit / 8] | (bit % 8 + bits > 8 ? (unsigned)codes[bit / 8 + 1] << 8 : 0);
    return both >> bit % 8 & ((1u << bits) - 1);
}

/* From one stream of 32 codes to elements i and i + 16 in one byte; returns the fifth bits, element i's as bit i. */
static uint32_t join_nibbles(const uint8_t *codes, unsigned bits, uint8_t *nibbles)
{
    uint32_t high = 0;
    for (unsigned i = 0; i < 16; i++) {
        unsigned first = code_at(codes, bits, i), second = code_at(codes, bits, i + 16);
        nibbles[i] = (uint8_t)((first & 15) | (second & 15) << 4);
        high |= (uint32_t)(first >> 4) << i | (uint32_t)(second >> 4) << (i + 16);
    }
    return high;
}

/* Scale and bias number `index`; returns their bytes. Of binary16 they are halves as in GGUF's types. */
static size_t join_scales(const im__split *s, uint32_t dtype, size_t index, uint8_t *block)
{
    if (im__affine_bits(dtype) != 0 && im__affine_is_wide(dtype)) {
        store_u32(block, float_bits(s->scale_dtype, s->scale, index));
        store_u32(block + 4, float_bits(s->scale_dtype, s->bias, index));
        return 8;
    }
    memcpy(block, s->scale + 2 * index, 2);
    memcpy(block + 2, s->bias + 2 * index, 2);
    return 4;
}

static void join_block(const im__split *s, uint32_t dtype, size_t scale, const uint8_t *codes, size_t bytes, uint8_t *block)
{
    if (dtype == IM__MXFP4) {
        block[0] = s->scale[scale];
        join_nibbles(codes, 4, block + 1);
        return;
    }
    uint8_t *to = block + join_scales(s, dtype, scale, block);
    if (dtype == IM__Q4_1)
        join_nibbles(codes, 4, to);
    else if (dtype == IM__Q5_1)
        store_u32(to, join_nibbles(codes, 5, to + 4));
    else
        memcpy(to, codes, bytes);
}

void im__split_join(const im__split *s, uint32_t dtype, size_t n_in, const uint8_t *codes, size_t row, size_t first, size_t count,
                    uint8_t *blocks)
{
    const im__dtype_info *info = im__dtype_get(dtype);
    const size_t per_scale = s->group / info->block_len, scales = row * (n_in / s->group);
    const size_t bytes = im__split_row_bytes(dtype, info->block_len);
    for (size_t i = first; i < first + count; i++, blocks += info->block_bytes)
        join_block(s, dtype, scales + i / per_scale, codes + i * bytes, bytes, blocks);
}
