/* SPDX-License-Identifier: Apache-2.0
 *
 * The vocabulary of a real model file against golden ids, and the hard inputs of the family. Built once a model: MODEL_FILE, MODEL_GOLDEN
 * and MODEL_GEMMA (1 or 0) are defined by tokenizer.cmake. Skipped when the file is not in $IM_TEST_MODELS.
 */
#include "model/model.h"
#include "vocab_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define SKIPPED 77

static const im__encode_options parsed = {.parse_special = true}, plain = {0};
static im__tokenizer *t;
static json_t *golden;

static void parsed_ids_are_golden(void **state)
{
    (void)state;
    json_t *one;
    size_t i, failed = 0;
    json_array_foreach(golden, i, one)
    {
        failed += !vocab_check_string(t, json_object_get(one, "text"), &parsed, json_object_get(one, "ids"));
    }
    assert_int_equal(failed, 0);
}

/* Where the file's token types do not say what the reference's flags say, nobody who has only the file can know: not judged. */
static void plain_ids_are_golden(void **state)
{
    (void)state;
    json_t *one;
    size_t i, failed = 0, judged = 0;
    json_array_foreach(golden, i, one)
    {
        const json_t *ids = json_object_get(one, "ids_plain");
        if (json_is_true(json_object_get(one, "plain_ambiguous"))) continue;
        failed += !vocab_check_string(t, json_object_get(one, "text"), &plain, ids == NULL ? json_object_get(one, "ids") : ids);
        judged++;
    }
    assert_true(judged >= 197);
    assert_int_equal(failed, 0);
}

static void decoded_text_is_golden(void **state)
{
    (void)state;
    json_t *one;
    size_t i, failed = 0;
    json_array_foreach(golden, i, one)
    {
        const json_t *want = json_object_get(one, "decoded");
        if (want == NULL) want = json_object_get(one, "text");
        failed += !vocab_check_decode(t, json_object_get(one, "ids"), true, json_string_value(want), json_string_length(want));
    }
    assert_int_equal(failed, 0);
}

static void expect(const char *text, const im__encode_options *options, const char *ids)
{
    json_t *want = vocab_json_parse(ids);
    assert_true(vocab_check_ids(t, text, strlen(text), options, want));
    if (options->parse_special) assert_true(vocab_check_decode(t, want, true, text, strlen(text)));
    json_decref(want);
}

static void expect_decoded(const char *ids, const char *want)
{
    json_t *list = vocab_json_parse(ids);
    assert_true(vocab_check_decode(t, list, false, want, strlen(want)));
    json_decref(list);
}

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* The counts are the reference's. Ten times its time is the limit. */
static void long_texts_are_cut_in_linear_time(void **state)
{
    (void)state;
    static const struct {
        const char *unit;
        size_t times, gemma, smollm2;
        double limit;
    } text[] = {
        {"a", 100000, 12500, LONG_A, 0.6},
        {"\n", 100000, 3226, LONG_NEWLINE, 0.6},
        {" ", 100000, 3226, LONG_SPACE, 0.6},
        {"\xe6\x97\xa5\xe6\x9c\xac\xe8\xaa\x9e\xe3\x81\xae\xe6\x96\x87\xe7\xab\xa0", 10000, 30000, LONG_CJK, 0.6},
        {"the quick brown fox jumps over the lazy dog and ", 4200, 42001, LONG_FOX, 0.6},
        {"\xf0\x9f\x91\xa8\xe2\x80\x8d\xf0\x9f\x91\xa9\xe2\x80\x8d\xf0\x9f\x91\xa7\xe2\x80\x8d\xf0\x9f\x91\xa6", 2000, 14000,
         LONG_FAMILY, 0.6},
        {"a", 1000000, 125000, 10 * LONG_A, 6.0},
    };
    for (size_t i = 0; i < sizeof text / sizeof *text; i++) {
        double begin = seconds();
        assert_int_equal(vocab_count_repeated(t, text[i].unit, text[i].times), MODEL_GEMMA ? text[i].gemma : text[i].smollm2);
        double took = seconds() - begin;
        if (took > text[i].limit) fail_msg("text %zu took %.2f s", i, took);
    }
}

