/* SPDX-License-Identifier: Apache-2.0
 *
 * Products: every form, on awkward shapes, against im__matmul_c on the blocks of the file.
 */
#include "backend/cuda/kernels/matmul_few.h"
#include "backend/cuda/layout.h"
#include "gk.h"
#include "num/dtype.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const uint32_t dtypes[] = {IM__Q4_0,    IM__Q4_1,    IM__Q5_0, IM__Q5_1,   IM__Q8_0,   IM__Q2_K,  IM__Q3_K,
                                  IM__Q4_K,    IM__Q5_K,    IM__Q6_K, IM__IQ4_NL, IM__IQ4_XS, IM__MXFP4, IM__AFFINE2,
                                  IM__AFFINE4, IM__AFFINE8, IM__F32,  IM__F16,    IM__BF16};
enum { DTYPES = sizeof dtypes / sizeof *dtypes };

typedef struct rows_in {
    size_t rows, n;
    const float *x;
    im__act narrow, rest; /* rest: of wide products */
    uint64_t q, group, x_at;
    uint32_t rest_rows;
} rows_in;

static void act_to(const im__act *a, size_t rows, int8_t *q, im__cuda_group *group)
{
    memcpy(q, a->q, rows * a->n);
    for (size_t g = 0; g < rows * a->n / 32; g++) group[g] = (im__cuda_group){a->d[g], {a->sum[2 * g], a->sum[2 * g + 1]}};
}

static rows_in rows_new(gk_test *t, ck_flavour f, size_t rows, size_t n, bool quantised)
{
    rows_in in = {.rows = rows, .n = n, .rest_rows = (uint32_t)rows + 3};
    in.x = gk_floats(t, f, rows * n);
    in.x_at = gk_in(t, "x", in.x, rows * n * sizeof(float));
    if (!quantised) return in;
    im__ops ops;
    im__ops_c(&ops);
    in.narrow = im__act_carve(gk_memory(t, im__act_bytes(rows, n) + 64), rows, n);
    in.rest = im__act_carve(gk_memory(t, im__act_bytes(rows, n) + 64), rows, n);
    float *lost = gk_memory(t, n * sizeof *lost);
    for (size_t r = 0; r < rows; r++) {
        ops.quantise(&in.narrow, r, in.x + r * n);
        im__quantise_rest(&in.narrow, r, in.x + r * n, lost);
        ops.quantise(&in.rest, r, lost);
    }
    size_t all = in.rest_rows + rows;
    int8_t *q = gk_memory(t, all * n);
    im__cuda_group *group = gk_memory(t, all * n / 32 * sizeof *group);
    memset(q, 0x55, all * n);
    memset(group, 0xff, all * n / 32 * sizeof *group);
    act_to(&in.narrow, rows, q, group);
    act_to(&in.rest, rows, q + in.rest_rows * n, group + in.rest_rows * n / 32);
    in.q = gk_in(t, "act.q", q, all * n);
    in.group = gk_in(t, "act.group", group, all * n / 32 * sizeof *group);
    return in;
}

static float *expected(gk_test *t, const im__weight *w, const rows_in *in, bool wide, const float *bias)
{
    float *y = gk_memory(t, in->rows * w->n_out * sizeof *y), *z = gk_memory(t, in->rows * w->n_out * sizeof *z);
    bool floats = im__dtype_is_float(w->dtype);
    im__matmul_in a = {.act = floats ? NULL : &in->narrow, .x = floats ? in->x : NULL, .x_stride = in->n, .rows = in->rows};
    im__matmul_c(w, &a, wide ? NULL : bias, y, w->n_out, 0, w->n_out);
    if (!wide) return y;
    a.act = &in->rest;
    im__matmul_c(w, &a, NULL, z, w->n_out, 0, w->n_out);
    for (size_t i = 0; i < in->rows * w->n_out; i++) {
        y[i] = y[i] + z[i];
        if (bias != NULL) y[i] = y[i] + bias[i % w->n_out];
    }
    return y;
}

static im__cuda_product product_new(gk_test *t, ck_flavour f, uint32_t dtype, const rows_in *in, size_t n_out, bool wide,
                                    bool with_bias)
{
    im__weight w = {.dtype = dtype, .n_in = in->n, .n_out = n_out, .row_bytes = im__dtype_row_bytes(dtype, in->n)};
    unsigned char *data = gk_memory(t, n_out * w.row_bytes);
    for (size_t o = 0; o < n_out; o++) ck_weights(&t->rng, f, dtype, data + o * w.row_bytes, in->n);
    w.data = data;
    im__cuda_layout l;
    if (!im__cuda_layout_of(dtype, n_out, in->n, &l)) gk_fail(t, "no layout");
    uint8_t *packed = gk_memory(t, l.bytes);
    im__cuda_pack(&w, &l, 0, l.tiles, packed);
    float *bias = with_bias ? gk_floats(t, CK_PLAIN, n_out) : NULL;
    im__cuda_product p = {.w = {.form = l.form,
                                .n_in = (uint32_t)in->n,
                                .n_out = (uint32_t)n_out,
                                .unit_bytes = l.unit_bytes,
                                .tile_bytes = l.tile_bytes},
                          .act = {in->q, in->group, (uint32_t)in->n, in->rest_rows},
                          .x = in->x_at,
                          .wide = wide};
    p.w.data = gk_in(t, "weights", packed, l.bytes);
    if (with_bias) p.bias = gk_in(t, "bias", bias, n_out * sizeof *bias);
    p.y = gk_out(t, "y", GK_F32, expected(t, &w, in, wide, bias), in->rows * n_out * sizeof(float));
    return p;
}

