/* SPDX-License-Identifier: Apache-2.0
 *
 * Operations on rows: quantise, rms_norm, rope.
 */
#include "ck_inputs.h"

/* ---- quantise ---------------------------------------------------------------------------------------------------------------- */

typedef struct quantise_job {
    im__act act;
    const float *x;
    size_t row;
} quantise_job;

static void quantise_call(const void *p, const ck_subject *s)
{
    const quantise_job *j = p;
    s->ops.quantise(&j->act, j->row, j->x);
}

/* Values whose quotient lies half-way between two integers, and groups whose largest value lies around 2^-64. */
static void quantise_corners(ck_test *t, float *x, size_t n)
{
    static const float top[] = {127.0f, 63.5f, 254.0f, 0x1p-64f, 0x1.fffffep-65f, 0x1.000002p-64f, 0x1p127f, 0x1.fffffep127f};
    for (size_t g = 0; g < n / 32; g++) {
        float a = top[ck_below(&t->rng, 8)];
        for (size_t i = 0; i < 32; i++) x[g * 32 + i] = a / 254.0f * (float)((int)ck_below(&t->rng, 509) - 254);
        x[g * 32 + ck_below(&t->rng, 32)] = ck_below(&t->rng, 2) ? a : -a;
    }
}

void ck_quantise(ck_test *t)
{
    static const size_t widths[] = {32, 64, 96, 128, 160, 224, 288, 576, 640, 1536, 2048};
    for (size_t i = 0; i < sizeof widths / sizeof widths[0]; i++)
        for (int f = 0; f <= CK_NONFINITE + 1; f++) {
            size_t n = widths[i], rows = 3;
            quantise_job j = {.row = (i + (size_t)f) % rows};
            ck_work work = n == 2048 && f == CK_PLAIN ? (ck_work){5.2 * (double)n, 3.0 * (double)n} : (ck_work){0};
            if (!ck_case(t, work, "n=%zu row %zu %s", n, j.row, f <= CK_NONFINITE ? ck_flavour_name((ck_flavour)f) : "corners"))
                continue;
            float *x = ck_in(t, "x", n * sizeof(float), sizeof(float));
            if (f <= CK_NONFINITE)
                ck_floats(&t->rng, (ck_flavour)f, x, n);
            else
                quantise_corners(t, x, n);
            j.x = x;
            j.act.n = n;
            j.act.q = ck_out(t, "q", CK_I8, n, rows * n);
            j.act.d = ck_out(t, "d", CK_F32, n / 32, rows * n / 32 * sizeof(float));
            j.act.sum = ck_out(t, "sum", CK_I16, n / 16, rows * n / 16 * sizeof(int16_t));
            ck_run(t, quantise_call, &j);
        }
}

/* ---- rms_norm ---------------------------------------------------------------------------------------------------------------- */

typedef struct norm_job {
    float *y;
    const float *x, *w;
    size_t n, count;
    float eps;
} norm_job;

static void norm_call(const void *p, const ck_subject *s)
{
    const norm_job *j = p;
    s->ops.rms_norm(j->y, j->x, j->w, j->n, j->count, j->eps);
}

static void norm_case(ck_test *t, size_t n, size_t count, ck_flavour f, size_t turn)
{
    static const float eps[] = {1e-5f, 1e-6f, 0.0f};
    norm_job j = {.n = n, .count = count, .eps = eps[turn % 3]};
    bool in_place = turn % 2;
    ck_work work = n == 2048 && f == CK_PLAIN ? (ck_work){12.0 * (double)n, 4.0 * (double)n} : (ck_work){0};
    if (!ck_case(t, work, "n=%zu count=%zu eps %a %s%s", n, count, (double)j.eps, ck_flavour_name(f), in_place ? " in place" : ""))
        return;
    size_t bytes = n * count * sizeof(float);
    j.w = ck_in_floats(t, "w", f == CK_NONFINITE ? CK_PLAIN : f, n);
    if (in_place) {
        j.y = ck_inout(t, "y", CK_F32, n, bytes);
        ck_floats(&t->rng, f, j.y, n * count);
        j.x = j.y;
    } else {
        j.x = ck_in_floats(t, "x", f, n * count);
        j.y = ck_out(t, "y", CK_F32, n, bytes);
    }
    ck_run(t, norm_call, &j);
}

