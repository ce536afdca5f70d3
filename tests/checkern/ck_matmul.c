/* SPDX-License-Identifier: Apache-2.0
 *
 * Matrix products. The reference multiplies the matrix as stored, in one call; the kernel multiplies what its packer made of it, in one
 * of several ways that must not matter: whole, cut into ranges of outputs and groups of rows, ranges by several threads at once, or each
 * row by itself.
 */
#include "ck_inputs.h"

#include "num/dtype.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_CUTS 24
#define MAX_THREADS 4

typedef enum way { WHOLE, CUT, ALONE, THREADS, WAYS } way;

typedef struct matmul_job {
    way way;
    im__weight stored, packed;
    im__matmul_in in;
    im__act act; /* of all rows */
    im__act one; /* room for one row by itself; ALONE only */
    float *one_x;
    const float *bias;
    float *y;
    size_t y_stride, begin, end; /* outputs that are computed */
    size_t cuts, cut[MAX_CUTS];  /* inner borders of the ranges; CUT and THREADS */
    size_t row_cuts, row_cut[MAX_CUTS];
} matmul_job;

/* ---- ways of calling --------------------------------------------------------------------------------------------------------- */

static im__act act_rows(const im__act *act, size_t row)
{
    return (im__act){act->n, act->q + row * act->n, act->d + row * (act->n / 32), act->sum + row * (act->n / 16)};
}

static void run_rows(const matmul_job *j, const ck_subject *s, size_t row, size_t rows, size_t begin, size_t end)
{
    im__matmul_in in = j->in;
    im__act act;
    in.rows = rows;
    if (in.act != NULL)
        act = act_rows(in.act, row), in.act = &act;
    else
        in.x += row * in.x_stride;
    s->kernel->run(&j->packed, &in, j->bias, j->y + row * j->y_stride, j->y_stride, begin, end);
}

/* Ranges last to first, so that nothing depends on the order either. */
static void run_cut(const matmul_job *j, const ck_subject *s)
{
    for (size_t r = 0; r <= j->row_cuts; r++) {
        size_t row = r == 0 ? 0 : j->row_cut[r - 1], row_end = r == j->row_cuts ? j->in.rows : j->row_cut[r];
        for (size_t c = j->cuts + 1; c-- > 0;) {
            size_t begin = c == 0 ? j->begin : j->cut[c - 1], end = c == j->cuts ? j->end : j->cut[c];
            run_rows(j, s, row, row_end - row, begin, end);
        }
    }
}

static void run_alone(const matmul_job *j, const ck_subject *s)
{
    for (size_t r = 0; r < j->in.rows; r++) {
        im__matmul_in in = j->in;
        in.rows = 1;
        if (in.act != NULL) {
            im__act from = act_rows(in.act, r);
            memcpy(j->one.q, from.q, from.n);
            memcpy(j->one.d, from.d, from.n / 32 * sizeof(float));
            memcpy(j->one.sum, from.sum, from.n / 16 * sizeof(int16_t));
            in.act = &j->one;
        } else {
            memcpy(j->one_x, in.x + r * in.x_stride, j->stored.n_in * sizeof(float));
            in.x = j->one_x;
        }
        s->kernel->run(&j->packed, &in, j->bias, j->y + r * j->y_stride, j->y_stride, j->begin, j->end);
    }
}

typedef struct share {
    const matmul_job *j;
    const ck_subject *s;
    size_t begin, end;
    pthread_barrier_t *start;
} share;

static void *run_share(void *p)
{
    const share *of = p;
    pthread_barrier_wait(of->start);
    run_rows(of->j, of->s, 0, of->j->in.rows, of->begin, of->end);
    return NULL;
}

static void run_threads(const matmul_job *j, const ck_subject *s)
{
    size_t count = (j->cuts < MAX_THREADS - 1 ? j->cuts : MAX_THREADS - 1) + 1;
    pthread_t thread[MAX_THREADS];
    share of[MAX_THREADS];
    pthread_barrier_t start;
    pthread_barrier_init(&start, NULL, (unsigned)count);
    for (size_t i = 0; i < count; i++)
        of[i] = (share){j, s, i == 0 ? j->begin : j->cut[i - 1], i + 1 == count ? j->end : j->cut[i], &start};
    for (size_t i = 1; i < count; i++)
        if (pthread_create(&thread[i], NULL, run_share, &of[i]) != 0) abort();
    run_share(&of[0]);
    for (size_t i = 1; i < count; i++) pthread_join(thread[i], NULL);
    pthread_barrier_destroy(&start);
}

