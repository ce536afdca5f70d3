/* SPDX-License-Identifier: Apache-2.0 */
#include "decode_model.h"

#include "num/group.h"
#include "num/half.h"
#include "num/real.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- random weights ---- */

static uint64_t draw(uint64_t *state)
{
    uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static float between(uint64_t *state, float low, float high) { return low + (high - low) * (float)(draw(state) >> 40) * 0x1p-24f; }

/* Scales that keep activations moderate; the other bytes of a block may be anything. */
static void tame(uint32_t dtype, uint8_t *block, uint64_t *state)
{
    const float by = between(state, 0.5f, 1.5f);
    float s = dtype == IM__Q4_0   ? 6e-3f
              : dtype == IM__Q5_0 ? 3e-3f
              : dtype == IM__Q8_0 ? 4e-4f
              : dtype == IM__Q6_K ? 2e-5f
                                  : 1.9e-4f;
    uint16_t half = im__f16_of_f32(s * by), min = im__f16_of_f32(s * by * 7.5f);
    memcpy(block + (dtype == IM__Q6_K ? 208 : 0), &half, 2);
    if (dtype == IM__Q4_K) memcpy(block + 2, &min, 2);
}

/* Rows of n_in and as many of them as asked for; NULL for a hollow model. */
static uint8_t *weights(uint32_t dtype, size_t row, uint32_t n_out, uint64_t *state)
{
    size_t bytes = row * n_out, block = im__dtype_get(dtype)->block_bytes;
    uint8_t *data = malloc(bytes + 8);
    if (row == 0 || data == NULL) abort();
    for (size_t i = 0; i < bytes; i += 8) {
        uint64_t r = draw(state);
        memcpy(data + i, &r, 8);
    }
    for (size_t i = 0; i < bytes; i += block) tame(dtype, data + i, state);
    return data;
}

/* ---- the program ---- */

typedef struct maker {
    im__program *p;
    const decode_dims *d;
    uint64_t random;
    int x, h, q, k, v, att, gate, up, logits;
} maker;

static int matrix(maker *m, uint32_t dtype, uint32_t n_in, uint32_t n_out)
{
    size_t row = im__dtype_row_bytes(dtype, n_in);
    uint8_t *data = m->d->hollow ? NULL : weights(dtype, row, n_out, &m->random);
    im__weight w = {.dtype = dtype, .n_in = n_in, .n_out = n_out, .data = data, .row_bytes = row};
    return im__program_matrix(m->p, "weight", &w);
}

static int vector(im__program *p, uint32_t n, uint64_t *state)
{
    float *data = im__calloc(n, sizeof *data);
    if (data == NULL) abort();
    for (uint32_t i = 0; i < n; i++) data[i] = between(state, 0.6f, 1.4f);
    return im__program_vector(p, "norm", data, n);
}

static void op(maker *m, im__op o) { im__program_op(m->p, o); }

static im__op plain(im__op_kind kind, int dst, int src)
{
    return (im__op){.kind = kind,
                    .dst = dst,
                    .src = src,
                    .src2 = IM__NONE,
                    .weight = IM__NONE,
                    .vector = IM__NONE,
                    .layer = IM__NONE,
                    .rope = IM__NONE};
}

static void norm(maker *m, int dst, int src, uint32_t n)
{
    im__op o = plain(IM__OP_NORM, dst, src);
    o.n = n;
    o.vector = vector(m->p, n, &m->random);
    o.by = 1e-6f;
    op(m, o);
}

static void product(maker *m, int dst, int src, bool wide, uint32_t dtype)
{
    im__op o = plain(IM__OP_MATMUL, dst, src);
    o.weight = matrix(m, dtype != 0 ? dtype : m->d->dtype, m->p->value[src].width, m->p->value[dst].width);
    o.wide = wide;
    op(m, o);
}

static void turn(maker *m, int value, uint32_t heads, int table)
{
    im__op o = plain(IM__OP_ROPE, value, IM__NONE);
    o.heads = heads;
    o.head_dim = 256;
    o.rope = table;
    op(m, o);
}

static void attention(maker *m, uint32_t layer)
{
    const decode_dims *d = m->d;
    bool global = (layer + 1) % d->global_every == 0;
    product(m, m->q, m->h, false, 0);
    product(m, m->k, m->h, true, 0);
    product(m, m->v, m->h, true, layer % 2 != 0 ? d->values : 0);
    norm(m, m->q, m->q, 256);
    norm(m, m->k, m->k, 256);
    turn(m, m->q, d->heads, global);
    turn(m, m->k, d->kv_heads, global);
    im__op store = plain(IM__OP_KV_STORE, IM__NONE, m->k), attend = plain(IM__OP_ATTENTION, m->att, m->q);
    store.src2 = m->v;
    store.head_dim = attend.head_dim = 256;
    store.layer = attend.layer = im__program_kv(
        m->p, (im__kv_layer){.kv_heads = d->kv_heads, .head_dim = 256, .window = global ? 0 : d->window, .type = IM__KV_F16});
    attend.heads = d->heads;
    attend.by = 0.0625f;
    op(m, store);
    if (layer == d->layers - 1) {
        im__op select = plain(IM__OP_SELECT, IM__NONE, m->x);
        select.src2 = m->q;
        op(m, select);
    }
    op(m, attend);
    product(m, m->h, m->att, false, d->out);
}

static void layer(maker *m, uint32_t l)
{
    uint32_t width = m->d->width;
    norm(m, m->h, m->x, width);
    attention(m, l);
    norm(m, m->h, m->h, width);
    op(m, plain(IM__OP_ADD, m->x, m->h));
    norm(m, m->h, m->x, width);
    product(m, m->gate, m->h, false, 0);
    product(m, m->up, m->h, false, 0);
    im__op glu = plain(IM__OP_GLU, m->gate, m->gate);
    glu.src2 = m->up;
    glu.glu = IM__GLU_GELU;
    op(m, glu);
    product(m, m->h, m->gate, false, l % 2 != 0 && m->d->down_too != 0 ? m->d->down_too : m->d->down);
    norm(m, m->h, m->h, width);
    op(m, plain(IM__OP_ADD, m->x, m->h));
}

static void ropes(im__program *p)
{
    for (int t = 0; t < 2; t++) {
        double *frequency = im__calloc(128, sizeof *frequency);
        if (frequency == NULL) abort();
        for (unsigned i = 0; i < 128; i++) frequency[i] = im__rope_frequency(t == 0 ? 1e4 : 1e6, i, 256);
        im__program_rope(p, frequency, 256, false);
    }
}

void decode_program(im__program *p, const decode_dims *d, uint32_t seed)
{
    *p = (im__program){.arch = "gemma3", .vocab = d->vocab, .context = 1 << 17};
    maker m = {.p = p, .d = d, .random = seed * UINT64_C(0x9e3779b97f4a7c15)};
    m.x = im__program_value(p, "x", d->width), m.h = im__program_value(p, "h", d->width);
    m.q = im__program_value(p, "q", d->heads * 256), m.k = im__program_value(p, "k", d->kv_heads * 256);
    m.v = im__program_value(p, "v", d->kv_heads * 256), m.att = im__program_value(p, "att", d->heads * 256);
    m.gate = im__program_value(p, "gate", d->hidden), m.up = im__program_value(p, "up", d->hidden);
    p->logits = m.logits = im__program_value(p, "logits", d->vocab);
    ropes(p);
    im__op embed = plain(IM__OP_EMBED, m.x, IM__NONE);
    embed.weight = matrix(&m, d->head_dtype, d->width, d->vocab);
    embed.by = sqrtf((float)d->width);
    op(&m, embed);
    for (uint32_t l = 0; l < d->layers; l++) layer(&m, l);
    norm(&m, m.h, m.x, d->width);
    im__op head = plain(IM__OP_MATMUL, m.logits, m.h);
    head.weight = matrix(&m, d->head_dtype, d->width, d->vocab); /* of its own, or each token would follow itself */
    head.wide = true;
    op(&m, head);
}

void decode_program_clear(im__program *p)
{
    for (size_t i = 0; i < p->matrix_count; i++) free((void *)(uintptr_t)p->matrix[i].w.data);
    im__program_clear(p);
}

/* ---- units ---- */

static im__cuda_form form_of(uint32_t dtype)
{
    switch (dtype) {
    case IM__Q4_0: return IM__CUDA_4_HALF;
    case IM__Q5_0: return IM__CUDA_5_HALF;
    case IM__Q8_0: return IM__CUDA_8_HALF;
    case IM__Q4_K: return IM__CUDA_4_SUPER_MIN;
    case IM__Q6_K: return IM__CUDA_6_SUPER_16;
    default: abort();
    }
}

/* Bytes of the parts of a unit of `groups` groups. */
static size_t code_bytes(uint32_t form, size_t groups) { return groups * (form == IM__CUDA_8_HALF ? 1024 : 512); }
static size_t top_bytes(uint32_t form, size_t groups)
{
    return groups * (form == IM__CUDA_5_HALF ? 128 : form == IM__CUDA_6_SUPER_16 ? 256 : 0);
}
static size_t super_bytes(uint32_t form) { return form == IM__CUDA_4_SUPER_MIN ? 128 : form == IM__CUDA_6_SUPER_16 ? 64 : 0; }
static size_t unit_bytes(uint32_t form, size_t groups)
{
    return code_bytes(form, groups) + top_bytes(form, groups) + super_bytes(form) + groups * 64;
}

im__cuda_matrix decode_matrix(const im__weight *w)
{
    im__cuda_matrix m = {.form = form_of(w->dtype), .n_in = (uint32_t)w->n_in, .n_out = (uint32_t)w->n_out};
    size_t rest = w->n_in % 256 / 32;
    m.unit_bytes = (uint32_t)unit_bytes(m.form, 8);
    m.tile_bytes = (uint32_t)(w->n_in / 256 * m.unit_bytes + (rest != 0 ? unit_bytes(m.form, rest) : 0));
    return m;
}

size_t decode_packed_bytes(const im__cuda_matrix *m) { return (size_t)(m->n_out + 31) / 32 * m->tile_bytes; }

/* Group g (of 32, in the unit) of output o: codes with the offset of the form. */
static void put_codes(uint8_t *unit, uint32_t form, size_t groups, size_t g, size_t o, const int code[32])
{
    uint8_t *top = unit + code_bytes(form, groups);
    for (size_t i = 0; i < 32; i++) {
        if (form == IM__CUDA_8_HALF) {
            unit[g * 1024 + i / 16 * 512 + o * 16 + i % 16] = (uint8_t)code[i];
            continue;
        }
        unit[g * 512 + o * 16 + i % 16] |= (uint8_t)((code[i] & 15) << (i / 16 * 4));
        if (form == IM__CUDA_5_HALF) top[g * 128 + o * 4 + i % 4] |= (uint8_t)((code[i] >> 4) << (i / 4));
        if (form == IM__CUDA_6_SUPER_16) top[g * 256 + o * 8 + i / 16 * 4 + i % 4] |= (uint8_t)((code[i] >> 4) << (i / 4 % 4 * 2));
    }
}

static void put_half(uint8_t *to, uint16_t half) { memcpy(to, &half, 2); }

static void put_super(uint8_t *scales, uint32_t form, size_t g, size_t o, const im__super *s)
{
    if (form == IM__CUDA_4_SUPER_MIN) {
        put_half(scales + o * 4, s->d);
        put_half(scales + o * 4 + 2, s->dmin ^ 0x8000);
        scales[128 + g * 64 + o * 2] = (uint8_t)s->scale[g];
        scales[128 + g * 64 + o * 2 + 1] = s->min[g];
    } else {
        put_half(scales + o * 2, s->d);
        for (size_t h = 0; h < 2; h++) scales[64 + (2 * g + h) * 32 + o] = (uint8_t)s->scale[2 * g + h];
    }
}

static void put_group(uint8_t *unit, uint32_t form, uint32_t dtype, size_t groups, size_t g, size_t o, const uint8_t *row,
                      size_t index)
{
    const im__dtype_info *t = im__dtype_get(dtype);
    const size_t per_block = t->block_len / 32u, halves = 32u / t->group_len;
    static const int offset[IM__CUDA_FORMS] = {[IM__CUDA_4_HALF] = 8, [IM__CUDA_5_HALF] = 16, [IM__CUDA_6_SUPER_16] = 32};
    const uint8_t *block = row + index / per_block * t->block_bytes;
    uint8_t *scales = unit + code_bytes(form, groups) + top_bytes(form, groups);
    int code[32];
    for (size_t h = 0; h < halves; h++) {
        im__group group;
        im__group_read(dtype, row, index * halves + h, &group);
        for (size_t i = 0; i < t->group_len; i++) code[h * t->group_len + i] = group.w[i] + offset[form];
    }
    put_codes(unit, form, groups, g, o, code);
    if (super_bytes(form) != 0) {
        im__super s;
        im__super_read(dtype, block, &s);
        put_super(scales, form, g, o, &s);
    } else {
        memcpy(scales + (g * 32 + o) * 2, block, 2); /* Q4_0, Q5_0 and Q8_0 begin with their scale */
    }
}

void decode_pack(const im__weight *w, const im__cuda_matrix *m, uint8_t *to)
{
    const size_t groups = w->n_in / 32;
    memset(to, 0, decode_packed_bytes(m));
    for (size_t o = 0; o < w->n_out; o++) {
        const uint8_t *row = (const uint8_t *)w->data + o * w->row_bytes;
        uint8_t *tile = to + o / 32 * m->tile_bytes;
        for (size_t g = 0; g < groups; g++) {
            const size_t in_unit = groups - g / 8 * 8 < 8 ? groups - g / 8 * 8 : 8;
            put_group(tile + g / 8 * m->unit_bytes, m->form, w->dtype, in_unit, g % 8, o % 32, row, g);
        }
    }
}
