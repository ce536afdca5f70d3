/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/cpu.h"

#include "backend/cpu/admit.h"

#include <string.h>

/* ---- workspace ----------------------------------------------------------------------------------------------------------------- */

/* Carves pieces out of a block; with block NULL it only counts. */
typedef struct carver {
    char *block;
    size_t used;
} carver;

static void *take(carver *c, size_t count, size_t size)
{
    void *at = c->block == NULL ? NULL : c->block + c->used;
    c->used += (count * size + 63) & ~(size_t)63;
    return at;
}

static void carve_row_set(carver *c, im__row_set *set, size_t rows)
{
    set->row = take(c, rows, sizeof *set->row);
    set->source = take(c, rows, sizeof *set->source);
    set->position = take(c, rows, sizeof *set->position);
    set->tile = take(c, rows, sizeof *set->tile);
}

/* The most that one operation needs for itself on one thread. */
static size_t op_scratch(const im__cpu *c, const im__op *op)
{
    if (op->kind == IM__OP_ATTENTION) return im__attention_scratch(op->heads, c->p->kv[op->layer].kv_heads, op->head_dim);
    if (op->kind != IM__OP_MATMUL || !op->wide) return 0;
    size_t product = 2 * c->options.max_rows * IM__MOST_OUTPUTS, rest = c->p->value[op->src].width;
    return product > rest ? product : rest;
}

static size_t scratch_floats(const im__cpu *c)
{
    size_t most = 0;
    for (size_t i = 0; i < c->p->op_count; i++) {
        size_t n = op_scratch(c, &c->p->op[i]);
        if (n > most) most = n;
    }
    return (most + 15) & ~(size_t)15;
}

/* Lays out the workspace; the same walk counts (block NULL) and carves. The arrays of pointers must be there when carving. */
static void carve(im__cpu *c, carver *w)
{
    const im__program *p = c->p;
    size_t rows = c->options.max_rows;
    for (size_t v = 0; v < p->value_count; v++) {
        if ((int)v == p->logits) continue;
        float *value = take(w, rows * p->value[v].width, sizeof(float));
        size_t act_rows = rows * c->lowered.planes[v];
        void *act = act_rows > 0 ? take(w, im__act_bytes(act_rows, p->value[v].width), 1) : NULL;
        if (w->block == NULL) continue;
        c->value[v] = value;
        if (act != NULL) c->act[v] = im__act_carve(act, act_rows, p->value[v].width);
    }
    for (size_t i = 0; i < p->rope_count; i++) {
        float *cosine = take(w, rows * p->rope[i].rot_dim / 2, sizeof(float)),
              *sine = take(w, rows * p->rope[i].rot_dim / 2, sizeof(float));
        if (w->block == NULL) continue;
        c->cosine[i] = cosine;
        c->sine[i] = sine;
    }
    c->scratch_floats = scratch_floats(c);
    c->scratch = take(w, (size_t)c->options.threads * c->scratch_floats, sizeof(float));
    carve_row_set(w, &c->all, rows);
    carve_row_set(w, &c->selected, rows);
    c->units = take(w, c->lowered.phase_count + 1, sizeof *c->units);
}

/* ---- opening --------------------------------------------------------------------------------------------------------------------- */

static im_status choose_level(const im__backend_options *o, im__cpu_level *out, im_error *err)
{
    *out = im__cpu_best();
    if (o->cpu_level == NULL) return IM_OK;
    if (!im__cpu_level_parse(o->cpu_level, out))
        return im__fail(err, IM_ERR_ARGUMENT, "\"%s\" is no kernel level; c, avx2, avxvnni, avx512, amx, neon and i8mm are",
                        o->cpu_level);
    if (!im__cpu_has(*out))
        return im__fail(err, IM_ERR_UNSUPPORTED, "this machine does not have the kernel level %s", o->cpu_level);
    return IM_OK;
}

/* Chooses kernels and phases and counts bytes; takes nothing large. */
static im_status prepare(im__cpu *c, const im__program *p, const im__backend_options *o, im_error *err)
{
    c->p = p;
    c->options = *o;
    c->options.cpu_level = NULL; /* the caller's string is not ours to keep */
    IM__TRY(choose_level(o, &c->level, err));
    IM__TRY(im__admit_ops(&c->ops, c->level, &c->wrong_op, err));
    IM__TRY(im__weights_choose(&c->weights, p, c->level, err));
    IM__TRY(im__lower(p, &c->lowered, err));
    c->value = im__calloc(p->value_count, sizeof *c->value);
    c->act = im__calloc(p->value_count, sizeof *c->act);
    c->cosine = im__calloc(p->rope_count, sizeof *c->cosine);
    c->sine = im__calloc(p->rope_count, sizeof *c->sine);
    c->layer_offset = im__calloc(p->kv_count, sizeof *c->layer_offset);
    if (!c->value || !c->act || !c->cosine || !c->sine || !c->layer_offset) return im__fail(err, IM_ERR_MEMORY, "out of memory");
    carver count = {0};
    carve(c, &count);
    c->block_bytes = count.used;
    return im__kv_count_pools(p, o->pages, c->pool_bytes, &c->all_pools_bytes, err);
}

