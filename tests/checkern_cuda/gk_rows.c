/* SPDX-License-Identifier: Apache-2.0
 *
 * Lists of actions on rows, selection and the greedy choice. A list is written once: each builder adds an action for the kernel and does the same with the plain C
 * functions on the host's copy of the values.
 */
#include "backend/cuda/kernels/argmax.h"
#include "backend/cuda/kernels/rows.h"
#include "backend/cuda/kernels/select.h"
#include "backend/cuda/layout.h"
#include "gk.h"
#include "num/dtype.h"
#include "num/real.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { VALUES = 12, ACTIONS = 24, TABLE = 4, PHYSICAL = 16 };

typedef struct value {
    uint32_t width;
    float *now, *before;
} value;

typedef struct list {
    gk_test *t;
    im__ops ops;
    uint32_t rows; /* that the list runs on */
    bool selected; /* they are some of the step's */
    gk_step step;
    value value[VALUES];
    size_t values;
    uint64_t value_at[VALUES];
    im__cuda_action action[ACTIONS];
    int dst[ACTIONS], src[ACTIONS], src2[ACTIONS]; /* -1: none */
    size_t actions;
    /* what must be there in the end, besides values */
    float *cosine, *sine;
} list;

static uint32_t origin(const list *l, uint32_t r) { return l->selected ? l->step.source[r] : r; }

static list *list_new(gk_test *t, uint32_t rows, bool selected)
{
    list *l = gk_memory(t, sizeof *l);
    *l = (list){.t = t, .rows = rows, .selected = selected};
    im__ops_c(&l->ops);
    uint32_t all = selected ? 2 * rows + 1 : rows;
    l->step = (gk_step){.rows = all, .selected = selected ? rows : 0, .table = TABLE};
    l->step.token = gk_memory(t, all * sizeof(int32_t));
    l->step.position = gk_memory(t, all * sizeof(int32_t));
    l->step.source = gk_memory(t, (rows + 1) * sizeof(uint32_t));
    l->step.pages = gk_memory(t, all * TABLE * IM__CUDA_POOLS * sizeof(int32_t));
    for (uint32_t r = 0; r < all; r++) {
        l->step.token[r] = (int32_t)ck_below(&t->rng, 70);
        l->step.position[r] = (int32_t)(r % 3 == 0 ? ck_below(&t->rng, 64 * TABLE) : (r + 61) % (64 * TABLE));
        for (uint32_t k = 0; k < TABLE * IM__CUDA_POOLS; k++) { /* no two rows share a page; the pools' tables differ */
            uint32_t page = k < TABLE ? k : TABLE * IM__CUDA_POOLS - 1 - k;
            l->step.pages[r * TABLE * IM__CUDA_POOLS + k] = (int32_t)(r * TABLE + page);
        }
    }
    for (uint32_t r = 0; r < rows; r++) l->step.source[r] = selected ? 2 * r + (r > rows / 2) : r;
    return l;
}

static int value_new(list *l, ck_flavour f, uint32_t width)
{
    size_t n = (size_t)l->rows * width;
    value *v = &l->value[l->values];
    v->width = width;
    v->before = gk_floats(l->t, f, n);
    v->now = gk_memory(l->t, n * sizeof(float));
    memcpy(v->now, v->before, n * sizeof(float));
    return (int)l->values++;
}

static float *row_of(const list *l, int v, uint32_t r) { return l->value[v].now + (size_t)r * l->value[v].width; }

static im__cuda_action *add(list *l, im__cuda_action_kind kind, uint32_t width, int dst, int src, int src2)
{
    im__cuda_action *a = &l->action[l->actions];
    *a = (im__cuda_action){.kind = kind, .width = width};
    l->dst[l->actions] = dst, l->src[l->actions] = src, l->src2[l->actions] = src2;
    l->actions++;
    return a;
}

