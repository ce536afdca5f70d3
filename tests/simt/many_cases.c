/* SPDX-License-Identifier: Apache-2.0 */
#include "many_cases.h"

#include "../checkern/ck_values.h"
#include "backend/cuda/layout.h"
#include "num/dtype.h"
#include "num/real.h"
#include "ops/reference.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BAND = 64 };
static const uint32_t SENTINEL = 0x7fbadbad; /* a NaN that no kernel makes */

const uint32_t many_dtypes[] = {IM__Q4_0,    IM__Q4_1,    IM__Q5_0, IM__Q5_1,   IM__Q8_0,   IM__Q2_K,  IM__Q3_K,
                                IM__Q4_K,    IM__Q5_K,    IM__Q6_K, IM__IQ4_NL, IM__IQ4_XS, IM__MXFP4, IM__AFFINE3,
                                IM__AFFINE4, IM__AFFINE8, IM__F32,  IM__F16,    IM__BF16,   UINT32_MAX};

static void *get(size_t n)
{
    void *p = calloc(1, n + 16);
    if (p == NULL) abort();
    return p;
}

static void *block(many_case *c, size_t i, size_t bytes)
{
    c->bytes[i] = bytes;
    c->block[i] = aligned_alloc(128, (bytes + 255) / 128 * 128);
    if (c->block[i] == NULL) abort();
    memset(c->block[i], 0x5a, (bytes + 255) / 128 * 128);
    return c->block[i];
}

/* Rows and their rests as the plain functions keep them; x: float rows. */
typedef struct inputs {
    im__act act;
    float *x;
} inputs;

static inputs make_inputs(const many_case *c)
{
    inputs in = {.act = {.n = c->n_in}};
    const size_t rows = 2 * (size_t)c->max_rows, n = c->n_in;
    in.x = get(rows * n * 4);
    in.act.q = get(rows * n);
    in.act.d = get(rows * n / 32 * 4 + 4);
    in.act.sum = get(rows * n / 16 * 2 + 4);
    ck_rng r = ck_rng_of(c->seed, "rows");
    for (size_t i = 0; i < c->rows; i++) {
        ck_floats(&r, (ck_flavour)c->act_flavour, in.x + i * n, n);
        if (im__dtype_is_float(c->dtype)) continue;
        float *rest = in.x + (c->max_rows + i) * n;
        im__quantise_c(&in.act, i, in.x + i * n);
        im__quantise_rest(&in.act, i, in.x + i * n, rest);
        im__quantise_c(&in.act, c->max_rows + i, rest);
    }
    return in;
}

static void copy_inputs(many_case *c, const inputs *in)
{
    const size_t n = c->n_in;
    int8_t *q = block(c, MANY_Q, 2 * (size_t)c->max_rows * n);
    im__cuda_group *group = block(c, MANY_GROUP, 2 * (size_t)c->max_rows * (n / 32) * sizeof *group);
    float *x = block(c, MANY_X, (size_t)c->max_rows * n * 4);
    for (size_t i = 0; i < c->rows; i++) memcpy(x + i * n, in->x + i * n, n * 4);
    for (size_t i = 0; i < 2 * (size_t)c->max_rows; i++) {
        if (i % c->max_rows >= c->rows || im__dtype_is_float(c->dtype)) continue;
        memcpy(q + i * n, in->act.q + i * n, n);
        for (size_t g = 0; g < n / 32; g++)
            group[i * (n / 32) + g] = (im__cuda_group){in->act.d[i * (n / 32) + g],
                                                       {in->act.sum[i * (n / 16) + 2 * g], in->act.sum[i * (n / 16) + 2 * g + 1]}};
    }
}

/* Rows of the reference: first of a stretch that ends the rows. */
static uint32_t judged(const many_case *c, uint32_t i)
{
    const uint32_t some = c->reference_rows;
    return some == 0 || c->rows <= some || i < some / 2 || i >= c->rows - (some - some / 2);
}

static void expect(const many_case *c, const im__weight *w, const inputs *in, const float *bias, bool wide, float *y)
{
    const size_t n = c->n_in;
    float *part = get(w->n_out * 4);
    for (size_t i = 0; i < c->rows; i++) {
        if (!judged(c, (uint32_t)i)) continue;
        float *row = y + i * w->n_out;
        for (int rest = 0; rest <= (wide && !im__dtype_is_float(c->dtype)); rest++) {
            const size_t at = i + (rest ? c->max_rows : 0);
            im__act act = {n, in->act.q + at * n, in->act.d + at * (n / 32), in->act.sum + at * (n / 16)};
            im__matmul_in one = {.act = &act, .x = in->x + i * n, .x_stride = n, .rows = 1};
            im__matmul_c(w, &one, NULL, rest ? part : row, w->n_out, 0, w->n_out);
            for (size_t o = 0; rest && o < w->n_out; o++) row[o] += part[o];
        }
        for (size_t o = 0; bias != NULL && o < w->n_out; o++) row[o] += bias[o];
    }
    free(part);
}

