/* SPDX-License-Identifier: Apache-2.0
 *
 * Metadata of a model: every key has bounds, and what lies outside is refused with the key's name.
 */
#include "gguf_make.h"
#include "model/model.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

typedef enum kind { U32, F32, STRING, LIST, ABSENT } kind;

/* A key of the model, as it is in a sound file. */
typedef struct key {
    const char *name;
    kind kind;
    uint32_t u;
    float f;
    const char *s;
} key;

static const key sound[] = {
    {"block_count", U32, .u = 2},
    {"embedding_length", U32, .u = 64},
    {"context_length", U32, .u = 1000},
    {"feed_forward_length", U32, .u = 96},
    {"attention.head_count", U32, .u = 4},
    {"attention.head_count_kv", U32, .u = 2},
    {"attention.layer_norm_rms_epsilon", F32, .f = 1e-5f},
    {"rope.freq_base", F32, .f = 10000},
};
#define SOUND (sizeof sound / sizeof *sound)

static void put(gguf_make *m, const key *k)
{
    static const uint32_t list[3] = {2, 2, 2};
    char name[128];
    snprintf(name, sizeof name, "llama.%s", k->name);
    switch (k->kind) {
    case U32: make_u32(m, name, k->u); break;
    case F32: make_f32(m, name, k->f); break;
    case STRING: make_string(m, name, k->s); break;
    case LIST: make_u32s(m, name, list, k->u); break;
    case ABSENT: break;
    }
}

/* A sound file but for this key (NULL: none). */
static im_status read_with(const key *changed, im__params *out, im_error *err)
{
    gguf_make m = {0};
    bool replaced = changed == NULL;
    make_string(&m, "general.architecture", "llama");
    for (size_t i = 0; i < SOUND; i++) {
        bool this_one = changed != NULL && strcmp(changed->name, sound[i].name) == 0;
        put(&m, this_one ? changed : &sound[i]);
        replaced = replaced || this_one;
    }
    if (!replaced) put(&m, changed);
    im__gguf *g = make_open(&m);
    im_status status = im__params_read(g, out, err);
    im__gguf_close(g);
    make_clear(&m);
    return status;
}

static void a_sound_file(void **state)
{
    (void)state;
    im__params p;
    im_error err;
    if (read_with(NULL, &p, &err) != IM_OK) fail_msg("%s", err.message);
    assert_string_equal(p.arch, "llama");
    assert_true(p.layers == 2 && p.embd == 64 && p.context == 1000 && p.heads == 4 && p.head_dim == 16 && p.rot_dim == 16);
    assert_true(p.ff[0] == 96 && p.ff[1] == 96 && p.kv_heads[0] == 2 && p.kv_heads[1] == 2 && p.window == 0);
    assert_true(p.eps == 1e-5f && p.rope_base == 10000 && p.rope_base_swa == 0 && p.rope_factor == 1);
    assert_true(p.attention_scale == 0 && p.attention_cap < 0 && p.final_cap < 0);
    im__params_clear(&p);
}

static void accept(key k)
{
    im__params p;
    im_error err;
    if (read_with(&k, &p, &err) != IM_OK) fail_msg("%s: %s", k.name, err.message);
    im__params_clear(&p);
}

static void refuse(key k, im_status status)
{
    im__params p = {.layers = 77};
    im_error err = {IM_OK, ""};
    im_status got = read_with(&k, &p, &err);
    if (got != status) fail_msg("%s (%u, %g): %d %s", k.name, k.u, (double)k.f, (int)got, err.message);
    if (strstr(err.message, "made") == NULL) fail_msg("%s: which file? %s", k.name, err.message);
    if (p.layers != 77) fail_msg("%s: written in spite of the error", k.name);
}

static void named(key k, im_status status)
{
    im__params p;
    im_error err = {IM_OK, ""};
    refuse(k, status);
    read_with(&k, &p, &err);
    if (strstr(err.message, k.name) == NULL) fail_msg("%s is not named: %s", k.name, err.message);
}

static void u32_bounds(const char *name, uint32_t lo, uint32_t hi)
{
    if (lo > 0) named((key){name, U32, .u = lo - 1}, IM_ERR_FORMAT);
    if (hi < UINT32_MAX) named((key){name, U32, .u = hi + 1}, IM_ERR_FORMAT);
    named((key){name, STRING, .s = "2"}, IM_ERR_FORMAT);
    accept((key){name, U32, .u = hi});
}

