/* SPDX-License-Identifier: Apache-2.0
 *
 * What the families make of metadata: small models written in memory, and the list of operations that comes out. Expected values are those of the
 * published models: which layers have a window, which base and scale they turn with, where norms and biases stand.
 */
#include "gguf_make.h"
#include "model/model.h"
#include "num/dtype.h"
#include "num/real.h"
#include "ops/interpret.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { EMBD = 64, HEADS = 4, KV_HEADS = 2, HEAD = 32, FF = 96, VOCAB = 40 };

/* How a model is written; what is 0 is left out. */
typedef struct shape {
    const char *arch;
    uint32_t layers, window, pattern;
    float base, base_swa, factor, scale, attention_cap, final_cap;
    bool biases, qk_norms, post_norms, output, rope_freqs;
    const char *without; /* a tensor that is missing */
    const char *extra;   /* one that nobody asked for */
} shape;

static void put_u32(gguf_make *m, const shape *s, const char *name, uint32_t v)
{
    char key[96];
    snprintf(key, sizeof key, "%s.%s", s->arch, name);
    if (v != 0) make_u32(m, key, v);
}

static void put_f32(gguf_make *m, const shape *s, const char *name, float v)
{
    char key[96];
    snprintf(key, sizeof key, "%s.%s", s->arch, name);
    if (v != 0) make_f32(m, key, v);
}

static void put_tensor(gguf_make *m, const shape *s, int layer, const char *name, uint64_t n, uint64_t rows)
{
    char full[96];
    if (layer >= 0)
        snprintf(full, sizeof full, "blk.%d.%s", layer, name);
    else
        snprintf(full, sizeof full, "%s", name);
    if (s->without == NULL || strcmp(s->without, full) != 0) make_tensor(m, full, IM__F32, n, rows);
}

static void put_layer(gguf_make *m, const shape *s, int l)
{
    put_tensor(m, s, l, "attn_norm.weight", EMBD, 0);
    put_tensor(m, s, l, "attn_q.weight", EMBD, HEADS * HEAD);
    put_tensor(m, s, l, "attn_k.weight", EMBD, KV_HEADS * HEAD);
    put_tensor(m, s, l, "attn_v.weight", EMBD, KV_HEADS * HEAD);
    put_tensor(m, s, l, "attn_output.weight", HEADS * HEAD, EMBD);
    if (s->biases) {
        put_tensor(m, s, l, "attn_q.bias", HEADS * HEAD, 0);
        put_tensor(m, s, l, "attn_k.bias", KV_HEADS * HEAD, 0);
        put_tensor(m, s, l, "attn_v.bias", KV_HEADS * HEAD, 0);
    }
    if (s->qk_norms) {
        put_tensor(m, s, l, "attn_q_norm.weight", HEAD, 0);
        put_tensor(m, s, l, "attn_k_norm.weight", HEAD, 0);
    }
    if (s->post_norms) {
        put_tensor(m, s, l, "post_attention_norm.weight", EMBD, 0);
        put_tensor(m, s, l, "post_ffw_norm.weight", EMBD, 0);
    }
    put_tensor(m, s, l, "ffn_norm.weight", EMBD, 0);
    put_tensor(m, s, l, "ffn_gate.weight", EMBD, FF);
    put_tensor(m, s, l, "ffn_up.weight", EMBD, FF);
    put_tensor(m, s, l, "ffn_down.weight", FF, EMBD);
}

