/* SPDX-License-Identifier: Apache-2.0
 *
 * The lowered program as launches. Everything that does not depend on a step is settled here, once.
 */
#include "backend/cuda/cuda.h"

#include "backend/cuda/kernels/argmax.h"
#include "backend/cuda/kernels/rows.h"
#include "backend/cuda/kernels/select.h"
#include "num/dtype.h"

#include <stdio.h>
#include <string.h>

/* ---- kernels -------------------------------------------------------------------------------------------------------------------- */

enum { SHARED_WITHOUT_ASKING = 48 << 10 };

/* Looks through the images for a kernel; a block of it may use `shared` bytes. */
static im_status find(im__cuda *c, im__cuda_kernel *out, uint32_t threads, uint32_t shared, im_error *err, const char *format, ...)
    IM__PRINTF(6, 7);
static im_status find(im__cuda *c, im__cuda_kernel *out, uint32_t threads, uint32_t shared, im_error *err, const char *format, ...)
{
    char name[IM__NAME_MAX];
    va_list args;
    im__cuda_result r = IM__CUDA_ERROR_NOT_FOUND;
    if (out->function != NULL && shared <= out->shared) return IM_OK;
    va_start(args, format);
    vsnprintf(name, sizeof name, format, args);
    va_end(args);
    if (shared > c->device.shared_of_block)
        return im__fail(err, IM_ERR_UNSUPPORTED, "%s: kernel %s needs %u bytes of shared memory, a block has %u", c->device.name,
                        name, shared, c->device.shared_of_block);
    for (size_t i = 0; i < c->modules && r == IM__CUDA_ERROR_NOT_FOUND; i++)
        r = c->d->module_function(&out->function, c->module[i], name);
    if (r == IM__CUDA_ERROR_NOT_FOUND)
        return im__fail(err, IM_ERR_UNSUPPORTED, "this build has no kernel %s for %s", name, c->device.name);
    IM__TRY(im__cuda_try(c->d, r, name, err));
    out->threads = threads;
    out->shared = shared;
    if (shared <= SHARED_WITHOUT_ASKING) return IM_OK;
    return im__cuda_try(c->d, c->d->function_set(out->function, IM__CUDA_MAX_DYNAMIC_SHARED, (int)shared), name, err);
}

im__few_device im__cuda_few_device(const im__cuda *c)
{
    return (im__few_device){c->device.processors, c->device.shared_of_processor, c->device.shared_of_block};
}

static im_status find_few(im__cuda *c, const im__cuda_matmul_stage *s, im_error *err)
{
    im__few_device device = im__cuda_few_device(c);
    uint32_t shared = 0;
    for (uint32_t rows = 1; rows <= IM__FEW_ROWS; rows++) {
        im__cuda_products products = s->products;
        im__few_launch l = im__matmul_few_plan(&products, rows, &device);
        if (l.shared > shared) shared = l.shared;
    }
    return find(c, &c->few[s->form], 0, shared, err, "im_matmul_few_%s", im__cuda_form_name((im__cuda_form)s->form));
}

/* Those of warp groups are for 9.0 alone. */
static im_status find_many(im__cuda *c, uint32_t form, im_error *err)
{
    bool floats = im__many_is_float(form); /* which have one shape */
    int shapes = floats ? 1 : c->device.capability == 90 ? IM__MANY_ALL_SHAPES : IM__MANY_SHAPE_COUNT;
    for (int s = 0; s < shapes; s++) {
        im__many_launch l = im__many_launch_of(form, s);
        if (l.shared > c->device.shared_of_block) continue;
        IM__TRY(find(c, &c->many[form][s], l.threads, l.shared, err, "im_matmul_many_%s%s%s",
                     im__cuda_form_name((im__cuda_form)form), floats ? "" : "_", l.name));
    }
    return IM_OK;
}

/* ---- what the program needs -------------------------------------------------------------------------------------------------------- */

static const im__kv_layer *layer_of(const im__cuda *c, const im__op *op) { return &c->p->kv[op->layer]; }

static bool takes_tiles(const im__cuda *c, const im__op *op)
{
    const im__kv_layer *kv = layer_of(c, op);
    return im__attention_many_fits(op->heads, kv->kv_heads, op->head_dim, kv->type == IM__KV_F32) &&
           im__attention_many_shared(op->head_dim, im__attention_many_queries(op->head_dim)) <= c->device.shared_of_block;
}

