/* SPDX-License-Identifier: Apache-2.0
 *
 * Operations on one row: glu, add, scale, softcap, argmax. Each length from one to more than four of the widest vectors, then real ones.
 */
#include "ck_inputs.h"

#include "num/half.h"

#define SWEEP 70

static const size_t real_widths[] = {128, 576, 640, 1536, 2048, 2049};
#define LENGTHS (SWEEP + sizeof real_widths / sizeof real_widths[0])

static size_t length_at(size_t i) { return i < SWEEP ? i + 1 : real_widths[i - SWEEP]; }

static ck_work work_at(size_t n, double floats_per_element, double ops)
{
    return n == 2048 ? (ck_work){4 * floats_per_element * (double)n, ops * (double)n} : (ck_work){0};
}

typedef struct row_job {
    float *y;
    const float *x, *up;
    size_t n;
    float by;
    im__glu kind;
    int32_t *result;
} row_job;

/* ---- glu -------------------------------------------------------------------------------------------------------------------- */

static void glu_call(const void *p, const ck_subject *s)
{
    const row_job *j = p;
    s->ops.glu(j->y, j->x, j->up, j->n, j->kind);
}

void ck_glu(ck_test *t)
{
    for (size_t i = 0; i < LENGTHS; i++)
        for (int f = 0; f <= CK_NONFINITE; f++) {
            row_job j = {.n = length_at(i), .kind = (im__glu)((i + (size_t)f) % 2)};
            bool in_place = (i / 2 + (size_t)f) % 3 == 0;
            ck_work work = f == CK_PLAIN ? work_at(j.n, 3, 20) : (ck_work){0};
            if (!ck_case(t, work, "%s n=%zu %s%s", j.kind == IM__GLU_SILU ? "silu" : "gelu", j.n, ck_flavour_name((ck_flavour)f),
                         in_place ? " in place" : ""))
                continue;
            j.up = ck_in_floats(t, "up", f % 2 ? CK_PLAIN : (ck_flavour)f, j.n);
            if (in_place) {
                j.y = ck_inout(t, "y", CK_F32, j.n, j.n * sizeof(float));
                ck_floats(&t->rng, (ck_flavour)f, j.y, j.n);
                j.x = j.y;
            } else {
                j.x = ck_in_floats(t, "gate", (ck_flavour)f, j.n);
                j.y = ck_out(t, "y", CK_F32, j.n, j.n * sizeof(float));
            }
            ck_run(t, glu_call, &j);
        }
}

/* ---- add -------------------------------------------------------------------------------------------------------------------- */

static void add_call(const void *p, const ck_subject *s)
{
    const row_job *j = p;
    s->ops.add(j->y, j->x, j->n);
}

void ck_add(ck_test *t)
{
    for (size_t i = 0; i < LENGTHS; i++)
        for (int f = 0; f <= CK_NONFINITE; f++) {
            row_job j = {.n = length_at(i)};
            ck_work work = f == CK_PLAIN ? work_at(j.n, 3, 1) : (ck_work){0};
            if (!ck_case(t, work, "n=%zu %s", j.n, ck_flavour_name((ck_flavour)f))) continue;
            j.x = ck_in_floats(t, "x", (ck_flavour)f, j.n);
            j.y = ck_inout(t, "y", CK_F32, j.n, j.n * sizeof(float));
            ck_floats(&t->rng, (ck_flavour)f, j.y, j.n);
            ck_run(t, add_call, &j);
        }
}

/* ---- scale ------------------------------------------------------------------------------------------------------------------ */

static void scale_call(const void *p, const ck_subject *s)
{
    const row_job *j = p;
    s->ops.scale(j->y, j->x, j->n, j->by);
}

