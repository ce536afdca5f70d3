/* SPDX-License-Identifier: Apache-2.0
 *
 * Hard inputs on published tokenizer.json files: those of the folders gemma3, qwen3 and llama3_1 in $IM_TEST_TOKENIZERS. They are not part of the project;
 * without them the test is skipped.
 */
#include "text/tokenizer/tokenizer_json.h"
#include "vocab_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#define SKIPPED 77

static const im__encode_options parsed = {.parse_special = true}, plain = {0};

static im__tokenizer *gemma, *qwen, *llama;
static double gemma_ms; /* processor time of loading it */

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static bool load(const char *folder, im__tokenizer **out, im__buf *chat_template)
{
    char path[4096];
    im_error err = {IM_OK, ""};
    snprintf(path, sizeof path, "%s/%s", getenv("IM_TEST_TOKENIZERS"), folder);
    bool ok = im__tokenizer_json_read(out, chat_template, path, &(im__tokenizer_json_options){0}, &err) == IM_OK;
    if (!ok) print_message("%s\n", err.message);
    return ok;
}

static int load_all(void **state)
{
    (void)state;
    im__buf chat_template = {0};
    double begun = now_ms();
    bool ok = load("gemma3", &gemma, NULL);
    gemma_ms = now_ms() - begun;
    ok = ok && load("qwen3", &qwen, NULL) && load("llama3_1", &llama, &chat_template);
    ok = ok && strstr(chat_template.data, "<|start_header_id|>") != NULL;
    im__buf_free(&chat_template);
    return ok ? 0 : 1;
}

static int free_all(void **state)
{
    (void)state;
    im__tokenizer_free(gemma);
    im__tokenizer_free(qwen);
    im__tokenizer_free(llama);
    return 0;
}

static void long_texts(void **state)
{
    (void)state;
    static const struct {
        const char *unit;
        size_t times, gemma, qwen, llama;
    } text[] = {
        {"a", 100000, 12500, 12500, 12500},
        {"\n", 100000, 3226, 3125, 3125},
        {" ", 100000, 3226, 782, 782},
        {"\xe6\x97\xa5\xe6\x9c\xac\xe8\xaa\x9e\xe3\x81\xae\xe6\x96\x87\xe7\xab\xa0", 10000, 30000, 40000, 40000},
        {"the quick brown fox jumps over the lazy dog and ", 4200, 42001, 42001, 42001},
        {"\xf0\x9f\x91\xa8\xe2\x80\x8d\xf0\x9f\x91\xa9\xe2\x80\x8d\xf0\x9f\x91\xa7\xe2\x80\x8d\xf0\x9f\x91\xa6", 2000, 14000, 20000,
         30000},
        {"a", 1000000, 125000, 125000, 125000},
    };
    for (size_t i = 0; i < sizeof text / sizeof *text; i++) {
        assert_int_equal(vocab_count_repeated(gemma, text[i].unit, text[i].times), text[i].gemma);
        assert_int_equal(vocab_count_repeated(qwen, text[i].unit, text[i].times), text[i].qwen);
        assert_int_equal(vocab_count_repeated(llama, text[i].unit, text[i].times), text[i].llama);
    }
}

static void expect(const im__tokenizer *t, const char *text, const im__encode_options *options, const char *ids)
{
    json_t *want = vocab_json_parse(ids);
    assert_true(vocab_check_ids(t, text, strlen(text), options, want));
    json_decref(want);
}

static void expect_decoded(const im__tokenizer *t, const char *ids, const char *want)
{
    json_t *list = vocab_json_parse(ids);
    assert_true(vocab_check_decode(t, list, false, want, strlen(want)));
    json_decref(list);
}

static void typed_control_tokens(void **state)
{
    (void)state;
    const char text[] = "<|im_end|>\n<|im_start|>system\nx", echo[] = "Echo: <end_of_turn>\n<start_of_turn>model\nOK";
    expect(gemma, echo, &parsed, "[114711,236787,236743,106,107,105,4368,107,7676]");
    expect(gemma, echo, &plain,
           "[114711,236787,655,643,236779,1340,236779,887,236813,107,236820,3041,236779,1340,236779,887,236813,4368,107,7676]");
    expect(qwen, text, &parsed, "[151645,198,151644,8948,198,87]");
    expect(qwen, text, &plain, "[27,91,318,6213,91,397,27,91,318,4906,91,29,8948,198,87]");
}

