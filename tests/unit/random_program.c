/* SPDX-License-Identifier: Apache-2.0 */
#include "random_program.h"

#include "num/dtype.h"
#include "num/half.h"
#include "num/real.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

enum { HEADS = 4, KV_HEADS = 2, MOST_LAYERS = 3 };

uint32_t random_below(uint32_t *state, uint32_t n)
{
    *state = *state * 1664525u + 1013904223u;
    return (uint32_t)((uint64_t)(*state >> 4) * n >> 28);
}

float random_float(uint32_t *state) { return (float)random_below(state, 1u << 24) * 0x1p-23f - 1.0f; }

typedef struct maker {
    im__program *p;
    uint32_t random, head_dim;
    bool written[32];
    int embedding[32]; /* matrix that looks a value up, or IM__NONE */
    int stored;        /* layers so far */
    int logits;
} maker;

static uint32_t below(maker *m, uint32_t n) { return random_below(&m->random, n); }

static uint32_t width(const maker *m, int value) { return m->p->value[value].width; }

/* ---- weights ------------------------------------------------------------------------------------------------------------------------------ */

/* Where a block keeps its scales (binary16); the other bytes may be anything. */
static void tame(uint32_t dtype, uint8_t *block, uint32_t *random)
{
    static const struct {
        uint32_t dtype;
        size_t at[2];
        size_t count;
        float largest;
    } scales[] = {{IM__Q4_0, {0}, 1, 0.02f},  {IM__Q4_1, {0, 2}, 2, 0.02f}, {IM__Q5_0, {0}, 1, 0.01f},
                  {IM__Q8_0, {0}, 1, 0.001f}, {IM__Q4_K, {0, 2}, 2, 3e-4f}, {IM__Q6_K, {208}, 1, 5e-5f}};
    for (size_t i = 0; i < sizeof scales / sizeof *scales; i++)
        for (size_t k = 0; scales[i].dtype == dtype && k < scales[i].count; k++) {
            uint16_t half = im__f16_of_f32(random_float(random) * scales[i].largest);
            memcpy(block + scales[i].at[k], &half, 2);
        }
}

static void fill(uint32_t dtype, uint8_t *data, size_t bytes, uint32_t *random)
{
    const im__dtype_info *t = im__dtype_get(dtype);
    for (size_t at = 0; at < bytes; at += t->block_bytes) {
        if (im__dtype_is_float(dtype)) {
            float x = random_float(random) * 0.2f;
            uint32_t bits = im__bits_of_f32(x);
            uint16_t half = dtype == IM__F16 ? im__f16_of_f32(x) : (uint16_t)(bits >> 16);
            memcpy(data + at, dtype == IM__F32 ? (const void *)&bits : (const void *)&half, t->block_bytes);
            continue;
        }
        for (size_t i = 0; i < t->block_bytes; i++) data[at + i] = (uint8_t)random_below(random, 256);
        tame(dtype, data + at, random);
    }
}

/* Weights lie in a file, as those of models do: backends tell the system that they will not read it again. */
static void *map_weights(size_t bytes)
{
    int fd = memfd_create("weights", 0);
    assert_true(fd >= 0 && ftruncate(fd, (off_t)bytes) == 0);
    void *data = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_true(data != MAP_FAILED);
    close(fd);
    return data;
}

static int new_matrix(maker *m, uint32_t n_in, uint32_t n_out)
{
    static const uint32_t types[] = {IM__Q8_0, IM__Q4_0, IM__Q4_1, IM__Q5_0, IM__F32, IM__F16, IM__BF16, IM__Q4_K, IM__Q6_K};
    char name[IM__NAME_MAX];
    uint32_t dtype = types[n_in % 32 != 0 ? 4 + below(m, 3) : below(m, n_in % 256 == 0 ? 9 : 7)];
    size_t row_bytes = im__dtype_row_bytes(dtype, n_in);
    void *data = map_weights(row_bytes * n_out);
    fill(dtype, data, row_bytes * n_out, &m->random);
    snprintf(name, sizeof name, "matrix%zu", m->p->matrix_count);
    im__weight w = {.dtype = dtype, .n_in = n_in, .n_out = n_out, .data = data, .row_bytes = row_bytes};
    return im__program_matrix(m->p, name, &w);
}

static int new_vector(maker *m, uint32_t n)
{
    float *data = im__calloc(n, sizeof *data);
    assert_non_null(data);
    for (uint32_t i = 0; i < n; i++) data[i] = random_float(&m->random);
    return im__program_vector(m->p, "vector", data, n);
}

/* ---- operations ------------------------------------------------------------------------------------------------------------------------------- */

