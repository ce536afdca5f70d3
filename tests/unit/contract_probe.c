/* SPDX-License-Identifier: Apache-2.0
 *
 * Prints what the plain C functions give for made-up inputs, as lines "name word word ..." of hexadecimal binary32; test_contract.py makes
 * the same inputs and judges the lines. Usage: contract_probe SEED
 */
#include "backend/backend.h"
#include "num/dtype.h"
#include "num/half.h"
#include "num/real.h"
#include "ops/reference.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint32_t state;

static uint32_t word(void)
{
    state = state * 1664525u + 1013904223u;
    return state >> 8;
}

/* A sixteen-bit integer times a power of two. */
static float value(void)
{
    uint32_t w = word(), e = word() % 8;
    return (float)((int)(w % 65536) - 32768) / (float)(1u << (9 + e));
}

static void values(float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) x[i] = value();
}

static void line(const char *name, const float *x, size_t n)
{
    printf("%s", name);
    for (size_t i = 0; i < n; i++) printf(" %08x", im__bits_of_f32(x[i]));
    printf("\n");
}

/* ---- functions ---- */

static void functions(void)
{
    float x[300], y[300];
    for (size_t i = 0; i < 300; i++) x[i] = value();
    for (size_t i = 0; i < 300; i++) y[i] = im__exp(x[i]);
    line("exp", y, 300);
    for (size_t i = 0; i < 300; i++) y[i] = im__exp((float)i * 0.5f - 55.0f);
    line("exp_wide", y, 300);
    for (size_t i = 0; i < 100; i++) y[i] = im__silu(x[i]);
    line("silu", y, 100);
    for (size_t i = 0; i < 100; i++) y[i] = im__gelu(x[i]);
    line("gelu", y, 100);
    for (size_t i = 0; i < 100; i++) y[i] = im__softcap(x[i], 30.0f);
    line("softcap", y, 100);
}

static void reductions(void)
{
    static const size_t lengths[] = {1, 100, 128, 129, 500};
    float x[1000], w[1000], y[1000];
    for (size_t i = 0; i < 5; i++) {
        values(x, lengths[i]);
        y[0] = im__lane_sum(x, lengths[i]);
        y[1] = im__lane_sum_squares(x, lengths[i]);
        line("lanes", y, 2);
    }
    values(x, 1000);
    values(w, 500);
    im__rms_norm_c(y, x, w, 500, 2, 1e-5f);
    line("rms_norm", y, 1000);
}

static void rotations(void)
{
    float x[20], c[4], s[4];
    for (int adjacent = 0; adjacent < 2; adjacent++) {
        values(x, 20);
        values(c, 4);
        values(s, 4);
        im__rope_c(x, 2, 10, 8, c, s, adjacent);
        line("rope", x, 20);
    }
}

/* "angle position frequency(16 digits) cosine sine" */
static void angles(void)
{
    for (unsigned i = 0; i < 120; i++) {
        int64_t position = i < 40 ? (int64_t)i : (int64_t)(word() % (i < 80 ? 1u << 20 : 1u << 24));
        double frequency = im__rope_frequency(i % 2 ? 10000.0 : 1000000.0, i % 32, 64);
        float c, s;
        uint64_t bits;
        memcpy(&bits, &frequency, sizeof bits);
        im__rope_angle(position, frequency, &c, &s);
        printf("angle %lld %016llx %08x %08x\n", (long long)position, (unsigned long long)bits, im__bits_of_f32(c),
               im__bits_of_f32(s));
    }
}

/* ---- products ---- */

enum { ROWS = 2, OUTS = 3, WIDTH = 544, WIDE_OUTS = 19, WIDE_WIDTH = 512 };

