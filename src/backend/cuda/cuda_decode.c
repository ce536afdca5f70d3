/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cuda/cuda_decode.h"

#include "backend/cuda/cuda.h"
#include "backend/cuda/decode_plan.h"
#include "num/real.h"

#include <string.h>

enum {
    ROPE_FLOATS = 2 * IM__DECODE_HEAD_DIM, /* of a position: two tables of cosines and sines */
    ROPE_BYTES = ROPE_FLOATS * sizeof(float),
    ALIGNMENT = 256
};

struct im__cuda_decoder {
    struct im__cuda *c;
    im__decode_model model;
    im__decode_plan plan;
    im__cuda_function kernel;
    im__decode_args args;
    im__cuda_ptr memory, lead;
    size_t pages; /* of a table */

    /* What goes before a launch, in one copy: page tables, rotations of its tokens. */
    char *lead_host;
    size_t table_bytes, lead_bytes;
    uint32_t *failed_host;

    /* Rotations of positions rope_first .. + MOST_TOKENS - 1 that have been computed. */
    float *rope;
    int32_t rope_first;
    uint32_t rope_count;
};

/* ---- opening ---------------------------------------------------------------------------------------------------------------------------- */

static im_status find_kernel(im__cuda_decoder *d, im_error *err)
{
    im__cuda *c = d->c;
    const char *name = d->model.shape->kernel;
    im__cuda_result r = IM__CUDA_ERROR_NOT_FOUND;
    if (c->device.capability != 90 || c->device.shared_of_block < IM__DECODE_SHARED)
        return im__fail(err, IM_ERR_UNSUPPORTED, "the persistent decoder wants a device of compute capability 9.0; %s has %d.%d",
                        c->device.name, c->device.capability / 10, c->device.capability % 10);
    for (size_t i = 0; i < c->modules && r == IM__CUDA_ERROR_NOT_FOUND; i++)
        r = c->d->module_function(&d->kernel, c->module[i], name);
    if (r != 0) return im__fail(err, IM_ERR_UNSUPPORTED, "this build has no kernel %s for %s", name, c->device.name);
    return im__cuda_try(c->d, c->d->function_set(d->kernel, IM__CUDA_MAX_DYNAMIC_SHARED, IM__DECODE_SHARED), name, err);
}

static im_status make_plan(im__cuda_decoder *d, im_error *err)
{
    const im__cuda_matrix *m = d->c->matrix;
    im__decode_weights *w = im__calloc(d->model.layers, sizeof *w);
    if (w == NULL) return im__fail(err, IM_ERR_MEMORY, "out of memory");
    for (uint32_t l = 0; l < d->model.layers; l++) {
        const im__decode_layer_parts *of = &d->model.layer[l];
        w[l] = (im__decode_weights){m[of->q], m[of->k], m[of->v], m[of->out], m[of->gate], m[of->up], m[of->down]};
    }
    im_status status =
        im__decode_plan_make(&d->plan, d->model.shape, w, d->model.layers, &m[d->model.head], d->c->device.processors, err);
    im__free(w);
    return status;
}

/* Pieces of the decoder's memory: counted first, then placed. */
typedef struct pieces {
    im__cuda_ptr base;
    size_t at;
} pieces;

