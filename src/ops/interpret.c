/* SPDX-License-Identifier: Apache-2.0 */
#include "ops/interpret.h"

#include "num/dtype.h"
#include "num/real.h"

#include <string.h>

struct im__interpreter {
    const im__program *p;
    im__ops ops;
    int32_t position;
    int32_t *table; /* page i of the sequence is page i of each layer */
    float **value;  /* [value_count] one row each */
    char **cache;   /* [kv_count] */
    size_t *cache_bytes;
    float *rest, *product, *cosine, *sine, *scratch;
    void *act_memory;
    size_t act_bytes, pages;
};

/* ---- operations -------------------------------------------------------------------------------------------------------------------------- */

static im__kv_view view_of(const im__interpreter *i, int layer)
{
    const im__kv_layer *kv = &i->p->kv[layer];
    size_t half = (size_t)kv->kv_heads * kv->head_dim * IM__PAGE;
    return (im__kv_view){
        .type = kv->type, .base = i->cache[layer], .page_stride = 2 * half, .k_offset = 0, .v_offset = half, .table = i->table};
}

static void one_product(im__interpreter *i, const im__weight *w, const float *x, float *y)
{
    im__act act = im__act_carve(i->act_memory, 1, w->n_in);
    bool quantised = !im__dtype_is_float(w->dtype);
    if (quantised) i->ops.quantise(&act, 0, x);
    im__matmul_in in = {.act = quantised ? &act : NULL, .x = quantised ? NULL : x, .x_stride = w->n_in, .rows = 1};
    im__matmul_c(w, &in, NULL, y, w->n_out, 0, w->n_out);
}

/* What a wide product adds: that of what quantising lost. */
static void add_rest(im__interpreter *i, const im__weight *w, const float *x, float *y)
{
    im__act act = im__act_carve(i->act_memory, 1, w->n_in);
    i->ops.quantise(&act, 0, x);
    im__quantise_rest(&act, 0, x, i->rest);
    one_product(i, w, i->rest, i->product);
    for (size_t o = 0; o < w->n_out; o++) y[o] = y[o] + i->product[o];
}

static void matmul(im__interpreter *i, const im__op *op, const float *x, float *y)
{
    const im__weight *w = &i->p->matrix[op->weight].w;
    one_product(i, w, x, y);
    if (op->wide && !im__dtype_is_float(w->dtype)) add_rest(i, w, x, y);
    for (size_t o = 0; op->vector != IM__NONE && o < w->n_out; o++) y[o] = y[o] + i->p->vector[op->vector].data[o];
}

static void rope(im__interpreter *i, const im__op *op, float *x)
{
    const im__rope *r = &i->p->rope[op->rope];
    for (uint32_t k = 0; k < r->rot_dim / 2; k++) im__rope_angle(i->position, r->frequency[k], &i->cosine[k], &i->sine[k]);
    i->ops.rope(x, op->heads, op->head_dim, r->rot_dim, i->cosine, i->sine, r->adjacent);
}

static void attention(im__interpreter *i, const im__op *op, const float *q, float *out)
{
    const im__kv_layer *kv = &i->p->kv[op->layer];
    size_t width = (size_t)op->heads * op->head_dim;
    im__attention a = {.kv = view_of(i, op->layer),
                       .heads = op->heads,
                       .kv_heads = kv->kv_heads,
                       .head_dim = op->head_dim,
                       .window = kv->window,
                       .scale = op->by,
                       .softcap = op->cap,
                       .q = q,
                       .q_stride = width,
                       .out = out,
                       .out_stride = width,
                       .position = &i->position};
    i->ops.attention(&a, 0, 1, 0, kv->kv_heads, i->scratch);
}

static void execute(im__interpreter *i, const im__op *op, int32_t token)
{
    const im__program *p = i->p;
    float *dst = op->dst == IM__NONE ? NULL : i->value[op->dst];
    const float *src = op->src == IM__NONE ? NULL : i->value[op->src], *src2 = op->src2 == IM__NONE ? NULL : i->value[op->src2];
    size_t n = op->dst == IM__NONE ? 0 : p->value[op->dst].width;
    switch (op->kind) {
    case IM__OP_EMBED: im__embed_row(&p->matrix[op->weight].w, (size_t)token, op->by, dst); break;
    case IM__OP_NORM: i->ops.rms_norm(dst, src, p->vector[op->vector].data, op->n, n / op->n, op->by); break;
    case IM__OP_MATMUL: matmul(i, op, src, dst); break;
    case IM__OP_ROPE: rope(i, op, dst); break;
    case IM__OP_KV_STORE: {
        im__kv_view kv = view_of(i, op->layer);
        i->ops.kv_store(&kv, p->kv[op->layer].kv_heads, op->head_dim, i->position, src, src2);
        break;
    }
    case IM__OP_ATTENTION: attention(i, op, src, dst); break;
    case IM__OP_GLU: i->ops.glu(dst, src, src2, n, op->glu); break;
    case IM__OP_ADD: i->ops.add(dst, src, n); break;
    case IM__OP_SCALE: i->ops.scale(dst, src, n, op->by); break;
    case IM__OP_SOFTCAP: i->ops.softcap(dst, n, op->by); break;
    case IM__OP_SELECT: break; /* the row goes on, or im__interpret ends here */
    }
}

