/* SPDX-License-Identifier: Apache-2.0
 *
 * Functions of the contract that are no entries of the table and have no kernels: they are here so that the digest covers them.
 */
#include "ck_inputs.h"

#include "num/dtype.h"
#include "num/group.h"
#include "num/half.h"
#include "num/real.h"

typedef struct num_job {
    float *y, *z;
    const float *x;
    const void *row;
    size_t n;
    const im__act *act;
    uint32_t dtype;
    double theta;
} num_job;

static void exp_call(const void *p, const ck_subject *s)
{
    const num_job *j = p;
    (void)s;
    for (size_t i = 0; i < j->n; i++) j->y[i] = im__exp(j->x[i]);
}

void ck_num_exp(ck_test *t)
{
    num_job j = {.n = 100000};
    if (!ck_case(t, (ck_work){0}, "the range")) return;
    float *x = ck_in(t, "x", j.n * sizeof(float), sizeof(float));
    for (size_t i = 0; i < j.n; i++) x[i] = (float)i * 0x1.4p-10f - 40.0f + ck_unit(&t->rng) * 0x1p-11f;
    j.x = x;
    j.y = ck_out(t, "y", CK_F32, j.n, j.n * sizeof(float));
    ck_run(t, exp_call, &j);
    for (int f = 0; f <= CK_NONFINITE; f++) {
        if (!ck_case(t, (ck_work){0}, "%s", ck_flavour_name((ck_flavour)f))) continue;
        j.n = 2000;
        j.x = ck_in_floats(t, "x", (ck_flavour)f, j.n);
        j.y = ck_out(t, "y", CK_F32, j.n, j.n * sizeof(float));
        ck_run(t, exp_call, &j);
    }
}

static void angle_call(const void *p, const ck_subject *s)
{
    const num_job *j = p;
    (void)s;
    for (size_t i = 0; i < j->n; i++) {
        double f = im__rope_frequency(j->theta, (unsigned)(i % 128), 256);
        im__rope_angle((int64_t)(i * i / 3), f, &j->y[i], &j->z[i]);
    }
}

void ck_num_rope_angle(ck_test *t)
{
    static const double theta[] = {10000.0, 1000000.0, 500000.0, 100.0};
    for (size_t i = 0; i < 4; i++) {
        num_job j = {.n = 3000, .theta = theta[i]};
        if (!ck_case(t, (ck_work){0}, "theta %g", j.theta)) continue;
        j.y = ck_out(t, "cosine", CK_F32, j.n, j.n * sizeof(float));
        j.z = ck_out(t, "sine", CK_F32, j.n, j.n * sizeof(float));
        ck_run(t, angle_call, &j);
    }
}

static void dequantise_call(const void *p, const ck_subject *s)
{
    const num_job *j = p;
    (void)s;
    im__dequantise_row(j->dtype, j->row, j->y, j->n);
}

static void dequantise_types(ck_test *t, uint32_t begin, uint32_t end)
{
    for (uint32_t type = begin; type < end; type++) {
        num_job j = {.n = 2048, .dtype = type};
        if (!im__dtype_get(type)->runs || !ck_case(t, (ck_work){0}, "%s", im__dtype_get(type)->name)) continue;
        void *row = ck_in(t, "row", im__dtype_row_bytes(type, j.n), 2);
        ck_weights(&t->rng, CK_FINITE, type, row, j.n);
        j.row = row;
        j.y = ck_out(t, "y", CK_F32, j.n, j.n * sizeof(float));
        ck_run(t, dequantise_call, &j);
    }
}

void ck_num_dequantise(ck_test *t) { dequantise_types(t, 0, IM__GGUF_DTYPES); }

void ck_num_dequantise_affine(ck_test *t) { dequantise_types(t, IM__GGUF_DTYPES, IM__DTYPE_END); }

static void rest_call(const void *p, const ck_subject *s)
{
    const num_job *j = p;
    (void)s;
    im__quantise_rest(j->act, 0, j->x, j->y);
}

void ck_num_quantise_rest(ck_test *t)
{
    for (int f = 0; f <= CK_NONFINITE; f++) {
        num_job j = {.n = 2048};
        if (!ck_case(t, (ck_work){0}, "%s", ck_flavour_name((ck_flavour)f))) continue;
        j.x = ck_in_floats(t, "x", (ck_flavour)f, j.n);
        im__act act = im__act_carve(ck_in(t, "act", im__act_bytes(1, j.n), 64), 1, j.n);
        t->reference->ops.quantise(&act, 0, j.x);
        j.act = &act;
        j.y = ck_out(t, "rest", CK_F32, j.n, j.n * sizeof(float));
        ck_run(t, rest_call, &j);
    }
}