static im__op plain(im__op_kind kind, int dst, int src)
{
    return (im__op){.kind = kind, .dst = dst, .src = src, .src2 = IM__NONE, .weight = IM__NONE, .vector = IM__NONE};
}

static void emit(maker *m, im__op op)
{
    assert_int_not_equal(im__program_op(m->p, op), IM__NONE);
    if (op.dst != IM__NONE) m->written[op.dst] = true;
}

/* A value of this width (0: any) that has been written (or, for a target, may have been), other than `not`; IM__NONE: none. */
static int pick(maker *m, uint32_t want, bool written, int not )
{
    int found[32], n = 0;
    for (int v = 0; v < (int)m->p->value_count; v++)
        if (v != m->logits && v != not &&(want == 0 || width(m, v) == want) && (!written || m->written[v])) found[n++] = v;
    return n == 0 ? IM__NONE : found[below(m, (uint32_t)n)];
}

static void norm(maker *m, int dst, int src)
{
    im__op op = plain(IM__OP_NORM, dst, src);
    op.n = below(m, 2) == 0 || width(m, dst) % 32 != 0 ? width(m, dst) : 32;
    op.vector = new_vector(m, op.n);
    op.by = 1e-5f;
    emit(m, op);
}

static void matmul(maker *m, int dst, int src)
{
    im__op op = plain(IM__OP_MATMUL, dst, src);
    if (dst == IM__NONE || src == IM__NONE) return;
    op.weight = new_matrix(m, width(m, src), width(m, dst));
    op.wide = below(m, 3) == 0;
    if (below(m, 3) == 0) op.vector = new_vector(m, width(m, dst));
    emit(m, op);
}

/* Two or three products in a row, mostly of the same rows: the case that is grouped. */
static void matmuls(maker *m)
{
    int src = pick(m, 0, true, IM__NONE);
    for (uint32_t n = 1 + below(m, 3); n > 0; n--) {
        matmul(m, pick(m, 0, false, src), src);
        if (below(m, 4) == 0) src = pick(m, 0, true, IM__NONE);
    }
}

static void turn(maker *m, int value, uint32_t heads)
{
    im__op op = plain(IM__OP_ROPE, value, IM__NONE);
    op.heads = heads;
    op.head_dim = m->head_dim;
    op.rope = (int)below(m, 2);
    emit(m, op);
}

static void pointwise(maker *m)
{
    static const im__op_kind kinds[] = {IM__OP_GLU, IM__OP_ADD, IM__OP_SCALE, IM__OP_SOFTCAP, IM__OP_NORM, IM__OP_EMBED};
    im__op_kind kind = kinds[below(m, 6)];
    int src = pick(m, 0, true, IM__NONE), dst = pick(m, width(m, src), false, IM__NONE);
    im__op op = plain(kind, dst, src);
    op.by = 0.5f + (float)below(m, 4) * 0.25f;
    if (kind == IM__OP_NORM) {
        norm(m, dst, src);
        return;
    }
    if (kind == IM__OP_GLU) op.src2 = pick(m, width(m, src), true, dst), op.glu = below(m, 2) == 0 ? IM__GLU_SILU : IM__GLU_GELU;
    if (kind == IM__OP_GLU && op.src2 == IM__NONE) return;
    if (kind == IM__OP_ADD && (dst == src || !m->written[dst])) return;
    if (kind == IM__OP_SOFTCAP && !m->written[dst]) return;
    if (kind == IM__OP_SOFTCAP) op.src = IM__NONE, op.by = 3;
    if (kind == IM__OP_EMBED) op.src = IM__NONE, op.weight = m->embedding[dst];
    if (kind == IM__OP_EMBED && op.weight == IM__NONE) return;
    emit(m, op);
    if (kind == IM__OP_GLU || kind == IM__OP_ADD) norm(m, dst, dst); /* keeps the numbers moderate */
}

static im__op kv_op(maker *m, im__op_kind kind, int dst, int src)
{
    im__op op = plain(kind, dst, src);
    op.layer = m->stored;
    op.head_dim = m->head_dim;
    return op;
}