void ck_rms_norm(ck_test *t)
{
    static const size_t real[] = {256, 288, 384, 512, 576, 640, 1000, 1152, 2048};
    for (size_t i = 0; i < 400; i++) norm_case(t, 1 + i / 2, 1 + i % 3, (ck_flavour)(i / 3 % (CK_NONFINITE + 1)), i);
    for (size_t i = 0; i < sizeof real / sizeof real[0]; i++)
        for (int f = 0; f <= CK_NONFINITE; f++) norm_case(t, real[i], 1 + i % 2, (ck_flavour)f, i + (size_t)f);
    norm_case(t, 64, 9, CK_PLAIN, 1);
    norm_case(t, 256, 4, CK_PLAIN, 0);
}

/* ---- rope --------------------------------------------------------------------------------------------------------------------- */

typedef struct rope_job {
    float *x;
    const float *cosine, *sine;
    size_t heads, head_dim, rot_dim;
    bool adjacent;
} rope_job;

static void rope_call(const void *p, const ck_subject *s)
{
    const rope_job *j = p;
    s->ops.rope(j->x, j->heads, j->head_dim, j->rot_dim, j->cosine, j->sine, j->adjacent);
}

static void rope_case(ck_test *t, rope_job j, ck_flavour f)
{
    size_t n = j.heads * j.head_dim;
    ck_work work = j.head_dim == 128 && f == CK_PLAIN ? (ck_work){8.0 * (double)n, 3.0 * (double)n} : (ck_work){0};
    if (!ck_case(t, work, "%zu heads of %zu, rot %zu, %s, %s", j.heads, j.head_dim, j.rot_dim, j.adjacent ? "adjacent" : "halves",
                 ck_flavour_name(f)))
        return;
    float *cosine = ck_in(t, "cosine", j.rot_dim / 2 * sizeof(float), sizeof(float));
    float *sine = ck_in(t, "sine", j.rot_dim / 2 * sizeof(float), sizeof(float));
    for (size_t i = 0; i < j.rot_dim / 2; i++) cosine[i] = 0.8f, sine[i] = -0.6f; /* keeps its size however often it turns */
    if (work.bytes == 0) {
        ck_floats(&t->rng, f == CK_EXTREME ? CK_EXTREME : CK_PLAIN, cosine, j.rot_dim / 2);
        ck_floats(&t->rng, f == CK_EXTREME ? CK_EXTREME : CK_PLAIN, sine, j.rot_dim / 2);
    }
    j.cosine = cosine, j.sine = sine;
    j.x = ck_inout(t, "x", CK_F32, j.head_dim, n * sizeof(float));
    ck_floats(&t->rng, f, j.x, n);
    ck_run(t, rope_call, &j);
}

void ck_rope(ck_test *t)
{
    static const size_t real[][3] = {{9, 64, 64},   {3, 64, 64}, {4, 256, 256}, {1, 256, 256},
                                     {8, 128, 128}, {8, 96, 96}, {5, 80, 32}};
    for (int adjacent = 0; adjacent < 2; adjacent++) {
        for (size_t i = 0; i < 80; i++) {
            size_t half = 1 + i / 2;
            rope_job j = {.heads = 1 + i % 3, .head_dim = 2 * half + i % 5 * 2, .rot_dim = 2 * half, .adjacent = adjacent};
            rope_case(t, j, (ck_flavour)(i / 3 % (CK_NONFINITE + 1)));
        }
        for (size_t i = 0; i < sizeof real / sizeof real[0]; i++)
            for (int f = 0; f <= CK_NONFINITE; f++) {
                rope_job j = {.heads = real[i][0], .head_dim = real[i][1], .rot_dim = real[i][2], .adjacent = adjacent};
                rope_case(t, j, (ck_flavour)f);
            }
    }
}