static void norm(list *l, int dst, int src, uint32_t n)
{
    uint32_t width = l->value[dst].width;
    im__cuda_action *a = add(l, IM__CUDA_NORM, width, dst, src, -1);
    float *w = gk_floats(l->t, CK_PLAIN, n);
    a->n = n, a->by = 1e-6f, a->vector = gk_in(l->t, "norm", w, n * sizeof *w);
    for (uint32_t r = 0; r < l->rows; r++) l->ops.rms_norm(row_of(l, dst, r), row_of(l, src, r), w, n, width / n, a->by);
}

static void simple(list *l, im__cuda_action_kind kind, int dst, int src, int src2, float by)
{
    uint32_t n = l->value[dst].width;
    add(l, kind, n, dst, src, src2)->by = by;
    for (uint32_t r = 0; r < l->rows; r++) {
        float *y = row_of(l, dst, r), *x = src < 0 ? NULL : row_of(l, src, r);
        switch (kind) {
        case IM__CUDA_GLU_SILU: l->ops.glu(y, x, row_of(l, src2, r), n, IM__GLU_SILU); break;
        case IM__CUDA_GLU_GELU: l->ops.glu(y, x, row_of(l, src2, r), n, IM__GLU_GELU); break;
        case IM__CUDA_ADD: l->ops.add(y, x, n); break;
        case IM__CUDA_SCALE: l->ops.scale(y, x, n, by); break;
        default: l->ops.softcap(y, n, by); break;
        }
    }
}

static void rope_table(list *l, uint32_t rot_dim)
{
    uint32_t pairs = rot_dim / 2, all = l->step.rows;
    im__cuda_action *a = add(l, IM__CUDA_ROPE_TABLE, 0, -1, -1, -1);
    double *frequency = gk_memory(l->t, pairs * sizeof *frequency);
    for (uint32_t i = 0; i < pairs; i++) frequency[i] = im__rope_frequency(10000.0, i, rot_dim);
    l->cosine = gk_memory(l->t, (size_t)all * pairs * sizeof(float));
    l->sine = gk_memory(l->t, (size_t)all * pairs * sizeof(float));
    memset(l->cosine, 0xff, (size_t)all * pairs * sizeof(float));
    memset(l->sine, 0xff, (size_t)all * pairs * sizeof(float));
    for (uint32_t r = 0; r < l->rows; r++)
        for (uint32_t i = 0; i < pairs; i++) {
            size_t at = (size_t)origin(l, r) * pairs + i;
            im__rope_angle(l->step.position[origin(l, r)], frequency[i], &l->cosine[at], &l->sine[at]);
        }
    a->rot_dim = rot_dim;
    a->frequency = gk_in(l->t, "frequency", frequency, pairs * sizeof *frequency);
    a->cosine = gk_out(l->t, "cosine", GK_F32, l->cosine, (size_t)all * pairs * sizeof(float));
    a->sine = gk_out(l->t, "sine", GK_F32, l->sine, (size_t)all * pairs * sizeof(float));
}

/* By the table that the list has made. */
static void rope(list *l, int v, uint32_t head_dim, const im__cuda_action *table, bool adjacent)
{
    uint32_t width = l->value[v].width, rot_dim = table->rot_dim;
    im__cuda_action *a = add(l, IM__CUDA_ROPE, width, v, -1, -1);
    a->heads = width / head_dim, a->head_dim = head_dim, a->rot_dim = rot_dim, a->adjacent = adjacent;
    a->cosine = table->cosine, a->sine = table->sine;
    for (uint32_t r = 0; r < l->rows; r++) {
        size_t at = (size_t)origin(l, r) * rot_dim / 2;
        l->ops.rope(row_of(l, v, r), a->heads, head_dim, rot_dim, l->cosine + at, l->sine + at, adjacent);
    }
}

