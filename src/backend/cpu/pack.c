/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/pack.h"

#include "base/mem.h"
#include "num/group.h"
#include "num/half.h"

#include <string.h>

/* Codes of one record: a word holds the 4 bytes of one output's quad, as they lie in a line. */
typedef struct record {
    uint32_t quad[8][IM__PANEL];
} record;

typedef struct packer {
    const im__weight *w;
    im__form form;
    uint8_t code_of[256]; /* for a form with a table: the code of a value */
} packer;

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

/* Eight codes into the words of two quads, which lie a panel apart. Bytes are added eight at a time: w + 128 never wraps, and is not
 * below 128 - offset. */
static void set_codes(const packer *p, uint32_t *word, const int8_t w[8])
{
    const uint64_t each = UINT64_C(0x0101010101010101);
    uint64_t codes;
    memcpy(&codes, w, 8);
    codes = (codes ^ 0x80 * each) - (uint64_t)(128 - p->form.offset) * each;
    if (p->form.table != IM__TABLE_NONE) {
        uint8_t bytes[8];
        for (size_t i = 0; i < 8; i++) bytes[i] = p->code_of[(uint8_t)w[i]];
        memcpy(&codes, bytes, 8);
    }
    memcpy(word, &codes, 4);
    memcpy(word + IM__PANEL, (const uint8_t *)&codes + 4, 4);
}

/* ---- scales ---- */

static void put_half(uint8_t *at, size_t o, uint16_t half) { memcpy(at + 2 * o, &half, 2); }

static uint8_t exponent_of(float s)
{
    uint32_t bits = im__bits_of_f32(s); /* 2^-128 and 2^-127 are subnormal */
    return bits >> 23 ? (uint8_t)((bits >> 23) + 1) : bits == 0x00400000;
}

/* The scale of group g of the chunk, for forms that keep one per group. */
static void put_scale(im__form f, uint8_t *scales, size_t g, size_t o, const im__group *group)
{
    if (f.scales == IM__SCALES_HALF) put_half(scales + 32 * g, o, im__f16_of_f32(group->s));
    if (f.scales == IM__SCALES_EXPONENT) scales[16 * g + o] = exponent_of(group->s);
    if (f.scales != IM__SCALES_HALF_MIN) return;
    put_half(scales + 64 * g, o, im__f16_of_f32(group->s));
    put_half(scales + 64 * g + 32, o, im__f16_of_f32(group->m));
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

static const uint8_t *row_at(const packer *p, size_t out) { return (const uint8_t *)p->w->data + out * p->w->row_bytes; }

/* Record `index` of the rows; its groups are first_group .. of the chunk at `scales`. */
static uint8_t *pack_record(const packer *p, uint8_t *scales, uint8_t *line, size_t out, size_t outs, size_t index,
                            size_t first_group)
{
    record r = {0};
    size_t per_record = IM__RECORD / p->form.group;
    for (size_t o = 0; o < outs; o++)
        for (size_t h = 0; h < per_record; h++) {
            im__group group;
            im__group_read(p->w->dtype, row_at(p, out + o), index * per_record + h, &group);
            for (size_t i = 0; i < p->form.group; i += 8) set_codes(p, &r.quad[4 * h + i / 4][o], group.w + i);
            put_scale(p->form, scales, first_group + h, o, &group);
        }
    return put_record(line, &r, p->form.bits);
}

static void pack_panel(const packer *p, uint8_t *to, size_t out, size_t outs)
{
    im__form f = p->form;
    size_t records = p->w->n_in / IM__RECORD;
    for (size_t done = 0; done < records;) {
        size_t n = records - done < IM__CHUNK / IM__RECORD ? records - done : IM__CHUNK / IM__RECORD;
        uint8_t *scales = to, *line = to + im__scale_bytes(f, n * IM__RECORD / f.group);
        memset(scales, 0, (size_t)(line - scales));
        if (f.scales >= IM__SCALES_SUPER)
            for (size_t o = 0; o < outs; o++) {
                im__super super;
                im__super_read(p->w->dtype, row_at(p, out + o), done * IM__RECORD / IM__CHUNK, &super);
                put_super(f, scales, o, &super);
            }
        for (size_t i = 0; i < n; i++) line = pack_record(p, scales, line, out, outs, done + i, i * IM__RECORD / f.group);
        done += n;
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
    packer p = {.w = w, .form = im__form_of(w->dtype)};
    const uint8_t *table = im__form_table(p.form.table);
    bool is_float = im__dtype_is_float(w->dtype);
    size_t panel_bytes = is_float ? im__float_panel_bytes(w->dtype, w->n_in) : im__panel_bytes(p.form, w->n_in);
    for (int code = 0; table && code < 16; code++) p.code_of[(uint8_t)(table[code] - p.form.offset)] = (uint8_t)code;
    for (size_t out = out_begin; out < out_end; out += IM__PANEL) {
        uint8_t *to = (uint8_t *)packed + out / IM__PANEL * panel_bytes;
        size_t outs = out_end - out < IM__PANEL ? out_end - out : IM__PANEL;
        if (is_float)
            pack_float_panel(w, to, out, outs);
        else
            pack_panel(&p, to, out, outs);
    }
}