void ck_scale(ck_test *t)
{
    static const float by[] = {25.25f, 1.0f, 0.088388346f, -3.0f, 0x1p-120f};
    for (size_t i = 0; i < LENGTHS; i++)
        for (int f = 0; f <= CK_NONFINITE; f++) {
            row_job j = {.n = length_at(i), .by = by[(i + (size_t)f) % 5]};
            ck_work work = f == CK_PLAIN ? work_at(j.n, 2, 1) : (ck_work){0};
            if (work.bytes > 0) j.by = by[0];
            bool in_place = (i + (size_t)f) % 3 == 0 && work.bytes == 0; /* repeated, it would leave the range of ordinary values */
            if (!ck_case(t, work, "n=%zu by %a %s%s", j.n, (double)j.by, ck_flavour_name((ck_flavour)f),
                         in_place ? " in place" : ""))
                continue;
            if (in_place) {
                j.y = ck_inout(t, "y", CK_F32, j.n, j.n * sizeof(float));
                ck_floats(&t->rng, (ck_flavour)f, j.y, j.n);
                j.x = j.y;
            } else {
                j.x = ck_in_floats(t, "x", (ck_flavour)f, j.n);
                j.y = ck_out(t, "y", CK_F32, j.n, j.n * sizeof(float));
            }
            ck_run(t, scale_call, &j);
        }
}

/* ---- softcap ---------------------------------------------------------------------------------------------------------------- */

static void softcap_call(const void *p, const ck_subject *s)
{
    const row_job *j = p;
    s->ops.softcap(j->y, j->n, j->by);
}

void ck_softcap(ck_test *t)
{
    static const float caps[] = {30.0f, 50.0f, 1.0f, 0.3f};
    for (size_t i = 0; i < LENGTHS; i++)
        for (int f = 0; f <= CK_NONFINITE; f++) {
            row_job j = {.n = length_at(i), .by = caps[(i + (size_t)f) % 4]};
            ck_work work = f == CK_PLAIN ? work_at(j.n, 2, 20) : (ck_work){0};
            if (!ck_case(t, work, "n=%zu cap %a %s", j.n, (double)j.by, ck_flavour_name((ck_flavour)f))) continue;
            j.y = ck_inout(t, "y", CK_F32, j.n, j.n * sizeof(float));
            ck_floats(&t->rng, (ck_flavour)f, j.y, j.n);
            ck_run(t, softcap_call, &j);
        }
}

/* ---- argmax ------------------------------------------------------------------------------------------------------------------ */

static void argmax_call(const void *p, const ck_subject *s)
{
    const row_job *j = p;
    *j->result = s->ops.argmax(j->x, j->n);
}

typedef enum argmax_kind { AS_IS, TIES, ZERO_TIES, ALL_LOWEST, ONE_NAN, LAST_NAN, INFINITE_TOP, ARGMAX_KINDS } argmax_kind;

static void argmax_values(ck_test *t, argmax_kind kind, float *x, size_t n)
{
    ck_floats(&t->rng, CK_PLAIN, x, n);
    float infinity = im__f32_of_bits(0x7f800000), nan = im__f32_of_bits(0x7fc00000);
    uint32_t size = (uint32_t)n;
    switch (kind) {
    case TIES:
        for (int k = 0; k < 3; k++) x[ck_below(&t->rng, size)] = 9.0f;
        break;
    case ZERO_TIES:
        for (size_t i = 0; i < n; i++) x[i] = ck_below(&t->rng, 4) == 0 ? (ck_below(&t->rng, 2) ? 0.0f : -0.0f) : -1.0f;
        break;
    case ALL_LOWEST:
        for (size_t i = 0; i < n; i++) x[i] = -infinity;
        break;
    case ONE_NAN: x[ck_below(&t->rng, size)] = nan; break;
    case LAST_NAN: x[n - 1] = -nan; break;
    case INFINITE_TOP: x[ck_below(&t->rng, size)] = infinity; break;
    case AS_IS:
    case ARGMAX_KINDS: break;
    }
}

void ck_argmax(ck_test *t)
{
    static const char *const names[] = {"plain", "ties", "zeros tie", "all -inf", "one NaN", "last NaN", "+inf"};
    static const size_t vocabularies[] = {49152, 100003};
    for (size_t i = 0; i < LENGTHS + 2; i++)
        for (int kind = 0; kind < ARGMAX_KINDS; kind++) {
            row_job j = {.n = i < LENGTHS ? length_at(i) : vocabularies[i - LENGTHS]};
            ck_work work = j.n == 49152 && kind == AS_IS ? (ck_work){4.0 * (double)j.n, (double)j.n} : (ck_work){0};
            if (!ck_case(t, work, "n=%zu %s", j.n, names[kind])) continue;
            float *x = ck_in(t, "x", j.n * sizeof(float), sizeof(float));
            argmax_values(t, (argmax_kind)kind, x, j.n);
            j.x = x;
            j.result = ck_out_number(t, "index");
            ck_run(t, argmax_call, &j);
        }
}
