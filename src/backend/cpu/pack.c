/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/pack.h"

#include "base/mem.h"
#include "num/group.h"

#include <string.h>

/* Codes of one record: a word holds the 4 bytes of one output's quad, as they lie in a line. */
typedef struct record {
    uint32_t quad[8][IM__PANEL];
} record;

size_t im__packed_bytes(uint32_t dtype, size_t n_out, size_t n_in)
{
    const im__dtype_info *info = im__dtype_get(dtype);
    im__form f = im__form_of(dtype);
    bool is_float = im__dtype_is_float(dtype);
    size_t panels = n_out / IM__PANEL + (n_out % IM__PANEL != 0), bytes;
    if ((f.bits == 0 && !is_float) || n_out == 0 || n_in == 0 || n_in % info->block_len != 0 || n_in > SIZE_MAX / 256) return 0;
    return im__mul(panels, is_float ? im__float_panel_bytes(dtype, n_in) : im__panel_bytes(f, n_in), &bytes) ? bytes : 0;
}

/* ---- integers ---- */

static uint8_t *put_nibbles(uint8_t *line, const record *r)
{
    for (int j = 0; j < 4; j++, line += IM__LINE) {
        uint32_t words[IM__PANEL];
        for (int o = 0; o < IM__PANEL; o++) words[o] = (r->quad[2 * j][o] & 0x0f0f0f0f) | (r->quad[2 * j + 1][o] & 0x0f0f0f0f) << 4;
        memcpy(line, words, sizeof words);
    }
    return line;
}

/* Two lines; bits `bit` and bit + 1 of every code. */
static uint8_t *put_pairs(uint8_t *line, const record *r, int bit)
{
    for (int h = 0; h < 2; h++, line += IM__LINE) {
        uint32_t words[IM__PANEL] = {0};
        for (int q = 0; q < 4; q++)
            for (int o = 0; o < IM__PANEL; o++) words[o] |= ((r->quad[4 * h + q][o] >> bit) & 0x03030303) << (2 * q);
        memcpy(line, words, sizeof words);
    }
    return line;
}

static uint8_t *put_bits(uint8_t *line, const record *r, int bit)
{
    uint32_t words[IM__PANEL] = {0};
    for (int q = 0; q < 8; q++)
        for (int o = 0; o < IM__PANEL; o++) words[o] |= ((r->quad[q][o] >> bit) & 0x01010101) << q;
    memcpy(line, words, sizeof words);
    return line + IM__LINE;
}

static uint8_t *put_record(uint8_t *line, const record *r, unsigned bits)
{
    switch (bits) {
    case 2: return put_pairs(line, r, 0);
    case 3: return put_bits(put_pairs(line, r, 0), r, 2);
    case 4: return put_nibbles(line, r);
    case 5: return put_bits(put_nibbles(line, r), r, 4);
    case 6: return put_pairs(put_nibbles(line, r), r, 4);
    default: memcpy(line, r->quad, sizeof r->quad); return line + sizeof r->quad;
    }
}

/* ---- scales ---- */

static void put_half(uint8_t *at, size_t o, uint16_t half) { memcpy(at + 2 * o, &half, 2); }

/* Scales of group g of the chunk, for forms that keep one per group (or pair of them: g counts pairs). */
static void put_scales(im__form f, uint8_t *scales, size_t g, const uint16_t s[IM__PANEL], const uint16_t m[IM__PANEL])
{
    if (f.scales == IM__SCALES_HALF) memcpy(scales + 32 * g, s, 32);
    for (size_t o = 0; f.scales == IM__SCALES_EXPONENT && o < IM__PANEL; o++) scales[16 * g + o] = (uint8_t)s[o];
    if (f.scales != IM__SCALES_HALF_MIN && f.scales != IM__SCALES_BF16_PAIRS) return;
    memcpy(scales + 64 * g, s, 32);
    memcpy(scales + 64 * g + 32, m, 32);
}

static void put_super(im__form f, uint8_t *scales, size_t o, const im__super *super)
{
    size_t groups = IM__CHUNK / f.group, at = f.scales == IM__SCALES_SUPER ? 32 : 64;
    put_half(scales, o, super->d);
    if (f.scales != IM__SCALES_SUPER) put_half(scales + 32, o, super->dmin ^ 0x8000);
    for (size_t g = 0; g < groups; g++) {
        uint8_t scale = (uint8_t)super->scale[g];
        scales[at + 16 * g + o] = f.scales == IM__SCALES_SUPER_NIBBLE ? (uint8_t)(scale | super->min[g] << 4) : scale;
        if (f.scales == IM__SCALES_SUPER_MIN) scales[at + 16 * (groups + g) + o] = super->min[g];
    }
}

