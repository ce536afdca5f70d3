/* SPDX-License-Identifier: Apache-2.0
 *
 * Programs as data: building, printing, and a check that turns down whatever a backend could not run.
 */
#include "ops/program.h"

#include "num/dtype.h"
#include "random_program.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* A small model of the usual shape, by index:
 *   values   0 x[64]  1 h[64]  2 q[64]  3 k[32]  4 v[32]  5 att[64]  6 logits[50]  7 wide[128]
 *   matrices 0 embedding 50 x 64  1 q 64 x 64  2 k 32 x 64  3 v 32 x 64  4 head 50 x 64  5 up 128 x 64 */
enum { X, H, Q, K, V, ATT, LOGITS, WIDE };
enum {
    EMBED_OP,
    NORM_OP,
    Q_OP,
    K_OP,
    V_OP,
    ROPE_OP,
    STORE_OP,
    SELECT_OP,
    ATTENTION_OP,
    ADD_OP,
    UP_OP,
    GLU_OP,
    SCALE_OP,
    HEAD_OP,
    CAP_OP
};

static im__op op(im__op_kind kind, int dst, int src, int src2)
{
    return (im__op){.kind = kind, .dst = dst, .src = src, .src2 = src2, .weight = IM__NONE, .vector = IM__NONE, .layer = IM__NONE};
}

static void add_values(im__program *p)
{
    static const uint32_t width[] = {64, 64, 64, 32, 32, 64, 50, 128};
    static const uint32_t rows[] = {50, 64, 32, 32, 50, 128};
    static const float data[128 * 64];
    char name[8];
    for (int i = 0; i < 8; i++) {
        snprintf(name, sizeof name, "v%d", i);
        assert_int_equal(im__program_value(p, name, width[i]), i);
    }
    for (int i = 0; i < 6; i++) {
        im__weight w = {.dtype = i == 1 ? IM__Q8_0 : IM__F32, .n_in = 64, .n_out = rows[i], .data = data, .row_bytes = 256};
        snprintf(name, sizeof name, "m%d", i);
        assert_int_equal(im__program_matrix(p, name, &w), i);
    }
    assert_int_equal(im__program_vector(p, "norm", im__calloc(64, sizeof(float)), 64), 0);
    assert_int_equal(im__program_vector(p, "bias", im__calloc(32, sizeof(float)), 32), 1);
    assert_int_equal(im__program_rope(p, im__calloc(16, sizeof(double)), 32, true), 0);
    assert_int_equal(im__program_kv(p, (im__kv_layer){.kv_heads = 1, .head_dim = 32}), 0);
}

static void add_op(im__program *p, im__op o) { assert_int_not_equal(im__program_op(p, o), IM__NONE); }

static void good(im__program *p)
{
    *p = (im__program){.arch = "good", .vocab = 50, .context = 100, .logits = LOGITS};
    add_values(p);
    im__op o = op(IM__OP_EMBED, X, IM__NONE, IM__NONE);
    o.weight = 0, o.by = 1, add_op(p, o);
    o = op(IM__OP_NORM, H, X, IM__NONE), o.vector = 0, o.n = 64, o.by = 1e-5f, add_op(p, o);
    o = op(IM__OP_MATMUL, Q, H, IM__NONE), o.weight = 1, add_op(p, o);
    o = op(IM__OP_MATMUL, K, H, IM__NONE), o.weight = 2, o.vector = 1, add_op(p, o);
    o = op(IM__OP_MATMUL, V, H, IM__NONE), o.weight = 3, o.wide = true, add_op(p, o);
    o = op(IM__OP_ROPE, Q, IM__NONE, IM__NONE), o.heads = 2, o.head_dim = 32, o.rope = 0, add_op(p, o);
    o = op(IM__OP_KV_STORE, IM__NONE, K, V), o.layer = 0, o.head_dim = 32, add_op(p, o);
    o = op(IM__OP_SELECT, IM__NONE, X, Q), add_op(p, o);
    o = op(IM__OP_ATTENTION, ATT, Q, IM__NONE), o.layer = 0, o.heads = 2, o.head_dim = 32, o.by = 1, add_op(p, o);
    add_op(p, op(IM__OP_ADD, X, ATT, IM__NONE));
    o = op(IM__OP_MATMUL, WIDE, X, IM__NONE), o.weight = 5, add_op(p, o);
    add_op(p, op(IM__OP_GLU, X, X, ATT));
    o = op(IM__OP_SCALE, X, X, IM__NONE), o.by = 2, add_op(p, o);
    o = op(IM__OP_MATMUL, LOGITS, X, IM__NONE), o.weight = 4, add_op(p, o);
    o = op(IM__OP_SOFTCAP, LOGITS, IM__NONE, IM__NONE), o.by = 30, add_op(p, o);
}