static void kv_store(list *l, int k, int v, uint32_t head_dim, bool is_f32)
{
    uint32_t heads = l->value[k].width / head_dim, pages = l->step.rows * TABLE;
    uint64_t plane = (uint64_t)heads * head_dim * 64, stride = 2 * plane + 32;
    size_t size = is_f32 ? 4 : 2, bytes = pages * stride * size;
    unsigned char *before = gk_memory(l->t, bytes), *want = gk_memory(l->t, bytes);
    memset(before, 0x3c, bytes);
    memcpy(want, before, bytes);
    uint64_t clamped = 7, clamped_before = 7;
    for (uint32_t r = 0; r < l->rows; r++) {
        uint32_t o = origin(l, r);
        im__kv_view view = {.type = is_f32 ? IM__KV_F32 : IM__KV_F16,
                            .base = want,
                            .page_stride = stride,
                            .k_offset = 32,
                            .v_offset = 32 + plane,
                            .table = l->step.pages + o * TABLE * IM__CUDA_POOLS + TABLE}; /* the second pool */
        clamped += l->ops.kv_store(&view, heads, head_dim, l->step.position[o], row_of(l, k, r), row_of(l, v, r));
    }
    im__cuda_action *a = add(l, IM__CUDA_KV_STORE, l->value[k].width, -1, k, v);
    a->kv = (im__cuda_kv){.page_stride = stride,
                          .k_offset = 32,
                          .v_offset = 32 + plane,
                          .which = 1,
                          .is_f32 = is_f32,
                          .kv_heads = heads,
                          .head_dim = head_dim};
    a->kv.pool = gk_inout(l->t, "pool", is_f32 ? GK_F32 : GK_F16, before, want, bytes);
    a->kv.clamped = gk_inout(l->t, "clamped", GK_BYTES, &clamped_before, &clamped, sizeof clamped);
}

static void act_into(const im__act *a, size_t row, int8_t *q, im__cuda_group *group, size_t to)
{
    memcpy(q + to * a->n, a->q + row * a->n, a->n);
    for (size_t g = 0; g < a->n / 32; g++)
        group[to * (a->n / 32) + g] =
            (im__cuda_group){a->d[row * a->n / 32 + g], {a->sum[row * a->n / 16 + 2 * g], a->sum[row * a->n / 16 + 2 * g + 1]}};
}

static void quantise(list *l, int src, bool wide)
{
    uint32_t n = l->value[src].width, rest_rows = l->rows + 2, all = wide ? rest_rows + l->rows : l->rows;
    int8_t *q = gk_memory(l->t, (size_t)all * n);
    im__cuda_group *group = gk_memory(l->t, (size_t)all * n / 32 * sizeof *group);
    memset(q, 0xff, (size_t)all * n);
    memset(group, 0xff, (size_t)all * n / 32 * sizeof *group);
    im__act one = im__act_carve(gk_memory(l->t, im__act_bytes(2, n) + 64), 2, n);
    float *rest = gk_memory(l->t, n * sizeof *rest);
    for (uint32_t r = 0; r < l->rows; r++) {
        l->ops.quantise(&one, 0, row_of(l, src, r));
        act_into(&one, 0, q, group, r);
        im__quantise_rest(&one, 0, row_of(l, src, r), rest);
        l->ops.quantise(&one, 1, rest);
        if (wide) act_into(&one, 1, q, group, rest_rows + r);
    }
    im__cuda_action *a = add(l, IM__CUDA_QUANTISE, n, -1, src, -1);
    a->wide = wide;
    a->act = (im__cuda_act){gk_out(l->t, "q", GK_BYTES, q, (size_t)all * n),
                            gk_out(l->t, "group", GK_GROUP, group, (size_t)all * n / 32 * sizeof *group), n, rest_rows};
}