static im__cuda_ptr piece(pieces *p, size_t bytes)
{
    im__cuda_ptr at = p->base + p->at;
    p->at += (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    return at;
}

static void place(im__cuda_decoder *d, pieces *p)
{
    const im__decode_shape *s = d->model.shape;
    const size_t row = (size_t)s->width / IM__CUDA_TILE * IM__DECODE_TILE_PACKETS * 16;
    im__decode_args *a = &d->args;
    a->most_items = (uint32_t)(s->heads * d->pages);
    a->qkv = piece(p, (size_t)2 * (s->heads + 2 * s->kv_heads) * IM__DECODE_HEAD_DIM * 8);
    a->part = piece(p, (size_t)2 * a->most_items * IM__DECODE_PART_PACKETS * 8);
    a->merged = piece(p, (size_t)2 * s->heads * (IM__DECODE_HEAD_DIM / 32) * IM__DECODE_GROUP_PACKETS * 16);
    a->out_rows = piece(p, 2 * row);
    a->down_rows = piece(p, (size_t)2 * (s->width / (IM__CUDA_TILE / 2)) * IM__DECODE_PIECE_PACKETS * 16);
    a->hidden = piece(p, (size_t)2 * (s->hidden / 32) * IM__DECODE_GROUP_PACKETS * 16);
    a->best = piece(p, (size_t)2 * IM__DECODE_MOST_BLOCKS * 16);
    a->counter = piece(p, IM__DECODE_COUNTERS * IM__DECODE_COUNTER_STRIDE * 4);
    a->failed = piece(p, 4);
    a->units = piece(p, d->plan.units * sizeof *d->plan.unit);
    a->share = piece(p, d->plan.blocks * sizeof *d->plan.share);
    a->layer = piece(p, d->model.layers * sizeof(im__decode_layer));
    d->lead = piece(p, d->lead_bytes);
    for (size_t k = 0; k < IM__CUDA_POOLS; k++) a->pages[k] = d->lead + k * d->pages * sizeof(int32_t);
    a->rope = d->lead + d->table_bytes;
}

static im__decode_layer layer_of(const im__cuda_decoder *d, uint32_t l)
{
    const im__cuda *c = d->c;
    const im__decode_layer_parts *of = &d->model.layer[l];
    const im__kv_layer *kv = &c->p->kv[of->cache];
    const im__pool_kind pool = im__kv_layer_pool(c->p, (size_t)of->cache);
    const im__cuda_ptr keys = c->pool[pool] + c->layer_offset[of->cache];
    return (im__decode_layer){.attn_norm = c->vector[of->attn_norm],
                              .q_norm = c->vector[of->q_norm],
                              .k_norm = c->vector[of->k_norm],
                              .post_attn_norm = c->vector[of->post_attn_norm],
                              .ffn_norm = c->vector[of->ffn_norm],
                              .post_ffn_norm = c->vector[of->post_ffn_norm],
                              .keys = keys,
                              .values = keys + (uint64_t)kv->kv_heads * kv->head_dim * IM__PAGE * sizeof(uint16_t),
                              .page_stride = c->page_bytes[pool] / sizeof(uint16_t),
                              .pool = pool,
                              .window = kv->window,
                              .rope = of->rope,
                              .other = of->other};
}

static void settle_args(im__cuda_decoder *d)
{
    im__cuda *c = d->c;
    im__decode_args *a = &d->args;
    a->final_norm = c->vector[d->model.final_norm];
    a->embed = c->matrix[d->model.embed];
    a->logits = c->value[c->p->logits];
    a->chosen = c->answer + offsetof(im__cuda_answer, choice);
    a->clamped = c->answer + offsetof(im__cuda_answer, clamped);
    a->layers = d->model.layers;
    memcpy(a->announcers, d->plan.announcers, sizeof a->announcers);
    a->tag = IM__DECODE_TAGS;
    a->vocab = d->model.vocab;
    a->embed_scale = d->model.embed_scale;
    a->eps = d->model.eps;
    a->attention_scale = d->model.attention_scale;
}

static im_status send_lists(im__cuda_decoder *d, size_t bytes, im_error *err)
{
    im__cuda *c = d->c;
    im__decode_layer *layer = im__calloc(d->model.layers, sizeof *layer);
    if (layer == NULL) return im__fail(err, IM_ERR_MEMORY, "out of memory");
    for (uint32_t l = 0; l < d->model.layers; l++) layer[l] = layer_of(d, l);
    im__cuda_result r = c->d->fill(d->memory, 0, bytes, c->stream);
    if (r == 0) r = c->d->copy_in(d->args.layer, layer, d->model.layers * sizeof *layer, c->stream);
    if (r == 0) r = c->d->copy_in(d->args.share, d->plan.share, d->plan.blocks * sizeof *d->plan.share, c->stream);
    if (r == 0) r = c->d->copy_in(d->args.units, d->plan.unit, d->plan.units * sizeof *d->plan.unit, c->stream);
    if (r == 0) r = c->d->stream_wait(c->stream);
    im__free(layer);
    return im__cuda_try(c->d, r, "sending the decoder's lists", err);
}

static im_status take_memory(im__cuda_decoder *d, im_error *err)
{
    im__cuda *c = d->c;
    pieces p = {0};
    size_t context = c->options.context != 0 ? c->options.context : c->p->context;
    d->pages = (context + IM__PAGE - 1) / IM__PAGE;
    if (d->pages > UINT32_MAX / d->model.shape->heads)
        return im__fail(err, IM_ERR_UNSUPPORTED, "the context is too long for the persistent decoder");
    d->table_bytes = (IM__CUDA_POOLS * d->pages * sizeof(int32_t) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    d->lead_bytes = d->table_bytes + IM__CUDA_DECODE_MOST_TOKENS * ROPE_BYTES;
    place(d, &p);
    IM__TRY(im__cuda_try(c->d, c->d->mem_alloc(&d->memory, p.at), "the decoder's memory", err));
    size_t bytes = p.at;
    p = (pieces){.base = d->memory};
    place(d, &p);
    settle_args(d);
    IM__TRY(im__cuda_try(c->d, c->d->host_alloc((void **)&d->lead_host, d->lead_bytes + sizeof *d->failed_host, 0),
                         "the decoder's memory", err));
    d->failed_host = (uint32_t *)(void *)(d->lead_host + d->lead_bytes);
    *d->failed_host = 0;
    d->rope = im__calloc(IM__CUDA_DECODE_MOST_TOKENS * ROPE_FLOATS, sizeof *d->rope);
    if (d->rope == NULL) return im__fail(err, IM_ERR_MEMORY, "out of memory");
    return send_lists(d, bytes, err);
}

im_status im__cuda_decoder_open(im__cuda_decoder **out, struct im__cuda *c, im_error *err)
{
    size_t count;
    const im__decode_shape *shapes = im__decode_shapes(&count);
    im__cuda_decoder *d = im__calloc(1, sizeof *d);
    if (d == NULL) return im__fail(err, IM_ERR_MEMORY, "out of memory");
    d->c = c;
    im_status status = im__decode_match(&d->model, c->p, shapes, count, err);
    if (status == IM_OK) status = find_kernel(d, err);
    if (status == IM_OK) status = make_plan(d, err);
    if (status == IM_OK) status = take_memory(d, err);
    if (status == IM_OK) {
        *out = d;
        return IM_OK;
    }
    im__cuda_decoder_close(d);
    return status;
}

void im__cuda_decoder_close(im__cuda_decoder *d)
{
    if (d == NULL) return;
    if (d->memory != 0) d->c->d->mem_free(d->memory);
    if (d->lead_host != NULL) d->c->d->host_free(d->lead_host);
    im__free(d->rope);
    im__decode_plan_clear(&d->plan);
    im__decode_model_clear(&d->model);
    im__free(d);
}

/* ---- launches --------------------------------------------------------------------------------------------------------------------------- */

bool im__cuda_decoder_takes(const im__cuda_decoder *d, const im__step *step)
{
    return step->rows == 1 && step->row[0].wants_logits && (size_t)step->row[0].position / IM__PAGE < d->pages;
}

/* Cosines and sines of one position, both tables. */
static void turn(const im__cuda_decoder *d, int32_t position, float *to)
{
    for (size_t k = 0; k < 2; k++) {
        if (d->model.rope[k] == IM__NONE) continue;
        const double *frequency = d->c->p->rope[d->model.rope[k]].frequency;
        for (size_t i = 0; i < IM__DECODE_HEAD_DIM / 2; i++) {
            float *pair = to + k * IM__DECODE_HEAD_DIM + 2 * i;
            im__rope_angle(position, frequency[i], &pair[0], &pair[1]);
        }
    }
}

/* Makes the table hold positions first .. first + count - 1, keeping what it has of them. */
static void need_turns(im__cuda_decoder *d, int32_t first, uint32_t count)
{
    const int32_t kept = first - d->rope_first;
    if (kept < 0 || (uint32_t)kept >= d->rope_count) {
        d->rope_count = 0;
    } else {
        d->rope_count -= (uint32_t)kept;
        memmove(d->rope, d->rope + (size_t)kept * ROPE_FLOATS, (size_t)d->rope_count * ROPE_FLOATS * sizeof *d->rope);
    }
    d->rope_first = first;
    for (; d->rope_count < count; d->rope_count++)
        turn(d, first + (int32_t)d->rope_count, d->rope + (size_t)d->rope_count * ROPE_FLOATS);
}

/* Page numbers up to that of the last row; the rest of a table is not read. Bytes that are sent. */
static size_t write_lead(im__cuda_decoder *d, const im__seq_tables *seq, int32_t position, uint32_t tokens)
{
    size_t count = ((size_t)position + tokens - 1) / IM__PAGE + 1;
    need_turns(d, position, tokens);
    memcpy(d->lead_host + d->table_bytes, d->rope, (size_t)tokens * ROPE_BYTES);
    for (size_t k = 0; k < IM__CUDA_POOLS; k++)
        if (seq->pages[k] != NULL) memcpy(d->lead_host + k * d->pages * sizeof(int32_t), seq->pages[k], count * sizeof(int32_t));
    return d->table_bytes + (size_t)tokens * ROPE_BYTES;
}

/* After 2^25 tokens the tags begin again, and no packet may be left that has one of them; 0 is the tag of none. */
static im_status need_tags(im__cuda_decoder *d, uint32_t tokens, im_error *err)
{
    const im__cuda *c = d->c;
    if (UINT32_MAX - d->args.tag >= IM__DECODE_TAGS * tokens) return IM_OK;
    d->args.tag = IM__DECODE_TAGS;
    return im__cuda_try(c->d, c->d->fill(d->memory, 0, d->args.units - d->memory, c->stream), "clearing packets", err);
}

im_status im__cuda_decoder_launch(im__cuda_decoder *d, const im__step *step, uint32_t tokens, im_error *err)
{
    const im__cuda_driver *driver = d->c->d;
    const im__row *row = &step->row[0];
    im__cuda_launch_attribute together = {.id = IM__CUDA_LAUNCH_COOPERATIVE, .value.flag = 1};
    im__cuda_launch launch = {.grid = {d->plan.blocks, 1, 1},
                              .block = {IM__DECODE_THREADS, 1, 1},
                              .shared = IM__DECODE_SHARED,
                              .stream = d->c->stream,
                              .attribute = &together,
                              .attributes = 1};
    void *parameters[] = {&d->args};
    size_t bytes = write_lead(d, &step->seq[row->seq], row->position, tokens);
    IM__TRY(need_tags(d, tokens, err));
    d->args.token = row->token;
    d->args.position = row->position;
    d->args.tokens = tokens;
    IM__TRY(im__cuda_try(driver, driver->copy_in(d->lead, d->lead_host, bytes, launch.stream), "sending a step", err));
    IM__TRY(im__cuda_try(driver, driver->launch(&launch, d->kernel, parameters, NULL), "launching the decoder", err));
    d->args.tag += IM__DECODE_TAGS * tokens;
    return im__cuda_try(driver, driver->copy_out(d->failed_host, d->args.failed, sizeof *d->failed_host, launch.stream),
                        "reading the answer", err);
}

void im__cuda_decoder_prepare(im__cuda_decoder *d)
{
    const uint32_t next = 3 * d->args.tokens; /* chains grow so fast at most */
    need_turns(d, d->args.position + (int32_t)d->args.tokens,
               next < IM__CUDA_DECODE_MOST_TOKENS ? next : IM__CUDA_DECODE_MOST_TOKENS);
}

im_status im__cuda_decoder_check(const im__cuda_decoder *d, im_error *err)
{
    if (*d->failed_host == 0) return IM_OK;
    return im__fail(err, IM_ERR_DEVICE, "%s: block %u of the decoder waited in vain (%u)", d->c->device.name,
                    (*d->failed_host & 0xffff) - 1, *d->failed_host >> 16);
}