static void f32_bounds(const char *name, float lo, float hi, bool required)
{
    named((key){name, F32, .f = nextafterf(lo, -INFINITY)}, IM_ERR_FORMAT);
    named((key){name, F32, .f = nextafterf(hi, INFINITY)}, IM_ERR_FORMAT);
    named((key){name, F32, .f = NAN}, IM_ERR_FORMAT);
    named((key){name, F32, .f = INFINITY}, IM_ERR_FORMAT);
    named((key){name, STRING, .s = "1"}, IM_ERR_FORMAT);
    accept((key){name, F32, .f = lo});
    accept((key){name, F32, .f = hi});
    if (required)
        named((key){name, ABSENT, .u = 0}, IM_ERR_FORMAT);
    else
        accept((key){name, ABSENT, .u = 0});
}

static void whole_numbers(void **state)
{
    (void)state;
    u32_bounds("block_count", 1, 1024);
    u32_bounds("embedding_length", 1, 1u << 11); /* heads of 512 are the largest */
    named((key){"embedding_length", U32, .u = (1u << 20) + 1}, IM_ERR_FORMAT);
    u32_bounds("context_length", 1, UINT32_MAX);
    u32_bounds("feed_forward_length", 1, 1u << 20);
    u32_bounds("attention.head_count_kv", 1, 4);
    u32_bounds("attention.key_length", 1, 512);
    u32_bounds("rope.dimension_count", 2, 16);
    u32_bounds("attention.sliding_window", 0, UINT32_MAX);
    u32_bounds("attention.sliding_window_pattern", 1, 1024);
    for (size_t i = 0; i < SOUND; i++)
        if (sound[i].kind == U32 && strcmp(sound[i].name, "context_length") != 0 &&
            strcmp(sound[i].name, "attention.head_count_kv") != 0)
            named((key){sound[i].name, ABSENT, .u = 0}, IM_ERR_FORMAT);
}

static void floats(void **state)
{
    (void)state;
    f32_bounds("attention.layer_norm_rms_epsilon", 0, 1, true);
    f32_bounds("rope.freq_base", 1, 1e12f, false);
    f32_bounds("rope.freq_base_swa", 1, 1e12f, false);
    f32_bounds("rope.scaling.factor", 1e-3f, 1e6f, false);
    f32_bounds("rope.scale_linear", 1e-3f, 1e6f, false);
    f32_bounds("attention.scale", 1e-6f, 1e6f, false);
    f32_bounds("attn_logit_softcapping", 0, 1e6f, false);
    f32_bounds("final_logit_softcapping", 0, 1e6f, false);
}

static void heads(void **state)
{
    (void)state;
    refuse((key){"attention.head_count_kv", U32, .u = 3}, IM_ERR_FORMAT); /* 4 heads cannot share 3 */
    refuse((key){"attention.head_count", U32, .u = 1025}, IM_ERR_FORMAT);
    refuse((key){"attention.head_count", U32, .u = 0}, IM_ERR_FORMAT);
    refuse((key){"attention.key_length", U32, .u = 15}, IM_ERR_FORMAT); /* odd */
    refuse((key){"attention.key_length", U32, .u = 514}, IM_ERR_FORMAT);
    refuse((key){"attention.value_length", U32, .u = 32}, IM_ERR_UNSUPPORTED);
    refuse((key){"embedding_length", U32, .u = 4 * 514}, IM_ERR_FORMAT);
    refuse((key){"embedding_length", U32, .u = 3}, IM_ERR_FORMAT); /* heads of nothing */
    refuse((key){"rope.dimension_count", U32, .u = 7}, IM_ERR_FORMAT);
    accept((key){"attention.key_length", U32, .u = 80 / 5});
    accept((key){"attention.value_length", U32, .u = 16});
}

