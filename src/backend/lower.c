/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/lower.h"

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

/* Rows of quantised form that a product reads: 0, 1, or 2 for a wide one. */
static uint8_t planes_of(const im__program *p, const im__op *op)
{
    if (op->kind != IM__OP_MATMUL || im__dtype_is_float(p->matrix[op->weight].w.dtype)) return 0;
    return op->wide ? 2 : 1;
}

/* The most that products from `op` on read of the present contents of its source, so that it is quantised once for all of them. */
static uint8_t planes_ahead(const im__program *p, const im__op *op)
{
    int value = op->src;
    uint8_t most = 0;
    for (; op < p->op + p->op_count && op->kind != IM__OP_SELECT; op++) {
        if (op->src == value && planes_of(p, op) > most) most = planes_of(p, op);
        if (op->dst == value) break;
    }
    return most;
}

static void lower_op(lowering *l, const im__op *op)
{
    /* An operation without a source reads none. */
    if (planes_of(l->p, op) > 0 && planes_of(l->p, op) > l->fresh[op->src]) {
        uint8_t planes = planes_ahead(l->p, op);
        append(l, IM__PHASE_ROWS, (im__action){.op = NULL, .value = op->src, .wide = planes > 1});
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