static int staged(const im__cuda *c, const im__op *op)
{
    return im__attention_few_staged(layer_of(c, op)->type == IM__KV_F32, op->head_dim, (uint32_t)c->device.capability,
                                    c->device.shared_of_block);
}

uint32_t im__cuda_few_blocks(const im__cuda *c, uint32_t head_dim, uint32_t each, int stages)
{
    return im__attention_few_blocks(c->device.processors, c->device.shared_of_processor, head_dim, each, stages);
}

/* Heads that a block of im_attention_few may take, as im__attention_few_heads says it: the k-th of those that there are, 0 behind the last. */
static uint32_t few_heads(const im__cuda *c, const im__op *op, unsigned k)
{
    uint32_t sharing = op->heads / layer_of(c, op)->kv_heads, each = 1u << k,
             most = im__attention_ceil(sharing, im__attention_ceil(sharing, IM__ATTENTION_FEW_HEADS));
    if (k > 0 && each / 2 >= most) return 0;
    if (!staged(c, op)) return k == 0 ? 1 : k == 1 ? IM__ATTENTION_FEW_HEADS : 0;
    return each < most ? each : most;
}

static void count_layer(im__cuda *c, const im__op *op)
{
    const im__kv_layer *kv = layer_of(c, op);
    uint32_t rows = c->options.max_rows < IM__ATTENTION_SPLIT_ROWS ? (uint32_t)c->options.max_rows : IM__ATTENTION_SPLIT_ROWS, each;
    for (unsigned k = 0; (each = few_heads(c, op, k)) > 0; k++) {
        size_t floats = im__attention_partial_floats(rows, (uint32_t)c->options.context, kv->window, op->heads, kv->kv_heads,
                                                     op->head_dim, each, im__cuda_few_blocks(c, op->head_dim, each, staged(c, op)));
        if (floats > c->partial_floats) c->partial_floats = floats;
    }
    if (!takes_tiles(c, op)) return;
    uint32_t tile = im__attention_tile_rows(op->heads, kv->kv_heads, op->head_dim);
    if (c->tile_rows == 0 || tile < c->tile_rows) c->tile_rows = tile;
}

void im__cuda_count_attention(im__cuda *c)
{
    for (size_t i = 0; i < c->p->op_count; i++)
        if (c->p->op[i].kind == IM__OP_ATTENTION) count_layer(c, &c->p->op[i]);
}

/* Phase by phase of the lowered program, and the rotation tables in front. */
size_t im__cuda_count_actions(const im__cuda *c) { return c->lowered.action_count + c->p->rope_count; }

/* ---- actions ------------------------------------------------------------------------------------------------------------------------ */

static im__cuda_ptr value_of(const im__cuda *c, int value) { return value == IM__NONE ? 0 : c->value[value]; }
static uint32_t width_of(const im__cuda *c, int value) { return value == IM__NONE ? 0 : c->p->value[value].width; }

static im__cuda_kv kv_of(const im__cuda *c, int layer)
{
    im__pool_kind pool = im__kv_layer_pool(c->p, (size_t)layer);
    const im__kv_layer *kv = &c->p->kv[layer];
    size_t size = im__kv_type_size(kv->type), offset = c->layer_offset[layer] / size;
    return (im__cuda_kv){.pool = c->pool[pool],
                         .page_stride = c->page_bytes[pool] / size,
                         .k_offset = offset,
                         .v_offset = offset + (size_t)kv->kv_heads * kv->head_dim * IM__PAGE,
                         .which = pool,
                         .is_f32 = kv->type == IM__KV_F32,
                         .kv_heads = kv->kv_heads,
                         .head_dim = kv->head_dim,
                         .clamped = c->answer + offsetof(im__cuda_answer, clamped)};
}

static im__cuda_action_kind kind_of(const im__op *op)
{
    switch (op->kind) {
    case IM__OP_EMBED: return IM__CUDA_EMBED;
    case IM__OP_NORM: return IM__CUDA_NORM;
    case IM__OP_ROPE: return IM__CUDA_ROPE;
    case IM__OP_KV_STORE: return IM__CUDA_KV_STORE;
    case IM__OP_GLU: return op->glu == IM__GLU_SILU ? IM__CUDA_GLU_SILU : IM__CUDA_GLU_GELU;
    case IM__OP_ADD: return IM__CUDA_ADD;
    case IM__OP_SCALE: return IM__CUDA_SCALE;
    default: return IM__CUDA_SOFTCAP;
    }
}

