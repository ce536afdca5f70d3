/* SPDX-License-Identifier: Apache-2.0
 *
 * One step: the phases of the lowered program over the rows. Phase 0 makes the rotation tables of the step's positions.
 */
#include "backend/cpu/cpu.h"

#include "num/dtype.h"
#include "num/real.h"

#include <string.h>

#define ROWS_A_UNIT 4    /* of a rows phase */
#define UNITS_A_THREAD 6 /* of a matmul phase, so that a slow thread does not hold up the rest */
/* Of a matmul phase: many rows are cut as well, since kernels prepare rows once for all outputs of a unit. */
#define ROWS_A_PART 128

/* ---- row sets ---------------------------------------------------------------------------------------------------------------- */

/* Query rows that attention takes together, sharing the reading of keys and values: what one call takes in a piece, but enough tiles for
 * all threads, since later ones see more keys. */
static size_t tile_rows(const im__cpu *c, size_t rows)
{
    size_t n = IM__ATTENTION_TILE;
    for (size_t i = 0; i < c->p->op_count; i++) {
        const im__op *op = &c->p->op[i];
        if (op->kind != IM__OP_ATTENTION) continue;
        size_t kv_heads = c->p->kv[op->layer].kv_heads, most = IM__ATTENTION_TILE * kv_heads / op->heads;
        if (most < n) n = most;
        while (c->options.threads > 1 && n > 4 && rows * kv_heads < n * 4 * (size_t)c->options.threads) n /= 2;
    }
    return n < 4 ? 4 : n;
}

static void add_row(im__row_set *set, const im__row *row, size_t source, size_t most)
{
    size_t at = set->rows++;
    set->row[at] = row;
    set->source[at] = (uint32_t)source;
    set->position[at] = row->position;
    struct im__tile *last = set->tiles > 0 ? &set->tile[set->tiles - 1] : NULL;
    if (last != NULL && set->row[last->begin]->seq == row->seq && last->end - last->begin < most) {
        last->end++;
    } else {
        set->tile[set->tiles++] = (struct im__tile){(uint32_t)at, (uint32_t)at + 1};
    }
}

static void fill_row_sets(im__cpu *c, const im__step *step)
{
    size_t most = tile_rows(c, step->rows);
    c->all.rows = c->all.tiles = c->selected.rows = c->selected.tiles = 0;
    for (size_t r = 0; r < step->rows; r++) {
        add_row(&c->all, &step->row[r], r, most);
        if (step->row[r].wants_logits) add_row(&c->selected, &step->row[r], r, most);
    }
}

static const im__row_set *rows_of(const im__cpu *c, const im__phase *phase) { return phase->selected ? &c->selected : &c->all; }

/* ---- rows phases --------------------------------------------------------------------------------------------------------------- */

static float *value_row(const im__cpu *c, int value, size_t row)
{
    if (value == IM__NONE) return NULL;
    size_t width = c->p->value[value].width;
    return (value == c->p->logits ? c->step->logits : c->value[value]) + row * width;
}

static im__kv_view view_of(const im__cpu *c, const im__row *row, int layer)
{
    im__pool_kind pool = im__kv_layer_pool(c->p, (size_t)layer);
    const im__kv_layer *kv = &c->p->kv[layer];
    size_t size = im__kv_type_size(kv->type), offset = c->layer_offset[layer] / size;
    return (im__kv_view){.type = kv->type,
                         .base = c->pool[pool],
                         .page_stride = c->page_bytes[pool] / size,
                         .k_offset = offset,
                         .v_offset = offset + (size_t)kv->kv_heads * kv->head_dim * IM__PAGE,
                         .table = c->step->seq[row->seq].pages[pool]};
}

static void run_kv_store(im__cpu *c, const im__op *op, const im__row *row, size_t r)
{
    im__kv_view kv = view_of(c, row, op->layer);
    size_t n = c->ops.kv_store(&kv, c->p->kv[op->layer].kv_heads, op->head_dim, row->position, value_row(c, op->src, r),
                               value_row(c, op->src2, r));
    if (n > 0) atomic_fetch_add_explicit(&c->clamped, n, memory_order_relaxed);
}

static void run_rope(im__cpu *c, const im__op *op, size_t source, float *x)
{
    const im__rope *rope = &c->p->rope[op->rope];
    size_t at = source * rope->rot_dim / 2;
    c->ops.rope(x, op->heads, op->head_dim, rope->rot_dim, c->cosine[op->rope] + at, c->sine[op->rope] + at, rope->adjacent);
}