static void quantised(const im__act *act, float *x)
{
    values(x, ROWS * act->n);
    for (size_t i = 0; i < 32; i++) x[32 + i] = 0;
    for (size_t i = 0; i < 32; i++) x[64 + i] *= 0x1p-70f;
    for (size_t r = 0; r < ROWS; r++) im__quantise_c(act, r, x + r * act->n);
    float y[WIDTH];
    for (size_t i = 0; i < act->n; i++) y[i] = act->q[i];
    line("q", y, act->n);
    line("d", act->d, act->n / 32);
    for (size_t i = 0; i < act->n / 16; i++) y[i] = act->sum[i];
    line("sum", y, act->n / 16);
}

/* Random bytes, but every half-precision field of a block is a small number. `fields`: their places in the block. */
static void make_weights(uint8_t *w, size_t blocks, size_t block_bytes, const int fields[2])
{
    for (size_t b = 0; b < blocks; b++, w += block_bytes) {
        for (size_t i = 0; i < block_bytes; i++) w[i] = (uint8_t)word();
        for (int f = 0; f < 2 && fields[f] >= 0; f++) {
            uint16_t h = im__f16_of_f32(value() / 64);
            memcpy(w + fields[f], &h, sizeof h);
        }
    }
}

static void make_floats(uint8_t *to, size_t n, uint32_t dtype, float by)
{
    for (size_t i = 0; i < n; i++) {
        float v = value() * by;
        uint32_t b = im__bits_of_f32(v), h = dtype == IM__F16 ? im__f16_of_f32(v) : b >> 16;
        if (dtype == IM__F32) memcpy(to + 4 * i, &b, 4);
        if (dtype != IM__F32) memcpy(to + 2 * i, &(uint16_t){(uint16_t)h}, 2);
    }
}

static void multiply(const im__weight *w, const im__matmul_in *in)
{
    float y[ROWS * OUTS], bias[OUTS];
    values(bias, OUTS);
    im__matmul_c(w, in, bias, y, OUTS, 0, OUTS);
    line("product", y, ROWS * OUTS);
}

static float x[ROWS * WIDTH];
static uint64_t act_memory[4096];

static void product(uint32_t dtype, size_t n_in, const int fields[2])
{
    static uint8_t data[OUTS * WIDTH * 4];
    size_t row_bytes = im__dtype_row_bytes(dtype, n_in), block = im__dtype_get(dtype)->block_bytes;
    im__act act = im__act_carve(act_memory, ROWS, n_in);
    im__weight w = {.dtype = dtype, .n_in = n_in, .n_out = OUTS, .data = data, .row_bytes = row_bytes};
    im__matmul_in in = {.rows = ROWS, .x_stride = n_in};
    if (im__dtype_is_float(dtype)) {
        values(x, ROWS * n_in);
        make_floats(data, OUTS * n_in, dtype, 1);
        in.x = x;
    } else {
        quantised(&act, x);
        make_weights(data, OUTS * row_bytes / block, block, fields);
        in.act = &act;
    }
    multiply(&w, &in);
}

/* Affine codes as MLX stores them: codes, scales and biases in arrays of their own. */
static im__weight affine_weights(uint32_t bits, uint32_t group, uint32_t scale_dtype, size_t n_in, size_t n_out)
{
    static uint8_t codes[WIDE_OUTS * WIDTH], scale[WIDE_OUTS * WIDTH / 8], bias[sizeof scale];
    uint32_t dtype = im__split_dtype(bits, group, scale_dtype);
    im__weight w = {.dtype = dtype, .n_in = n_in, .n_out = n_out, .data = codes, .row_bytes = im__split_row_bytes(dtype, n_in)};
    w.split = (im__split){.scale = scale, .bias = bias, .scale_dtype = scale_dtype, .group = group};
    for (size_t i = 0; i < n_out * w.row_bytes; i++) codes[i] = (uint8_t)word();
    make_floats(scale, n_out * n_in / group, scale_dtype, 1.0f / 64);
    make_floats(bias, n_out * n_in / group, scale_dtype, 1.0f / 8);
    return w;
}

