/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cuda/decode_plan.h"

#include "base/mem.h"

#include <string.h>

/* ---- who computes what ---------------------------------------------------------------------------------------------------------------- */

enum { QKV, OUT, GATE, DOWN, MATRICES };

typedef struct dealer {
    const im__decode_shape *shape;
    uint32_t blocks;
    uint32_t units[MATRICES], cost[MATRICES]; /* of a tile (or piece): entries of the list; half units to read */
    uint32_t tiles[MATRICES], most[MATRICES]; /* tiles; tiles that a block may have */
    uint32_t *count[MATRICES];                /* [blocks] */
    uint32_t *load;                           /* [blocks] half units */
} dealer;

static uint32_t chunks(uint32_t n) { return (n + IM__CUDA_UNIT - 1) / IM__CUDA_UNIT; }
static uint32_t larger(uint32_t a, uint32_t b) { return a > b ? a : b; }

/* As `PARTS` in decode_block.cuh: chunk sums of 32 rows that fit. */
static uint32_t room(const im__decode_shape *s)
{
    return larger(larger(8 * chunks(s->width), 2 * chunks(s->hidden)), 2 * s->heads);
}

static void describe(dealer *d)
{
    const im__decode_shape *s = d->shape;
    uint32_t row = chunks(s->width), hidden = chunks(s->hidden);
    d->units[QKV] = row, d->units[OUT] = s->heads, d->units[GATE] = 2 * row, d->units[DOWN] = hidden;
    for (int m = 0; m < MATRICES; m++) d->cost[m] = m == DOWN ? hidden : 2 * d->units[m];
    d->tiles[QKV] = (s->heads + 2 * s->kv_heads) * IM__DECODE_HEAD_DIM / IM__CUDA_TILE;
    d->tiles[OUT] = s->width / IM__CUDA_TILE;
    d->tiles[DOWN] = 2 * d->tiles[OUT];
    d->tiles[GATE] = s->hidden / IM__CUDA_TILE;
    d->most[QKV] = room(s) / (2 * row), d->most[OUT] = room(s) / s->heads, d->most[GATE] = room(s) / (2 * row);
    d->most[DOWN] = 2 * room(s) / hidden;
    for (int m = 0; m < MATRICES; m++) {
        uint32_t even = (d->tiles[m] + d->blocks - 1) / d->blocks; /* a phase is as long as its fullest block */
        if (even < d->most[m]) d->most[m] = even;
    }
}

/* Each tile goes to the block that has least to read; among equals to that with fewest tiles of the matrix, then to the first. */
static bool deal(dealer *d, int matrix)
{
    for (uint32_t t = 0; t < d->tiles[matrix]; t++) {
        uint32_t best = d->blocks;
        for (uint32_t b = 0; b < d->blocks; b++)
            if (d->count[matrix][b] < d->most[matrix] && (best == d->blocks || d->load[b] < d->load[best])) best = b;
        if (best == d->blocks) return false;
        d->count[matrix][best]++;
        d->load[best] += d->cost[matrix];
    }
    return true;
}

/* Counts to ranges, from `first` on, of the blocks with even or odd counts; the end of the last. */
static uint32_t range_some(const dealer *d, int matrix, im__decode_share *share, size_t offset, uint32_t first, bool odd)
{
    for (uint32_t b = 0; b < d->blocks; b++) {
        im__decode_range r = {first, d->count[matrix][b]};
        if ((r.count % 2 != 0) != odd) continue;
        memcpy((char *)&share[b] + offset, &r, sizeof r);
        first += r.count;
    }
    return first;
}

/* Even counts come first, so that their pieces make whole tiles. */
static void range(const dealer *d, int matrix, im__decode_share *share, size_t offset)
{
    range_some(d, matrix, share, offset, range_some(d, matrix, share, offset, 0, false), true);
}

static uint32_t holders(const dealer *d, int matrix)
{
    uint32_t n = 0;
    for (uint32_t b = 0; b < d->blocks; b++) n += d->count[matrix][b] != 0;
    return n;
}