static void matmul_call(const void *p, const ck_subject *s)
{
    const matmul_job *j = p;
    if (s->kernel == NULL)
        im__matmul_c(&j->stored, &j->in, j->bias, j->y, j->y_stride, j->begin, j->end);
    else if (j->way == WHOLE)
        run_rows(j, s, 0, j->in.rows, j->begin, j->end);
    else if (j->way == CUT)
        run_cut(j, s);
    else if (j->way == THREADS)
        run_threads(j, s);
    else
        run_alone(j, s);
}

/* ---- inputs -------------------------------------------------------------------------------------------------------------------- */

/* Rows that no quantiser makes from bell-shaped values: only the largest integers, scales of any size. */
static void corner_act(ck_test *t, im__act *act, size_t rows)
{
    static const int8_t corner[] = {127, -127, 0, 1};
    for (size_t g = 0; g < rows * act->n / 16; g++) {
        int8_t fixed = corner[ck_below(&t->rng, 4)];
        bool random = ck_below(&t->rng, 2);
        int sum = 0;
        for (size_t i = g * 16; i < g * 16 + 16; i++) {
            act->q[i] = random ? (int8_t)((int)ck_below(&t->rng, 255) - 127) : fixed;
            sum += act->q[i];
        }
        act->sum[g] = (int16_t)sum;
    }
    for (size_t r = 0; r < rows; r++)
        ck_floats(&t->rng, (ck_flavour)ck_below(&t->rng, CK_FINITE), act->d + r * (act->n / 32), act->n / 32);
}

static im__act act_blocks(ck_test *t, const char *prefix, size_t rows, size_t n,
                          void *(*make)(ck_test *, const char *, size_t, size_t))
{
    char q[16], d[16], sum[16];
    snprintf(q, sizeof q, "%sq", prefix);
    snprintf(d, sizeof d, "%sd", prefix);
    snprintf(sum, sizeof sum, "%ssum", prefix);
    return (im__act){n, make(t, q, rows * n, 64), make(t, d, rows * n / 32 * sizeof(float), 64),
                     make(t, sum, rows * n / 16 * sizeof(int16_t), 64)};
}

static void quantised_rows(ck_test *t, matmul_job *j, ck_flavour f, bool corners)
{
    size_t n = j->stored.n_in, rows = j->in.rows;
    j->act = act_blocks(t, "", rows, n, ck_in);
    j->one = act_blocks(t, "one ", 1, n, ck_scratch);
    j->in.act = &j->act;
    if (corners) {
        corner_act(t, &j->act, rows);
        return;
    }
    float *x = ck_scratch(t, "x", n * sizeof(float), sizeof(float));
    for (size_t r = 0; r < rows; r++) {
        ck_floats(&t->rng, f, x, n);
        t->reference->ops.quantise(&j->act, r, x);
    }
}

static void float_rows(ck_test *t, matmul_job *j, ck_flavour f)
{
    size_t n = j->stored.n_in;
    j->in.x_stride = n + ck_below(&t->rng, 4);
    size_t count = (j->in.rows - 1) * j->in.x_stride + n;
    j->one_x = ck_scratch(t, "one x", n * sizeof(float), sizeof(float));
    j->in.x = ck_in_floats(t, "x", f, count);
}

static void weights(ck_test *t, matmul_job *j, ck_flavour f)
{
    im__weight *w = &j->stored;
    w->row_bytes = im__dtype_row_bytes(w->dtype, w->n_in);
    unsigned char *data = ck_in(t, "weights", w->n_out * w->row_bytes, 2);
    for (size_t o = 0; o < w->n_out; o++)
        ck_weights(&t->rng, f < CK_FINITE ? f : (ck_flavour)ck_below(&t->rng, CK_FINITE), w->dtype, data + o * w->row_bytes,
                   w->n_in);
    w->data = data;
}

/* Packs in ranges, last to first; what is packed may not depend on how. */
static void pack(ck_test *t, matmul_job *j, size_t bytes)
{
    const im__matmul_kernel *k = t->subject->kernel;
    j->packed = j->stored;
    j->packed.packed = ck_in(t, "packed", bytes, 64);
    j->packed.packed_bytes = bytes;
    for (size_t end = j->stored.n_out; end > 0;) {
        size_t begin = (end - 1) / 16 * 16;
        begin -= ck_below(&t->rng, (uint32_t)(begin / 16) + 1) * 16;
        k->pack(&j->stored, j->packed.packed, begin, end);
        end = begin;
    }
    j->packed.data = NULL;
}

/* Inner borders between `begin` and `end`, multiples of `step`, at random. */
static size_t borders(ck_test *t, size_t begin, size_t end, size_t step, size_t *out)
{
    size_t count = 0;
    for (size_t at = (begin / step + 1) * step; at < end && count < MAX_CUTS; at += step)
        if (ck_below(&t->rng, 2)) out[count++] = at;
    return count;
}

