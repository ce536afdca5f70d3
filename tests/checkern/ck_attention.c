/* SPDX-License-Identifier: Apache-2.0
 *
 * kv_store and attention over a paged cache. Slots that no position has filled hold NaN, pages that no row can see are not there, and
 * the pages lie in shuffled order: whatever a kernel reads beyond the visible keys shows.
 */
#include "ck_inputs.h"

#include "num/half.h"

#include <string.h>

#define STALE 0x7e01 /* a NaN that an earlier user of the page left behind */
#define STALE_FLOAT 0x7fc00001

static const char *const type_name[] = {[IM__KV_F16] = "f16", [IM__KV_F32] = "f32"};

/* ---- the cache ----------------------------------------------------------------------------------------------------------------- */

typedef struct cache_shape {
    im__kv_type type;
    size_t kv_heads, head_dim, first_page, pages; /* pages before first_page are absent */
} cache_shape;

/* Fills in the view; the memory is an input when `store` is false, else compared. */
static void leave_stale(const im__kv_view *v, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (v->type == IM__KV_F32)
            ((float *)v->base)[i] = im__f32_of_bits(STALE_FLOAT);
        else
            ((uint16_t *)v->base)[i] = STALE;
}

static im__kv_view cache_view(ck_test *t, const cache_shape *c, bool store)
{
    size_t half = c->kv_heads * c->head_dim * IM__PAGE, used = c->pages - c->first_page, spare = ck_below(&t->rng, 3);
    im__kv_view v = {.type = c->type, .k_offset = ck_below(&t->rng, 3) * 8};
    v.v_offset = v.k_offset + half + ck_below(&t->rng, 3) * 8;
    v.page_stride = v.v_offset + half;
    size_t count = (used + spare) * v.page_stride, bytes = count * im__kv_type_size(c->type);
    v.base = store ? ck_inout(t, "cache", c->type == IM__KV_F32 ? CK_F32 : CK_F16, v.page_stride, bytes)
                   : ck_in(t, "cache", bytes, sizeof(float));
    leave_stale(&v, count);
    int32_t *table = ck_in(t, "table", c->pages * sizeof *table, sizeof *table);
    for (size_t p = 0; p < c->first_page; p++) table[p] = -1;
    size_t offset = ck_below(&t->rng, (uint32_t)(used + spare));
    for (size_t p = 0; p < used; p++) table[c->first_page + p] = (int32_t)((p + offset) % (used + spare));
    v.table = table;
    return v;
}

static void cache_set(const im__kv_view *v, size_t at, float x)
{
    if (v->type == IM__KV_F32)
        ((float *)v->base)[at] = x;
    else
        ((uint16_t *)v->base)[at] = im__f16_of_f32(x);
}

static void cache_put(const im__kv_view *v, const cache_shape *c, size_t position, size_t h, const float *k, const float *x)
{
    size_t page = (size_t)v->table[position / IM__PAGE] * v->page_stride, slot = position % IM__PAGE;
    for (size_t d = 0; d < c->head_dim; d++) {
        cache_set(v, page + v->k_offset + (h * c->head_dim + d) * IM__PAGE + slot, k[d]);
        cache_set(v, page + v->v_offset + (h * IM__PAGE + slot) * c->head_dim + d, x[d]);
    }
}

static void cache_fill(ck_test *t, const im__kv_view *v, const cache_shape *c, size_t positions, ck_flavour f)
{
    float k[512], x[512];
    for (size_t p = c->first_page * IM__PAGE; p < positions; p++)
        for (size_t h = 0; h < c->kv_heads; h++) {
            ck_floats(&t->rng, f, k, c->head_dim);
            ck_floats(&t->rng, f, x, c->head_dim);
            for (size_t d = 0; v->type == IM__KV_F16 && d < c->head_dim; d++) { /* what kv_store does: finite */
                k[d] = k[d] > 65504.0f ? 65504.0f : k[d] < -65504.0f ? -65504.0f : k[d];
                x[d] = x[d] > 65504.0f ? 65504.0f : x[d] < -65504.0f ? -65504.0f : x[d];
            }
            cache_put(v, c, p, h, k, x);
        }
}

/* ---- kv_store ------------------------------------------------------------------------------------------------------------------- */

typedef struct store_job {
    im__kv_view kv;
    size_t kv_heads, head_dim;
    int32_t position;
    const float *k, *v;
    int32_t *clamped;
} store_job;

static void store_call(const void *p, const ck_subject *s)
{
    const store_job *j = p;
    *j->clamped = (int32_t)s->ops.kv_store(&j->kv, j->kv_heads, j->head_dim, j->position, j->k, j->v);
}

