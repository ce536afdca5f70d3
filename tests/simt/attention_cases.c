/* SPDX-License-Identifier: Apache-2.0 */
#include "attention_cases.h"

#include "backend/cuda/kernels/attention.h"
#include "num/half.h"
#include "ops/reference.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PAGE 64
#define SENTINEL 0x7fc0beefu
#define TILE_PAYS 4 /* far fewer rows than the host makes tiles of: small cases, too, have tiles */

static uint64_t next(uint64_t *state)
{
    uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static uint32_t below(uint64_t *state, uint32_t n) { return (uint32_t)((next(state) >> 32) * n >> 32); }

static float unit(uint64_t *state) { return (float)(int32_t)(next(state) >> 32) * 0x1p-31f; }

static void *make_block(attention_case *c, int which, size_t bytes)
{
    c->bytes[which] = bytes < 16 ? 16 : bytes;
    c->block[which] = calloc(1, c->bytes[which]);
    if (c->block[which] == NULL) abort();
    return c->block[which];
}

/* ---- the cache ----------------------------------------------------------------------------------------------------------------- */

static size_t head_elements(const attention_case *c) { return (size_t)c->head_dim * PAGE; }
static size_t layers_of(const attention_case *c) { return c->layers == 0 ? 1 : c->layers; }

static void put(const attention_case *c, size_t at, float x)
{
    if (c->is_f32)
        ((float *)c->block[CASE_POOL])[at] = x;
    else
        ((uint16_t *)c->block[CASE_POOL])[at] = im__f16_of_f32(x > 65504 ? 65504 : x < -65504 ? -65504 : x);
}

static float stored_value(const attention_case *c, uint64_t *rng)
{
    float x = unit(rng);
    if (!c->hostile) return x;
    switch (below(rng, 2000)) {
    case 0: return NAN;
    case 1: return c->is_f32 ? INFINITY : 65504.0f;
    case 2: return 1e-7f * x;
    case 3: return -0.0f;
    default: return x;
    }
}

static void fill_position(const attention_case *c, size_t page, uint32_t slot, uint64_t *rng)
{
    for (size_t h = 0; h < c->kv_heads; h++)
        for (size_t d = 0; d < c->head_dim; d++) {
            put(c, page + h * head_elements(c) + d * PAGE + slot, stored_value(c, rng) * 2);
            put(c, page + (c->kv_heads + h) * head_elements(c) + slot * c->head_dim + d, stored_value(c, rng));
        }
}

/* One sequence's pages: table entries and, unless cheap, what they hold. */
static void fill_sequence(attention_case *c, uint32_t at, int32_t *table, const uint32_t *order, uint32_t *taken, uint64_t *rng)
{
    uint32_t end = c->begin[at] + c->rows[at],
             from = c->window != 0 && c->begin[at] + 1 > c->window ? c->begin[at] + 1 - c->window : 0;
    for (uint32_t p = 0; p * PAGE < end; p++) {
        if ((p + 1) * PAGE <= from) {
            table[p] = -1;
            continue;
        }
        table[p] = (int32_t)order[(*taken)++];
        for (uint32_t slot = 0; slot < PAGE && !c->cheap; slot++)
            if (p * PAGE + slot >= from && p * PAGE + slot < end) fill_position(c, (size_t)table[p] * c->page_stride, slot, rng);
    }
}

static void stale(attention_case *c)
{
    size_t n = c->bytes[CASE_POOL] / (c->is_f32 ? 4 : 2);
    if (c->cheap) return;
    for (size_t i = 0; i < n; i++) {
        if (c->is_f32)
            ((float *)c->block[CASE_POOL])[i] = NAN;
        else
            ((uint16_t *)c->block[CASE_POOL])[i] = 0x7e01;
    }
}

static void make_cache(attention_case *c, uint64_t *rng)
{
    uint32_t pages = 0;
    for (uint32_t s = 0; s < c->sequences; s++) pages += (c->begin[s] + c->rows[s] + PAGE - 1) / PAGE;
    uint32_t *order = malloc(sizeof *order * pages), taken = 0;
    if (order == NULL) abort();
    for (uint32_t i = 0; i < pages; i++) order[i] = i;
    for (uint32_t i = pages; i > 1; i--) {
        uint32_t j = below(rng, i), t = order[j];
        order[j] = order[i - 1];
        order[i - 1] = t;
    }
    c->page_stride = layers_of(c) * 2 * c->kv_heads * head_elements(c);
    int32_t *table = make_block(c, CASE_PAGES, sizeof *table * pages);
    make_block(c, CASE_POOL, pages * c->page_stride * (c->is_f32 ? 4 : 2));
    stale(c);
    for (uint32_t s = 0; s < c->sequences; s++) {
        fill_sequence(c, s, table, order, &taken, rng);
        table += (c->begin[s] + c->rows[s] + PAGE - 1) / PAGE;
    }
    free(order);
}

/* ---- the step -------------------------------------------------------------------------------------------------------------------- */

static void make_rows(attention_case *c, uint64_t *rng)
{
    c->all = c->used = c->most_keys = 0;
    for (uint32_t s = 0; s < c->sequences; s++) c->all += c->rows[s];
    im__cuda_row *row = make_block(c, CASE_ROW, sizeof *row * c->all);
    uint32_t *source = make_block(c, CASE_SOURCE, sizeof *source * c->all), table = 0, r = 0;
    for (uint32_t s = 0; s < c->sequences; s++) {
        for (uint32_t i = 0; i < c->rows[s]; i++, r++) {
            row[r].position = (int32_t)(c->begin[s] + i);
            row[r].table[0] = 0x7fffffff;
            row[r].table[1] = table;
            if (c->begin[s] + i + 1 > c->most_keys) c->most_keys = c->begin[s] + i + 1;
            if (!c->selected || below(rng, 3) != 0 || r + 1 == c->all) source[c->used++] = r;
        }
        table += (c->begin[s] + c->rows[s] + PAGE - 1) / PAGE;
    }
}

static uint32_t sequence_of(const attention_case *c, uint32_t row)
{
    uint32_t s = 0;
    while (row >= c->rows[s]) row -= c->rows[s++];
    return s;
}

static void make_tiles(attention_case *c)
{
    const uint32_t *source = c->block[CASE_SOURCE];
    im__cuda_tile *tile = make_block(c, c->selected ? CASE_SELECTED_TILE : CASE_TILE, sizeof *tile * c->used);
    uint32_t *single = make_block(c, c->selected ? CASE_SELECTED_SINGLE : CASE_SINGLE, sizeof *single * c->used);
    uint32_t most = im__attention_tile_rows(c->heads, c->kv_heads, c->head_dim);
    c->count_tiles = c->count_singles = 0;
    for (uint32_t r = 0; r < c->used;) {
        uint32_t s = sequence_of(c, source[r]), end = r;
        while (end < c->used && sequence_of(c, source[end]) == s) end++;
        if (!c->tiles || end - r < TILE_PAYS) {
            while (r < end) single[c->count_singles++] = r++;
        }
        for (; r < end; r += most) tile[c->count_tiles++] = (im__cuda_tile){r, r + most < end ? r + most : end};
        r = end;
    }
}

void attention_case_make(attention_case *c)
{
    uint64_t rng = c->seed;
    make_cache(c, &rng);
    make_rows(c, &rng);
    make_tiles(c);
    size_t n = (size_t)c->used * c->heads * c->head_dim;
    float *q = make_block(c, CASE_Q, sizeof *q * n);
    for (size_t i = 0; i < n; i++) q[i] = c->hostile && below(&rng, 20000) == 0 ? NAN : unit(&rng) * 2;
    make_block(c, CASE_OUT, sizeof(float) * (n + 2 * CASE_BAND));
    make_block(c, CASE_PARTIAL, sizeof(float) * c->partial_floats);
    make_block(c, CASE_STEP, sizeof(im__cuda_step));
    attention_case_poison(c);
}

void attention_case_clear(attention_case *c)
{
    for (int i = 0; i < CASE_BLOCKS; i++) {
        free(c->block[i]);
        c->block[i] = NULL;
        c->bytes[i] = 0;
    }
}

void attention_case_poison(attention_case *c)
{
    uint32_t *out = c->block[CASE_OUT];
    for (size_t i = 0; i < c->bytes[CASE_OUT] / 4; i++) out[i] = SENTINEL;
}

void attention_case_bind(attention_case *c, const uint64_t address[CASE_BLOCKS], uint32_t every, uint32_t layer, void *parameters)
{
    im__cuda_step *step = c->block[CASE_STEP];
    *step = (im__cuda_step){.rows = c->all,
                            .selected = c->selected ? c->used : 0,
                            .most_keys = c->most_keys,
                            .row = address[CASE_ROW],
                            .source = address[CASE_SOURCE],
                            .tile = address[CASE_TILE],
                            .selected_tile = address[CASE_SELECTED_TILE],
                            .single = address[CASE_SINGLE],
                            .selected_single = address[CASE_SELECTED_SINGLE],
                            .pages = address[CASE_PAGES]};
    *(c->selected ? &step->selected_tiles : &step->tiles) = c->count_tiles;
    *(c->selected ? &step->selected_singles : &step->singles) = c->count_singles;
    im__cuda_attention a = {.kv = {.pool = address[CASE_POOL],
                                   .page_stride = c->page_stride,
                                   .k_offset = layer * 2 * c->kv_heads * head_elements(c),
                                   .v_offset = (layer * 2 + 1) * c->kv_heads * head_elements(c),
                                   .which = 1,
                                   .is_f32 = c->is_f32,
                                   .kv_heads = c->kv_heads,
                                   .head_dim = c->head_dim},
                            .heads = c->heads,
                            .window = c->window,
                            .selected = c->selected,
                            .every = every,
                            .scale = c->scale,
                            .softcap = c->softcap,
                            .q = address[CASE_Q],
                            .out = address[CASE_OUT] + CASE_BAND * sizeof(float),
                            .partial = address[CASE_PARTIAL],
                            .partial_floats = c->partial_floats,
                            .step = address[CASE_STEP]};
    memcpy(parameters, &a, sizeof a);
}

/* ---- judging ---------------------------------------------------------------------------------------------------------------------- */

static bool same(float a, float b) { return im__bits_of_f32(a) == im__bits_of_f32(b) || (isnan(a) && isnan(b)); }

size_t attention_case_wrong(const attention_case *c, uint32_t stride)
{
    const im__cuda_row *row = c->block[CASE_ROW];
    const uint32_t *source = c->block[CASE_SOURCE], *sentinel = c->block[CASE_OUT];
    const float *out = (const float *)c->block[CASE_OUT] + CASE_BAND;
    size_t width = (size_t)c->heads * c->head_dim, wrong = 0;
    float *expected = malloc(sizeof *expected * width);
    if (expected == NULL) abort();
    for (uint32_t r = 0; r < c->used; r += stride) {
        const im__cuda_row *from = &row[source[r]];
        im__attention a = {.kv = {.type = c->is_f32 ? IM__KV_F32 : IM__KV_F16,
                                  .base = c->block[CASE_POOL],
                                  .page_stride = c->page_stride,
                                  .v_offset = c->kv_heads * head_elements(c),
                                  .table = (const int32_t *)c->block[CASE_PAGES] + from->table[1]},
                           .heads = c->heads,
                           .kv_heads = c->kv_heads,
                           .head_dim = c->head_dim,
                           .window = c->window,
                           .scale = c->scale,
                           .softcap = c->softcap,
                           .q = (const float *)c->block[CASE_Q] + r * width,
                           .q_stride = width,
                           .out = expected,
                           .out_stride = width,
                           .position = &from->position};
        im__attention_c(&a, 0, 1, 0, c->kv_heads, NULL);
        for (size_t i = 0; i < width; i++)
            wrong += !same(expected[i], out[r * width + i]) || im__bits_of_f32(out[r * width + i]) == SENTINEL;
    }
    free(expected);
    for (size_t i = 0; i < CASE_BAND; i++) wrong += sentinel[i] != SENTINEL || sentinel[c->bytes[CASE_OUT] / 4 - 1 - i] != SENTINEL;
    return wrong;
}

void attention_case_name(const attention_case *c, char *text, size_t size)
{
    snprintf(text, size, "%u/%u heads of %u, %s, window %u, cap %g%s%s%s, %u rows of %u sequences up to %u keys", c->heads,
             c->kv_heads, c->head_dim, c->is_f32 ? "f32" : "f16", c->window, (double)c->softcap, c->selected ? ", selected" : "",
             c->tiles ? ", tiles" : "", c->hostile ? ", hostile" : "", c->used, c->sequences, c->most_keys);
}

void attention_case_draw(attention_case *c, uint64_t at, uint32_t most_position, uint32_t most_rows)
{
    static const uint32_t dims[] = {64, 80, 96, 128, 256, 256, 128, 64, 512, 2, 34, 72, 90},
                          shares[] = {1, 2, 3, 4, 5, 7, 8, 4, 2, 16};
    static const uint32_t windows[] = {0, 0, 0, 1, 63, 64, 65, 200, 512, 1000, 1024, 1025};
    static const uint32_t borders[] = {0, 1, 62, 63, 64, 65, 127, 128, 1022, 1023, 1024, 1025, 2047, 2048};
    uint64_t rng = at * 7919 + 17;
    memset(c, 0, sizeof *c);
    c->head_dim = dims[below(&rng, sizeof dims / sizeof *dims)];
    c->kv_heads = 1 + below(&rng, 3);
    c->heads = c->kv_heads * shares[below(&rng, sizeof shares / sizeof *shares)];
    c->window = windows[below(&rng, sizeof windows / sizeof *windows)];
    c->is_f32 = below(&rng, 5) == 0;
    c->selected = below(&rng, 4) == 0;
    c->tiles = below(&rng, 2);
    c->hostile = below(&rng, 3) == 0;
    c->scale = below(&rng, 2) ? 0.0625f : 1.0f / sqrtf((float)c->head_dim);
    c->softcap = below(&rng, 4) == 0 ? 50.0f : 0.0f;
    c->sequences = 1 + below(&rng, 5);
    for (uint32_t s = 0; s < c->sequences; s++) {
        uint32_t position = below(&rng, 2) ? below(&rng, most_position) : borders[below(&rng, sizeof borders / sizeof *borders)];
        c->begin[s] = position < most_position ? position : most_position;
        c->rows[s] = c->tiles ? 1 + below(&rng, most_rows) : 1 + below(&rng, 3);
    }
    c->partial_floats = IM__ATTENTION_COUNTERS;
    c->seed = next(&rng);
}
