/* SPDX-License-Identifier: Apache-2.0
 *
 * A program is data, so it can be wrong: this is where a wrong one is caught.
 */
#include "ops/program.h"

/* Reads and widths of one operation, so that one loop can judge all kinds. */
typedef struct shape {
    uint32_t dst, src, src2; /* wanted widths, 0: not used */
    bool reads_dst;
} shape;

static uint32_t width(const im__program *p, int value)
{
    return value >= 0 && (size_t)value < p->value_count ? p->value[value].width : 0;
}

static bool in_range(int index, size_t count) { return index >= 0 && (size_t)index < count; }

static bool vector_is(const im__program *p, int vector, uint32_t n)
{
    return in_range(vector, p->vector_count) && p->vector[vector].n == n && p->vector[vector].data != NULL;
}

static bool kv_is(const im__program *p, const im__op *op)
{
    if (!in_range(op->layer, p->kv_count)) return false;
    const im__kv_layer *kv = &p->kv[op->layer];
    return kv->head_dim == op->head_dim && kv->kv_heads > 0 && kv->type < IM__KV_TYPES;
}

static bool matmul_shape(const im__program *p, const im__op *op, shape *s)
{
    if (!in_range(op->weight, p->matrix_count)) return false;
    const im__weight *w = &p->matrix[op->weight].w;
    s->dst = (uint32_t)w->n_out;
    s->src = (uint32_t)w->n_in;
    return op->vector == IM__NONE || vector_is(p, op->vector, s->dst);
}

/* False when the operation's own parameters do not hold. */
static bool wanted(const im__program *p, const im__op *op, shape *s)
{
    uint32_t own = width(p, op->dst);
    *s = (shape){0};
    switch (op->kind) {
    case IM__OP_EMBED: s->dst = own; return in_range(op->weight, p->matrix_count) && p->matrix[op->weight].w.n_in == own && own > 0;
    case IM__OP_NORM: s->dst = s->src = own; return op->n > 0 && own % op->n == 0 && vector_is(p, op->vector, op->n);
    case IM__OP_MATMUL: return matmul_shape(p, op, s);
    case IM__OP_ROPE:
        s->dst = op->heads * op->head_dim;
        s->reads_dst = true;
        return in_range(op->rope, p->rope_count) && p->rope[op->rope].rot_dim <= op->head_dim && s->dst > 0;
    case IM__OP_KV_STORE:
        if (!kv_is(p, op)) return false;
        s->src = s->src2 = p->kv[op->layer].kv_heads * op->head_dim;
        return true;
    case IM__OP_ATTENTION:
        s->dst = s->src = op->heads * op->head_dim;
        return kv_is(p, op) && op->heads > 0 && op->heads % p->kv[op->layer].kv_heads == 0;
    case IM__OP_GLU: s->dst = s->src = s->src2 = own; return own > 0;
    case IM__OP_ADD:
        s->dst = s->src = own;
        s->reads_dst = true;
        return own > 0;
    case IM__OP_SCALE: s->dst = s->src = own; return own > 0;
    case IM__OP_SOFTCAP:
        s->dst = own;
        s->reads_dst = true;
        return own > 0 && op->by > 0;
    case IM__OP_SELECT:
        s->src = width(p, op->src);
        s->src2 = width(p, op->src2);
        return s->src > 0;
    }
    return false;
}

static bool readable(const im__program *p, int value, uint32_t want, const bool *written)
{
    return want == 0 || (width(p, value) == want && written[value]);
}

static im_status check_op(const im__program *p, size_t i, bool *written, im_error *err)
{
    const im__op *op = &p->op[i];
    shape s;
    bool good = wanted(p, op, &s) && (s.dst == 0 || width(p, op->dst) == s.dst) && readable(p, op->src, s.src, written) &&
                readable(p, op->src2, s.src2, written) && (!s.reads_dst || written[op->dst]);
    if (!good) return im__fail(err, IM_ERR_INTERNAL, "program of %s: operation %zu is not well-formed", p->arch, i);
    if (op->kind == IM__OP_SELECT)
        for (size_t v = 0; v < p->value_count; v++) written[v] = written[v] && ((int)v == op->src || (int)v == op->src2);
    if (s.dst != 0) written[op->dst] = true;
    return IM_OK;
}

im_status im__program_check(const im__program *p, im_error *err)
{
    bool *written = im__calloc(p->value_count, sizeof *written);
    if (written == NULL) return im__fail(err, IM_ERR_MEMORY, "out of memory");
    im_status status = IM_OK;
    size_t selects = 0;
    for (size_t i = 0; i < p->op_count && status == IM_OK; i++) {
        status = check_op(p, i, written, err);
        selects += p->op[i].kind == IM__OP_SELECT;
    }
    if (status == IM_OK && (selects != 1 || width(p, p->logits) != p->vocab || !written[p->logits]))
        status = im__fail(err, IM_ERR_INTERNAL, "program of %s: no logits at its end", p->arch);
    im__free(written);
    return status;
}