static void put_model(gguf_make *m, const shape *s)
{
    make_string(m, "general.architecture", s->arch);
    put_u32(m, s, "block_count", s->layers);
    put_u32(m, s, "embedding_length", EMBD);
    put_u32(m, s, "feed_forward_length", FF);
    put_u32(m, s, "attention.head_count", HEADS);
    put_u32(m, s, "attention.head_count_kv", KV_HEADS);
    put_u32(m, s, "attention.key_length", HEAD);
    put_u32(m, s, "attention.value_length", HEAD);
    put_u32(m, s, "attention.sliding_window", s->window);
    put_u32(m, s, "attention.sliding_window_pattern", s->pattern);
    put_f32(m, s, "attention.layer_norm_rms_epsilon", 1e-6f);
    put_f32(m, s, "rope.freq_base", s->base);
    put_f32(m, s, "rope.freq_base_swa", s->base_swa);
    put_f32(m, s, "rope.scaling.factor", s->factor);
    put_f32(m, s, "attention.scale", s->scale);
    put_f32(m, s, "attn_logit_softcapping", s->attention_cap);
    put_f32(m, s, "final_logit_softcapping", s->final_cap);
    put_tensor(m, s, -1, "token_embd.weight", EMBD, VOCAB);
    for (uint32_t l = 0; l < s->layers; l++) put_layer(m, s, (int)l);
    put_tensor(m, s, -1, "output_norm.weight", EMBD, 0);
    if (s->output) put_tensor(m, s, -1, "output.weight", EMBD, VOCAB);
    if (s->rope_freqs) put_tensor(m, s, -1, "rope_freqs.weight", HEAD / 2, 0);
    if (s->extra != NULL) make_tensor(m, s->extra, IM__F32, EMBD, 0);
}

/* The program of a model with the file behind it. */
typedef struct made {
    gguf_make m;
    im__source *s;
    im__program p;
} made;

static im_status try_open(made *t, const shape *s, im_error *err)
{
    *t = (made){0};
    put_model(&t->m, s);
    assert_int_equal(im__source_of_gguf(&t->s, make_open(&t->m), err), IM_OK);
    return im__program_read(t->s, &t->p, err);
}

static void close_made(made *t)
{
    im__program_clear(&t->p);
    im__source_close(t->s);
    make_clear(&t->m);
}

static made open_made(shape s)
{
    made t;
    im_error err;
    if (try_open(&t, &s, &err) != IM_OK) fail_msg("%s: %s", s.arch, err.message);
    assert_int_equal(t.p.vocab, VOCAB);
    assert_int_equal(t.p.kv_count, s.layers);
    for (uint32_t l = 0; l < s.layers; l++) assert_true(t.p.kv[l].kv_heads == KV_HEADS && t.p.kv[l].head_dim == HEAD);
    return t;
}

/* The n-th operation of a kind. */
static const im__op *nth(const im__program *p, im__op_kind kind, size_t n)
{
    for (size_t i = 0; i < p->op_count; i++)
        if (p->op[i].kind == kind && n-- == 0) return &p->op[i];
    fail_msg("no such operation");
    return NULL;
}

static size_t count(const im__program *p, im__op_kind kind)
{
    size_t n = 0;
    for (size_t i = 0; i < p->op_count; i++) n += p->op[i].kind == kind;
    return n;
}

/* The kinds in order, a letter each. */
static void check_order(const im__program *p, const char *want)
{
    static const char letters[] = "ENMRKAG+*CS";
    char have[512] = "";
    for (size_t i = 0; i < p->op_count && i < sizeof have - 1; i++) have[i] = letters[p->op[i].kind];
    assert_string_equal(have, want);
}

static bool near(double a, double b) { return fabs(a - b) <= 1e-12 * fabs(b); }

static const im__rope *rope_of(const im__program *p, uint32_t layer) { return &p->rope[nth(p, IM__OP_ROPE, 2 * layer)->rope]; }

static double base_of(const im__rope *r, double factor) { return pow(r->frequency[1] * factor, -(double)r->rot_dim / 2); }

/* ---- llama and qwen ------------------------------------------------------------------------------------------------------------------------- */