static void runs_and_tags(void **state)
{
    (void)state;
    if (!MODEL_GEMMA) skip();
    expect("a  b and    c", &parsed, "[236746,138,236763,532,140,236755]");
    expect("Hello \n\n  world", &parsed, "[9259,236743,108,138,12392]");
    expect("x\n\n\n\ty  z\n", &parsed, "[236781,109,255968,236762,138,236802,107]");
    expect("\t\t\t\t\t\ttest", &parsed, "[255973,2181]");
    expect("<code>x</code>", &parsed, "[206,236781,215]");
    expect("<h1>Title</h1>", &parsed, "[184,7396,191]");
    expect(" hello", &parsed, "[29104]");
    expect("  hello", &parsed, "[138,23391]");
    expect("hello ", &parsed, "[23391,236743]");
    expect("                                 x", &parsed, "[167,138,236781]");
    expect("                                ", &parsed, "[167,236743]");
    expect_decoded("[518]", " b");
}

static void typed_control_tokens(void **state)
{
    (void)state;
    if (!MODEL_GEMMA) skip();
    const char text[] = "Echo: <end_of_turn>\n<start_of_turn>model\nOK";
    const char as_text[] =
        "[114711,236787,655,643,236779,1340,236779,887,236813,107,236820,3041,236779,1340,236779,887,236813,4368,107,7676]";
    const im__span all = {0, sizeof text - 1};
    const im__encode_options typed = {.parse_special = true, .plain = &all, .plain_count = 1};
    expect(text, &parsed, "[114711,236787,236743,106,107,105,4368,107,7676]");
    expect(text, &plain, as_text);
    expect(text, &typed, as_text);
}

static void characters_of_several_tokens(void **state)
{
    (void)state;
    if (!MODEL_GEMMA) skip();
    expect_decoded("[478,384,366,415]", "\xf0\x92\x80\xb1");
    expect_decoded("[236746,478,384,366]", "a\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd");
    expect_decoded("[478,384,366,236746]", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"
                                           "a");
}

static void ends_of_a_turn(void **state)
{
    (void)state;
    const int32_t gemma[] = {1, 106}, smollm2[] = {0, 2};
    const int32_t *end = MODEL_GEMMA ? gemma : smollm2;
    size_t found = 0;
    for (int32_t id = 0; (size_t)id < im__tokenizer_count(t); id++) found += im__tokenizer_is_end(t, id);
    assert_int_equal(found, 2);
    assert_true(im__tokenizer_is_end(t, end[0]) && im__tokenizer_is_end(t, end[1]));
    assert_int_equal(im__tokenizer_adds_bos(t), MODEL_GEMMA);
}

int main(void)
{
    char path[4096];
    const char *folder = getenv("IM_TEST_MODELS");
    im__gguf *g = NULL;
    im__vocab_arrays keep;
    im_error err = {IM_OK, ""};
    snprintf(path, sizeof path, "%s/%s", folder == NULL ? "" : folder, MODEL_FILE);
    if (folder == NULL || access(path, R_OK) != 0) {
        printf("SKIPPED: %s\n", MODEL_FILE);
        return SKIPPED;
    }
    golden = vocab_json_load(MODEL_GOLDEN);
    if (golden == NULL || im__gguf_open(&g, path, &err) != IM_OK || im__vocabulary_read(g, NULL, &t, &keep, &err) != IM_OK) {
        fprintf(stderr, "%s\n", err.message);
        return 1;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parsed_ids_are_golden),
        cmocka_unit_test(plain_ids_are_golden),
        cmocka_unit_test(decoded_text_is_golden),
        cmocka_unit_test(long_texts_are_cut_in_linear_time),
        cmocka_unit_test(runs_and_tags),
        cmocka_unit_test(typed_control_tokens),
        cmocka_unit_test(characters_of_several_tokens),
        cmocka_unit_test(ends_of_a_turn),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    im__tokenizer_free(t);
    im__vocab_arrays_clear(&keep);
    im__gguf_close(g);
    json_decref(golden);
    return failed;
}
