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

/* The scale of group g of the chunk, for forms that keep one per group. */
static void put_scale(im__form f, uint8_t *scales, size_t g, size_t o, uint16_t s, uint16_t m)
{
    if (f.scales == IM__SCALES_HALF) put_half(scales + 32 * g, o, s);
    if (f.scales == IM__SCALES_EXPONENT) scales[16 * g + o] = (uint8_t)s;
    if (f.scales != IM__SCALES_HALF_MIN) return;
    put_half(scales + 64 * g, o, s);
    put_half(scales + 64 * g + 32, o, m);
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

/* Scales of output o of a chunk of n records, the row's from `first` on. */
static void pack_scales(const im__weight *w, im__form f, const uint8_t *row, size_t first, size_t n, uint8_t *scales, size_t o)
{
    uint16_t s, m;
    im__super super;
    if (f.scales >= IM__SCALES_SUPER) {
        im__super_read(w->dtype, row, first * IM__RECORD / IM__CHUNK, &super);
        put_super(f, scales, o, &super);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        im__stored_scale(w->dtype, row, first + i, &s, &m);
        put_scale(f, scales, i, o, s, m);
    }
}

/* Codes of output o of n records. */
static void pack_codes(const im__weight *w, im__form f, const uint8_t *row, size_t first, size_t n, record *r, size_t o)
{
    uint64_t codes[IM__CHUNK / 8];
    size_t per_record = IM__RECORD / f.group;
    im__codes_read(w->dtype, row, first * per_record, n * per_record, codes);
    for (size_t i = 0; i < n; i++)
        for (size_t word = 0; word < IM__RECORD / 8; word++) {
            r[i].quad[2 * word][o] = (uint32_t)codes[i * (IM__RECORD / 8) + word];
            r[i].quad[2 * word + 1][o] = (uint32_t)(codes[i * (IM__RECORD / 8) + word] >> 32);
        }
}

static void pack_panel(const im__weight *w, im__form f, uint8_t *to, size_t out, size_t outs)
{
    enum { MOST = IM__CHUNK / IM__RECORD };
    record r[MOST];
    if (outs < IM__PANEL) memset(r, 0, sizeof r);
    for (size_t done = 0, records = w->n_in / IM__RECORD, n; done < records; done += n) {
        n = records - done < MOST ? records - done : MOST;
        uint8_t *line = to + im__scale_bytes(f, n * IM__RECORD / f.group);
        memset(to, 0, (size_t)(line - to));
        for (size_t o = 0; o < outs; o++) {
            const uint8_t *row = (const uint8_t *)w->data + (out + o) * w->row_bytes;
            pack_scales(w, f, row, done, n, to, o);
            pack_codes(w, f, row, done, n, r, o);
        }
        for (size_t i = 0; i < n; i++) line = put_record(line, &r[i], f.bits);
        to = line;
    }
}

static void pack_float_panel(const im__weight *w, uint8_t *to, size_t out, size_t outs)
{
    size_t size = w->dtype == IM__F32 ? 4 : 2;
    memset(to, 0, im__float_panel_bytes(w->dtype, w->n_in));
    for (size_t o = 0; o < outs; o++) {
        const uint8_t *row = (const uint8_t *)w->data + (out + o) * w->row_bytes;
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
