/* SPDX-License-Identifier: Apache-2.0
 *
 * From a file's keys to a tokenizer: lengths that do not agree, ids outside the vocabulary, what may be absent.
 */
#include "gguf_make.h"
#include "model/model.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define TOKENS 8

/* What one test changes about a sound file. */
typedef struct change {
    const char *skip; /* a key that is left out */
    size_t scores, types;
    uint32_t bos, eos, eot;
    int32_t unknown;
    bool add_bos;
    const char *pre;
} change;

static const change sound = {.scores = TOKENS, .types = TOKENS, .bos = 1, .eos = 2, .eot = 7, .unknown = 0, .add_bos = true};

static bool wanted(const change *c, const char *key) { return c->skip == NULL || strcmp(c->skip, key) != 0; }

static void put(gguf_make *m, const change *c)
{
    static const char *const tokens[TOKENS] = {"<unk>", "<s>", "</s>", "\xe2\x96\x81", "a", "b", "ab", "<end>"};
    static const float scores[16] = {0, 0, 0, -1, -2, -3, -4, 0};
    static const uint32_t types[16] = {2, 3, 3, 1, 1, 1, 1, 3};
    if (wanted(c, "model")) make_string(m, "tokenizer.ggml.model", "llama");
    if (wanted(c, "tokens")) make_strings(m, "tokenizer.ggml.tokens", tokens, TOKENS);
    if (wanted(c, "scores")) make_f32s(m, "tokenizer.ggml.scores", scores, c->scores);
    if (wanted(c, "types")) make_u32s(m, "tokenizer.ggml.token_type", types, c->types);
    if (wanted(c, "bos")) make_u32(m, "tokenizer.ggml.bos_token_id", c->bos);
    if (wanted(c, "eos")) make_u32(m, "tokenizer.ggml.eos_token_id", c->eos);
    if (wanted(c, "eot")) make_u32(m, "tokenizer.ggml.eot_token_id", c->eot);
    if (wanted(c, "unknown")) make_i32(m, "tokenizer.ggml.unknown_token_id", c->unknown);
    if (wanted(c, "add_bos")) make_bool(m, "tokenizer.ggml.add_bos_token", c->add_bos);
}

typedef struct made {
    gguf_make m;
    im__gguf *g;
    im__vocab_arrays arrays;
    im__tokenizer *t;
} made;

static im_status try_read(made *v, const change *c, im_error *err)
{
    *v = (made){0};
    put(&v->m, c);
    v->g = make_open(&v->m);
    return im__vocabulary_read(v->g, c->pre, &v->t, &v->arrays, err);
}

static void close_made(made *v)
{
    im__tokenizer_free(v->t);
    im__vocab_arrays_clear(&v->arrays);
    im__gguf_close(v->g);
    make_clear(&v->m);
}

static void a_sound_file(void **state)
{
    (void)state;
    made v;
    im_error err;
    if (try_read(&v, &sound, &err) != IM_OK) fail_msg("%s", err.message);
    assert_int_equal(im__tokenizer_count(v.t), TOKENS);
    assert_int_equal(im__tokenizer_bos(v.t), 1);
    assert_int_equal(im__tokenizer_eos(v.t), 2);
    assert_true(im__tokenizer_adds_bos(v.t));
    assert_true(im__tokenizer_is_end(v.t, 2) && im__tokenizer_is_end(v.t, 7));
    assert_false(im__tokenizer_is_end(v.t, 1) || im__tokenizer_is_end(v.t, 4));
    close_made(&v);
}

static void refused(change c, const char *word)
{
    made v;
    im_error err = {IM_OK, ""};
    im_status status = try_read(&v, &c, &err);
    if (status == IM_OK) fail_msg("%s: accepted", word);
    if (strstr(err.message, word) == NULL || strstr(err.message, "made") == NULL) fail_msg("%s: %s", word, err.message);
    assert_null(v.t);
    assert_true(v.arrays.token == NULL && v.arrays.score == NULL && v.arrays.type == NULL && v.arrays.merge == NULL);
    close_made(&v);
}

static void what_does_not_agree(void **state)
{
    (void)state;
    change c = sound;
    c.skip = "model", refused(c, "tokenizer.ggml.model");
    c.skip = "tokens", refused(c, "tokenizer.ggml.tokens");
    c = sound, c.scores = 7, refused(c, "tokenizer.ggml.scores");
    c = sound, c.scores = 9, refused(c, "tokenizer.ggml.scores");
    c = sound, c.scores = 0, refused(c, "tokenizer.ggml.scores");
    c = sound, c.types = 7, refused(c, "tokenizer.ggml.token_type");
    c = sound, c.bos = 8, refused(c, "tokenizer.ggml.bos_token_id");
    c = sound, c.eos = UINT32_MAX, refused(c, "tokenizer.ggml.eos_token_id");
    c = sound, c.eot = 1000, refused(c, "tokenizer.ggml.eot_token_id");
    c = sound, c.unknown = -2, refused(c, "tokenizer.ggml.unknown_token_id");
}

static void what_may_be_absent(void **state)
{
    (void)state;
    static const char *const keys[] = {"types", "bos", "eos", "eot", "unknown", "add_bos"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        made v;
        im_error err;
        change c = sound;
        c.skip = keys[i];
        if (try_read(&v, &c, &err) != IM_OK) fail_msg("without %s: %s", keys[i], err.message);
        if (strcmp(keys[i], "bos") == 0) assert_int_equal(im__tokenizer_bos(v.t), -1);
        if (strcmp(keys[i], "eot") == 0) assert_false(im__tokenizer_is_end(v.t, 7));
        close_made(&v);
    }
    made v;
    change none = sound;
    none.unknown = -1; /* some files write "none" so */
    assert_int_equal(try_read(&v, &none, NULL), IM_OK);
    close_made(&v);
}

static void switches(void **state)
{
    (void)state;
    made v;
    change c = sound;
    c.add_bos = false;
    assert_int_equal(try_read(&v, &c, NULL), IM_OK);
    assert_false(im__tokenizer_adds_bos(v.t));
    close_made(&v);
}

static void memory_may_run_out(void **state)
{
    (void)state;
    gguf_make m = {0};
    put(&m, &sound);
    im__gguf *g = make_open(&m);
    im_status status = IM_ERR_MEMORY;
    for (long n = 1; status != IM_OK; n++) {
        im__tokenizer *t = NULL;
        im__vocab_arrays arrays;
        im__alloc_fail_after(n);
        status = im__vocabulary_read(g, NULL, &t, &arrays, NULL);
        im__alloc_fail_after(0);
        assert_true((status == IM_OK || status == IM_ERR_MEMORY) && n < 200);
        im__tokenizer_free(t);
        if (status == IM_OK) im__vocab_arrays_clear(&arrays);
    }
    im__gguf_close(g);
    make_clear(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sound_file), cmocka_unit_test(what_does_not_agree), cmocka_unit_test(what_may_be_absent),
        cmocka_unit_test(switches),     cmocka_unit_test(memory_may_run_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