static void embed(list *l, int dst, uint32_t dtype, ck_flavour f, float by)
{
    uint32_t n = l->value[dst].width, vocab = 70;
    im__weight w = {.dtype = dtype, .n_in = n, .n_out = vocab, .row_bytes = im__dtype_row_bytes(dtype, n)};
    unsigned char *data = gk_memory(l->t, vocab * w.row_bytes);
    for (size_t o = 0; o < vocab; o++) ck_weights(&l->t->rng, f, dtype, data + o * w.row_bytes, n);
    w.data = data;
    im__cuda_layout y;
    if (!im__cuda_layout_of(dtype, vocab, n, &y)) gk_fail(l->t, "no layout");
    uint8_t *packed = gk_memory(l->t, y.bytes);
    im__cuda_pack(&w, &y, 0, y.tiles, packed);
    im__cuda_action *a = add(l, IM__CUDA_EMBED, n, dst, -1, -1);
    a->by = by;
    a->matrix = (im__cuda_matrix){gk_in(l->t, "table", packed, y.bytes), y.form, n, vocab, y.unit_bytes, y.tile_bytes, 0};
    for (uint32_t r = 0; r < l->rows; r++) im__embed_row(&w, (size_t)l->step.token[origin(l, r)], by, row_of(l, dst, r));
}

/* More blocks than rows, as a graph has that serves any step. */
static void list_run(list *l)
{
    for (size_t v = 0; v < l->values; v++) {
        size_t bytes = (size_t)l->rows * l->value[v].width * sizeof(float);
        l->value_at[v] = gk_inout(l->t, "value", GK_F32, l->value[v].before, l->value[v].now, bytes);
    }
    for (size_t i = 0; i < l->actions; i++) {
        im__cuda_action *a = &l->action[i];
        if (l->dst[i] >= 0) a->dst = l->value_at[l->dst[i]];
        if (l->src[i] >= 0) a->src = l->value_at[l->src[i]];
        if (l->src2[i] >= 0) a->src2 = l->value_at[l->src2[i]];
    }
    uint64_t actions = gk_in(l->t, "list", l->action, l->actions * sizeof *l->action), step = gk_step_in(l->t, &l->step);
    uint32_t count = (uint32_t)l->actions, selected = l->selected;
    void *params[] = {&actions, &count, &step, &selected};
    gk_run(l->t, "im_rows", &(gk_launch){{l->rows + 3, im__rows_parts(l->action, count, l->rows)}, IM__ROWS_THREADS, 0, params});
}

/* ---- cases ---- */

static void single_actions(gk_test *t, uint32_t rows, uint32_t width, ck_flavour f)
{
    static const im__cuda_action_kind kinds[] = {IM__CUDA_GLU_SILU, IM__CUDA_GLU_GELU, IM__CUDA_ADD, IM__CUDA_SCALE,
                                                 IM__CUDA_SOFTCAP};
    for (size_t i = 0; i < 5; i++) {
        if (!gk_case(t, "rows action %u rows=%u width=%u %s", kinds[i], rows, width, ck_flavour_name(f))) continue;
        list *l = list_new(t, rows, i == 2);
        int a = value_new(l, f, width), b = value_new(l, CK_PLAIN, width), y = value_new(l, f, width);
        simple(l, kinds[i], y, a, b, 0.37f);
        list_run(l);
    }
    if (gk_case(t, "rows norm rows=%u width=%u %s", rows, width, ck_flavour_name(f))) {
        list *l = list_new(t, rows, false);
        int x = value_new(l, f, width), y = value_new(l, CK_PLAIN, width);
        norm(l, y, x, width);
        norm(l, x, x, width);
        list_run(l);
    }
    for (int wide = 0; wide < 2 && width % 32 == 0; wide++) {
        if (!gk_case(t, "rows quantise rows=%u width=%u wide=%d %s", rows, width, wide, ck_flavour_name(f))) continue;
        list *l = list_new(t, rows, wide != 0);
        quantise(l, value_new(l, f, width), wide != 0);
        list_run(l);
    }
}