static void run_row_op(im__cpu *c, const im__op *op, const im__row_set *set, size_t r)
{
    float *dst = value_row(c, op->dst, r), *src = value_row(c, op->src, r), *src2 = value_row(c, op->src2, r);
    size_t width = op->dst == IM__NONE ? 0 : c->p->value[op->dst].width;
    switch (op->kind) {
    case IM__OP_EMBED: im__embed_row(&c->p->matrix[op->weight].w, (size_t)set->row[r]->token, op->by, dst); break;
    case IM__OP_NORM: c->ops.rms_norm(dst, src, c->p->vector[op->vector].data, op->n, width / op->n, op->by); break;
    case IM__OP_ROPE: run_rope(c, op, set->source[r], dst); break;
    case IM__OP_KV_STORE: run_kv_store(c, op, set->row[r], r); break;
    case IM__OP_GLU: c->ops.glu(dst, src, src2, width, op->glu); break;
    case IM__OP_ADD: c->ops.add(dst, src, width); break;
    case IM__OP_SCALE: c->ops.scale(dst, src, width, op->by); break;
    case IM__OP_SOFTCAP: c->ops.softcap(dst, width, op->by); break;
    case IM__OP_MATMUL:
    case IM__OP_ATTENTION:
    case IM__OP_SELECT: break; /* phases of their own */
    }
}

static float *scratch_of(const im__cpu *c, int thread) { return c->scratch + (size_t)thread * c->scratch_floats; }

/* Row r of `rows`; of a wide value also what that lost, as row rows + r. */
static void run_quantise(im__cpu *c, const im__action *a, size_t r, size_t rows, float *rest)
{
    const float *x = value_row(c, a->value, r);
    c->ops.quantise(&c->act[a->value], r, x);
    if (!a->wide) return;
    im__quantise_rest(&c->act[a->value], r, x, rest);
    c->ops.quantise(&c->act[a->value], rows + r, rest);
}

static void run_rows(im__cpu *c, const im__phase *phase, size_t unit, int thread)
{
    const im__row_set *set = rows_of(c, phase);
    size_t begin = unit * ROWS_A_UNIT, end = begin + ROWS_A_UNIT < set->rows ? begin + ROWS_A_UNIT : set->rows;
    for (size_t r = begin; r < end; r++)
        for (size_t i = phase->first; i < phase->first + phase->count; i++) {
            const im__action *a = &c->lowered.action[i];
            if (a->op != NULL)
                run_row_op(c, a->op, set, r);
            else
                run_quantise(c, a, r, set->rows, scratch_of(c, thread));
        }
}

/* ---- matmul phases ---------------------------------------------------------------------------------------------------------------- */

/* How a product is cut into units: parts of its rows times blocks of its outputs. */
typedef struct cut {
    size_t parts, outputs, units;
} cut;

static size_t outputs_of(const im__cpu *c, const im__phase *phase)
{
    size_t n = 0;
    for (size_t i = phase->first; i < phase->first + phase->count; i++)
        n += c->weights.matrix[c->lowered.action[i].op->weight].n_out;
    return n;
}

/* Enough units in the phase for all threads; blocks of one product are of nearly the same size, a multiple of 16 outputs. */
static cut cut_of(const im__cpu *c, const im__phase *phase, const im__op *op)
{
    size_t threads = (size_t)c->options.threads, rows = rows_of(c, phase)->rows, n_out = c->weights.matrix[op->weight].n_out;
    size_t parts = threads == 1 ? 1 : (rows + ROWS_A_PART - 1) / ROWS_A_PART;
    size_t n = threads == 1 ? IM__MOST_OUTPUTS : outputs_of(c, phase) * parts / (threads * UNITS_A_THREAD);
    n = n < 16 ? 16 : n > IM__MOST_OUTPUTS ? IM__MOST_OUTPUTS : n;
    size_t blocks = (n_out + n - 1) / n, outputs = ((n_out + blocks - 1) / blocks + 15) & ~(size_t)15;
    return (cut){parts, outputs, parts * ((n_out + outputs - 1) / outputs)};
}

/* Outputs begin .. end of a product, for all rows of `in`. */
static void multiply(const im__cpu *c, const im__op *op, const im__matmul_in *in, const float *bias, float *y, size_t y_stride,
                     size_t begin, size_t end)
{
    const im__matmul_kernel *kernel = c->weights.kernel[op->weight];
    (kernel != NULL ? kernel->run : im__matmul_c)(&c->weights.matrix[op->weight], in, bias, y, y_stride, begin, end);
}

static im__act rows_from(const im__act *act, size_t row)
{
    return (im__act){act->n, act->q + row * act->n, act->d + row * (act->n / IM__ACT_GROUP), act->sum + row * (act->n / 16)};
}

