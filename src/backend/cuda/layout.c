/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cuda/layout.h"

#include "base/mem.h"
#include "num/group.h"

#include <string.h>

enum { TILE = IM__CUDA_TILE, UNIT = IM__CUDA_UNIT, RECORD = 32, RECORDS = UNIT / RECORD };

/* Codes of 32 elements of some outputs: word q of an output holds elements 4q .. 4q + 3. */
typedef uint32_t record[8][IM__ROWS_READ];

im__cuda_form_info im__cuda_form_get(im__cuda_form form)
{
    static const im__cuda_form_info info[IM__CUDA_FORMS] = {
        [IM__CUDA_4_HALF] = {4, 32, 8, IM__CUDA_HALF},           [IM__CUDA_4_HALF_MIN] = {4, 32, 0, IM__CUDA_HALF_MIN},
        [IM__CUDA_5_HALF] = {5, 32, 16, IM__CUDA_HALF},          [IM__CUDA_5_HALF_MIN] = {5, 32, 0, IM__CUDA_HALF_MIN},
        [IM__CUDA_8_HALF] = {8, 32, 0, IM__CUDA_HALF},           [IM__CUDA_4_SUPER_MIN_16] = {4, 16, 0, IM__CUDA_SUPER_MIN},
        [IM__CUDA_4_SUPER_16] = {4, 16, 4, IM__CUDA_SUPER},      [IM__CUDA_4_SUPER_MIN] = {4, 32, 0, IM__CUDA_SUPER_MIN},
        [IM__CUDA_5_SUPER_MIN] = {5, 32, 0, IM__CUDA_SUPER_MIN}, [IM__CUDA_6_SUPER_16] = {6, 16, 32, IM__CUDA_SUPER},
        [IM__CUDA_8_SUPER] = {8, 32, 0, IM__CUDA_SUPER},         [IM__CUDA_8_FLOAT] = {8, 32, 0, IM__CUDA_FLOAT},
        [IM__CUDA_4_BF16_MIN] = {4, 32, 0, IM__CUDA_BF16_MIN},   [IM__CUDA_8_BF16_MIN] = {8, 32, 0, IM__CUDA_BF16_MIN},
        [IM__CUDA_F32] = {32, 0, 0, IM__CUDA_NO_SCALES},         [IM__CUDA_F16] = {16, 0, 0, IM__CUDA_NO_SCALES},
        [IM__CUDA_BF16] = {16, 0, 0, IM__CUDA_NO_SCALES},
    };
    return info[form];
}

const char *im__cuda_form_name(im__cuda_form form)
{
    static const char *const name[IM__CUDA_FORMS] = {
        "4_half",     "4_half_min",  "5_half",      "5_half_min", "8_half",  "4_super_min_16",
        "4_super_16", "4_super_min", "5_super_min", "6_super_16", "8_super", "8_float",
        "4_bf16_min", "8_bf16_min",  "f32",         "f16",        "bf16"};
    return name[form];
}

static bool form_of(uint32_t dtype, im__cuda_form *form)
{
    switch (dtype) {
    case IM__Q4_0: *form = IM__CUDA_4_HALF; return true;
    case IM__Q4_1: *form = IM__CUDA_4_HALF_MIN; return true;
    case IM__Q5_0: *form = IM__CUDA_5_HALF; return true;
    case IM__Q5_1: *form = IM__CUDA_5_HALF_MIN; return true;
    case IM__Q8_0:
    case IM__IQ4_NL: *form = IM__CUDA_8_HALF; return true;
    case IM__Q2_K: *form = IM__CUDA_4_SUPER_MIN_16; return true;
    case IM__Q3_K: *form = IM__CUDA_4_SUPER_16; return true;
    case IM__Q4_K: *form = IM__CUDA_4_SUPER_MIN; return true;
    case IM__Q5_K: *form = IM__CUDA_5_SUPER_MIN; return true;
    case IM__Q6_K: *form = IM__CUDA_6_SUPER_16; return true;
    case IM__IQ4_XS: *form = IM__CUDA_8_SUPER; return true;
    case IM__MXFP4: *form = IM__CUDA_8_FLOAT; return true;
    case IM__AFFINE2:
    case IM__AFFINE3:
    case IM__AFFINE4: *form = IM__CUDA_4_BF16_MIN; return true;
    case IM__AFFINE8: *form = IM__CUDA_8_BF16_MIN; return true;
    case IM__F32: *form = IM__CUDA_F32; return true;
    case IM__F16: *form = IM__CUDA_F16; return true;
    case IM__BF16: *form = IM__CUDA_BF16; return true;
    default: return false;
    }
}

static uint32_t scale_bytes(im__cuda_form_info f, uint32_t elements)
{
    uint32_t groups = f.group == 0 ? 0 : elements / f.group;
    switch (f.scales) {
    case IM__CUDA_HALF: return groups * TILE * 2;
    case IM__CUDA_HALF_MIN:
    case IM__CUDA_BF16_MIN:
    case IM__CUDA_FLOAT: return groups * TILE * 4;
    case IM__CUDA_SUPER: return TILE * 2 + groups * TILE;
    case IM__CUDA_SUPER_MIN: return TILE * 4 + groups * TILE * 2;
    default: return 0;
    }
}