static void embeddings(gk_test *t)
{
    static const uint32_t dtypes[] = {IM__Q4_0,    IM__Q4_1,    IM__Q5_0, IM__Q5_1,   IM__Q8_0,   IM__Q2_K,  IM__Q3_K,
                                      IM__Q4_K,    IM__Q5_K,    IM__Q6_K, IM__IQ4_NL, IM__IQ4_XS, IM__MXFP4, IM__AFFINE2,
                                      IM__AFFINE4, IM__AFFINE8, IM__F32,  IM__F16,    IM__BF16};
    for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++)
        for (uint32_t i = 0; i < 2; i++) {
            uint32_t block = im__dtype_get(dtypes[d])->block_len, n = (block == 256  ? 512
                                                                       : block == 64 ? 320
                                                                       : block == 32 ? 288
                                                                                     : 259) *
                                                                      (i + 1);
            if (!gk_case(t, "rows embed %s %u", im__dtype_get(dtypes[d])->name, n)) continue;
            list *l = list_new(t, 3, false);
            int x = value_new(l, CK_PLAIN, n);
            embed(l, x, dtypes[d], i == 0 ? CK_PLAIN : CK_EXTREME, i == 0 ? 1.0f : 33.94113f);
            if (n % 32 == 0) quantise(l, x, true);
            list_run(l);
        }
}

/* What a layer of Gemma asks for: norms around the residual stream, heads turned and stored, the gate. */
static void layer_lists(gk_test *t, uint32_t rows, uint32_t hidden, uint32_t head_dim, uint32_t heads, bool selected, bool adjacent)
{
    if (gk_case(t, "rows residual rows=%u hidden=%u selected=%d", rows, hidden, selected)) {
        list *l = list_new(t, rows, selected);
        int y = value_new(l, CK_PLAIN, hidden), x = value_new(l, CK_PLAIN, hidden), h = value_new(l, CK_ZEROS, hidden),
            u = value_new(l, CK_PLAIN, hidden);
        norm(l, u, y, hidden);
        simple(l, IM__CUDA_ADD, x, u, -1, 0);
        norm(l, h, x, hidden);
        quantise(l, h, false);
        quantise(l, h, true);
        simple(l, IM__CUDA_SCALE, y, h, -1, 0.5f);
        simple(l, IM__CUDA_ADD, y, x, -1, 0);
        quantise(l, y, true);
        list_run(l);
    }
    for (int is_f32 = 0; is_f32 < 2; is_f32++) {
        if (!gk_case(t, "rows heads rows=%u dim=%u heads=%u selected=%d adjacent=%d f32=%d", rows, head_dim, heads, selected,
                     adjacent, is_f32))
            continue;
        list *l = list_new(t, rows, selected);
        int q = value_new(l, CK_PLAIN, head_dim * heads), k = value_new(l, CK_SPIKES, head_dim * 2),
            v = value_new(l, is_f32 ? CK_EXTREME : CK_NONFINITE, head_dim * 2);
        rope_table(l, head_dim / 4 * 2);
        const im__cuda_action *table = &l->action[l->actions - 1];
        norm(l, q, q, head_dim);
        norm(l, k, k, head_dim);
        rope(l, q, head_dim, table, adjacent);
        rope(l, k, head_dim, table, adjacent);
        kv_store(l, k, v, head_dim, is_f32);
        list_run(l);
    }
}

static void long_list(gk_test *t)
{
    if (!gk_case(t, "rows a list longer than what a block keeps")) return;
    list *l = list_new(t, 2, false);
    int a = value_new(l, CK_PLAIN, 96), b = value_new(l, CK_PLAIN, 96);
    for (int i = 0; i < 20; i++)
        simple(l, i % 2 == 0 ? IM__CUDA_ADD : IM__CUDA_SCALE, i % 3 == 0 ? a : b, i % 3 == 0 ? b : a, -1, 0.75f);
    quantise(l, b, true);
    list_run(l);
}

