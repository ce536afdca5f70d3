/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cuda/cuda_check.h"

#include "backend/backend.h"
#include "num/dtype.h"
#include "num/half.h"
#include "num/real.h"
#include "ops/interpret.h"

#include <string.h>

enum {
    WIDTH = 512,
    HEADS = 4,
    KV_HEADS = 2,
    HEAD = 64,
    HIDDEN = 1024,
    VOCAB = 320,
    POSITIONS = 96,
    PROMPT = 80,
    MOST_MATRICES = 8
};

typedef struct maker {
    im__program p;
    uint32_t random;
    void *data[MOST_MATRICES];
    bool failed;
} maker;

static uint32_t next(maker *m)
{
    m->random = m->random * 1664525u + 1013904223u;
    return m->random >> 8;
}

/* Where the scales of a type's block are: binary16. */
static const struct {
    uint32_t dtype;
    int at[2];
    float size;
} scales[] = {
    {IM__Q4_0, {0, -1}, 0.01f}, {IM__Q5_0, {0, -1}, 0.005f}, {IM__Q8_0, {0, -1}, 0.0005f},
    {IM__Q4_1, {0, 2}, 0.01f},  {IM__Q4_K, {0, 2}, 0.0002f}, {IM__Q6_K, {208, -1}, 0.00003f},
};

static void fill_block(maker *m, uint32_t dtype, uint8_t *block)
{
    size_t bytes = im__dtype_get(dtype)->block_bytes;
    for (size_t i = 0; i < bytes; i++) block[i] = (uint8_t)next(m);
    for (size_t i = 0; i < sizeof scales / sizeof *scales; i++)
        for (int k = 0; k < 2 && scales[i].dtype == dtype; k++) {
            uint16_t half = im__f16_of_f32(scales[i].size * (0.5f + (float)(next(m) & 255) / 256));
            if (scales[i].at[k] >= 0) memcpy(block + scales[i].at[k], &half, 2);
        }
}

static int matrix(maker *m, uint32_t dtype, uint32_t n_in, uint32_t n_out)
{
    size_t row = im__dtype_row_bytes(dtype, n_in), bytes = row * n_out, block = im__dtype_get(dtype)->block_bytes;
    uint8_t *data = im__aligned_alloc(bytes);
    im__weight w = {.dtype = dtype, .n_in = n_in, .n_out = n_out, .data = data, .row_bytes = row};
    m->failed = m->failed || data == NULL;
    for (size_t at = 0; data != NULL && at < bytes; at += block) fill_block(m, dtype, data + at);
    int index = im__program_matrix(&m->p, "matrix", &w);
    if (index != IM__NONE) m->data[index] = data;
    return index;
}

static int norm_weight(maker *m, uint32_t n)
{
    float *data = im__calloc(n, sizeof *data);
    m->failed = m->failed || data == NULL;
    for (uint32_t i = 0; data != NULL && i < n; i++) data[i] = 0.5f + (float)(next(m) & 1023) / 1024;
    return im__program_vector(&m->p, "norm", data, n);
}

static im__op op_of(im__op_kind kind, int dst, int src)
{
    return (im__op){.kind = kind, .dst = dst, .src = src, .src2 = IM__NONE, .weight = IM__NONE, .vector = IM__NONE, .by = 1};
}

static void emit(maker *m, im__op op) { m->failed = im__program_op(&m->p, op) == IM__NONE || m->failed; }

static void norm(maker *m, int dst, int src, uint32_t n)
{
    im__op op = op_of(IM__OP_NORM, dst, src);
    op.n = n;
    op.vector = norm_weight(m, n);
    op.by = 1e-6f;
    emit(m, op);
}

static void multiply(maker *m, int dst, int src, uint32_t dtype)
{
    im__op op = op_of(IM__OP_MATMUL, dst, src);
    op.weight = matrix(m, dtype, m->p.value[src].width, m->p.value[dst].width);
    emit(m, op);
}

static void turn(maker *m, int value, uint32_t heads)
{
    im__op op = op_of(IM__OP_ROPE, value, IM__NONE);
    op.heads = heads;
    op.head_dim = HEAD;
    emit(m, op);
}

static void attention(maker *m, int x, int h, int q, int k, int v, int out)
{
    norm(m, h, x, WIDTH);
    multiply(m, q, h, IM__Q4_0);
    multiply(m, k, h, IM__Q4_1);
    multiply(m, v, h, IM__Q5_0);
    norm(m, q, q, HEAD);
    turn(m, q, HEADS);
    turn(m, k, KV_HEADS);
    im__program_kv(&m->p, (im__kv_layer){.kv_heads = KV_HEADS, .head_dim = HEAD, .window = 40, .type = IM__KV_F16});
    im__op store = op_of(IM__OP_KV_STORE, IM__NONE, k), attend = op_of(IM__OP_ATTENTION, out, q);
    store.src2 = v;
    store.head_dim = attend.head_dim = HEAD;
    attend.heads = HEADS;
    attend.by = 0.125f;
    emit(m, store);
    emit(m, attend);
    multiply(m, h, out, IM__Q8_0);
    emit(m, op_of(IM__OP_ADD, x, h));
}

static void feed_forward(maker *m, int x, int h, int gate, int up)
{
    norm(m, h, x, WIDTH);
    multiply(m, gate, h, IM__Q4_K);
    multiply(m, up, h, IM__Q6_K);
    im__op glu = op_of(IM__OP_GLU, gate, gate);
    glu.src2 = up;
    glu.glu = IM__GLU_GELU;
    emit(m, glu);
    multiply(m, h, gate, IM__Q4_K);
    emit(m, op_of(IM__OP_ADD, x, h));
}