static void lists(void **state)
{
    (void)state;
    im__params p;
    accept((key){"feed_forward_length", LIST, .u = 2});
    accept((key){"feed_forward_length", LIST, .u = 3}); /* longer than there are layers: the rest is not looked at */
    refuse((key){"feed_forward_length", LIST, .u = 1}, IM_ERR_FORMAT);
    refuse((key){"feed_forward_length", LIST, .u = 0}, IM_ERR_FORMAT);
    accept((key){"attention.head_count_kv", LIST, .u = 2});
    refuse((key){"attention.head_count_kv", LIST, .u = 1}, IM_ERR_FORMAT);
    refuse((key){"attention.sliding_window_pattern", LIST, .u = 2}, IM_ERR_UNSUPPORTED);
    refuse((key){"block_count", LIST, .u = 2}, IM_ERR_FORMAT);
    key absent = {"attention.head_count_kv", ABSENT, .u = 0};
    assert_int_equal(read_with(&absent, &p, NULL), IM_OK);
    assert_int_equal(p.kv_heads[1], 4); /* every head its own */
    im__params_clear(&p);
}

static void scaling(void **state)
{
    (void)state;
    im__params p;
    key factor = {"rope.scaling.factor", F32, .f = 8}, legacy = {"rope.scale_linear", F32, .f = 4};
    refuse((key){"rope.scaling.type", STRING, .s = "yarn"}, IM_ERR_UNSUPPORTED);
    refuse((key){"rope.scaling.type", U32, .u = 1}, IM_ERR_FORMAT);
    accept((key){"rope.scaling.type", STRING, .s = "none"});
    accept((key){"rope.scaling.type", STRING, .s = "linear"});
    assert_int_equal(read_with(&factor, &p, NULL), IM_OK);
    assert_true(p.rope_factor == 8);
    im__params_clear(&p);
    assert_int_equal(read_with(&legacy, &p, NULL), IM_OK);
    assert_true(p.rope_factor == 4);
    im__params_clear(&p);
}

static void contexts(void **state)
{
    (void)state;
    im__params p;
    key absent = {"context_length", ABSENT, .u = 0}, huge = {"context_length", U32, .u = UINT32_MAX},
        window = {"attention.sliding_window", U32, .u = UINT32_MAX};
    assert_int_equal(read_with(&absent, &p, NULL), IM_OK);
    assert_int_equal(p.context, 2048);
    im__params_clear(&p);
    assert_int_equal(read_with(&huge, &p, NULL), IM_OK);
    assert_int_equal(p.context, 1 << 24); /* positions stay exact */
    im__params_clear(&p);
    assert_int_equal(read_with(&window, &p, NULL), IM_OK);
    assert_int_equal(p.window, 0); /* a window that sees everything is none */
    im__params_clear(&p);
}

static void experts(void **state)
{
    (void)state;
    refuse((key){"expert_count", U32, .u = 8}, IM_ERR_UNSUPPORTED);
    accept((key){"expert_count", U32, .u = 0});
}

static void architecture_names(void **state)
{
    (void)state;
    static const char *const names[] = {"", "a name that is longer than any architecture has ever been called, by far too much"};
    for (size_t i = 0; i < 2; i++) {
        gguf_make m = {0};
        im__params p;
        make_string(&m, "general.architecture", names[i]);
        im__gguf *g = make_open(&m);
        assert_int_equal(im__params_read(g, &p, NULL), IM_ERR_FORMAT);
        im__gguf_close(g);
        make_clear(&m);
    }
}

static void memory_may_run_out(void **state)
{
    (void)state;
    gguf_make m = {0};
    make_string(&m, "general.architecture", "llama");
    for (size_t i = 0; i < SOUND; i++) put(&m, &sound[i]);
    im__gguf *g = make_open(&m);
    im_status status = IM_ERR_MEMORY;
    for (long n = 1; status != IM_OK; n++) {
        im__params p;
        im__alloc_fail_after(n);
        status = im__params_read(g, &p, NULL);
        im__alloc_fail_after(0);
        assert_true((status == IM_OK || status == IM_ERR_MEMORY) && n < 50);
        if (status == IM_OK) im__params_clear(&p);
    }
    im__gguf_close(g);
    make_clear(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sound_file),
        cmocka_unit_test(whole_numbers),
        cmocka_unit_test(floats),
        cmocka_unit_test(heads),
        cmocka_unit_test(lists),
        cmocka_unit_test(scaling),
        cmocka_unit_test(contexts),
        cmocka_unit_test(experts),
        cmocka_unit_test(architecture_names),
        cmocka_unit_test(memory_may_run_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