/* Of floats: as many pieces of 16 bytes as hold the elements. */
static uint32_t unit_bytes(im__cuda_form_info f, uint32_t elements)
{
    if (f.group == 0) return (elements * (f.bits / 8) + 15) / 16 * 16 * TILE;
    return elements / RECORD * f.bits * 4 * TILE + scale_bytes(f, elements);
}

bool im__cuda_layout_of(uint32_t dtype, size_t n_out, size_t n_in, im__cuda_layout *l)
{
    im__cuda_form form;
    if (!form_of(dtype, &form) || n_out == 0 || n_in == 0 || n_in > 1 << 20 || n_out > UINT32_MAX - TILE) return false;
    if (n_in % im__dtype_get(dtype)->block_len != 0) return false;
    im__cuda_form_info f = im__cuda_form_get(form);
    uint32_t width = (uint32_t)n_in, units = (width + UNIT - 1) / UNIT, rest = width - (units - 1) * UNIT;
    *l = (im__cuda_layout){.form = form, .dtype = dtype, .n_in = width, .n_out = (uint32_t)n_out, .units = units};
    l->tiles = (uint32_t)((n_out + TILE - 1) / TILE);
    l->unit_bytes = unit_bytes(f, UNIT);
    l->last_bytes = unit_bytes(f, rest);
    l->tile_bytes = (units - 1) * l->unit_bytes + l->last_bytes;
    return im__mul(l->tiles, l->tile_bytes, &l->bytes);
}

/* ---- codes: `at` is where a group's 32 outputs begin, o the first of `count` outputs in the record ------------------------------------ */

static void put_word(uint8_t *at, size_t output, size_t stride, uint32_t word) { memcpy(at + output * stride, &word, 4); }

static void put_nibbles(uint8_t *at, size_t o, size_t count, const uint32_t q[8][IM__ROWS_READ])
{
    for (size_t i = 0; i < count; i++)
        for (size_t w = 0; w < 4; w++) put_word(at + 4 * w, o + i, 16, (q[w][i] & 0x0f0f0f0f) | (q[w + 4][i] & 0x0f0f0f0f) << 4);
}

static void put_bits(uint8_t *at, size_t o, size_t count, const uint32_t q[8][IM__ROWS_READ])
{
    for (size_t i = 0; i < count; i++) {
        uint32_t word = 0;
        for (unsigned k = 0; k < 8; k++) word |= (q[k][i] >> 4 & 0x01010101) << k;
        put_word(at, o + i, 4, word);
    }
}

static void put_pairs(uint8_t *at, size_t o, size_t count, const uint32_t q[8][IM__ROWS_READ])
{
    for (size_t i = 0; i < count; i++)
        for (unsigned h = 0; h < 2; h++) {
            uint32_t word = 0;
            for (unsigned k = 0; k < 4; k++) word |= (q[4 * h + k][i] >> 4 & 0x03030303) << 2 * k;
            put_word(at + 4 * h, o + i, 8, word);
        }
}