/* Each block waits for all blocks of the layer before, so each must have a part in every layer. */
static bool all_take_part(const dealer *d)
{
    for (uint32_t b = 0; b < d->blocks; b++)
        if (d->load[b] == 0) return false;
    return true;
}

static im_status deal_all(dealer *d, im__decode_plan *out, uint32_t vocab, im_error *err)
{
    if (!deal(d, GATE) || !deal(d, DOWN) || !deal(d, QKV) || !deal(d, OUT))
        return im__fail(err, IM_ERR_UNSUPPORTED, "the persistent decoder needs more than %u multiprocessors for this model",
                        d->blocks);
    if (!all_take_part(d))
        return im__fail(err, IM_ERR_UNSUPPORTED, "the model is too small to be dealt to %u multiprocessors", d->blocks);
    range(d, QKV, out->share, offsetof(im__decode_share, qkv));
    range(d, OUT, out->share, offsetof(im__decode_share, out));
    range(d, GATE, out->share, offsetof(im__decode_share, gate));
    range(d, DOWN, out->share, offsetof(im__decode_share, down));
    out->announcers[IM__DECODE_OUT] = holders(d, OUT);
    out->announcers[IM__DECODE_HIDDEN] = holders(d, GATE);
    out->announcers[IM__DECODE_DOWN] = holders(d, DOWN);
    for (uint32_t b = 0, tiles = chunks(vocab * (IM__CUDA_UNIT / IM__CUDA_TILE)); b < d->blocks; b++) {
        uint32_t begin = (uint32_t)((uint64_t)tiles * b / d->blocks), end = (uint32_t)((uint64_t)tiles * (b + 1) / d->blocks);
        out->share[b].head = (im__decode_range){begin, end - begin};
    }
    return IM_OK;
}

/* ---- lists of units --------------------------------------------------------------------------------------------------------------------- */

/* Entry for unit `chunk` of a tile. */
static uint64_t unit(const im__cuda_matrix *m, uint32_t tile, uint32_t chunk)
{
    uint32_t begin = chunk * m->unit_bytes, rest = m->tile_bytes - begin;
    return IM__DECODE_UNIT(m->data + (uint64_t)tile * m->tile_bytes + begin, rest < m->unit_bytes ? rest : m->unit_bytes);
}

/* Tile `tile` of the matrix whose rows are those of q, k and v. */
static uint64_t qkv_unit(const im__decode_weights *w, uint32_t tile, uint32_t chunk)
{
    uint32_t q = w->q.n_out / IM__CUDA_TILE, k = w->k.n_out / IM__CUDA_TILE;
    if (tile < q) return unit(&w->q, tile, chunk);
    return tile < q + k ? unit(&w->k, tile - q, chunk) : unit(&w->v, tile - q - k, chunk);
}

static bool whole(const im__decode_share *s) { return IM__DECODE_WHOLE(s->down.first, s->down.count); }

static uint64_t *list_layer(uint64_t *to, const im__decode_share *s, const im__decode_weights *w)
{
    for (uint32_t t = s->qkv.first; t < s->qkv.first + s->qkv.count; t++)
        for (uint32_t c = 0; c < chunks(w->q.n_in); c++) *to++ = qkv_unit(w, t, c);
    for (uint32_t t = s->out.first; t < s->out.first + s->out.count; t++)
        for (uint32_t c = 0; c < chunks(w->out.n_in); c++) *to++ = unit(&w->out, t, c);
    for (uint32_t t = s->gate.first; t < s->gate.first + s->gate.count; t++)
        for (uint32_t c = 0; c < chunks(w->gate.n_in); c++) {
            *to++ = unit(&w->gate, t, c);
            *to++ = unit(&w->up, t, c);
        }
    for (uint32_t t = s->down.first; t < s->down.first + s->down.count; t += whole(s) ? 2 : 1)
        for (uint32_t c = 0; c < chunks(w->down.n_in); c++) *to++ = unit(&w->down, t / 2, c);
    return to;
}