/* Around the largest finite value of binary16 and around its subnormals. */
static void half_corners(ck_test *t, float *x, size_t n)
{
    static const float corner[] = {65504.0f, 65519.99f,       65520.0f,   65535.0f,     65536.0f,    0x1p-24f,
                                   0x1p-25f, 0x1.000002p-25f, 0x1.8p-24f, 0x1.ff8p-15f, 0x1.ffep-15f};
    for (size_t i = 0; i < n; i++) x[i] = corner[ck_below(&t->rng, 11)] * (ck_below(&t->rng, 2) ? 1.0f : -1.0f);
}

static const float *store_values(ck_test *t, const char *name, int f, size_t n)
{
    float *x = ck_in(t, name, n * sizeof(float), sizeof(float));
    if (f <= CK_NONFINITE)
        ck_floats(&t->rng, (ck_flavour)f, x, n);
    else
        half_corners(t, x, n);
    return x;
}

static void store_cases(ck_test *t, im__kv_type type)
{
    static const size_t shapes[][2] = {{1, 2},   {3, 6},  {2, 10}, {1, 18},  {1, 34}, {3, 64},
                                       {1, 256}, {2, 80}, {2, 96}, {1, 512}, {8, 128}};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        for (int f = 0; f <= CK_NONFINITE + 1; f++) {
            cache_shape c = {type, shapes[i][0], shapes[i][1], .first_page = i % 2, .pages = 2 + i % 2};
            store_job j = {.kv_heads = c.kv_heads, .head_dim = c.head_dim};
            size_t n = c.kv_heads * c.head_dim;
            ck_work work = n == 1024 && f == CK_PLAIN ? (ck_work){12.0 * (double)n, 2.0 * (double)n} : (ck_work){0};
            const char *name = f > CK_NONFINITE ? "corners" : ck_flavour_name((ck_flavour)f);
            if (!ck_case(t, work, "%zu heads of %zu, %s, %s", c.kv_heads, c.head_dim, type_name[type], name)) continue;
            j.position = (int32_t)(c.first_page * IM__PAGE + ck_below(&t->rng, 2 * IM__PAGE));
            j.kv = cache_view(t, &c, true);
            j.k = store_values(t, "k", f, n);
            j.v = store_values(t, "v", f, n);
            j.clamped = ck_out_number(t, "clamped");
            ck_run(t, store_call, &j);
        }
}

void ck_kv_store(ck_test *t)
{
    for (int type = 0; type < IM__KV_TYPES; type++) store_cases(t, (im__kv_type)type);
}

/* ---- attention ------------------------------------------------------------------------------------------------------------------- */

typedef struct attention_job {
    im__attention a;
    size_t rows, cut; /* rows per call, and KV heads one by one when `cut` is not 0 */
    float *scratch;
} attention_job;

static void attention_call(const void *p, const ck_subject *s)
{
    const attention_job *j = p;
    if (s->is_reference || j->cut == 0) {
        s->ops.attention(&j->a, 0, j->rows, 0, j->a.kv_heads, j->scratch);
        return;
    }
    for (size_t h = j->a.kv_heads; h-- > 0;)
        for (size_t r = 0; r < j->rows; r += j->cut)
            s->ops.attention(&j->a, r, r + j->cut < j->rows ? r + j->cut : j->rows, h, h + 1, j->scratch);
}

typedef struct attention_shape {
    uint32_t heads, kv_heads, head_dim, window;
    float scale, softcap;
    size_t first, rows; /* positions first .. first + rows - 1 */
} attention_shape;

static const int32_t *positions(ck_test *t, const attention_shape *s, bool shuffled)
{
    int32_t *p = ck_in(t, "position", s->rows * sizeof *p, sizeof *p);
    for (size_t r = 0; r < s->rows; r++) p[r] = (int32_t)(s->first + r);
    for (size_t r = s->rows; shuffled && r > 1; r--) {
        size_t other = ck_below(&t->rng, (uint32_t)r);
        int32_t keep = p[r - 1];
        p[r - 1] = p[other], p[other] = keep;
    }
    return p;
}

/* The keys of the newest position are NaN: rows before it must not notice. */
static void poison_newest(const im__kv_view *kv, const cache_shape *c, size_t position)
{
    float nan[512];
    for (size_t d = 0; d < 512; d++) nan[d] = im__f32_of_bits(0x7fc00000);
    for (size_t h = 0; h < c->kv_heads; h++) cache_put(kv, c, position, h, nan, nan);
}