/* A wide product of `rows` rows from `first` on: with their rests in one go where that is all rows, so that the weights are read once; then the
 * sums of both. */
static void multiply_wide(const im__cpu *c, const im__op *op, size_t first, size_t rows, size_t all, const float *bias,
                          size_t begin, size_t end, float *scratch)
{
    size_t n = end - begin;
    im__act act = rows_from(&c->act[op->src], first), rests = rows_from(&c->act[op->src], all + first);
    im__matmul_in in = {.act = &act, .rows = rows == all ? 2 * rows : rows};
    multiply(c, op, &in, NULL, scratch - begin, n, begin, end);
    in.act = &rests;
    if (rows != all) multiply(c, op, &in, NULL, scratch + rows * n - begin, n, begin, end);
    for (size_t r = 0; r < rows; r++) {
        const float *whole = scratch + r * n, *rest = scratch + (rows + r) * n;
        float *y = value_row(c, op->dst, first + r) + begin;
        for (size_t i = 0; i < n; i++) y[i] = whole[i] + rest[i];
        for (size_t i = 0; bias != NULL && i < n; i++) y[i] = y[i] + bias[begin + i];
    }
}

static void run_matmul_unit(im__cpu *c, const im__op *op, size_t all, const cut *by, size_t unit, int thread)
{
    const im__weight *w = &c->weights.matrix[op->weight];
    const float *bias = op->vector == IM__NONE ? NULL : c->p->vector[op->vector].data;
    size_t part = unit % by->parts, first = all * part / by->parts, rows = all * (part + 1) / by->parts - first;
    size_t begin = unit / by->parts * by->outputs, end = begin + by->outputs < w->n_out ? begin + by->outputs : w->n_out;
    size_t width = c->p->value[op->src].width;
    if (im__dtype_is_float(w->dtype)) {
        im__matmul_in in = {.x = c->value[op->src] + first * width, .x_stride = width, .rows = rows};
        multiply(c, op, &in, bias, value_row(c, op->dst, first), w->n_out, begin, end);
    } else if (op->wide) {
        multiply_wide(c, op, first, rows, all, bias, begin, end, scratch_of(c, thread));
    } else {
        im__act act = rows_from(&c->act[op->src], first);
        multiply(c, op, &(im__matmul_in){.act = &act, .rows = rows}, bias, value_row(c, op->dst, first), w->n_out, begin, end);
    }
}

static void run_matmul(im__cpu *c, const im__phase *phase, size_t unit, int thread)
{
    for (size_t i = phase->first; i < phase->first + phase->count; i++) {
        const im__op *op = c->lowered.action[i].op;
        cut by = cut_of(c, phase, op);
        if (unit < by.units) {
            run_matmul_unit(c, op, rows_of(c, phase)->rows, &by, unit, thread);
            return;
        }
        unit -= by.units;
    }
}

/* ---- attention and select -------------------------------------------------------------------------------------------------------------- */

/* Into how many parts the query heads of one KV head are split: few rows on few KV heads would leave threads idle. */
static size_t head_parts(const im__cpu *c, const im__row_set *set, const im__op *op)
{
    size_t kv_heads = c->p->kv[op->layer].kv_heads, group = op->heads / kv_heads;
    size_t wanted = (2 * (size_t)c->options.threads + set->tiles * kv_heads - 1) / (set->tiles * kv_heads);
    return c->options.threads == 1 ? 1 : wanted < group ? wanted : group;
}

/* One tile of rows, one KV head, one part of its query heads. Heads do not influence each other, so the part is an attention of its own: fewer heads, one KV
 * head. */
static void run_attention(im__cpu *c, const im__phase *phase, size_t unit, int thread)
{
    const im__row_set *set = rows_of(c, phase);
    const im__op *op = c->lowered.action[phase->first].op;
    const im__kv_layer *kv = &c->p->kv[op->layer];
    size_t parts = head_parts(c, set, op), part = unit % parts, kv_head = unit / parts % kv->kv_heads,
           group = op->heads / kv->kv_heads;
    const struct im__tile *tile = &set->tile[unit / parts / kv->kv_heads];
    size_t begin = group * part / parts, end = group * (part + 1) / parts, stride = (size_t)op->heads * op->head_dim;
    size_t at = (kv_head * group + begin) * op->head_dim;
    im__attention a = {.kv = view_of(c, set->row[tile->begin], op->layer),
                       .heads = (uint32_t)(end - begin),
                       .kv_heads = 1,
                       .head_dim = op->head_dim,
                       .window = kv->window,
                       .scale = op->by,
                       .softcap = op->cap,
                       .q = c->value[op->src] + at,
                       .q_stride = stride,
                       .out = c->value[op->dst] + at,
                       .out_stride = stride,
                       .position = set->position};
    a.kv.k_offset += kv_head * op->head_dim * IM__PAGE;
    a.kv.v_offset += kv_head * op->head_dim * IM__PAGE;
    c->ops.attention(&a, tile->begin, tile->end, 0, 1, scratch_of(c, thread));
}