static void llama(void **state)
{
    (void)state;
    made t = open_made((shape){.arch = "llama", .layers = 2, .base = 500000, .output = true});
    check_order(&t.p, "E"
                      "NMMMRRKAM+"
                      "NMMGM+"
                      "NMMMRRKSAM+"
                      "NMMGM+"
                      "NM");
    const im__op *attention = nth(&t.p, IM__OP_ATTENTION, 0);
    assert_true(attention->by == 1.0f / sqrtf(HEAD) && attention->cap == 0 && attention->heads == HEADS);
    assert_true(nth(&t.p, IM__OP_EMBED, 0)->by == 1 && nth(&t.p, IM__OP_GLU, 0)->glu == IM__GLU_SILU);
    assert_true(t.p.rope_count == 1 && t.p.rope[0].adjacent && t.p.rope[0].rot_dim == HEAD);
    assert_true(fabs(base_of(&t.p.rope[0], 1) - 500000) < 1e-3);
    assert_true(t.p.kv[0].window == 0 && t.p.kv[1].window == 0);
    assert_true(nth(&t.p, IM__OP_NORM, 0)->by == 1e-6f);
    assert_string_equal(t.p.matrix[nth(&t.p, IM__OP_MATMUL, 14)->weight].name, "output.weight");
    close_made(&t);
}

static void keys_values_and_logits_are_wide(void **state)
{
    (void)state;
    made t = open_made((shape){.arch = "llama", .layers = 2});
    for (size_t i = 0; i < count(&t.p, IM__OP_MATMUL); i++) {
        const im__op *op = nth(&t.p, IM__OP_MATMUL, i);
        const char *name = t.p.matrix[op->weight].name;
        bool want = strstr(name, "attn_k") != NULL || strstr(name, "attn_v") != NULL || strcmp(name, "token_embd.weight") == 0;
        assert_int_equal(op->wide, want);
    }
    close_made(&t);
}

static void a_tied_head(void **state)
{
    (void)state;
    made t = open_made((shape){.arch = "llama", .layers = 1});
    const im__op *head = nth(&t.p, IM__OP_MATMUL, count(&t.p, IM__OP_MATMUL) - 1);
    assert_int_equal(head->weight, nth(&t.p, IM__OP_EMBED, 0)->weight);
    assert_int_equal(head->dst, t.p.logits);
    assert_true(fabs(base_of(&t.p.rope[0], 1) - 10000) < 1e-6); /* where the file has no base */
    close_made(&t);
}

static void llama_3_divides_frequencies(void **state)
{
    (void)state;
    made plain = open_made((shape){.arch = "llama", .layers = 1}),
         divided = open_made((shape){.arch = "llama", .layers = 1, .rope_freqs = true});
    const im__tensor *t = im__source_find(divided.s, "rope_freqs.weight");
    for (size_t i = 0; i < HEAD / 2; i++) {
        float by;
        memcpy(&by, t->data + 4 * i, 4);
        assert_true(by != 1 && near(divided.p.rope[0].frequency[i], plain.p.rope[0].frequency[i] / (double)by));
    }
    close_made(&plain);
    close_made(&divided);
}

static void linear_scaling(void **state)
{
    (void)state;
    made plain = open_made((shape){.arch = "llama", .layers = 1}),
         scaled = open_made((shape){.arch = "llama", .layers = 1, .factor = 4});
    for (size_t i = 0; i < HEAD / 2; i++) assert_true(near(scaled.p.rope[0].frequency[i] * 4, plain.p.rope[0].frequency[i]));
    close_made(&plain);
    close_made(&scaled);
}

static void qwen2(void **state)
{
    (void)state;
    made t = open_made((shape){.arch = "qwen2", .layers = 1, .base = 1e6f, .biases = true});
    check_order(&t.p, "E"
                      "NMMMRRKSAM+"
                      "NMMGM+"
                      "NM");
    for (size_t i = 0; i < 3; i++) assert_true(nth(&t.p, IM__OP_MATMUL, i)->vector != IM__NONE);
    assert_true(nth(&t.p, IM__OP_MATMUL, 3)->vector == IM__NONE);
    assert_false(t.p.rope[0].adjacent);
    close_made(&t);
}

