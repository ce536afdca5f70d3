/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/lower.h"

#include "num/dtype.h"

typedef struct lowering {
    const im__program *p;
    im__lowered *out;
    uint8_t *fresh; /* [value_count] planes of the quantised form that belong to the present contents */
    bool selected;
} lowering;

static im__phase_kind kind_of(const im__op *op)
{
    switch (op->kind) {
    case IM__OP_MATMUL: return IM__PHASE_MATMUL;
    case IM__OP_ATTENTION: return IM__PHASE_ATTENTION;
    case IM__OP_SELECT: return IM__PHASE_SELECT;
    default: return IM__PHASE_ROWS;
    }
}

/* Whether a product may join the phase at the end: none there writes what it reads or reads what it writes. */
static bool independent(const lowering *l, const im__phase *phase, const im__op *op)
{
    for (size_t i = phase->first; i < phase->first + phase->count; i++) {
        const im__op *other = l->out->action[i].op;
        if (other->dst == op->src || other->src == op->dst || other->dst == op->dst) return false;
    }
    return true;
}

static void append(lowering *l, im__phase_kind kind, im__action action)
{
    im__lowered *out = l->out;
    im__phase *last = out->phase_count > 0 ? &out->phase[out->phase_count - 1] : NULL;
    bool joins = last != NULL && last->kind == kind &&
                 (kind == IM__PHASE_ROWS || (kind == IM__PHASE_MATMUL && independent(l, last, action.op)));
    if (!joins) {
        last = &out->phase[out->phase_count++];
        *last = (im__phase){.kind = kind, .first = out->action_count, .selected = l->selected};
    }
    out->action[out->action_count++] = action;
    last->count++;
}

static void lower_op(lowering *l, const im__op *op)
{
    bool quantised = op->kind == IM__OP_MATMUL && !im__dtype_is_float(l->p->matrix[op->weight].w.dtype);
    uint8_t planes = quantised ? op->wide ? 2 : 1 : 0;
    if (quantised && l->fresh[op->src] < planes) {
        append(l, IM__PHASE_ROWS, (im__action){.op = NULL, .value = op->src, .wide = op->wide});
        l->fresh[op->src] = planes;
        if (l->out->planes[op->src] < planes) l->out->planes[op->src] = planes;
    }
    append(l, kind_of(op), (im__action){.op = op, .value = IM__NONE});
    if (op->dst != IM__NONE) l->fresh[op->dst] = 0;
    if (op->kind == IM__OP_SELECT) {
        l->selected = true;
        for (size_t v = 0; v < l->p->value_count; v++) l->fresh[v] = 0;
    }
}

im_status im__lower(const im__program *p, im__lowered *out, im_error *err)
{
    lowering l = {.p = p, .out = out, .fresh = im__calloc(p->value_count, sizeof(uint8_t))};
    /* Each operation gives at most one quantisation beside itself. */
    *out = (im__lowered){.phase = im__calloc(2 * p->op_count, sizeof *out->phase),
                         .action = im__calloc(2 * p->op_count, sizeof *out->action),
                         .planes = im__calloc(p->value_count, sizeof(uint8_t))};
    im_status status = IM_OK;
    if (l.fresh == NULL || out->phase == NULL || out->action == NULL || out->planes == NULL) {
        im__lowered_clear(out);
        status = im__fail(err, IM_ERR_MEMORY, "out of memory");
    } else {
        for (size_t i = 0; i < p->op_count; i++) lower_op(&l, &p->op[i]);
    }
    im__free(l.fresh);
    return status;
}

void im__lowered_clear(im__lowered *l)
{
    im__free(l->phase);
    im__free(l->action);
    im__free(l->planes);
    *l = (im__lowered){0};
}