static void outputs(ck_test *t, matmul_job *j, bool part)
{
    size_t n = j->stored.n_out, lines = (n + 15) / 16;
    j->y_stride = n + ck_below(&t->rng, 4);
    j->end = n;
    if (part) {
        j->begin = ck_below(&t->rng, (uint32_t)lines) * 16;
        size_t end = j->begin + 16 * ck_between(&t->rng, 1, (uint32_t)lines);
        j->end = end < n ? end : n;
    }
    j->cuts = borders(t, j->begin, j->end, 16, j->cut);
    j->row_cuts = borders(t, 0, j->in.rows, 1, j->row_cut);
    j->y = ck_out(t, "y", CK_F32, j->y_stride, ((j->in.rows - 1) * j->y_stride + n) * sizeof(float));
}

/* ---- cases ----------------------------------------------------------------------------------------------------------------------- */

/* `turn` walks through the combinations of flavours, ways and options. */
static void matmul_case(ck_test *t, size_t n_in, size_t n_out, size_t rows, size_t turn, bool timed)
{
    uint32_t dtype = t->family->dtype;
    bool is_float = im__dtype_is_float(dtype), corners = !is_float && turn % 5 == 4, part = turn % 7 == 6, bias = turn % 3 == 1;
    const im__matmul_kernel *kernel = t->subject->kernel;
    if (n_in % im__dtype_get(dtype)->block_len != 0) return;
    ck_flavour rows_flavour = (ck_flavour)(timed ? CK_PLAIN : turn % (CK_NONFINITE + 1)),
               weights_flavour = timed ? CK_PLAIN : (ck_flavour)(turn / 2 % (CK_FINITE + 1));
    double size = (double)n_in * (double)n_out;
    ck_work work = {0};
    if (timed) work = (ck_work){(double)im__dtype_row_bytes(dtype, n_in) * (double)n_out, 2 * size * (double)rows};
    static const char *const ways[] = {"whole", "cut", "alone", "threads"};
    matmul_job j = {
        .way = timed ? WHOLE : (way)(turn % WAYS), .stored = {.dtype = dtype, .n_in = n_in, .n_out = n_out}, .in = {.rows = rows}};
    if (!ck_case(t, work, "%zu x %zu, %zu rows, turn %zu, %s, %s", n_out, n_in, rows, turn, ways[j.way],
                 ck_flavour_name(rows_flavour)))
        return;
    size_t bytes = kernel != NULL ? kernel->packed_bytes(n_out, n_in) : 0;
    if (kernel != NULL && bytes == 0) {
        t->result->declined++;
        return;
    }
    weights(t, &j, weights_flavour);
    if (is_float)
        float_rows(t, &j, rows_flavour);
    else
        quantised_rows(t, &j, rows_flavour, corners);
    if (bias) j.bias = ck_in_floats(t, "bias", CK_PLAIN, n_out);
    outputs(t, &j, part && !timed);
    if (kernel != NULL) pack(t, &j, bytes);
    ck_run(t, matmul_call, &j);
}

void ck_matmul(ck_test *t)
{
    static const size_t n_in[] = {32, 64, 96, 256, 288, 512, 576, 640, 768, 2048}, n_out[] = {1, 15, 16, 17, 32, 33, 63, 100};
    static const size_t many[] = {48, 71, 131, 139, 261}; /* beyond the blocks of rows that kernels take */
    static const size_t real[][2] = {{576, 192}, {1536, 576}, {640, 1024}, {2048, 640}};
    size_t turn = 0;
    for (size_t rows = 1; rows <= 33; rows++)
        for (size_t i = 0; i < 2; i++, turn++) matmul_case(t, i ? 512 : 288, 33 + 16 * (rows % 2), rows, turn, false);
    for (size_t i = 0; i < sizeof n_in / sizeof n_in[0]; i++)
        for (size_t o = 0; o < sizeof n_out / sizeof n_out[0]; o++, turn++)
            matmul_case(t, n_in[i], n_out[o], 1 + turn % 2 * 4, turn, false);
    for (size_t i = 0; i < sizeof many / sizeof many[0]; i++, turn++) matmul_case(t, i % 2 ? 512 : 288, 49, many[i], turn, false);
    for (size_t i = 0; i < sizeof real / sizeof real[0]; i++, turn++) matmul_case(t, real[i][0], real[i][1], 1 + i, turn, false);
    matmul_case(t, 2048, 4096, 1, 0, true);
    matmul_case(t, 1536, 576, 32, 0, true);
}