/* How much memory a multiprocessor has decides how many blocks there are, and so how many tiles a block takes. */
static im__few_device device_of(const gk_machine *m, uint32_t shared)
{
    return (im__few_device){m->emulated ? 2 : m->processors, shared, m->emulated ? shared / 2 : 227 << 10};
}

static void launch_few(gk_test *t, im__cuda_products *all, size_t rows, uint32_t shared)
{
    im__few_device d = device_of(t->machine, shared);
    im__few_launch l = im__matmul_few_plan(all, (uint32_t)rows, &d);
    all->step = gk_step_in(t, &(gk_step){.rows = (uint32_t)rows});
    char name[64];
    snprintf(name, sizeof name, "im_matmul_few_%s", im__cuda_form_name((im__cuda_form)all->product[0].w.form));
    void *params[] = {all};
    gk_run(t, name, &(gk_launch){{all->first_block[all->count], 1}, l.threads, l.shared, params});
}

static void one_product(gk_test *t, uint32_t dtype, size_t n_in, size_t n_out, size_t rows, bool wide, uint32_t shared,
                        ck_flavour x, ck_flavour f)
{
    bool quantised = !im__dtype_is_float(dtype), bias = (n_out + rows) % 2 == 0;
    if (!gk_case(t, "few %s %zux%zu rows=%zu wide=%d shared=%u bias=%d x=%s w=%s", im__dtype_get(dtype)->name, n_out, n_in, rows,
                 wide, shared, bias, ck_flavour_name(x), ck_flavour_name(f)))
        return;
    rows_in in = rows_new(t, x, rows, n_in, quantised);
    im__cuda_products all = {.count = 1};
    all.product[0] = product_new(t, f, dtype, &in, n_out, wide, bias);
    launch_few(t, &all, rows, shared);
}

static void several(gk_test *t, uint32_t dtype)
{
    if (!gk_case(t, "few %s three products", im__dtype_get(dtype)->name)) return;
    rows_in in = rows_new(t, CK_PLAIN, 2, 512, true);
    im__cuda_products all = {.count = 3};
    all.product[0] = product_new(t, CK_PLAIN, dtype, &in, 100, false, false);
    all.product[1] = product_new(t, CK_PLAIN, dtype, &in, 32, true, true);
    all.product[2] = product_new(t, CK_PLAIN, dtype, &in, 40, true, false);
    launch_few(t, &all, 2, 100 << 10);
}

void gk_matmul_few(gk_test *t)
{
    static const struct {
        size_t n_in, n_out, rows;
        uint32_t shared; /* KiB of a multiprocessor */
        bool wide;
    } shape[] = {{32, 1, 1, 228, false},    {256, 33, 1, 100, false},   {288, 31, 2, 64, true},    {512, 200, 3, 64, false},
                 {1152, 40, 1, 228, true},  {1152, 300, 8, 128, false}, {768, 24, 5, 228, true},   {2560, 33, 1, 100, false},
                 {4864, 16, 4, 228, false}, {1280, 165, 1, 160, true},  {1536, 272, 7, 100, true}, {6912, 32, 2, 228, false},
                 {1152, 290, 1, 64, false}, {512, 700, 2, 200, false}};
    for (size_t d = 0; d < DTYPES; d++) {
        uint32_t dtype = dtypes[d], block = im__dtype_get(dtype)->block_len;
        bool floats = im__dtype_is_float(dtype);
        for (size_t i = 0; i < sizeof shape / sizeof *shape; i++) {
            size_t n_in = (shape[i].n_in + block - 1) / block * block;
            if (t->machine->emulated && n_in > 3000) continue;
            ck_flavour x = i % 4 == 0 ? CK_PLAIN : (ck_flavour)((i + d) % (CK_NONFINITE + 1)),
                       f = i % 3 == 0 ? CK_PLAIN : (ck_flavour)((i * 5 + d) % 5);
            one_product(t, dtype, floats ? n_in - i % 2 * 3 : n_in, shape[i].n_out, shape[i].rows, shape[i].wide && !floats,
                        shape[i].shared << 10, x, f);
        }
        if (!floats) several(t, dtype);
    }
}

/* ---- timing ---- */

typedef struct timed {
    const char *what;
    uint32_t dtype;
    uint32_t n_in, n_out, count; /* matrices of this shape in a launch */
    bool wide;
} timed;