static void qwen3(void **state)
{
    (void)state;
    made t = open_made((shape){.arch = "qwen3", .layers = 1, .base = 1e6f, .qk_norms = true});
    check_order(&t.p, "E"
                      "NMMMNNRRKSAM+"
                      "NMMGM+"
                      "NM");
    const im__op *q = nth(&t.p, IM__OP_NORM, 1), *k = nth(&t.p, IM__OP_NORM, 2);
    assert_true(q->n == HEAD && q->dst == q->src && k->n == HEAD && k->dst == k->src && q->dst != k->dst);
    assert_false(t.p.rope[0].adjacent);
    close_made(&t);
}

/* ---- gemma ------------------------------------------------------------------------------------------------------------------------------------ */

static const shape gemma2_shape = {.arch = "gemma2", .layers = 4, .window = 100, .post_norms = true};
static const shape gemma3_shape = {
    .arch = "gemma3", .layers = 13, .window = 100, .base = 1e6f, .qk_norms = true, .post_norms = true};

static void gemma2(void **state)
{
    (void)state;
    made t = open_made(gemma2_shape);
    assert_true(nth(&t.p, IM__OP_EMBED, 0)->by == sqrtf(EMBD) && nth(&t.p, IM__OP_GLU, 0)->glu == IM__GLU_GELU);
    for (uint32_t l = 0; l < 4; l++) { /* every second layer sees everything */
        assert_int_equal(t.p.kv[l].window, l % 2 == 0 ? 100 : 0);
        assert_true(nth(&t.p, IM__OP_ATTENTION, l)->cap == 50 && nth(&t.p, IM__OP_ATTENTION, l)->by == 1.0f / sqrtf(HEAD));
    }
    assert_true(nth(&t.p, IM__OP_SOFTCAP, 0)->by == 30 && nth(&t.p, IM__OP_SOFTCAP, 0)->dst == t.p.logits);
    assert_true(t.p.rope_count == 1 && !t.p.rope[0].adjacent);
    close_made(&t);
    shape own = gemma2_shape;
    own.attention_cap = 20, own.final_cap = 10, own.scale = 0.25f, own.window = 0;
    t = open_made(own);
    assert_true(nth(&t.p, IM__OP_ATTENTION, 0)->cap == 20 && nth(&t.p, IM__OP_SOFTCAP, 0)->by == 10);
    assert_true(nth(&t.p, IM__OP_ATTENTION, 0)->by == 0.25f && t.p.kv[0].window == 4096);
    close_made(&t);
}

static void gemma3(void **state)
{
    (void)state;
    shape s = gemma3_shape;
    s.factor = 8;
    made t = open_made(s);
    for (uint32_t l = 0; l < 13; l++) { /* every sixth layer sees everything, with the long base and the scaling */
        bool global = (l + 1) % 6 == 0;
        const im__rope *r = rope_of(&t.p, l);
        assert_int_equal(t.p.kv[l].window, global ? 0 : 100);
        assert_true(fabs(base_of(r, global ? 8 : 1) / (global ? 1e6 : 1e4) - 1) < 1e-9);
        assert_true(near(r->frequency[0], global ? 0.125 : 1.0) && !r->adjacent);
        assert_true(nth(&t.p, IM__OP_ATTENTION, l)->cap == 0 && nth(&t.p, IM__OP_ATTENTION, l)->by == 1.0f / sqrtf(HEAD));
    }
    assert_int_equal(count(&t.p, IM__OP_SOFTCAP), 0);
    assert_int_equal(count(&t.p, IM__OP_NORM), 13 * 6 + 1);
    close_made(&t);
    s.pattern = 3, s.base_swa = 5000, s.layers = 3;
    t = open_made(s);
    assert_true(t.p.kv[0].window == 100 && t.p.kv[1].window == 100 && t.p.kv[2].window == 0);
    assert_true(fabs(base_of(rope_of(&t.p, 0), 1) - 5000) < 1e-6);
    close_made(&t);
    s.window = 0;
    im_error err;
    assert_int_equal(try_open(&t, &s, &err), IM_ERR_FORMAT);
    assert_non_null(strstr(err.message, "gemma3.attention.sliding_window"));
    close_made(&t);
}