static size_t attention_units(const im__cpu *c, const im__row_set *set, const im__op *op)
{
    return set->tiles * c->p->kv[op->layer].kv_heads * head_parts(c, set, op);
}

static void keep_rows(im__cpu *c, int value)
{
    if (value == IM__NONE) return;
    for (size_t r = 0; r < c->selected.rows; r++) {
        size_t from = c->selected.source[r];
        if (from != r) memcpy(value_row(c, value, r), value_row(c, value, from), c->p->value[value].width * sizeof(float));
    }
}

static void run_select(im__cpu *c, const im__phase *phase)
{
    const im__op *op = c->lowered.action[phase->first].op;
    keep_rows(c, op->src);
    keep_rows(c, op->src2);
}

static void run_rope_tables(im__cpu *c, size_t unit)
{
    size_t begin = unit * ROWS_A_UNIT, end = begin + ROWS_A_UNIT < c->all.rows ? begin + ROWS_A_UNIT : c->all.rows;
    for (size_t i = 0; i < c->p->rope_count; i++) {
        size_t pairs = c->p->rope[i].rot_dim / 2;
        for (size_t r = begin; r < end; r++)
            for (size_t k = 0; k < pairs; k++)
                im__rope_angle(c->all.position[r], c->p->rope[i].frequency[k], &c->cosine[i][r * pairs + k],
                               &c->sine[i][r * pairs + k]);
    }
}

/* ---- the step ----------------------------------------------------------------------------------------------------------------------------- */

static void run_unit(void *ctx, size_t index, size_t unit, int thread)
{
    im__cpu *c = ctx;
    if (index == 0) {
        run_rope_tables(c, unit);
        return;
    }
    const im__phase *phase = &c->lowered.phase[index - 1];
    switch (phase->kind) {
    case IM__PHASE_ROWS: run_rows(c, phase, unit, thread); break;
    case IM__PHASE_MATMUL: run_matmul(c, phase, unit, thread); break;
    case IM__PHASE_ATTENTION: run_attention(c, phase, unit, thread); break;
    case IM__PHASE_SELECT: run_select(c, phase); break;
    }
}

static size_t count_units(const im__cpu *c, const im__phase *phase)
{
    const im__row_set *set = rows_of(c, phase);
    size_t units = 0;
    if (phase->kind == IM__PHASE_SELECT) return 1;
    if (set->rows == 0) return 0;
    if (phase->kind == IM__PHASE_ROWS) return (set->rows + ROWS_A_UNIT - 1) / ROWS_A_UNIT;
    if (phase->kind == IM__PHASE_ATTENTION) return attention_units(c, set, c->lowered.action[phase->first].op);
    for (size_t i = phase->first; i < phase->first + phase->count; i++) units += cut_of(c, phase, c->lowered.action[i].op).units;
    return units;
}

static im_status check_step(const im__cpu *c, const im__step *step, im_error *err)
{
    size_t wanted = 0;
    for (size_t r = 0; r < step->rows; r++) {
        const im__row *row = &step->row[r];
        wanted += row->wants_logits;
        if (row->token < 0 || (uint32_t)row->token >= c->p->vocab || row->position < 0 || row->seq >= step->seqs)
            return im__fail(err, IM_ERR_INTERNAL, "row %zu of a step is out of range", r);
    }
    if (step->rows == 0 || step->rows > c->options.max_rows || wanted > c->options.max_logit_rows)
        return im__fail(err, IM_ERR_INTERNAL, "a step of %zu rows, %zu with logits, exceeds its plan", step->rows, wanted);
    return IM_OK;
}

im_status im__cpu_run(im__backend *b, const im__step *step, im_error *err)
{
    im__cpu *c = (im__cpu *)b;
    IM__TRY(check_step(c, step, err));
    c->step = step;
    fill_row_sets(c, step);
    c->units[0] = (uint32_t)((step->rows + ROWS_A_UNIT - 1) / ROWS_A_UNIT);
    for (size_t i = 0; i < c->lowered.phase_count; i++) c->units[i + 1] = (uint32_t)count_units(c, &c->lowered.phase[i]);
    bool whole = im__team_run(c->team, c->lowered.phase_count + 1, c->units, run_unit, c, step->cancel);
    c->step = NULL;
    return whole ? IM_OK : im__fail(err, IM_ERR_CANCELLED, "cancelled");
}