/* Groups whose largest magnitude lies at the borders of the rule, and a quantisation of another value than the action before it made. */
static void borders(gk_test *t)
{
    static const uint32_t most[] = {0x1f800000, 0x1f7fffff, 0x1f000000, 0x1effffff, 0x7f7fffff, 0x7f800000,
                                    0x7fc00000, 0x00000001, 0x00800000, 0x80000000, 0xff7fffff, 0x20000000};
    enum { N = sizeof most / sizeof *most };
    if (!gk_case(t, "rows quantise at the borders")) return;
    list *l = list_new(t, 1, false);
    int x = value_new(l, CK_PLAIN, N * 32), y = value_new(l, CK_PLAIN, N * 32);
    for (size_t g = 0; g < N; g++)
        for (size_t i = 0; i < 32; i++) {
            float v = ldexpf(im__f32_of_bits(most[g]), i == g ? 0 : -(int)(i % 7) - 1);
            l->value[x].before[g * 32 + i] = l->value[x].now[g * 32 + i] = i % 3 == 1 ? -v : v;
        }
    simple(l, IM__CUDA_SCALE, y, y, -1, 0.5f);
    quantise(l, x, true);
    list_run(l);
}

void gk_rows(gk_test *t)
{
    static const uint32_t widths[] = {32, 6, 1152, 97, 640, 6912, 260};
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++)
        for (int f = 0; f <= CK_NONFINITE; f++) {
            if (t->machine->emulated && f != CK_NONFINITE && (f + i) % 3 != 0) continue;
            single_actions(t, 1 + (uint32_t)(i + (size_t)f) % 3, widths[i], (ck_flavour)f);
        }
    borders(t);
    embeddings(t);
    layer_lists(t, 1, 1152, 256, 4, false, false);
    layer_lists(t, 3, 2560, 64, 9, true, true);
    layer_lists(t, 2, 5376, 128, 3, false, true);
    layer_lists(t, 2, 5408, 32, 1, true, false);
    if (!t->machine->emulated) layer_lists(t, 700, 1152, 256, 4, true, false);
    long_list(t);
}

void gk_select(gk_test *t)
{
    static const uint32_t shapes[][3] = {{1, 1, 5}, {7, 3, 130}, {12, 12, 300}, {40, 13, 1152}}; /* rows, selected, width */
    for (size_t i = 0; i < 4; i++)
        for (int in_place = 0; in_place < 2; in_place++) {
            uint32_t rows = shapes[i][0], selected = shapes[i][1], width = shapes[i][2];
            if (!gk_case(t, "select %u of %u rows of %u in place=%d", selected, rows, width, in_place)) continue;
            float *x = gk_floats(t, CK_PLAIN, (size_t)rows * width), *want = gk_memory(t, (size_t)rows * width * sizeof(float));
            uint32_t *source = gk_memory(t, selected * sizeof *source);
            memcpy(want, x, (size_t)rows * width * sizeof(float));
            for (uint32_t r = 0; r < selected; r++) {
                source[r] = rows - selected + r - (r < selected / 2 ? (rows - selected) / 2 : 0);
                memcpy(want + (size_t)r * width, x + (size_t)source[r] * width, width * sizeof(float));
            }
            uint64_t from, to;
            if (in_place) {
                from = to = gk_inout(t, "x", GK_F32, x, want, (size_t)rows * width * sizeof(float));
            } else {
                from = gk_in(t, "x", x, (size_t)rows * width * sizeof(float));
                to = gk_out(t, "y", GK_F32, want, (size_t)selected * width * sizeof(float));
            }
            uint64_t step = gk_step_in(t, &(gk_step){.rows = rows, .selected = selected, .source = source});
            void *params[] = {&from, &to, &width, &step};
            gk_run(t, "im_select", &(gk_launch){{im__select_blocks(width), 1}, IM__SELECT_THREADS, 0, params});
        }
}