static void time_one(gk_machine *m, const timed *c, uint32_t rows)
{
    enum { MOST_COPIES = 64 };
    im__cuda_layout l;
    if (!im__cuda_layout_of(c->dtype, c->n_out, c->n_in, &l)) return;
    size_t bytes = l.bytes * c->count, copies = ((size_t)400 << 20) / bytes + 2;
    if (copies > MOST_COPIES) copies = MOST_COPIES;
    uint64_t weights = 0, act = 0, group = 0, y = 0, step = 0, row = 0;
    size_t q_bytes = 64 * (size_t)c->n_in, group_bytes = q_bytes / 4;
    unsigned char *some = malloc(bytes > q_bytes ? bytes : q_bytes);
    if (some == NULL) return;
    ck_rng rng = ck_rng_of(1, c->what);
    for (size_t i = 0; i + 4 <= bytes; i += 4) {
        uint32_t x = (rng.state = rng.state * 6364136223846793005u + 1442695040888963407u) >> 32 & 0x3bff3bff;
        memcpy(some + i, &x, 4);
    }
    bool ok = m->take(m, bytes * copies, &weights) && m->take(m, q_bytes, &act) && m->take(m, group_bytes, &group) &&
              m->take(m, 16 * 4 * (size_t)c->n_out * c->count, &y) && m->take(m, sizeof(im__cuda_step), &step) &&
              m->take(m, 4096, &row);
    for (size_t i = 0; ok && i < copies; i++) ok = m->in(m, weights + i * bytes, some, bytes);
    im__cuda_step header = {.rows = rows, .selected = rows, .row = row};
    ok = ok && m->in(m, act, some, q_bytes < bytes ? q_bytes : bytes) &&
         m->in(m, group, some, group_bytes < bytes ? group_bytes : bytes) && m->in(m, step, &header, sizeof header);
    static im__cuda_products all[MOST_COPIES];
    static void *params[MOST_COPIES][1];
    static gk_launch launch[MOST_COPIES];
    im__few_device d = device_of(m, 228 << 10);
    for (size_t i = 0; i < copies; i++) {
        all[i] = (im__cuda_products){.count = c->count, .step = step};
        for (uint32_t k = 0; k < c->count; k++)
            all[i].product[k] = (im__cuda_product){
                .w = {weights + i * bytes + k * l.bytes, l.form, c->n_in, c->n_out, l.unit_bytes, l.tile_bytes, 0},
                .act = {act, group, c->n_in, 16},
                .x = act,
                .y = y + k * 64 * (size_t)c->n_out,
                .wide = c->wide};
        params[i][0] = &all[i];
        im__few_launch plan = im__matmul_few_plan(&all[i], rows, &d);
        launch[i] = (gk_launch){{all[i].first_block[c->count], 1}, plan.threads, plan.shared, params[i]};
    }
    char name[64];
    snprintf(name, sizeof name, "im_matmul_few_%s", im__cuda_form_name(l.form));
    double us = 0;
    if (ok && m->time(m, name, launch, copies, 7, &us))
        printf("%-12s %-5s %6ux%-6u x%u rows=%u wide=%d %4u x %-3u %3uK: %8.2f us  %7.1f GB/s\n", c->what,
               im__dtype_get(c->dtype)->name, c->n_out, c->n_in, c->count, rows, c->wide, launch[0].grid[0], launch[0].threads,
               launch[0].shared >> 10, us / (double)copies, (double)bytes * (double)copies / us * 1e-3);
    else
        printf("%s: %s\n", c->what, m->said);
    uint64_t taken[] = {weights, act, group, y, step, row};
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++)
        if (taken[i] != 0) m->give(m, taken[i]);
    free(some);
}

void gk_time_matmul_few(gk_machine *m)
{
    static const timed shape[] = {
        {"1B q", IM__Q4_0, 1152, 1024, 1, false},
        {"1B k v", IM__Q4_0, 1152, 256, 2, true},
        {"1B o", IM__Q4_0, 1024, 1152, 1, false},
        {"1B gate up", IM__Q4_0, 1152, 6912, 2, false},
        {"1B down", IM__Q4_0, 6912, 1152, 1, false},
        {"1B head", IM__Q4_0, 1152, 262144, 1, true},
        {"1B head", IM__Q6_K, 1152 / 256 * 256, 262144, 1, true},
        {"4B q", IM__Q4_0, 2560, 2048, 1, false},
        {"4B k v", IM__Q4_0, 2560, 1024, 2, true},
        {"4B o", IM__Q4_0, 2048, 2560, 1, false},
        {"4B gate up", IM__Q4_0, 2560, 10240, 2, false},
        {"4B down", IM__Q4_0, 10240, 2560, 1, false},
        {"4B gate up", IM__Q4_K, 2560, 10240, 2, false},
        {"4B down", IM__Q6_K, 10240, 2560, 1, false},
        {"4B gate up", IM__Q8_0, 2560, 10240, 2, false},
        {"4B gate up", IM__BF16, 2560, 10240, 2, false},
    };
    for (size_t i = 0; i < sizeof shape / sizeof *shape; i++) {
        time_one(m, &shape[i], 1);
        for (uint32_t rows = 2; rows <= 8 && shape[i].dtype != IM__BF16; rows *= 2) time_one(m, &shape[i], rows);
    }
}