static void attention_case(ck_test *t, const attention_shape *s, im__kv_type type, size_t turn, bool timed)
{
    /* only a cache of binary32 can hold an infinity */
    ck_flavour f = timed ? CK_PLAIN : type == IM__KV_F32 && turn % 6 == 5 ? CK_NONFINITE : ck_flavour_at(turn);
    bool newest_nan = !timed && turn % 5 == 4;
    size_t end = s->first + s->rows, oldest = s->window > 0 && s->first + 1 > s->window ? s->first + 1 - s->window : 0;
    double keys = (double)(end - oldest), width = (double)s->heads * s->head_dim;
    ck_work work = {0};
    if (timed)
        work = (ck_work){keys * s->kv_heads * s->head_dim * 2 * (double)im__kv_type_size(type), 4 * keys * width * (double)s->rows};
    attention_job j = {.rows = s->rows, .cut = timed ? 0 : turn % 4};
    if (!ck_case(t, work, "%u/%u heads of %u, window %u, cap %g, %s, %zu rows at %zu, cut %zu, turn %zu, %s%s", s->heads,
                 s->kv_heads, s->head_dim, s->window, (double)s->softcap, type_name[type], s->rows, s->first, j.cut, turn,
                 ck_flavour_name(f), newest_nan ? ", newest NaN" : ""))
        return;
    cache_shape c = {type, s->kv_heads, s->head_dim, oldest / IM__PAGE, (end + IM__PAGE - 1) / IM__PAGE};
    size_t n = s->heads * s->head_dim, pad = timed ? 0 : ck_below(&t->rng, 4);
    j.a = (im__attention){.kv = cache_view(t, &c, false),
                          .heads = s->heads,
                          .kv_heads = s->kv_heads,
                          .head_dim = s->head_dim,
                          .window = s->window,
                          .scale = s->scale,
                          .softcap = s->softcap,
                          .q_stride = n + pad,
                          .out_stride = n + pad};
    cache_fill(t, &j.a.kv, &c, end, f);
    if (newest_nan) poison_newest(&j.a.kv, &c, end - 1);
    j.a.position = positions(t, s, turn % 3 == 2);
    j.a.q = ck_in_floats(t, "q", ck_flavour_at(turn / 3 * 2), s->rows * (n + pad) - pad);
    j.a.out = ck_out(t, "out", CK_F32, n + pad, (s->rows * (n + pad) - pad) * sizeof(float));
    j.scratch = ck_scratch(t, "scratch", im__attention_scratch(s->heads, s->kv_heads, s->head_dim) * sizeof(float), 64);
    ck_run(t, attention_call, &j);
}

static void attention_cases(ck_test *t, im__kv_type type)
{
    static const attention_shape shapes[] = {
        {1, 1, 2, 0, 1.0f, 0, 0, 1},         {2, 1, 6, 0, 0.5f, 0, 5, 4},       {3, 3, 10, 7, 0.5f, 0, 60, 9},
        {2, 2, 18, 0, 0.25f, 0, 62, 5},      {6, 2, 34, 64, 0.25f, 50, 127, 3}, {9, 3, 64, 0, 0.125f, 0, 0, 1},
        {9, 3, 64, 0, 0.125f, 0, 63, 1},     {9, 3, 64, 0, 0.125f, 0, 64, 1},   {9, 3, 64, 0, 0.125f, 0, 0, 33},
        {9, 3, 64, 0, 0.125f, 0, 50, 17},    {4, 1, 256, 0, 0.0625f, 0, 37, 2}, {4, 1, 256, 100, 0.0625f, 0, 250, 7},
        {4, 2, 80, 0, 0.1f, 30, 130, 4},     {8, 2, 128, 0, 0.088f, 0, 200, 8}, {2, 1, 96, 33, 0.1f, 0, 95, 16},
        {1, 1, 512, 0, 0.04f, 0, 70, 2},     {16, 1, 64, 0, 0.125f, 0, 20, 3},  {8, 4, 66, 1, 0.125f, 0, 100, 3},
        {2, 1, 130, 65, 0.1f, 2.5f, 190, 6}, {4, 4, 32, 0, 0.2f, 0, 31, 31},
    };
    static const attention_shape spans[] = {
        {3, 1, 64, 0, 0.125f, 0, 1022, 4},
        {2, 1, 64, 512, 0.125f, 0, 1300, 3},
        {2, 2, 32, 1024, 0.2f, 0, 2047, 2},
        {2, 1, 16, 0, 0.3f, 20, 2110, 1},
    };
    size_t turn = 0;
    for (size_t round = 0; round < 3; round++)
        for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) attention_case(t, &shapes[i], type, turn++, false);
    for (size_t i = 0; i < sizeof spans / sizeof spans[0]; i++) attention_case(t, &spans[i], type, turn++, false);
    attention_case(t, &(attention_shape){9, 3, 64, 0, 0.125f, 0, 511, 1}, type, 0, true);
    attention_case(t, &(attention_shape){9, 3, 64, 0, 0.125f, 0, 192, 32}, type, 0, true);
    attention_case(t, &(attention_shape){4, 1, 256, 0, 0.0625f, 0, 511, 1}, type, 0, true);
}

void ck_attention(ck_test *t)
{
    for (int type = 0; type < IM__KV_TYPES; type++) attention_cases(t, (im__kv_type)type);
}