static im__cuda_action table_action(const im__cuda *c, size_t rope)
{
    const im__rope *r = &c->p->rope[rope];
    return (im__cuda_action){.kind = IM__CUDA_ROPE_TABLE,
                             .rot_dim = r->rot_dim,
                             .adjacent = r->adjacent,
                             .cosine = c->cosine[rope],
                             .sine = c->sine[rope],
                             .frequency = c->frequency[rope]};
}

static im__cuda_action quantise_action(const im__cuda *c, const im__action *a)
{
    return (im__cuda_action){.kind = IM__CUDA_QUANTISE,
                             .width = width_of(c, a->value),
                             .wide = a->wide,
                             .src = value_of(c, a->value),
                             .act = c->act[a->value]};
}

static im__cuda_action op_action(const im__cuda *c, const im__op *op)
{
    im__cuda_action a = op->kind == IM__OP_ROPE ? table_action(c, (size_t)op->rope) : (im__cuda_action){.kind = 0};
    a.kind = kind_of(op);
    a.width = width_of(c, op->dst);
    a.n = op->n;
    a.heads = op->heads;
    a.head_dim = op->head_dim;
    a.by = op->by;
    a.dst = value_of(c, op->dst);
    a.src = value_of(c, op->src);
    a.src2 = value_of(c, op->src2);
    if (op->vector != IM__NONE) a.vector = c->vector[op->vector];
    if (op->weight != IM__NONE) a.matrix = c->matrix[op->weight];
    if (op->kind == IM__OP_KV_STORE) {
        a.kv = kv_of(c, op->layer);
        a.width = width_of(c, op->src);
    }
    return a;
}

/* ---- stages ---------------------------------------------------------------------------------------------------------------------------- */

typedef struct making {
    im__cuda *c;
    size_t listed; /* actions */
} making;

static im__cuda_stage *new_stage(im__cuda *c, const im__phase *phase)
{
    im__cuda_stage *s = &c->stage[c->stages++];
    *s = (im__cuda_stage){.kind = phase->kind, .selected = phase->selected};
    return s;
}

/* The first one makes the rotation tables as well. */
static im_status make_rows(making *m, const im__phase *phase, im_error *err)
{
    im__cuda *c = m->c;
    im__cuda_stage *s = new_stage(c, phase);
    size_t first = m->listed;
    (void)err;
    for (size_t i = 0; first == 0 && i < c->p->rope_count; i++) c->action[m->listed++] = table_action(c, i);
    for (size_t i = phase->first; i < phase->first + phase->count; i++) {
        const im__action *a = &c->lowered.action[i];
        c->action[m->listed++] = a->op == NULL ? quantise_action(c, a) : op_action(c, a->op);
    }
    s->rows.list = c->actions + first * sizeof(im__cuda_action);
    s->rows.same = c->action + first;
    s->rows.count = (uint32_t)(m->listed - first);
    return IM_OK;
}

static im__cuda_product product_of(const im__cuda *c, const im__op *op)
{
    im__cuda_product p = {.w = c->matrix[op->weight], .x = value_of(c, op->src), .y = value_of(c, op->dst)};
    p.wide = op->wide && !im__dtype_is_float(c->layout[op->weight].dtype);
    if (!im__dtype_is_float(c->layout[op->weight].dtype)) p.act = c->act[op->src];
    if (op->vector != IM__NONE) p.bias = c->vector[op->vector];
    return p;
}

/* A launch takes products of one form, wide or not. */
static im__cuda_stage *stage_for(im__cuda *c, const im__phase *phase, size_t first, const im__cuda_product *p)
{
    for (size_t i = first; i < c->stages; i++) {
        im__cuda_matmul_stage *m = &c->stage[i].matmul;
        if (m->form == p->w.form && m->wide == (p->wide != 0) && m->products.count < IM__CUDA_MOST_PRODUCTS) return &c->stage[i];
    }
    im__cuda_stage *s = new_stage(c, phase);
    s->matmul.form = p->w.form;
    s->matmul.wide = p->wide != 0;
    s->matmul.products.selected = phase->selected;
    s->matmul.products.step = c->step;
    return s;
}

static im_status make_matmul(making *m, const im__phase *phase, im_error *err)
{
    im__cuda *c = m->c;
    size_t first = c->stages;
    for (size_t i = phase->first; i < phase->first + phase->count; i++) {
        im__cuda_product p = product_of(c, c->lowered.action[i].op);
        IM__TRY(find_many(c, p.w.form, err));
        im__cuda_products *all = &stage_for(c, phase, first, &p)->matmul.products;
        all->product[all->count++] = p;
    }
    for (size_t i = first; i < c->stages; i++) IM__TRY(find_few(c, &c->stage[i].matmul, err));
    return IM_OK;
}