void im__interpret(im__interpreter *i, int32_t token, float *logits)
{
    const im__program *p = i->p;
    for (size_t k = 0; k < p->op_count; k++) {
        if (p->op[k].kind == IM__OP_SELECT && logits == NULL) break;
        execute(i, &p->op[k], token);
    }
    if (logits != NULL) memcpy(logits, i->value[p->logits], p->vocab * sizeof *logits);
    i->position++;
}

/* ---- memory --------------------------------------------------------------------------------------------------------------------------------- */

static bool take_values(im__interpreter *i)
{
    for (size_t v = 0; v < i->p->value_count; v++) {
        i->value[v] = im__calloc(i->p->value[v].width, sizeof(float));
        if (i->value[v] == NULL) return false;
    }
    return true;
}

static bool take_cache(im__interpreter *i)
{
    for (size_t l = 0; l < i->p->kv_count; l++) {
        const im__kv_layer *kv = &i->p->kv[l];
        size_t page = 2 * (size_t)kv->kv_heads * kv->head_dim * IM__PAGE * im__kv_type_size(kv->type), bytes;
        i->cache[l] = im__mul(page, i->pages, &bytes) ? im__aligned_alloc(bytes) : NULL;
        if (i->cache[l] == NULL) return false;
        i->cache_bytes[l] = bytes;
    }
    for (size_t page = 0; page < i->pages; page++) i->table[page] = (int32_t)page;
    return true;
}

/* The widest row in and out of a matrix, the longest rotation, the most scratch of an attention. */
static bool take_rows(im__interpreter *i)
{
    size_t in = 1, out = 1, pairs = 1, scratch = 1;
    for (size_t m = 0; m < i->p->matrix_count; m++) {
        if (i->p->matrix[m].w.n_in > in) in = i->p->matrix[m].w.n_in;
        if (i->p->matrix[m].w.n_out > out) out = i->p->matrix[m].w.n_out;
    }
    for (size_t r = 0; r < i->p->rope_count; r++)
        if (i->p->rope[r].rot_dim / 2 > pairs) pairs = i->p->rope[r].rot_dim / 2;
    for (size_t k = 0; k < i->p->op_count; k++) {
        const im__op *op = &i->p->op[k];
        if (op->kind != IM__OP_ATTENTION) continue;
        size_t n = im__attention_scratch(op->heads, i->p->kv[op->layer].kv_heads, op->head_dim);
        if (n > scratch) scratch = n;
    }
    i->rest = im__calloc(in, sizeof *i->rest);
    i->product = im__calloc(out, sizeof *i->product);
    i->cosine = im__calloc(pairs, sizeof *i->cosine);
    i->sine = im__calloc(pairs, sizeof *i->sine);
    i->scratch = im__calloc(scratch, sizeof *i->scratch);
    i->act_bytes = im__act_bytes(1, in);
    i->act_memory = im__aligned_alloc(i->act_bytes);
    return i->rest && i->product && i->cosine && i->sine && i->scratch && i->act_memory;
}

im_status im__interpreter_new(im__interpreter **out, const im__program *p, uint32_t positions, im_error *err)
{
    im__interpreter *i = im__calloc(1, sizeof *i);
    if (i == NULL) return im__fail(err, IM_ERR_MEMORY, "out of memory");
    i->p = p;
    i->pages = ((size_t)positions + IM__PAGE - 1) / IM__PAGE;
    i->table = im__calloc(i->pages, sizeof *i->table);
    i->value = im__calloc(p->value_count, sizeof *i->value);
    i->cache = im__calloc(p->kv_count, sizeof *i->cache);
    i->cache_bytes = im__calloc(p->kv_count, sizeof *i->cache_bytes);
    im__ops_c(&i->ops);
    if (i->table && i->value && i->cache && i->cache_bytes && take_values(i) && take_cache(i) && take_rows(i)) {
        *out = i;
        return IM_OK;
    }
    im__interpreter_free(i);
    return im__fail(err, IM_ERR_MEMORY, "out of memory");
}

void im__interpreter_free(im__interpreter *i)
{
    if (i == NULL) return;
    for (size_t v = 0; i->value != NULL && v < i->p->value_count; v++) im__free(i->value[v]);
    for (size_t l = 0; i->cache != NULL && l < i->p->kv_count; l++) im__aligned_free(i->cache[l], i->cache_bytes[l]);
    im__aligned_free(i->act_memory, i->act_bytes);
    im__free(i->table);
    im__free(i->value);
    im__free(i->cache);
    im__free(i->cache_bytes);
    im__free(i->rest);
    im__free(i->product);
    im__free(i->cosine);
    im__free(i->sine);
    im__free(i->scratch);
    im__free(i);
}