/* q, k and v from one value, turned and stored; attention follows at once, or after other things. */
static void layer(maker *m, int q, int k, int v, int att)
{
    static const uint32_t windows[] = {0, 0, 5, 40, 64, 100};
    im__kv_layer kv = {.kv_heads = KV_HEADS,
                       .head_dim = m->head_dim,
                       .window = windows[below(m, 6)],
                       .type = below(m, 2) == 0 ? IM__KV_F16 : IM__KV_F32};
    int src = pick(m, 0, true, q);
    if (src == q || src == k || src == v) return;
    matmul(m, q, src);
    matmul(m, k, src);
    matmul(m, v, src);
    if (below(m, 2) == 0) turn(m, q, HEADS);
    if (below(m, 2) == 0) turn(m, k, KV_HEADS);
    im__program_kv(m->p, kv);
    im__op store = kv_op(m, IM__OP_KV_STORE, IM__NONE, k), attend = kv_op(m, IM__OP_ATTENTION, att, q);
    store.src2 = v;
    attend.heads = HEADS;
    attend.by = 0.3f;
    attend.cap = below(m, 3) == 0 ? 2.0f : 0.0f;
    emit(m, store);
    for (uint32_t n = below(m, 3); n > 0; n--) pointwise(m);
    m->stored++;
    if (m->written[q]) emit(m, attend);
}

static void select_rows(maker *m)
{
    int keep = pick(m, 0, true, IM__NONE), other = below(m, 2) == 0 ? pick(m, 0, true, keep) : IM__NONE;
    im__op op = plain(IM__OP_SELECT, IM__NONE, keep);
    op.src2 = other;
    emit(m, op);
    for (int v = 0; v < 32; v++) m->written[v] = v == keep || v == other;
}

static void some_operations(maker *m, uint32_t n)
{
    for (; n > 0; n--) {
        int value = pick(m, 0, true, IM__NONE);
        uint32_t what = below(m, 6);
        if (what < 2)
            matmuls(m);
        else if (what == 2 && width(m, value) % m->head_dim == 0)
            turn(m, value, width(m, value) / m->head_dim);
        else
            pointwise(m);
    }
}

static void make_values(maker *m)
{
    static const uint32_t widths[] = {64, 64, 96, 256, 256, 128};
    char name[IM__NAME_MAX];
    for (size_t i = 0; i < 6; i++) {
        snprintf(name, sizeof name, "v%zu", i);
        im__program_value(m->p, name, widths[i]);
        m->embedding[i] = i % 2 == 0 ? new_matrix(m, widths[i], m->p->vocab) : IM__NONE;
    }
    for (int i = 6; i < 32; i++) m->embedding[i] = IM__NONE;
}

static void make_ropes(maker *m)
{
    for (int k = 0; k < 2; k++) {
        uint32_t dim = k == 0 ? m->head_dim : m->head_dim / 2;
        double *frequency = im__calloc(dim / 2, sizeof *frequency);
        assert_non_null(frequency);
        for (uint32_t i = 0; i < dim / 2; i++) frequency[i] = im__rope_frequency(10000.0, i, dim);
        im__program_rope(m->p, frequency, dim, k == 1);
    }
}

void random_program(im__program *p, uint32_t seed)
{
    static const uint32_t head_dims[] = {16, 32, 48, 80, 20, 24};
    maker m = {.p = p, .random = seed * 2654435761u + 1, .logits = IM__NONE};
    *p = (im__program){.vocab = 40 + random_below(&m.random, 60), .context = 512};
    snprintf(p->arch, sizeof p->arch, "random%u", seed);
    m.head_dim = head_dims[below(&m, 6)];
    make_values(&m);
    make_ropes(&m);
    int q = im__program_value(p, "q", HEADS * m.head_dim), k = im__program_value(p, "k", KV_HEADS * m.head_dim),
        v = im__program_value(p, "v", KV_HEADS * m.head_dim), att = im__program_value(p, "att", HEADS * m.head_dim);
    m.logits = p->logits = im__program_value(p, "logits", p->vocab);

    im__op embed = plain(IM__OP_EMBED, 0, IM__NONE);
    embed.weight = m.embedding[0];
    embed.by = 3;
    emit(&m, embed);
    for (int l = 0; l < MOST_LAYERS; l++) {
        some_operations(&m, 2 + below(&m, 5));
        layer(&m, q, k, v, att);
    }
    some_operations(&m, below(&m, 4));
    select_rows(&m);
    some_operations(&m, below(&m, 8));
    int last = pick(&m, 0, true, IM__NONE);
    norm(&m, last, last);
    matmul(&m, m.logits, last);
    if (below(&m, 2) == 0) {
        im__op cap = plain(IM__OP_SOFTCAP, m.logits, IM__NONE);
        cap.by = 5;
        emit(&m, cap);
    }
}

void random_program_clear(im__program *p)
{
    for (size_t i = 0; i < p->matrix_count; i++) {
        const im__weight *w = &p->matrix[i].w;
        munmap((void *)w->data, w->row_bytes * w->n_out);
    }
    im__program_clear(p);
}