/* ---- panels ---- */

/* Where blocks that are not stored as such are put together. */
typedef struct joined {
    uint8_t row[IM__PANEL][IM__JOINED_BYTES];
} joined;

static im__rows rows_at(const im__weight *w, size_t out, size_t outs, size_t block, joined *room)
{
    im__rows r = {.count = outs};
    for (size_t o = 0; o < outs; o++) r.block[o] = im__weight_blocks(w, out + o, block, 1, room->row[o]);
    return r;
}

/* Those of block i of the chunk, for types that keep one scale for a block. */
static void pack_scales(const im__weight *w, im__form f, const im__rows *rows, size_t i, uint8_t *scales)
{
    uint16_t s[IM__PANEL], m[IM__PANEL];
    float floats[2][IM__PANEL];
    if (f.scales == IM__SCALES_FLOAT_MIN) {
        im__stored_floats(w->dtype, rows, floats[0], floats[1]);
        memcpy(scales + sizeof floats * i, floats, sizeof floats);
        return;
    }
    im__stored_scales(w->dtype, rows, s, m);
    put_scales(f, scales, i, s, m);
}

static void pack_super_scales(const im__weight *w, im__form f, const im__rows *rows, uint8_t *scales)
{
    im__super super;
    for (size_t o = 0; o < rows->count; o++) {
        im__super_read(w->dtype, rows->block[o], &super);
        put_super(f, scales, o, &super);
    }
}

/* A chunk of n records, the rows' from `first` on. */
static uint8_t *pack_chunk(const im__weight *w, im__form f, size_t out, size_t outs, size_t first, size_t n, uint8_t *to)
{
    const im__dtype_info *info = im__dtype_get(w->dtype);
    const size_t per_block = (size_t)info->block_len / IM__RECORD;
    uint8_t *line = to + im__scale_bytes(f, n * IM__RECORD / f.group);
    const bool super = f.scales == IM__SCALES_SUPER || f.scales == IM__SCALES_SUPER_MIN || f.scales == IM__SCALES_SUPER_NIBBLE;
    im__rows rows = {0};
    joined room;
    record r;
    memset(to, 0, (size_t)(line - to));
    for (size_t i = 0; i < n; i++) {
        size_t index = (first + i) % per_block;
        if (index == 0) {
            rows = rows_at(w, out, outs, (first + i) / per_block, &room);
            if (super)
                pack_super_scales(w, f, &rows, to);
            else
                pack_scales(w, f, &rows, i / per_block, to);
        }
        im__codes_read(w->dtype, &rows, index, r.quad);
        line = put_record(line, &r, f.bits);
    }
    return line;
}

static void pack_panel(const im__weight *w, im__form f, uint8_t *to, size_t out, size_t outs)
{
    enum { MOST = IM__CHUNK / IM__RECORD };
    for (size_t done = 0, records = w->n_in / IM__RECORD, n; done < records; done += n) {
        n = records - done < MOST ? records - done : MOST;
        to = pack_chunk(w, f, out, outs, done, n, to);
    }
}

static void pack_float_panel(const im__weight *w, uint8_t *to, size_t out, size_t outs)
{
    size_t size = w->dtype == IM__F32 ? 4 : 2;
    memset(to, 0, im__float_panel_bytes(w->dtype, w->n_in));
    for (size_t o = 0; o < outs; o++) {
        const uint8_t *row = im__weight_row(w, out + o);
        for (size_t k = 0; k < w->n_in; k++) memcpy(to + (k * IM__PANEL + o) * size, row + k * size, size);
    }
}

void im__pack(const im__weight *w, void *packed, size_t out_begin, size_t out_end)
{
    im__form f = im__form_of(w->dtype);
    bool is_float = im__dtype_is_float(w->dtype);
    size_t panel_bytes = is_float ? im__float_panel_bytes(w->dtype, w->n_in) : im__panel_bytes(f, w->n_in);
    for (size_t out = out_begin; out < out_end; out += IM__PANEL) {
        uint8_t *to = (uint8_t *)packed + out / IM__PANEL * panel_bytes;
        size_t outs = out_end - out < IM__PANEL ? out_end - out : IM__PANEL;
        if (is_float)
            pack_float_panel(w, to, out, outs);
        else
            pack_panel(w, f, to, out, outs);
    }
}