/* The product, and the first row's values. */
static void affine(uint32_t bits, uint32_t group, uint32_t scale_dtype, size_t n_in)
{
    float row[WIDTH];
    im__act act = im__act_carve(act_memory, ROWS, n_in);
    quantised(&act, x);
    im__weight w = affine_weights(bits, group, scale_dtype, n_in, OUTS);
    multiply(&w, &(im__matmul_in){.rows = ROWS, .x_stride = n_in, .act = &act});
    im__embed_row(&w, 0, 1, row);
    line("values", row, n_in);
}

/* ---- wide products: a program of one, run by the backend with the level c and with the best one ---- */

static im__program wide_program(const im__weight *table, const im__weight *w, float *bias)
{
    im__program p = {.arch = "wide", .vocab = WIDE_OUTS, .context = 64, .logits = 1};
    im__op plain = {.dst = IM__NONE, .src = IM__NONE, .src2 = IM__NONE, .weight = IM__NONE, .vector = IM__NONE};
    im__program_value(&p, "x", (uint32_t)w->n_in);
    im__program_value(&p, "logits", WIDE_OUTS);
    im__program_matrix(&p, "table", table);
    im__program_matrix(&p, "output", w);
    im__program_vector(&p, "bias", bias, WIDE_OUTS);
    im__op embed = plain, select = plain, product = plain;
    embed.kind = IM__OP_EMBED, embed.dst = 0, embed.weight = 0, embed.by = 1;
    select.kind = IM__OP_SELECT, select.src = 0;
    product.kind = IM__OP_MATMUL, product.dst = 1, product.src = 0, product.weight = 1, product.vector = 0, product.wide = true;
    im__program_op(&p, embed);
    im__program_op(&p, select);
    im__program_op(&p, product);
    return p;
}

static void run_wide(const im__program *p, const char *level)
{
    im_error err;
    im__backend *b;
    float logits[ROWS * WIDE_OUTS];
    im__row row[ROWS] = {{.token = 0, .wants_logits = true}, {.token = 1, .position = 1, .wants_logits = true}};
    im__step step = {.row = row, .rows = ROWS, .seq = &(im__seq_tables){{NULL}}, .seqs = 1, .logits = logits};
    im__backend_options o = {.threads = 2, .cpu_level = level, .max_rows = ROWS, .max_logit_rows = ROWS};
    if (im__program_check(p, &err) != IM_OK || im__backend_cpu_open(&b, p, &o, &err) != IM_OK || b->run(b, &step, &err) != IM_OK) {
        fprintf(stderr, "%s\n", err.message);
        exit(1);
    }
    line("wide", logits, ROWS * WIDE_OUTS);
    b->close(b);
}

static float wide_rows[WIDE_OUTS * WIDE_WIDTH];

static void make_wide_rows(size_t n_in)
{
    values(wide_rows, ROWS * n_in);
    for (size_t i = 0; i < 32; i++) wide_rows[32 + i] = 0;
    for (size_t i = 0; i < 32; i++) wide_rows[64 + i] *= 0x1p-70f;
}

static void multiply_wide(const im__weight *w)
{
    float *bias = im__calloc(WIDE_OUTS, sizeof *bias);
    if (bias == NULL) exit(1);
    im__weight table = {.dtype = IM__F32, .n_in = w->n_in, .n_out = WIDE_OUTS, .data = wide_rows, .row_bytes = 4 * w->n_in};
    values(bias, WIDE_OUTS);
    im__program p = wide_program(&table, w, bias);
    run_wide(&p, "c");
    run_wide(&p, NULL);
    im__program_clear(&p);
}

static void wide(uint32_t dtype, size_t n_in, const int fields[2])
{
    static uint8_t data[WIDE_OUTS * WIDE_WIDTH * 2];
    size_t row_bytes = im__dtype_row_bytes(dtype, n_in), block = im__dtype_get(dtype)->block_bytes;
    im__weight w = {.dtype = dtype, .n_in = n_in, .n_out = WIDE_OUTS, .data = data, .row_bytes = row_bytes};
    make_wide_rows(n_in);
    make_weights(data, WIDE_OUTS * row_bytes / block, block, fields);
    multiply_wide(&w);
}