static void a_good_program_passes(void **state)
{
    (void)state;
    im__program p;
    im_error err;
    good(&p);
    if (im__program_check(&p, &err) != IM_OK) fail_msg("%s", err.message);
    im__program_clear(&p);
    for (uint32_t seed = 0; seed < 100; seed++) {
        random_program(&p, seed);
        assert_int_equal(im__program_check(&p, NULL), IM_OK);
        random_program_clear(&p);
    }
}

/* ---- broken in one place ------------------------------------------------------------------------------------------------------------------ */

static void refused(im__program *p, const char *what)
{
    im_error err = {IM_OK, ""};
    im_status status = im__program_check(p, &err);
    if (status != IM_ERR_INTERNAL) fail_msg("%s: passes", what);
    assert_non_null(strstr(err.message, "program of good"));
    im__program_clear(p);
}

#define BROKEN(change)                                                                                                             \
    do {                                                                                                                           \
        im__program p;                                                                                                             \
        good(&p);                                                                                                                  \
        change;                                                                                                                    \
        refused(&p, #change);                                                                                                      \
    } while (0)

/* Each index of each operation that is in use, replaced by one that leads nowhere. */
static void indices_out_of_range(void **state)
{
    (void)state;
    static const int wrong[] = {-2, 8, 1 << 30};
    im__program whole;
    good(&whole);
    for (int i = EMBED_OP; i <= CAP_OP; i++)
        for (int k = 0; k < 3; k++) {
            const im__op *o = &whole.op[i];
            if (o->dst != IM__NONE) BROKEN(p.op[i].dst = wrong[k]);
            if (o->src != IM__NONE) BROKEN(p.op[i].src = wrong[k]);
            if (o->src2 != IM__NONE) BROKEN(p.op[i].src2 = wrong[k]);
            if (o->weight != IM__NONE) BROKEN(p.op[i].weight = wrong[k]);
            if (o->vector != IM__NONE) BROKEN(p.op[i].vector = wrong[k]);
            if (o->layer != IM__NONE) BROKEN(p.op[i].layer = wrong[k]);
        }
    im__program_clear(&whole);
    BROKEN(p.op[ROPE_OP].rope = 1);
    BROKEN(p.op[NORM_OP].dst = IM__NONE);
    BROKEN(p.op[SCALE_OP].dst = IM__NONE);
    BROKEN(p.op[SELECT_OP].src = IM__NONE);
    BROKEN(p.op[NORM_OP].kind = (im__op_kind)99);
    BROKEN(p.logits = 99);
    BROKEN(p.logits = IM__NONE);
}

static void widths_that_do_not_fit(void **state)
{
    (void)state;
    BROKEN(p.op[EMBED_OP].dst = K);
    BROKEN(p.matrix[0].w.n_out = 49); /* fewer rows than tokens */
    BROKEN(p.op[NORM_OP].n = 0);
    BROKEN(p.op[NORM_OP].n = 48);
    BROKEN(p.op[NORM_OP].vector = 1);
    BROKEN(p.op[NORM_OP].src = K);
    BROKEN(p.op[Q_OP].dst = K);
    BROKEN(p.op[Q_OP].weight = 2);
    BROKEN(p.op[K_OP].vector = 0);
    BROKEN(p.matrix[1].w.n_in = 40);
    BROKEN(p.matrix[1].w.n_out = 0);
    BROKEN(p.matrix[1].w.n_out = ((size_t)1 << 32) + 64);
    BROKEN(p.op[ROPE_OP].heads = 3);
    BROKEN(p.op[ROPE_OP].head_dim = 16);
    BROKEN(p.rope[0].rot_dim = 34);
    BROKEN(p.rope[0].rot_dim = 31);
    BROKEN(p.rope[0].rot_dim = 0);
    BROKEN(p.op[STORE_OP].head_dim = 16);
    BROKEN(p.op[STORE_OP].src = Q);
    BROKEN(p.op[STORE_OP].src2 = Q);
    BROKEN(p.kv[0].kv_heads = 0);
    BROKEN(p.kv[0].kv_heads = 3);
    BROKEN(p.kv[0].type = (im__kv_type)9);
    BROKEN(p.op[ATTENTION_OP].heads = 4);
    BROKEN(p.op[ATTENTION_OP].src = K);
    BROKEN(p.op[ADD_OP].src = WIDE);
    BROKEN(p.op[GLU_OP].src2 = WIDE);
    BROKEN(p.value[LOGITS].width = 49);
    BROKEN(p.vocab = 49);
    BROKEN(p.vocab = 0);
    BROKEN(p.logits = X);
}

static void numbers_that_cannot_be(void **state)
{
    (void)state;
    BROKEN(p.op[EMBED_OP].by = NAN);
    BROKEN(p.op[NORM_OP].by = -1);
    BROKEN(p.op[NORM_OP].by = NAN);
    BROKEN(p.op[ATTENTION_OP].by = INFINITY);
    BROKEN(p.op[ATTENTION_OP].cap = -1);
    BROKEN(p.op[SCALE_OP].by = NAN);
    BROKEN(p.op[CAP_OP].by = 0);
    BROKEN(p.op[CAP_OP].by = INFINITY);
    BROKEN(p.op[GLU_OP].glu = (im__glu)7);
}

static void swap_ops(im__program *p, int a, int b)
{
    im__op keep = p->op[a];
    p->op[a] = p->op[b];
    p->op[b] = keep;
}

/* Attention, store, selection in this order; only the first of them is wrong. */
static void attend_first(im__program *p)
{
    im__op select = p->op[SELECT_OP];
    p->op[SELECT_OP] = p->op[STORE_OP];
    p->op[STORE_OP] = p->op[ATTENTION_OP];
    p->op[ATTENTION_OP] = select;
    p->op[ATTENTION_OP].src2 = ATT;
}

/* Only q goes on, named twice; all that follows is made from it. */
static void select_twice(im__program *p)
{
    p->op[SELECT_OP].src = p->op[SELECT_OP].src2 = Q;
    p->op[ADD_OP].kind = IM__OP_SCALE;
}

static void orders_that_do_not_hold(void **state)
{
    (void)state;
    BROKEN(swap_ops(&p, EMBED_OP, NORM_OP));      /* read before it is written */
    BROKEN(swap_ops(&p, Q_OP, ROPE_OP));          /* turned before it is written */
    BROKEN(swap_ops(&p, STORE_OP, SELECT_OP));    /* the cache needs every row */
    BROKEN(swap_ops(&p, STORE_OP, ATTENTION_OP)); /* read before it is stored */
    BROKEN(swap_ops(&p, SELECT_OP, HEAD_OP));     /* logits of rows that want none */
    BROKEN(p.op[SELECT_OP].src2 = IM__NONE);      /* q is read behind it */
    BROKEN(attend_first(&p));
    BROKEN(select_twice(&p));                 /* its rows would be moved twice */
    BROKEN(p.op[ADD_OP] = p.op[SELECT_OP]);   /* two selections */
    BROKEN(p.op[SELECT_OP] = p.op[SCALE_OP]); /* none */
    BROKEN(p.op[SCALE_OP] = p.op[STORE_OP]);  /* stored twice */
    BROKEN(p.op[STORE_OP] = p.op[ROPE_OP]);   /* never stored */
    BROKEN(p.op_count = HEAD_OP);             /* no logits */
    BROKEN(p.op_count = 0);
    BROKEN(im__program_kv(&p, (im__kv_layer){.kv_heads = 1, .head_dim = 32})); /* a layer that nobody stores */
}

static void places_that_coincide(void **state)
{
    (void)state;
    BROKEN(p.op[Q_OP].src = Q; p.op[NORM_OP].dst = Q; p.op[K_OP].src = Q; p.op[V_OP].src = Q);
    BROKEN(p.op[ATTENTION_OP].dst = Q; p.op[ADD_OP].src = Q; p.op[GLU_OP].src2 = Q);
    BROKEN(p.op[ADD_OP].src = X);
    BROKEN(p.op[GLU_OP].src2 = X);
    BROKEN(p.op[UP_OP] = p.op[CAP_OP]; p.op[UP_OP].kind = IM__OP_MATMUL; p.op[UP_OP].src = LOGITS);
}

/* ---- building and printing --------------------------------------------------------------------------------------------------------------------- */

static void memory_may_run_out(void **state)
{
    (void)state;
    im__program p = {0};
    float *data = im__calloc(4, sizeof *data);
    double *frequency = im__calloc(2, sizeof *frequency);
    im__weight w = {0};
    im__alloc_fail_after(1);
    assert_int_equal(im__program_op(&p, (im__op){0}), IM__NONE);
    im__alloc_fail_after(1);
    assert_int_equal(im__program_value(&p, "x", 4), IM__NONE);
    im__alloc_fail_after(1);
    assert_int_equal(im__program_matrix(&p, "x", &w), IM__NONE);
    im__alloc_fail_after(1);
    assert_int_equal(im__program_vector(&p, "x", data, 4), IM__NONE); /* which it has freed */
    im__alloc_fail_after(1);
    assert_int_equal(im__program_rope(&p, frequency, 4, false), IM__NONE);
    im__alloc_fail_after(1);
    assert_int_equal(im__program_kv(&p, (im__kv_layer){0}), IM__NONE);
    im__alloc_fail_after(0);
    assert_true(p.op_count + p.value_count + p.matrix_count + p.vector_count + p.rope_count + p.kv_count == 0);
    im__program_clear(&p);
    good(&p);
    im__alloc_fail_after(1);
    assert_int_equal(im__program_check(&p, NULL), IM_ERR_MEMORY);
    im__alloc_fail_after(0);
    im__program_clear(&p);
}

static uint64_t digest_with(void (*change)(im__program *))
{
    im__program p;
    good(&p);
    if (change != NULL) change(&p);
    uint64_t digest = im__program_digest(&p);
    im__program_clear(&p);
    return digest;
}

static void change_scale(im__program *p) { p->op[SCALE_OP].by = 2.0000002f; }
static void change_window(im__program *p) { p->kv[0].window = 5; }
static void change_kv_type(im__program *p) { p->kv[0].type = IM__KV_F32; }
static void change_kind(im__program *p) { p->op[GLU_OP].glu = IM__GLU_GELU; }
static void change_wide(im__program *p) { p->op[V_OP].wide = false; }
static void change_bias(im__program *p) { p->op[K_OP].vector = IM__NONE; }
static void change_pairs(im__program *p) { p->rope[0].adjacent = false; }
static void change_frequency(im__program *p) { p->rope[0].frequency[3] = 1e-300; }
static void change_cap(im__program *p) { p->op[ATTENTION_OP].cap = 50; }
static void change_eps(im__program *p) { p->op[NORM_OP].by = 1e-6f; }
static void change_type(im__program *p) { p->matrix[1].w.dtype = IM__Q4_0; }
static void change_order(im__program *p) { swap_ops(p, K_OP, V_OP); }

/* Whatever gives a program its meaning is in its print, so in its identity. */
static void the_digest_sees_everything(void **state)
{
    (void)state;
    void (*const changes[])(im__program *) = {change_scale, change_window, change_kv_type, change_kind,
                                              change_wide,  change_bias,   change_pairs,   change_frequency,
                                              change_cap,   change_eps,    change_type,    change_order};
    uint64_t seen[16] = {digest_with(NULL)};
    assert_true(digest_with(NULL) == seen[0]);
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        seen[i + 1] = digest_with(changes[i]);
        for (size_t k = 0; k <= i; k++) assert_true(seen[k] != seen[i + 1]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_good_program_passes),   cmocka_unit_test(indices_out_of_range),
        cmocka_unit_test(widths_that_do_not_fit),  cmocka_unit_test(numbers_that_cannot_be),
        cmocka_unit_test(orders_that_do_not_hold), cmocka_unit_test(places_that_coincide),
        cmocka_unit_test(memory_may_run_out),      cmocka_unit_test(the_digest_sees_everything),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
