/* SPDX-License-Identifier: Apache-2.0
 *
 * A program is data, so it can be wrong: this is where a wrong one is caught.
 */
#include "num/dtype.h"
#include "ops/program.h"

#include <math.h>

#define MAX_HEAD_DIM 512

/* Reads and widths of one operation, so that one loop can judge all kinds. */
typedef struct shape {
    uint32_t dst, src, src2; /* wanted widths, 0: not used */
    bool reads_dst;
} shape;

/* What the operations so far have done. */
typedef struct progress {
    const im__program *p;
    bool *written; /* [value_count] */
    bool *stored;  /* [kv_count] */
    bool selected;
} progress;

static bool in_range(int index, size_t count) { return index >= 0 && (size_t)index < count; }

static uint32_t width(const im__program *p, int value) { return in_range(value, p->value_count) ? p->value[value].width : 0; }

static bool vector_is(const im__program *p, int vector, uint32_t n)
{
    return in_range(vector, p->vector_count) && p->vector[vector].n == n && p->vector[vector].data != NULL;
}

static bool kv_is(const im__program *p, const im__op *op)
{
    if (!in_range(op->layer, p->kv_count)) return false;
    const im__kv_layer *kv = &p->kv[op->layer];
    return kv->head_dim == op->head_dim && op->head_dim % 2 == 0 && op->head_dim > 0 && op->head_dim <= MAX_HEAD_DIM &&
           kv->kv_heads > 0 && kv->type < IM__KV_TYPES;
}

/* ---- the kinds: wanted widths; false when the operation's own parameters do not hold ---------------------------------------------------- */

static bool embed(const im__program *p, const im__op *op, shape *s)
{
    s->dst = width(p, op->dst);
    if (!in_range(op->weight, p->matrix_count)) return false;
    const im__weight *w = &p->matrix[op->weight].w;
    return w->n_in == s->dst && w->n_out >= p->vocab && isfinite(op->by);
}

static bool norm(const im__program *p, const im__op *op, shape *s)
{
    s->dst = s->src = width(p, op->dst);
    return op->n > 0 && s->dst % op->n == 0 && vector_is(p, op->vector, op->n) && op->by >= 0;
}

static bool matmul(const im__program *p, const im__op *op, shape *s)
{
    if (!in_range(op->weight, p->matrix_count)) return false;
    const im__weight *w = &p->matrix[op->weight].w;
    bool quantised = !im__dtype_is_float(w->dtype);
    s->dst = (uint32_t)w->n_out;
    s->src = (uint32_t)w->n_in;
    if (s->dst != w->n_out || s->src != w->n_in || s->src == 0 || (quantised && w->n_in % IM__ACT_GROUP != 0)) return false;
    return op->dst != op->src && op->src != p->logits && (op->vector == IM__NONE || vector_is(p, op->vector, s->dst));
}

static bool rope(const im__program *p, const im__op *op, shape *s)
{
    s->dst = op->heads * op->head_dim;
    s->reads_dst = true;
    if (!in_range(op->rope, p->rope_count)) return false;
    const im__rope *r = &p->rope[op->rope];
    return r->rot_dim > 0 && r->rot_dim % 2 == 0 && r->rot_dim <= op->head_dim && r->frequency != NULL;
}

static bool kv_store(const im__program *p, const im__op *op, shape *s)
{
    if (!kv_is(p, op)) return false;
    s->src = s->src2 = p->kv[op->layer].kv_heads * op->head_dim;
    return true;
}

static bool attention(const im__program *p, const im__op *op, shape *s)
{
    if (!kv_is(p, op) || op->heads % p->kv[op->layer].kv_heads != 0 || !isfinite(op->by) || !(op->cap >= 0)) return false;
    s->dst = s->src = op->heads * op->head_dim;
    return op->dst != op->src && op->dst != p->logits && op->src != p->logits;
}

static bool glu(const im__program *p, const im__op *op, shape *s)
{
    s->dst = s->src = s->src2 = width(p, op->dst);
    return op->dst != op->src2 && (op->glu == IM__GLU_SILU || op->glu == IM__GLU_GELU);
}

static bool add(const im__program *p, const im__op *op, shape *s)
{
    s->dst = s->src = width(p, op->dst);
    s->reads_dst = true;
    return op->dst != op->src;
}

static bool scale(const im__program *p, const im__op *op, shape *s)
{
    s->dst = s->src = width(p, op->dst);
    return isfinite(op->by);
}

