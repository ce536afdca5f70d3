/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/self_check.h"

#include "base/mem.h"
#include "num/group.h"
#include "num/half.h"

#include <math.h>
#include <string.h>

enum { N_IN = 512, N_OUT = 24, FEW = 5, ROWS = 41, HEAD = 64, KEYS = 70, QUERIES = 3 };

/* A fixed stream of bits (xorshift): the same case on every machine. */
static uint32_t next_bits(uint32_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 17;
    *state ^= *state << 5;
    return *state;
}

static float next_float(uint32_t *state) { return ((float)(next_bits(state) >> 8) * 0x1p-24f - 0.5f) * 4.0f; }

static void fill_floats(float *x, size_t n, uint32_t *state)
{
    for (size_t i = 0; i < n; i++) x[i] = next_float(state);
}

/* ---- products ----------------------------------------------------------------------------------------------------------------------------- */

static bool finite_block(uint32_t dtype, const uint8_t *block)
{
    const im__dtype_info *t = im__dtype_get(dtype);
    im__group g;
    for (size_t i = 0; i < (size_t)(t->block_len / t->group_len); i++) {
        im__group_read(dtype, block, i, &g);
        if (!isfinite(g.s) || !isfinite(g.m)) return false;
    }
    return true;
}

/* Random bits are valid weights except where a scale comes out infinite or NaN: such blocks are drawn again. */
static void fill_weights(uint32_t dtype, uint8_t *data, size_t elements, uint32_t *state)
{
    const im__dtype_info *t = im__dtype_get(dtype);
    for (size_t b = 0; b < elements / t->block_len; b++) {
        uint8_t *block = data + b * t->block_bytes;
        if (im__dtype_is_float(dtype)) {
            uint32_t bits = im__bits_of_f32(next_float(state));
            uint16_t half = dtype == IM__F16 ? im__f16_of_f32(im__f32_of_bits(bits)) : (uint16_t)(bits >> 16);
            memcpy(block, dtype == IM__F32 ? (const void *)&bits : (const void *)&half, t->block_bytes);
            continue;
        }
        do
            for (size_t i = 0; i < t->block_bytes; i++) block[i] = (uint8_t)next_bits(state);
        while (!finite_block(dtype, block));
    }
}

static bool same(const float *a, const float *b, size_t n) { return memcmp(a, b, n * sizeof *a) == 0; }

/* One case with all its memory in one block. */
typedef struct product {
    im__weight w;
    im__act act;
    im__matmul_in in;
    float *x, *want, *got;
} product;

static void prepare(product *p, const im__matmul_kernel *k, uint8_t *block)
{
    uint32_t state = 2463534242u + k->dtype;
    size_t row_bytes = im__dtype_row_bytes(k->dtype, N_IN), packed = (k->packed_bytes(N_OUT, N_IN) + 63) & ~(size_t)63;
    uint8_t *data = block + packed + im__act_bytes(ROWS, N_IN);
    p->w = (im__weight){.dtype = k->dtype,
                        .n_in = N_IN,
                        .n_out = N_OUT,
                        .data = data,
                        .row_bytes = row_bytes,
                        .packed = block,
                        .packed_bytes = packed};
    p->act = im__act_carve(block + packed, ROWS, N_IN);
    p->x = (float *)(data + ((N_OUT * row_bytes + 63) & ~(size_t)63));
    p->want = p->x + ROWS * N_IN;
    p->got = p->want + ROWS * N_OUT;
    fill_weights(k->dtype, data, (size_t)N_OUT * N_IN, &state);
    fill_floats(p->x, (size_t)ROWS * N_IN, &state);
    im__ops c;
    im__ops_c(&c);
    for (size_t r = 0; r < ROWS; r++) c.quantise(&p->act, r, p->x + r * N_IN);
    bool quantised = !im__dtype_is_float(k->dtype);
    p->in = (im__matmul_in){.act = quantised ? &p->act : NULL, .x = quantised ? NULL : p->x, .x_stride = N_IN};
}

static size_t block_bytes(const im__matmul_kernel *k)
{
    size_t packed = (k->packed_bytes(N_OUT, N_IN) + 63) & ~(size_t)63,
           weights = (N_OUT * im__dtype_row_bytes(k->dtype, N_IN) + 63) & ~(size_t)63;
    return packed + im__act_bytes(ROWS, N_IN) + weights + sizeof(float) * (ROWS * N_IN + 2 * ROWS * N_OUT) + 64;
}

static bool check_rows(const im__matmul_kernel *k, product *p, size_t rows)
{
    p->in.rows = rows;
    im__matmul_c(&p->w, &p->in, NULL, p->want, N_OUT, 0, N_OUT);
    memset(p->got, 0xff, rows * N_OUT * sizeof(float));
    k->run(&p->w, &p->in, NULL, p->got, N_OUT, 0, N_OUT);
    return same(p->want, p->got, rows * N_OUT);
}

im_status im__matmul_self_check(const im__matmul_kernel *k, bool *good, im_error *err)
{
    *good = true;
    if (k->packed_bytes(N_OUT, N_IN) == 0) return IM_OK;
    size_t bytes = block_bytes(k);
    uint8_t *block = im__aligned_alloc(bytes);
    if (block == NULL) return im__fail(err, IM_ERR_MEMORY, "out of memory");
    product p;
    prepare(&p, k, block);
    k->pack(&p.w, block, 0, N_OUT);
    *good = check_rows(k, &p, 1) && check_rows(k, &p, FEW) && check_rows(k, &p, ROWS);
    im__aligned_free(block, bytes);
    return IM_OK;
}