static im_status take_memory(im__cpu *c, im_error *err)
{
    im__kv_place_layers(c->p, c->layer_offset);
    for (int k = 0; k < IM__POOLS; k++) c->page_bytes[k] = im__kv_page_bytes(c->p, (im__pool_kind)k);
    for (int k = 0; k < IM__POOLS; k++) {
        c->pool[k] = im__aligned_alloc(c->pool_bytes[k]);
        if (c->pool[k] == NULL)
            return im__fail(err, IM_ERR_MEMORY, "%zu MiB for the KV cache are not to be had", c->pool_bytes[k] >> 20);
    }
    c->block = im__aligned_alloc(c->block_bytes);
    if (c->block == NULL) return im__fail(err, IM_ERR_MEMORY, "%zu MiB of workspace are not to be had", c->block_bytes >> 20);
    carver w = {.block = c->block};
    carve(c, &w);
    return IM_OK;
}

static void close_cpu(im__backend *b)
{
    im__cpu *c = (im__cpu *)b;
    im__team_free(c->team);
    im__weights_clear(&c->weights);
    im__lowered_clear(&c->lowered);
    im__buf_free(&c->description);
    for (int k = 0; k < IM__POOLS; k++) im__aligned_free(c->pool[k], c->pool_bytes[k]);
    im__aligned_free(c->block, c->block_bytes);
    im__free(c->layer_offset);
    im__free(c->value);
    im__free(c->act);
    im__free(c->cosine);
    im__free(c->sine);
    im__free(c);
}

static uint64_t clamped(const im__backend *b) { return atomic_load(&((const im__cpu *)b)->clamped); }
static const char *describe(const im__backend *b) { return ((const im__cpu *)b)->description.data; }

static char *page_at(const im__backend *b, im__pool_kind pool, int32_t page)
{
    const im__cpu *c = (const im__cpu *)b;
    return (char *)c->pool[pool] + (size_t)page * c->page_bytes[pool];
}

static bool page_read(const im__backend *b, im__pool_kind pool, int32_t page, void *bytes)
{
    memcpy(bytes, page_at(b, pool, page), ((const im__cpu *)b)->page_bytes[pool]);
    return true;
}

static bool page_write(im__backend *b, im__pool_kind pool, int32_t page, const void *bytes)
{
    memcpy(page_at(b, pool, page), bytes, ((const im__cpu *)b)->page_bytes[pool]);
    return true;
}

static void page_copy(im__backend *b, im__pool_kind pool, int32_t from, int32_t to)
{
    if (((const im__cpu *)b)->page_bytes[pool] > 0) page_write(b, pool, to, page_at(b, pool, from));
}

static void page_touch(im__backend *b, im__pool_kind pool, int32_t page)
{
    size_t bytes = ((const im__cpu *)b)->page_bytes[pool];
    if (bytes > 0) memset(page_at(b, pool, page), 0, bytes);
}

static im_status open_cpu(im__cpu *c, const im__program *p, const im__backend_options *o, im_error *err)
{
    IM__TRY(prepare(c, p, o, err));
    IM__TRY(take_memory(c, err));
    IM__TRY(im__team_new(&c->team, o->threads, c->lowered.phase_count + 1, err));
    c->weights.progress = o->progress;
    c->weights.progress_user = o->progress_user;
    IM__TRY(im__weights_pack(&c->weights, c->team, err));
    im__buf_printf(&c->description, "%s:", im__cpu_level_name(c->level));
    im__weights_describe(&c->weights, &c->description);
    if (c->weights.rejected.len > 0) im__buf_printf(&c->description, "; rejected by the self-check: %s", c->weights.rejected.data);
    if (c->wrong_op != NULL) im__buf_printf(&c->description, "; operation rejected by the self-check: %s", c->wrong_op);
    return c->description.failed ? im__fail(err, IM_ERR_MEMORY, "out of memory") : IM_OK;
}

im_status im__backend_cpu_open(im__backend **out, const im__program *p, const im__backend_options *o, im_error *err)
{
    im__cpu *c = im__calloc(1, sizeof *c);
    if (c == NULL) return im__fail(err, IM_ERR_MEMORY, "out of memory");
    c->base = (im__backend){.name = "cpu",
                            .run = im__cpu_run,
                            .close = close_cpu,
                            .clamped = clamped,
                            .describe = describe,
                            .page_read = page_read,
                            .page_write = page_write,
                            .page_copy = page_copy,
                            .page_touch = page_touch};
    im_status status = open_cpu(c, p, o, err);
    c->base.argmax = c->ops.argmax;
    if (status == IM_OK)
        *out = &c->base;
    else
        close_cpu(&c->base);
    return status;
}

im_status im__backend_cpu_plan(const im__program *p, const im__backend_options *o, im__memory_plan *plan, im_error *err)
{
    im__cpu *c = im__calloc(1, sizeof *c);
    if (c == NULL) return im__fail(err, IM_ERR_MEMORY, "out of memory");
    im_status status = prepare(c, p, o, err);
    if (status == IM_OK)
        *plan = (im__memory_plan){.weights = im__weights_bytes(&c->weights), .kv = c->all_pools_bytes, .workspace = c->block_bytes};
    close_cpu(&c->base);
    return status;
}