static void wide_affine(uint32_t bits, uint32_t group, uint32_t scale_dtype, size_t n_in)
{
    make_wide_rows(n_in);
    im__weight w = affine_weights(bits, group, scale_dtype, n_in, WIDE_OUTS);
    multiply_wide(&w);
}

/* ---- attention ---- */

static void attend(im__kv_type type, uint32_t heads, uint32_t head_dim, size_t positions, uint32_t window, float cap)
{
    size_t pages = (positions + 63) / 64, page = (size_t)2 * head_dim * 64;
    void *memory = calloc(pages * page, im__kv_type_size(type));
    int32_t *table = calloc(pages, sizeof *table), row = (int32_t)positions - 1;
    if (!memory || !table) exit(1);
    for (size_t i = 0; i < pages; i++) table[i] = (int32_t)(pages - 1 - i);
    im__kv_view kv = {.type = type, .base = memory, .page_stride = page, .v_offset = page / 2, .table = table};
    float k[512], v[512], q[1024], out[1024];
    size_t clamped = 0;
    for (size_t p = 0; p < positions; p++) {
        values(k, head_dim);
        values(v, head_dim);
        if (p == 1) v[0] = 70000.0f, v[1] = -65504.0f;
        clamped += im__kv_store_c(&kv, 1, head_dim, (int32_t)p, k, v);
    }
    values(q, heads * head_dim);
    im__attention a = {
        .kv = kv, .heads = heads, .kv_heads = 1, .head_dim = head_dim, .window = window, .scale = 0.0625f, .softcap = cap};
    a.q = q, a.out = out, a.position = &row;
    im__attention_c(&a, 0, 1, 0, 1, NULL);
    line("attention", out, heads * head_dim);
    printf("clamped %zu\n", clamped);
    free(memory);
    free(table);
}

int main(int argc, char **argv)
{
    state = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : 1;
    functions();
    reductions();
    rotations();
    angles();
    product(IM__Q4_1, 288, (const int[]){0, 2});
    product(IM__Q8_0, 544, (const int[]){0, -1});
    product(IM__Q6_K, 512, (const int[]){208, -1});
    product(IM__Q2_K, 512, (const int[]){80, 82});
    wide(IM__Q4_1, 288, (const int[]){0, 2});
    wide(IM__Q6_K, 512, (const int[]){208, -1});
    affine(2, 64, IM__BF16, 320);
    affine(3, 128, IM__BF16, 384);
    affine(4, 64, IM__BF16, 320);
    affine(4, 64, IM__F16, 320);
    affine(4, 32, IM__F32, 288);
    affine(5, 32, IM__F16, 288);
    affine(5, 32, IM__F32, 288);
    affine(6, 64, IM__F16, 320);
    affine(8, 128, IM__BF16, 512);
    affine(8, 32, IM__F32, 288);
    for (uint32_t bits = 2; bits <= 8; bits += bits == 6 ? 2 : 1) {
        wide_affine(bits, 64, IM__BF16, 320);
        wide_affine(bits, 32, IM__F32, 288);
    }
    product(IM__F32, 300, NULL);
    product(IM__F16, 256, NULL);
    product(IM__BF16, 513, NULL);
    attend(IM__KV_F16, 2, 130, 70, 50, 0);
    attend(IM__KV_F16, 1, 6, 200, 0, 20.0f);
    attend(IM__KV_F16, 1, 2, 2100, 0, 0);
    attend(IM__KV_F16, 1, 2, 1100, 40, 0);
    attend(IM__KV_F32, 2, 66, 70, 50, 0);
    attend(IM__KV_F32, 1, 2, 1100, 0, 20.0f);
    return 0;
}