/* ---- operations --------------------------------------------------------------------------------------------------------------------------- */

/* What one table makes of a fixed input: everything that it computes, side by side. Attention once with everything visible, once with a window and a cap. */
typedef struct outcome {
    float norm[N_IN], rope[2][N_IN], silu[N_IN], gelu[N_IN], sum[N_IN], scaled[N_IN], capped[N_IN];
    float attention[IM__KV_TYPES][2][QUERIES][2 * HEAD];
    uint16_t halves[2][2 * HEAD * IM__PAGE];
    float floats[2][2 * HEAD * IM__PAGE];
    int8_t q[N_IN];
    float d[N_IN / 32];
    int16_t s[N_IN / 16];
    int32_t best;
} outcome;

static void attend(const im__ops *ops, outcome *o, im__kv_type type, const float *x, float *scratch)
{
    static const int32_t table[2] = {0, 1}, position[QUERIES] = {KEYS - 8, KEYS - 7, KEYS - 1};
    im__kv_view kv = {.type = type,
                      .base = type == IM__KV_F16 ? (void *)o->halves : (void *)o->floats,
                      .page_stride = 2 * HEAD * IM__PAGE,
                      .v_offset = HEAD * IM__PAGE,
                      .table = table};
    for (int32_t i = 0; i < KEYS; i++) ops->kv_store(&kv, 1, HEAD, i, x + i, x + 2 * i);
    im__attention a = {.kv = kv,
                       .heads = 2,
                       .kv_heads = 1,
                       .head_dim = HEAD,
                       .scale = 0.125f,
                       .q = x,
                       .q_stride = 2 * HEAD,
                       .out_stride = 2 * HEAD,
                       .position = position};
    for (int kind = 0; kind < 2; kind++) {
        a.window = kind == 0 ? 0 : 40;
        a.softcap = kind == 0 ? 0 : 1.5f;
        a.out = o->attention[type][kind][0];
        ops->attention(&a, 0, QUERIES, 0, 1, scratch);
    }
}

static void compute(const im__ops *ops, outcome *o, const float *x, float *scratch)
{
    im__act act = {.n = N_IN, .q = o->q, .d = o->d, .sum = o->s};
    ops->quantise(&act, 0, x);
    ops->rms_norm(o->norm, x, x + 7, N_IN / 2, 2, 1e-6f);
    for (int kind = 0; kind < 2; kind++) {
        memcpy(o->rope[kind], x, sizeof o->rope[kind]);
        ops->rope(o->rope[kind], N_IN / HEAD, HEAD, HEAD, x + 3, x + 5, kind == 1);
    }
    ops->glu(o->silu, x, x + 1, N_IN, IM__GLU_SILU);
    ops->glu(o->gelu, x, x + 1, N_IN, IM__GLU_GELU);
    memcpy(o->sum, x, sizeof o->sum);
    ops->add(o->sum, x + 1, N_IN);
    ops->scale(o->scaled, x, N_IN, 1.7f);
    memcpy(o->capped, x, sizeof o->capped);
    ops->softcap(o->capped, N_IN, 2.5f);
    o->best = ops->argmax(x, N_IN);
    for (int type = 0; type < IM__KV_TYPES; type++) attend(ops, o, (im__kv_type)type, x, scratch);
}

static const char *first_difference(const outcome *a, const outcome *b)
{
#define DIFFERS(field, name)                                                                                                       \
    if (memcmp(&a->field, &b->field, sizeof a->field) != 0) return name
    DIFFERS(q, "quantise");
    DIFFERS(d, "quantise");
    DIFFERS(s, "quantise");
    DIFFERS(norm, "rms_norm");
    DIFFERS(rope, "rope");
    DIFFERS(silu, "glu");
    DIFFERS(gelu, "glu");
    DIFFERS(sum, "add");
    DIFFERS(scaled, "scale");
    DIFFERS(capped, "softcap");
    DIFFERS(best, "argmax");
    DIFFERS(halves, "kv_store");
    DIFFERS(floats, "kv_store");
    DIFFERS(attention, "attention");
#undef DIFFERS
    return NULL;
}

im_status im__ops_self_check(const im__ops *ops, const char **wrong, im_error *err)
{
    im__ops c;
    uint32_t state = 88172645u;
    size_t floats = 2 * N_IN + im__attention_scratch(2, 1, HEAD), bytes = 2 * sizeof(outcome) + floats * sizeof(float);
    outcome *o = im__aligned_alloc(bytes);
    if (o == NULL) return im__fail(err, IM_ERR_MEMORY, "out of memory");
    float *x = (float *)(o + 2);
    fill_floats(x, 2 * N_IN, &state);
    im__ops_c(&c);
    compute(&c, &o[0], x, x + 2 * N_IN);
    compute(ops, &o[1], x, x + 2 * N_IN);
    *wrong = first_difference(&o[0], &o[1]);
    im__aligned_free(o, bytes);
    return IM_OK;
}