/* The 27B models of both generations scale queries by width / heads; they are told by their number of layers. */
static void the_largest_gemmas(void **state)
{
    (void)state;
    shape two = gemma2_shape, three = gemma3_shape;
    two.layers = 46, three.layers = 62;
    made a = open_made(two), b = open_made(three);
    assert_true(nth(&a.p, IM__OP_ATTENTION, 0)->by == 1.0f / sqrtf((float)EMBD / HEADS));
    assert_true(nth(&b.p, IM__OP_ATTENTION, 0)->by == 1.0f / sqrtf((float)EMBD / HEADS));
    close_made(&a);
    close_made(&b);
}

/* ---- every family ------------------------------------------------------------------------------------------------------------------------------ */

static const shape every[] = {
    {.arch = "llama", .layers = 2, .output = true, .rope_freqs = true},
    {.arch = "qwen2", .layers = 2, .biases = true},
    {.arch = "qwen3", .layers = 2, .qk_norms = true},
    {.arch = "gemma2", .layers = 2, .window = 8, .post_norms = true},
    {.arch = "gemma3", .layers = 2, .window = 8, .qk_norms = true, .post_norms = true},
};
#define EVERY (sizeof every / sizeof *every)

/* Only the last layer's attention and what comes after it is spared for rows that want no logits. */
static void the_selection_stands_in_the_last_layer(void **state)
{
    (void)state;
    for (size_t i = 0; i < EVERY; i++) {
        made t = open_made(every[i]);
        const im__op *select = nth(&t.p, IM__OP_SELECT, 0);
        assert_int_equal(count(&t.p, IM__OP_SELECT), 1);
        assert_ptr_equal(select - 1, nth(&t.p, IM__OP_KV_STORE, every[i].layers - 1));
        assert_ptr_equal(select + 1, nth(&t.p, IM__OP_ATTENTION, every[i].layers - 1));
        close_made(&t);
    }
}

static void float_models_keep_a_float_cache(void **state)
{
    (void)state;
    for (size_t i = 0; i < EVERY; i++) {
        made t = open_made(every[i]);
        for (size_t l = 0; l < t.p.kv_count; l++) assert_int_equal(t.p.kv[l].type, IM__KV_F32);
        close_made(&t);
    }
}

/* They run, and say something. */
static void every_family_computes(void **state)
{
    (void)state;
    for (size_t i = 0; i < EVERY; i++) {
        made t = open_made(every[i]);
        im__interpreter *in = NULL;
        float first[VOCAB], logits[VOCAB];
        assert_int_equal(im__interpreter_new(&in, &t.p, 20, NULL), IM_OK);
        im__interpret(in, 1, first);
        for (int n = 0; n < 19; n++) im__interpret(in, n % VOCAB, logits);
        for (int k = 0; k < VOCAB; k++) assert_true(isfinite(logits[k]));
        assert_memory_not_equal(first, logits, sizeof first);
        im__interpreter_free(in);
        close_made(&t);
    }
}

static void refused(const shape *s, const char *name)
{
    made t;
    im_error err = {IM_OK, ""};
    im_status status = try_open(&t, s, &err);
    if (status != IM_ERR_FORMAT && status != IM_ERR_UNSUPPORTED) fail_msg("%s: %s", s->arch, name);
    if (strstr(err.message, name) == NULL || strstr(err.message, "made") == NULL)
        fail_msg("%s: %s: %s", s->arch, name, err.message);
    assert_true(t.p.op == NULL && t.p.vector == NULL);
    close_made(&t);
}