static bool softcap(const im__program *p, const im__op *op, shape *s)
{
    s->dst = width(p, op->dst);
    s->reads_dst = true;
    return op->by > 0 && isfinite(op->by);
}

static bool select_rows(const im__program *p, const im__op *op, shape *s)
{
    s->src = width(p, op->src);
    s->src2 = width(p, op->src2);
    return s->src > 0 && op->src != op->src2 && (op->src2 == IM__NONE || s->src2 > 0);
}

static bool wanted(const im__program *p, const im__op *op, shape *s)
{
    *s = (shape){0};
    switch (op->kind) {
    case IM__OP_EMBED: return embed(p, op, s) && s->dst > 0;
    case IM__OP_NORM: return norm(p, op, s) && s->dst > 0;
    case IM__OP_MATMUL: return matmul(p, op, s) && s->dst > 0;
    case IM__OP_ROPE: return rope(p, op, s) && s->dst > 0;
    case IM__OP_KV_STORE: return kv_store(p, op, s);
    case IM__OP_ATTENTION: return attention(p, op, s) && s->dst > 0;
    case IM__OP_GLU: return glu(p, op, s) && s->dst > 0;
    case IM__OP_ADD: return add(p, op, s) && s->dst > 0;
    case IM__OP_SCALE: return scale(p, op, s) && s->dst > 0;
    case IM__OP_SOFTCAP: return softcap(p, op, s) && s->dst > 0;
    case IM__OP_SELECT: return select_rows(p, op, s);
    }
    return false;
}

/* ---- the order -------------------------------------------------------------------------------------------------------------------------- */

static bool readable(const progress *g, int value, uint32_t want)
{
    return want == 0 || (width(g->p, value) == want && g->written[value]);
}

/* The cache is written for every row, once a layer, before it is read; logits are there for selected rows only. */
static bool in_order(const progress *g, const im__op *op, const shape *s)
{
    if (op->kind == IM__OP_KV_STORE && (g->selected || g->stored[op->layer])) return false;
    if (op->kind == IM__OP_ATTENTION && !g->stored[op->layer]) return false;
    if (op->kind == IM__OP_SELECT && g->selected) return false;
    return g->selected || s->dst == 0 || op->dst != g->p->logits;
}

static void note(progress *g, const im__op *op, const shape *s)
{
    if (op->kind == IM__OP_KV_STORE) g->stored[op->layer] = true;
    if (op->kind == IM__OP_SELECT) g->selected = true;
    for (size_t v = 0; op->kind == IM__OP_SELECT && v < g->p->value_count; v++)
        g->written[v] = g->written[v] && ((int)v == op->src || (int)v == op->src2);
    if (s->dst != 0) g->written[op->dst] = true;
}

static bool check_op(progress *g, const im__op *op)
{
    shape s;
    bool good = wanted(g->p, op, &s) && (s.dst == 0 || width(g->p, op->dst) == s.dst) && readable(g, op->src, s.src) &&
                readable(g, op->src2, s.src2) && (!s.reads_dst || g->written[op->dst]) && in_order(g, op, &s);
    if (good) note(g, op, &s);
    return good;
}

static im_status check_all(progress *g, im_error *err)
{
    const im__program *p = g->p;
    for (size_t i = 0; i < p->op_count; i++)
        if (!check_op(g, &p->op[i]))
            return im__fail(err, IM_ERR_INTERNAL, "program of %s: operation %zu is not well-formed", p->arch, i);
    for (size_t i = 0; i < p->kv_count; i++)
        if (!g->stored[i]) return im__fail(err, IM_ERR_INTERNAL, "program of %s: nothing is kept for layer %zu", p->arch, i);
    if (!g->selected || width(p, p->logits) != p->vocab || p->vocab == 0 || !g->written[p->logits])
        return im__fail(err, IM_ERR_INTERNAL, "program of %s: no logits at its end", p->arch);
    return IM_OK;
}

im_status im__program_check(const im__program *p, im_error *err)
{
    progress g = {
        .p = p, .written = im__calloc(p->value_count, sizeof *g.written), .stored = im__calloc(p->kv_count, sizeof *g.stored)};
    im_status status = g.written == NULL || g.stored == NULL ? im__fail(err, IM_ERR_MEMORY, "out of memory") : check_all(&g, err);
    im__free(g.written);
    im__free(g.stored);
    return status;
}