/* What is hostile to a choice: equal largest logits in different blocks, zeros of both signs, infinities, a NaN anywhere. */
static void hostile_logits(ck_rng *rng, float *x, uint32_t n, int kind)
{
    uint32_t a = ck_below(rng, n), b = ck_below(rng, n);
    switch (kind) {
    case 1: x[a] = x[b] = 1e9f; break;
    case 2:
        for (uint32_t i = 0; i < n; i++) x[i] = i % 3 == 0 ? -0.0f : i == a ? 0.0f : -1.0f;
        break;
    case 3: x[a] = NAN; break;
    case 4: x[a] = x[b] = INFINITY; break;
    case 5:
        for (uint32_t i = 0; i < n; i++) x[i] = -INFINITY;
        break;
    case 6: x[n - 1] = 1e30f; break;
    case 7: x[n - 1] = -NAN, x[0] = INFINITY; break;
    default: break;
    }
}

void gk_argmax(gk_test *t)
{
    enum { ROWS = 8 };
    static const uint32_t widths[] = {1, 31, 1000, 8192, 8193, 49152, 262144};
    im__ops ops;
    im__ops_c(&ops);
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++) {
        uint32_t n = widths[i], rows = ROWS;
        if ((t->machine->emulated && n > 9000) || !gk_case(t, "argmax of %u", n)) continue;
        float *x = gk_floats(t, CK_PLAIN, (size_t)ROWS * n);
        int32_t want[ROWS];
        for (int r = 0; r < ROWS; r++) {
            hostile_logits(&t->rng, x + (size_t)r * n, n, r);
            want[r] = ops.argmax(x + (size_t)r * n, n);
        }
        uint64_t from = gk_in(t, "logits", x, (size_t)ROWS * n * sizeof(float)), to = gk_out(t, "out", GK_BYTES, want, sizeof want);
        void *params[] = {&from, &n, &rows, &to};
        gk_run(t, "im_argmax", &(gk_launch){{im__argmax_blocks(n), ROWS}, IM__ARGMAX_THREADS, 0, params});
    }
}

/* ---- timing: the lists of a layer of 1B, for one row and for many ---- */

enum { HIDDEN = 1152, FF = 6912, HEAD = 256, HEADS = 4, MOST_ROWS = 2048, LISTS = 3, REPEAT = 20 };

typedef struct timed_list {
    const char *name;
    im__cuda_action action[5];
    uint32_t count;
    double bytes; /* of a row, at least */
} timed_list;

typedef struct timed_memory {
    uint64_t a, b, c, weights, act, pool, list, step;
} timed_memory;