/* The integers themselves, which im__codes_read gives as codes without sign or as places in a table. */
static uint32_t integers_of(uint32_t dtype, uint32_t codes)
{
    static const int8_t iq4[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
    static const int8_t mxfp4[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
    if (dtype == IM__Q8_0 || dtype == IM__AFFINE8) return codes ^ 0x80808080;
    const int8_t *table = dtype == IM__MXFP4 ? mxfp4 : iq4;
    uint32_t word = 0;
    for (unsigned i = 0; i < 32; i += 8) word |= (uint32_t)(uint8_t)table[codes >> i & 15] << i;
    return word;
}

static void put_bytes(uint8_t *at, size_t o, size_t count, const uint32_t q[8][IM__ROWS_READ], uint32_t dtype)
{
    for (size_t i = 0; i < count; i++)
        for (size_t w = 0; w < 8; w++) put_word(at + w / 4 * 16 * TILE + 4 * (w % 4), o + i, 16, integers_of(dtype, q[w][i]));
}

/* Record `index` of a unit of `records`. */
static void put_record(uint8_t *unit, const im__cuda_layout *l, size_t records, size_t index, size_t o, size_t count, record q)
{
    im__cuda_form_info f = im__cuda_form_get(l->form);
    if (f.bits == 8) {
        put_bytes(unit + index * 32 * TILE, o, count, q, l->dtype);
        return;
    }
    put_nibbles(unit + index * 16 * TILE, o, count, q);
    uint8_t *top = unit + records * 16 * TILE;
    if (f.bits == 5) put_bits(top + index * 4 * TILE, o, count, q);
    if (f.bits == 6) put_pairs(top + index * 8 * TILE, o, count, q);
}

/* ---- scales ------------------------------------------------------------------------------------------------------------------------- */

/* 2^(e - 128) */
static uint32_t power_bits(uint16_t e) { return e >= 2 ? (uint32_t)(e - 1) << 23 : UINT32_C(0x00200000) << e; }

/* Of one group of 32. */
static void put_scales(uint8_t *at, im__cuda_form_info f, size_t o, size_t count, const im__rows *rows, uint32_t dtype)
{
    uint16_t s[IM__ROWS_READ], m[IM__ROWS_READ];
    im__stored_scales(dtype, rows, s, m);
    for (size_t i = 0; i < count; i++) {
        if (f.scales == IM__CUDA_HALF) memcpy(at + 2 * (o + i), &s[i], 2);
        if (f.scales == IM__CUDA_HALF_MIN || f.scales == IM__CUDA_BF16_MIN) put_word(at, o + i, 4, s[i] | (uint32_t)m[i] << 16);
        if (f.scales == IM__CUDA_FLOAT) put_word(at, o + i, 4, power_bits(s[i]));
    }
}

/* Of a whole unit. */
static void put_super(uint8_t *at, im__cuda_form_info f, size_t o, const uint8_t *block, uint32_t dtype)
{
    im__super super;
    size_t groups = UNIT / f.group;
    im__super_read(dtype, block, &super);
    if (f.scales == IM__CUDA_SUPER) {
        memcpy(at + 2 * o, &super.d, 2);
        for (size_t g = 0; g < groups; g++) at[2 * TILE + g * TILE + o] = (uint8_t)super.scale[g];
        return;
    }
    put_word(at, o, 4, super.d | (uint32_t)(super.dmin ^ 0x8000) << 16);
    for (size_t g = 0; g < groups; g++) {
        at[4 * TILE + (g * TILE + o) * 2] = (uint8_t)super.scale[g];
        at[4 * TILE + (g * TILE + o) * 2 + 1] = super.min[g];
    }
}

/* ---- units ---------------------------------------------------------------------------------------------------------------------------- */

/* `count` outputs from `out` on, at place o of the tile; records `first` .. of their rows. */
static void pack_outputs(const im__weight *w, const im__cuda_layout *l, uint8_t *unit, size_t out, size_t o, size_t count,
                         size_t first, size_t records)
{
    const im__dtype_info *info = im__dtype_get(l->dtype);
    im__cuda_form_info f = im__cuda_form_get(l->form);
    const bool super = f.scales == IM__CUDA_SUPER || f.scales == IM__CUDA_SUPER_MIN;
    size_t per_block = (size_t)info->block_len / RECORD;
    uint8_t *scales = unit + records * f.bits * 4 * TILE;
    uint8_t room[IM__ROWS_READ][IM__JOINED_BYTES];
    im__rows rows = {.count = count};
    record q;
    for (size_t r = 0; r < records; r++) {
        size_t index = (first + r) % per_block;
        for (size_t i = 0; index == 0 && i < count; i++)
            rows.block[i] = im__weight_blocks(w, out + i, (first + r) / per_block, 1, room[i]);
        im__codes_read(l->dtype, &rows, index, q);
        put_record(unit, l, records, r, o, count, q);
        if (!super) put_scales(scales + r * scale_bytes(f, RECORD), f, o, count, &rows, l->dtype);
    }
    for (size_t i = 0; super && i < count; i++) put_super(scales, f, o + i, rows.block[i], l->dtype);
}

static void pack_floats(const im__weight *w, const im__cuda_layout *l, uint8_t *unit, size_t out, size_t outs, size_t index)
{
    size_t size = im__cuda_form_get(l->form).bits / 8, row = l->n_in * size;
    for (size_t o = 0; o < outs; o++) {
        const uint8_t *from = im__weight_row(w, out + o);
        for (size_t at = index * UNIT * size, k = 0; at < row && k < UNIT * size / 16; at += 16, k++)
            memcpy(unit + (k * TILE + o) * 16, from + at, row - at < 16 ? row - at : 16);
    }
}

static void pack_tile(const im__weight *w, const im__cuda_layout *l, size_t out, uint8_t *to)
{
    size_t outs = l->n_out - out < TILE ? l->n_out - out : TILE, all = l->n_in / RECORD;
    bool floats = im__dtype_is_float(l->dtype);
    if (outs < TILE || floats) memset(to, 0, l->tile_bytes);
    for (size_t u = 0; u < l->units; u++, to += l->unit_bytes) {
        if (floats) {
            pack_floats(w, l, to, out, outs, u);
            continue;
        }
        size_t records = u + 1 < l->units ? RECORDS : all - u * RECORDS;
        for (size_t o = 0; o < outs; o += IM__ROWS_READ)
            pack_outputs(w, l, to, out + o, o, outs - o < IM__ROWS_READ ? outs - o : IM__ROWS_READ, u * RECORDS, records);
    }
}

void im__cuda_pack(const im__weight *w, const im__cuda_layout *l, uint32_t begin, uint32_t end, uint8_t *to)
{
    for (uint32_t t = begin; t < end; t++, to += l->tile_bytes) pack_tile(w, l, (size_t)t * TILE, to);
}