/* Each tensor of each family in turn is left out and missed by name, but for those that change the meaning and may be absent. */
static void missing_tensors(void **state)
{
    (void)state;
    for (size_t i = 0; i < EVERY; i++) {
        made whole = open_made(every[i]);
        for (size_t k = 0; k < whole.s->tensor_count; k++) {
            char name[80];
            shape s = every[i];
            snprintf(name, sizeof name, "%s", whole.s->tensor[k].name);
            s.without = name;
            if (strcmp(name, "output.weight") != 0 && strcmp(name, "rope_freqs.weight") != 0) {
                refused(&s, name);
                continue;
            }
            made t = open_made(s);
            assert_true(im__program_digest(&t.p) != im__program_digest(&whole.p));
            close_made(&t);
        }
        close_made(&whole);
    }
}

/* A Llama with biases or norms of q and k computes with them. */
static void what_a_file_has_is_used(void **state)
{
    (void)state;
    made t = open_made((shape){.arch = "llama", .layers = 1, .biases = true, .qk_norms = true});
    check_order(&t.p, "E"
                      "NMMMNNRRKSAM+"
                      "NMMGM+"
                      "NM");
    for (size_t i = 0; i < 3; i++) assert_true(nth(&t.p, IM__OP_MATMUL, i)->vector != IM__NONE);
    close_made(&t);
}

static void tensors_that_nobody_asked_for(void **state)
{
    (void)state;
    for (size_t i = 0; i < EVERY; i++) {
        shape s = every[i];
        s.extra = "blk.0.attn_sinks.weight";
        refused(&s, s.extra);
        s.extra = "blk.2.attn_norm.weight"; /* one layer more than the keys say */
        refused(&s, s.extra);
    }
}

static void other_architectures(void **state)
{
    (void)state;
    shape s = every[0];
    s.arch = "mamba";
    refused(&s, "gemma2, gemma3, llama, qwen2, qwen3");
}

static void frequencies_beyond_the_contract(void **state)
{
    (void)state;
    shape s = every[0];
    s.factor = 0.25f; /* four radians a position */
    refused(&s, "rotation");
    s.factor = 0.5f;
    s.rope_freqs = false;
    made t = open_made(s);
    assert_true(t.p.rope[0].frequency[0] == 2);
    close_made(&t);
}

static void memory_may_run_out(void **state)
{
    (void)state;
    for (size_t i = 0; i < EVERY; i++) {
        made whole = open_made(every[i]);
        im_status status = IM_ERR_MEMORY;
        for (long n = 1; status != IM_OK; n++) {
            im__program p = {0};
            im__alloc_fail_after(n);
            status = im__program_read(whole.s, &p, NULL);
            im__alloc_fail_after(0);
            assert_true((status == IM_OK || status == IM_ERR_MEMORY) && n < 500);
            im__program_clear(&p);
        }
        close_made(&whole);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(llama),
        cmocka_unit_test(keys_values_and_logits_are_wide),
        cmocka_unit_test(a_tied_head),
        cmocka_unit_test(llama_3_divides_frequencies),
        cmocka_unit_test(linear_scaling),
        cmocka_unit_test(qwen2),
        cmocka_unit_test(qwen3),
        cmocka_unit_test(gemma2),
        cmocka_unit_test(gemma3),
        cmocka_unit_test(the_largest_gemmas),
        cmocka_unit_test(the_selection_stands_in_the_last_layer),
        cmocka_unit_test(float_models_keep_a_float_cache),
        cmocka_unit_test(every_family_computes),
        cmocka_unit_test(missing_tensors),
        cmocka_unit_test(what_a_file_has_is_used),
        cmocka_unit_test(tensors_that_nobody_asked_for),
        cmocka_unit_test(other_architectures),
        cmocka_unit_test(frequencies_beyond_the_contract),
        cmocka_unit_test(memory_may_run_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