static void make(maker *m)
{
    im__program *p = &m->p;
    double *frequency = im__calloc(HEAD / 2, sizeof *frequency);
    *p = (im__program){.arch = "check", .vocab = VOCAB, .context = POSITIONS};
    for (unsigned i = 0; frequency != NULL && i < HEAD / 2; i++) frequency[i] = im__rope_frequency(10000, i, HEAD);
    int x = im__program_value(p, "x", WIDTH), h = im__program_value(p, "h", WIDTH), q = im__program_value(p, "q", HEADS * HEAD),
        k = im__program_value(p, "k", KV_HEADS * HEAD), v = im__program_value(p, "v", KV_HEADS * HEAD),
        out = im__program_value(p, "out", HEADS * HEAD), gate = im__program_value(p, "gate", HIDDEN),
        up = im__program_value(p, "up", HIDDEN);
    p->logits = im__program_value(p, "logits", VOCAB);
    m->failed = frequency == NULL || im__program_rope(p, frequency, HEAD, false) == IM__NONE || p->logits == IM__NONE;
    if (m->failed) return;
    im__op embed = op_of(IM__OP_EMBED, x, IM__NONE);
    embed.weight = matrix(m, IM__Q8_0, WIDTH, VOCAB);
    emit(m, embed);
    attention(m, x, h, q, k, v, out);
    feed_forward(m, x, h, gate, up);
    emit(m, op_of(IM__OP_SELECT, IM__NONE, x));
    norm(m, h, x, WIDTH);
    im__op head = op_of(IM__OP_MATMUL, p->logits, h);
    head.weight = embed.weight;
    emit(m, head);
}

static void clear(maker *m)
{
    for (size_t i = 0; i < m->p.matrix_count; i++)
        im__aligned_free(m->data[i], m->p.matrix[i].w.row_bytes * m->p.matrix[i].w.n_out);
    im__program_clear(&m->p);
}

/* ---- comparing ------------------------------------------------------------------------------------------------------------------- */

enum { SINGLES = 4, TOLD = SINGLES + 1 /* rows whose logits are compared: the prompt's last, and those behind it */ };

static int32_t token_at(int32_t position) { return position * 7 % VOCAB; }

/* Before the backend is there, which tells the system that it will not read the weights again. */
static im_status expect(const im__program *p, float *expected, im_error *err)
{
    im__interpreter *i;
    IM__TRY(im__interpreter_new(&i, p, POSITIONS, err));
    for (int32_t n = 0; n < PROMPT + SINGLES; n++)
        im__interpret(i, token_at(n), n + 1 < PROMPT ? NULL : expected + (size_t)(n + 1 - PROMPT) * VOCAB);
    im__interpreter_free(i);
    return IM_OK;
}

/* Rows first .. end - 1; the last one's logits are compared. */
static im_status step(im__backend *b, int32_t first, int32_t end, float *logits, const float *expected, im_error *err)
{
    const int32_t pages[] = {1, 0};
    const im__seq_tables tables = {{pages, pages}};
    im__row row[PROMPT];
    for (int32_t i = first; i < end; i++)
        row[i - first] = (im__row){.token = token_at(i), .position = i, .wants_logits = i + 1 == end};
    im__step s = {.row = row, .rows = (size_t)(end - first), .seq = &tables, .seqs = 1, .logits = logits};
    IM__TRY(b->run(b, &s, err));
    for (size_t i = 0; i < VOCAB; i++)
        if (im__bits_of_f32(logits[i]) != im__bits_of_f32(expected[i]))
            return im__fail(err, IM_ERR_INTERNAL,
                            "logit %zu at position %d is %a on the device, %a by the reference; please report it", i, (int)end - 1,
                            (double)logits[i], (double)expected[i]);
    return IM_OK;
}

/* A prompt, then tokens one by one: launched, recorded, and replayed. */
static im_status compute(const im__program *p, int device, float *logits, float *expected, im_error *err)
{
    im__backend_options o = {
        .threads = 1, .max_rows = PROMPT, .max_logit_rows = 1, .pages = {2, 2}, .sequences = 1, .device = device};
    im__backend *b;
    IM__TRY(expect(p, expected, err));
    IM__TRY(im__backend_cuda_open(&b, p, &o, err));
    im_status status = step(b, 0, PROMPT, logits, expected, err);
    for (int32_t i = 0; i < SINGLES && status == IM_OK; i++)
        status = step(b, PROMPT + i, PROMPT + i + 1, logits, expected + (size_t)(i + 1) * VOCAB, err);
    b->close(b);
    return status;
}

im_status im__cuda_self_check(int device, size_t *checked, im_error *err)
{
    maker m = {.random = 1};
    float *logits = im__calloc(TOLD + 1, VOCAB * sizeof *logits);
    make(&m);
    im_status status = m.failed || logits == NULL ? im__fail(err, IM_ERR_MEMORY, "out of memory") : im__program_check(&m.p, err);
    if (status == IM_OK) status = compute(&m.p, device, logits, logits + VOCAB, err);
    im__free(logits);
    clear(&m);
    if (status == IM_OK && checked != NULL) *checked = (size_t)TOLD * VOCAB;
    return status;
}