static void make_product(many_case *c, uint32_t i, const inputs *in)
{
    im__weight w = {.dtype = c->dtype, .n_in = c->n_in, .n_out = c->n_out[i], .row_bytes = im__dtype_row_bytes(c->dtype, c->n_in)};
    uint8_t *rows = get(w.n_out * w.row_bytes);
    ck_rng r = ck_rng_of(c->seed + i, "weights");
    for (size_t o = 0; o < w.n_out; o++) ck_weights(&r, (ck_flavour)c->weight_flavour, c->dtype, rows + o * w.row_bytes, w.n_in);
    w.data = rows;
    im__cuda_layout l;
    if (!im__cuda_layout_of(c->dtype, w.n_out, w.n_in, &l)) abort();
    im__cuda_pack(&w, &l, 0, l.tiles, block(c, MANY_WEIGHTS + i, l.bytes));
    c->form = l.form;
    c->unit_bytes = l.unit_bytes;
    c->tile_bytes[i] = l.tile_bytes;
    float *bias = block(c, MANY_BIAS + i, w.n_out * 4);
    ck_floats(&r, CK_PLAIN, bias, w.n_out);
    block(c, MANY_Y + i, (c->rows * w.n_out + 2 * BAND) * 4);
    c->expected[i] = get(c->rows * w.n_out * 4);
    expect(c, &w, in, c->bias[i] ? bias : NULL, c->wide[i], c->expected[i]);
    free(rows);
}

void many_case_make(many_case *c)
{
    inputs in = make_inputs(c);
    copy_inputs(c, &in);
    for (uint32_t i = 0; i < c->products; i++) make_product(c, i, &in);
    block(c, MANY_STEP, sizeof(im__cuda_step));
    free(in.x), free(in.act.q), free(in.act.d), free(in.act.sum);
    many_case_poison(c);
}

void many_case_clear(many_case *c)
{
    for (size_t i = 0; i < MANY_BLOCKS; i++) free(c->block[i]), c->block[i] = NULL;
    for (size_t i = 0; i < 4; i++) free(c->expected[i]), c->expected[i] = NULL;
}

void many_case_bind(many_case *c, const uint64_t address[MANY_BLOCKS], void *to)
{
    im__cuda_step *step = c->block[MANY_STEP];
    memset(step, 0, sizeof *step);
    step->rows = c->selected ? c->rows + 7 : c->rows;
    step->selected = c->selected ? c->rows : 1;
    im__cuda_products *p = to;
    memset(p, 0, sizeof *p);
    p->count = c->products;
    p->selected = c->selected;
    p->step = address[MANY_STEP];
    for (uint32_t i = 0; i < c->products; i++) {
        im__cuda_matrix w = {.data = address[MANY_WEIGHTS + i], .form = c->form, .n_in = c->n_in, .n_out = c->n_out[i]};
        w.unit_bytes = c->unit_bytes;
        w.tile_bytes = c->tile_bytes[i];
        im__cuda_act act = {.q = address[MANY_Q], .group = address[MANY_GROUP], .n = c->n_in, .rest_rows = c->max_rows};
        p->product[i] = (im__cuda_product){.w = w, .act = act, .x = address[MANY_X], .wide = c->wide[i]};
        p->product[i].bias = c->bias[i] ? address[MANY_BIAS + i] : 0;
        p->product[i].y = address[MANY_Y + i] + BAND * 4;
    }
}

void many_case_poison(many_case *c)
{
    for (uint32_t i = 0; i < c->products; i++)
        for (size_t k = 0; k < c->bytes[MANY_Y + i] / 4; k++) memcpy((uint8_t *)c->block[MANY_Y + i] + 4 * k, &SENTINEL, 4);
}

static bool same(float a, float b) { return (a != a && b != b) || im__bits_of_f32(a) == im__bits_of_f32(b); }

size_t many_case_wrong(const many_case *c)
{
    size_t wrong = 0;
    for (uint32_t i = 0; i < c->products; i++) {
        const float *y = (const float *)c->block[MANY_Y + i] + BAND;
        const size_t n = c->n_out[i], all = c->rows * n;
        for (size_t k = 0; k < BAND; k++)
            wrong += im__bits_of_f32(y[-1 - (long)k]) != SENTINEL || im__bits_of_f32(y[all + k]) != SENTINEL;
        for (size_t k = 0; k < all; k++)
            wrong += im__bits_of_f32(y[k]) == SENTINEL || (judged(c, (uint32_t)(k / n)) && !same(y[k], c->expected[i][k]));
    }
    return wrong;
}

void many_case_name(const many_case *c, char *text, size_t size)
{
    int n = snprintf(text, size, "%s %s, %u rows of %u, weights %s, rows %s, outputs", im__cuda_form_name((im__cuda_form)c->form),
                     im__dtype_get(c->dtype)->name, c->rows, c->n_in, ck_flavour_name((ck_flavour)c->weight_flavour),
                     ck_flavour_name((ck_flavour)c->act_flavour));
    for (uint32_t i = 0; i < c->products && n > 0 && (size_t)n < size; i++)
        n += snprintf(text + n, size - (size_t)n, " %u%s%s", c->n_out[i], c->wide[i] ? "w" : "", c->bias[i] ? "b" : "");
}