static void lists_of_a_layer(const timed_memory *at, timed_list l[LISTS])
{
    im__cuda_act hidden = {at->act, at->act + (32u << 20), HIDDEN, MOST_ROWS}, ff = {at->act, at->act + (32u << 20), FF, MOST_ROWS};
    im__cuda_action norm = {
        .kind = IM__CUDA_NORM, .width = HIDDEN, .n = HIDDEN, .by = 1e-6f, .dst = at->c, .src = at->a, .vector = at->weights};
    im__cuda_action head = {
        .kind = IM__CUDA_NORM, .width = HEADS * HEAD, .n = HEAD, .by = 1e-6f, .dst = at->a, .src = at->a, .vector = at->weights};
    im__cuda_action rope = {.kind = IM__CUDA_ROPE,
                            .width = HEADS * HEAD,
                            .heads = HEADS,
                            .head_dim = HEAD,
                            .rot_dim = HEAD,
                            .dst = at->a,
                            .cosine = at->c,
                            .sine = at->c};
    l[0] = (timed_list){"residual", {norm}, 4, HIDDEN * (5 * 4.0 + 1.25)};
    l[0].action[1] = (im__cuda_action){.kind = IM__CUDA_ADD, .width = HIDDEN, .dst = at->b, .src = at->c};
    l[0].action[2] = norm, l[0].action[2].src = at->b;
    l[0].action[3] = (im__cuda_action){.kind = IM__CUDA_QUANTISE, .width = HIDDEN, .src = at->c, .act = hidden};
    l[1] = (timed_list){
        "gate", {{.kind = IM__CUDA_GLU_GELU, .width = FF, .dst = at->a, .src = at->a, .src2 = at->b}}, 2, FF * (3 * 4.0 + 1.25)};
    l[1].action[1] = (im__cuda_action){.kind = IM__CUDA_QUANTISE, .width = FF, .src = at->a, .act = ff};
    l[2] = (timed_list){"heads", {head, head, rope, rope}, 5, (HEADS + 1) * HEAD * 8.0 + HEAD * 8.0};
    l[2].action[1].width = l[2].action[3].width = HEAD;
    l[2].action[1].dst = l[2].action[1].src = l[2].action[3].dst = at->b;
    l[2].action[3].heads = 1;
    l[2].action[4] = (im__cuda_action){.kind = IM__CUDA_KV_STORE, .width = HEAD, .src = at->b, .src2 = at->c};
    l[2].action[4].kv =
        (im__cuda_kv){.pool = at->pool, .v_offset = HEAD * 64, .kv_heads = 1, .head_dim = HEAD, .clamped = at->weights + 65536};
}

static void time_list(gk_machine *m, const timed_memory *at, const timed_list *l, uint32_t rows)
{
    uint64_t actions = at->list, step = at->step;
    uint32_t count = l->count, selected = 0, parts = im__rows_parts(l->action, count, rows);
    im__cuda_step header = {.rows = rows, .row = step + 4096, .pages = step + 4096 + MOST_ROWS * sizeof(im__cuda_row)};
    void *params[] = {&actions, &count, &step, &selected};
    gk_launch launch[REPEAT];
    double us = 0;
    for (int i = 0; i < REPEAT; i++) launch[i] = (gk_launch){{rows, parts}, IM__ROWS_THREADS, 0, params};
    if (m->in(m, actions, l->action, count * sizeof *l->action) && m->in(m, step, &header, sizeof header) &&
        m->time(m, "im_rows", launch, REPEAT, 7, &us))
        printf("rows %-8s rows=%-5u parts=%-2u %8.2f us  %7.1f GB/s\n", l->name, rows, parts, us / REPEAT,
               rows * l->bytes * REPEAT / us * 1e-3);
    else
        printf("rows: %s\n", m->said);
}

void gk_time_rows(gk_machine *m)
{
    const size_t row_bytes = (size_t)MOST_ROWS * FF * 4;
    uint64_t memory = 0;
    static float some[16384];
    if (!m->take(m, 7 * row_bytes, &memory)) {
        printf("rows: %s\n", m->said);
        return;
    }
    for (size_t i = 0; i < 16384; i++) some[i] = (float)(i % 37) * 0.1f - 1.7f;
    for (size_t at = 0; at + sizeof some <= 4 * row_bytes; at += sizeof some) m->in(m, memory + at, some, sizeof some);
    timed_memory at = {memory,
                       memory + row_bytes,
                       memory + 2 * row_bytes,
                       memory + 3 * row_bytes,
                       memory + 4 * row_bytes,
                       memory + 5 * row_bytes,
                       memory + 6 * row_bytes,
                       memory + 6 * row_bytes + 65536};
    static unsigned char zeros[MOST_ROWS * (sizeof(im__cuda_row) + 4)];
    m->in(m, at.step + 4096, zeros, sizeof zeros);
    static timed_list lists[LISTS];
    lists_of_a_layer(&at, lists);
    for (uint32_t rows = 1; rows <= MOST_ROWS; rows *= rows < 8 ? 8 : 16)
        for (int k = 0; k < LISTS; k++) time_list(m, &at, &lists[k], rows);
    m->give(m, memory);
}