/* Runs of white space and tags are tokens of their own. */
static void white_space_and_tags(void **state)
{
    (void)state;
    char run[41];
    static const struct {
        char of;
        size_t times;
        const char *ids;
    } runs[] = {{'\n', 31, "[137]"}, {'\n', 32, "[137,107]"},   {'\n', 33, "[137,108]"}, {'\n', 40, "[137,115]"},
                {' ', 31, "[167]"},  {' ', 32, "[167,236743]"}, {'\t', 6, "[255973]"}};
    static const char *const text[][2] = {
        {"a  b and    c", "[236746,138,236763,532,140,236755]"},
        {"Hello \n\n  world", "[9259,236743,108,138,12392]"},
        {"x\n\n\n\ty  z\n", "[236781,109,255968,236762,138,236802,107]"},
        {"<code>x</code>", "[206,236781,215]"},
        {"<h1>Title</h1>", "[184,7396,191]"},
        {" hello", "[29104]"},
        {"  hello", "[138,23391]"},
        {"hello ", "[23391,236743]"},
        {"                                 x", "[167,138,236781]"},
        {"\t\t\t\t\t\ttest", "[255973,2181]"},
    };
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        memset(run, runs[i].of, runs[i].times);
        run[runs[i].times] = 0;
        expect(gemma, run, &parsed, runs[i].ids);
    }
    for (size_t i = 0; i < sizeof text / sizeof *text; i++) {
        expect(gemma, text[i][0], &parsed, text[i][1]);
        expect_decoded(gemma, text[i][1], text[i][0]);
    }
    expect_decoded(gemma, "[518]", " b");
}

/* The strings and ids of a GGUF file with the same vocabulary. */
static void a_gguf_file_of_the_vocabulary_gives_the_same(void **state)
{
    (void)state;
    json_t *cases = vocab_json_load("gemma3-270m.json"), *one;
    size_t i, failed = 0;
    assert_int_equal(json_array_size(cases), 200);
    json_array_foreach(cases, i, one)
    {
        failed += !vocab_check_string(gemma, json_object_get(one, "text"), &parsed, json_object_get(one, "ids"));
    }
    json_decref(cases);
    assert_int_equal(failed, 0);
}

static void characters_of_several_tokens(void **state)
{
    (void)state;
    expect_decoded(gemma, "[478,384,366,415]", "\xf0\x92\x80\xb1");
    expect_decoded(gemma, "[236746,478,384,366]", "a\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd");
    expect_decoded(qwen, "[151268,109]", "\xf0\x92\x80\xb1");
    expect_decoded(qwen, "[64,151268]", "a\xef\xbf\xbd");
    expect_decoded(llama, "[172,240,222,109]", "\xf0\x92\x80\xb1");
    expect_decoded(llama, "[172,240,222]", "\xef\xbf\xbd");
    expect_decoded(llama, "[172,240,222,64]",
                   "\xef\xbf\xbd"
                   "a");
}

static void ends_of_a_turn(void **state)
{
    (void)state;
    assert_true(im__tokenizer_is_end(gemma, 1) && im__tokenizer_is_end(gemma, 106));
    assert_true(im__tokenizer_is_end(qwen, 151645) && im__tokenizer_is_end(qwen, 151643));
    assert_true(im__tokenizer_is_end(llama, 128001) && im__tokenizer_is_end(llama, 128009));
    assert_false(im__tokenizer_is_end(llama, 128000) || im__tokenizer_is_end(qwen, 151644));
}

static void beginnings(void **state)
{
    (void)state;
    assert_true(im__tokenizer_adds_bos(gemma) && im__tokenizer_bos(gemma) == 2);
    assert_true(im__tokenizer_adds_bos(llama) && im__tokenizer_bos(llama) == 128000);
    assert_false(im__tokenizer_adds_bos(qwen));
}

/* Processor time, with room for a slow machine: a megabyte of words, of Chinese, of anything. */
static void loading_and_encoding_are_quick(void **state)
{
    (void)state;
    im__tokenizer *const all[] = {gemma, qwen, llama};
    static const char *const unit[] = {"The mule carried 24 sacks of flour, slowly, to the mill. ",
                                       "\xe6\x97\xa5\xe6\x9c\xac\xe8\xaa\x9e\xe3\x81\xae",
                                       "x=[1,2];\t\xd0\x9f\xd1\x80\xd0\xb8 \xf0\x9f\x99\x82\n"};
    print_message("gemma3: loaded in %.0f ms\n", gemma_ms);
    assert_true(gemma_ms < 800);
    for (size_t i = 0; i < 9; i++) {
        double begun = now_ms();
        vocab_count_repeated(all[i / 3], unit[i % 3], 1000000 / strlen(unit[i % 3]));
        double took = now_ms() - begun;
        print_message("tokenizer %zu, text %zu: 1 MB in %.0f ms\n", i / 3, i % 3, took);
        assert_true(took < 1000);
    }
}

int main(void)
{
    if (getenv("IM_TEST_TOKENIZERS") == NULL) {
        printf("SKIPPED: published tokenizer.json files (IM_TEST_TOKENIZERS names no folder)\n");
        return SKIPPED;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(long_texts),
        cmocka_unit_test(typed_control_tokens),
        cmocka_unit_test(characters_of_several_tokens),
        cmocka_unit_test(white_space_and_tags),
        cmocka_unit_test(a_gguf_file_of_the_vocabulary_gives_the_same),
        cmocka_unit_test(ends_of_a_turn),
        cmocka_unit_test(beginnings),
        cmocka_unit_test(loading_and_encoding_are_quick),
    };
    return cmocka_run_group_tests(tests, load_all, free_all);
}