static im_status find_attention(im__cuda *c, const im__op *op, im__cuda_attention_stage *s, im_error *err)
{
    const im__kv_layer *kv = layer_of(c, op);
    uint32_t each, queries = im__attention_many_queries(op->head_dim);
    const char *how = staged(c, op) ? "staged" : kv->type == IM__KV_F32 ? "float" : "half";
    s->staged = staged(c, op);
    for (unsigned k = 0; (each = few_heads(c, op, k)) > 0; k++)
        IM__TRY(find(c, &s->few[each - 1], im__attention_few_threads(op->head_dim),
                     im__attention_few_shared(op->head_dim, each, s->staged), err, "im_attention_few_%s_%u", how, each));
    int ways = takes_tiles(c, op) ? (int)im__attention_many_ways(op->head_dim) : 0;
    for (int i = 0; i < ways; i++, queries /= 2) {
        if (i > 0 && queries < op->heads / kv->kv_heads) break;
        s->queries[i] = queries;
        IM__TRY(find(c, &s->many[i], IM__ATTENTION_MANY_THREADS, im__attention_many_shared(op->head_dim, queries), err,
                     "im_attention_many_%u_%u", op->head_dim, queries));
    }
    return IM_OK;
}

static im_status make_attention(making *m, const im__phase *phase, im_error *err)
{
    im__cuda *c = m->c;
    const im__op *op = c->lowered.action[phase->first].op;
    im__cuda_attention_stage *s = &new_stage(c, phase)->attention;
    s->a = (im__cuda_attention){.kv = kv_of(c, op->layer),
                                .heads = op->heads,
                                .window = layer_of(c, op)->window,
                                .selected = phase->selected,
                                .scale = op->by,
                                .softcap = op->cap,
                                .q = value_of(c, op->src),
                                .out = value_of(c, op->dst),
                                .partial = c->partial,
                                .partial_floats = c->partial_floats,
                                .step = c->step};
    IM__TRY(find_attention(c, op, s, err));
    s->a.every = s->many[0].function == NULL;
    return IM_OK;
}

static im_status make_select(making *m, const im__phase *phase, im_error *err)
{
    im__cuda *c = m->c;
    const im__op *op = c->lowered.action[phase->first].op;
    const int kept[2] = {op->src, op->src2};
    (void)err;
    for (int i = 0; i < 2; i++) {
        if (kept[i] == IM__NONE) continue;
        im__cuda_stage *s = new_stage(c, phase);
        s->selected = true;
        s->select.value = value_of(c, kept[i]);
        s->select.width = width_of(c, kept[i]);
    }
    return IM_OK;
}

static im_status make_all(making *m, im_error *err)
{
    im__cuda *c = m->c;
    for (size_t i = 0; i < c->lowered.phase_count; i++) {
        const im__phase *phase = &c->lowered.phase[i];
        switch (phase->kind) {
        case IM__PHASE_ROWS: IM__TRY(make_rows(m, phase, err)); break;
        case IM__PHASE_MATMUL: IM__TRY(make_matmul(m, phase, err)); break;
        case IM__PHASE_ATTENTION: IM__TRY(make_attention(m, phase, err)); break;
        case IM__PHASE_SELECT: IM__TRY(make_select(m, phase, err)); break;
        }
    }
    IM__CUDA_TRY(c, copy_in(c->actions, c->action, m->listed * sizeof *c->action, c->stream), "sending the program");
    return im__cuda_try(c->d, c->d->stream_wait(c->stream), "sending the program", err);
}

im_status im__cuda_stages_make(im__cuda *c, im_error *err)
{
    making m = {.c = c};
    c->action = im__calloc(im__cuda_count_actions(c), sizeof *c->action);
    c->stage = im__calloc(c->lowered.action_count + 1, sizeof *c->stage);
    im_status status = c->action == NULL || c->stage == NULL ? im__fail(err, IM_ERR_MEMORY, "out of memory") : IM_OK;
    if (status == IM_OK) status = find(c, &c->rows_kernel, IM__ROWS_THREADS, 0, err, "im_rows");
    if (status == IM_OK) status = find(c, &c->select_kernel, IM__SELECT_THREADS, 0, err, "im_select");
    if (status == IM_OK) status = find(c, &c->argmax_kernel, IM__ARGMAX_THREADS, 0, err, "im_argmax");
    if (status == IM_OK) status = make_all(&m, err);
    return status;
}