/* Tiles of a round of the head: each belongs to one warp, and the last one is repeated until their number suits the fetching warps. */
static uint32_t head_width(uint32_t tiles)
{
    uint32_t width = (tiles + IM__DECODE_FETCHERS - 1) / IM__DECODE_FETCHERS * IM__DECODE_FETCHERS;
    return width < IM__DECODE_HEAD_WARPS ? width : IM__DECODE_HEAD_WARPS;
}

static uint32_t head_tiles(uint32_t tiles)
{
    return tiles / IM__DECODE_HEAD_WARPS * IM__DECODE_HEAD_WARPS + head_width(tiles % IM__DECODE_HEAD_WARPS);
}

/* Sixteen tiles at a time, chunk after chunk of all of them. */
static uint64_t *list_head(uint64_t *to, const im__decode_share *s, const im__cuda_matrix *head)
{
    for (uint32_t i = 0; i < s->head.count; i += IM__DECODE_HEAD_WARPS)
        for (uint32_t c = 0; c < chunks(head->n_in); c++)
            for (uint32_t t = i; t < i + head_width(s->head.count - i); t++)
                *to++ = unit(head, s->head.first + (t < s->head.count ? t : s->head.count - 1), c);
    return to;
}

static void count_units(const dealer *d, im__decode_plan *out, uint32_t layers)
{
    for (uint32_t b = 0; b < d->blocks; b++) {
        im__decode_share *s = &out->share[b];
        s->first_unit = (uint32_t)out->units;
        for (int m = 0; m < MATRICES; m++)
            s->units += layers * (m == DOWN && whole(s) ? d->count[m][b] / 2 : d->count[m][b]) * d->units[m];
        s->units += head_tiles(s->head.count) * d->units[QKV];
        out->units += s->units;
    }
}

static void list_all(im__decode_plan *out, const im__decode_weights *layer, uint32_t layers, const im__cuda_matrix *head)
{
    for (uint32_t b = 0; b < out->blocks; b++) {
        uint64_t *to = out->unit + out->share[b].first_unit;
        for (uint32_t l = 0; l < layers; l++) to = list_layer(to, &out->share[b], &layer[l]);
        list_head(to, &out->share[b], head);
    }
}

im_status im__decode_plan_make(im__decode_plan *out, const im__decode_shape *shape, const im__decode_weights *layer,
                               uint32_t layers, const im__cuda_matrix *head, uint32_t blocks, im_error *err)
{
    if (blocks == 0) return im__fail(err, IM_ERR_UNSUPPORTED, "no multiprocessors");
    dealer d = {.shape = shape, .blocks = blocks < IM__DECODE_MOST_BLOCKS ? blocks : IM__DECODE_MOST_BLOCKS};
    *out = (im__decode_plan){.blocks = d.blocks};
    uint32_t *memory = im__calloc((size_t)d.blocks * (MATRICES + 1), sizeof *memory);
    out->share = im__calloc(d.blocks, sizeof *out->share);
    im_status status = memory == NULL || out->share == NULL ? im__fail(err, IM_ERR_MEMORY, "out of memory") : IM_OK;
    if (status == IM_OK) {
        for (int m = 0; m < MATRICES; m++) d.count[m] = memory + (size_t)m * d.blocks;
        d.load = memory + (size_t)MATRICES * d.blocks;
        describe(&d);
        status = deal_all(&d, out, head->n_out, err);
    }
    if (status == IM_OK) {
        count_units(&d, out, layers);
        out->unit = im__calloc(out->units, sizeof *out->unit);
        if (out->unit == NULL) status = im__fail(err, IM_ERR_MEMORY, "out of memory");
    }
    if (status == IM_OK) list_all(out, layer, layers, head);
    im__free(memory);
    if (status != IM_OK) im__decode_plan_clear(out);
    return status;
}

void im__decode_plan_clear(im__decode_plan *p)
{
    im__free(p->share);
    im__free(p->unit);
    *p = (im__decode_plan){0};
}
