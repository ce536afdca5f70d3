/* SPDX-License-Identifier: Apache-2.0
 *
 * Hard inputs on published tokenizer.json files: FOLDER/qwen3/tokenizer.json and FOLDER/llama3_1/tokenizer.json, where FOLDER is
 * $IM_TEST_TOKENIZERS. They are not part of the project; without them the test is skipped.
 */
#include "vocab_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define SKIPPED 77

static const im__encode_options parsed = {.parse_special = true}, plain = {0};

typedef struct family {
    const char *folder, *pre;
    vocab_fixture f;
    im__tokenizer *t;
} family;

static family qwen = {.folder = "qwen3", .pre = "qwen2"}, llama = {.folder = "llama3_1", .pre = "llama-bpe"};

static int load(family *y)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s/tokenizer.json", getenv("IM_TEST_TOKENIZERS"), y->folder);
    json_t *json = vocab_json_load(path);
    if (json == NULL) return 0;
    vocab_fixture_init_published(&y->f, json, y->pre);
    json_decref(json);
    y->t = vocab_fixture_tokenizer(&y->f);
    return 1;
}

static int load_both(void **state)
{
    (void)state;
    return load(&qwen) && load(&llama) ? 0 : 1;
}

static int free_both(void **state)
{
    (void)state;
    im__tokenizer_free(qwen.t);
    im__tokenizer_free(llama.t);
    vocab_fixture_clear(&qwen.f);
    vocab_fixture_clear(&llama.f);
    return 0;
}

static void long_texts(void **state)
{
    (void)state;
    static const struct {
        const char *unit;
        size_t times, qwen, llama;
    } text[] = {
        {"a", 100000, 12500, 12500},
        {"\n", 100000, 3125, 3125},
        {" ", 100000, 782, 782},
        {"\xe6\x97\xa5\xe6\x9c\xac\xe8\xaa\x9e\xe3\x81\xae\xe6\x96\x87\xe7\xab\xa0", 10000, 40000, 40000},
        {"the quick brown fox jumps over the lazy dog and ", 4200, 42001, 42001},
        {"\xf0\x9f\x91\xa8\xe2\x80\x8d\xf0\x9f\x91\xa9\xe2\x80\x8d\xf0\x9f\x91\xa7\xe2\x80\x8d\xf0\x9f\x91\xa6", 2000, 20000,
         30000},
        {"a", 1000000, 125000, 125000},
    };
    for (size_t i = 0; i < sizeof text / sizeof *text; i++) {
        assert_int_equal(vocab_count_repeated(qwen.t, text[i].unit, text[i].times), text[i].qwen);
        assert_int_equal(vocab_count_repeated(llama.t, text[i].unit, text[i].times), text[i].llama);
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
    const char text[] = "<|im_end|>\n<|im_start|>system\nx";
    expect(qwen.t, text, &parsed, "[151645,198,151644,8948,198,87]");
    expect(qwen.t, text, &plain, "[27,91,318,6213,91,397,27,91,318,4906,91,29,8948,198,87]");
}

static void characters_of_several_tokens(void **state)
{
    (void)state;
    expect_decoded(qwen.t, "[151268,109]", "\xf0\x92\x80\xb1");
    expect_decoded(qwen.t, "[64,151268]", "a\xef\xbf\xbd");
    expect_decoded(llama.t, "[172,240,222,109]", "\xf0\x92\x80\xb1");
    expect_decoded(llama.t, "[172,240,222]", "\xef\xbf\xbd");
    expect_decoded(llama.t, "[172,240,222,64]",
                   "\xef\xbf\xbd"
                   "a");
}

static void ends_of_a_turn(void **state)
{
    (void)state;
    assert_true(im__tokenizer_is_end(qwen.t, 151645) && im__tokenizer_is_end(qwen.t, 151643));
    assert_true(im__tokenizer_is_end(llama.t, 128001) && im__tokenizer_is_end(llama.t, 128009));
    assert_false(im__tokenizer_is_end(llama.t, 128000) || im__tokenizer_is_end(qwen.t, 151644));
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
        cmocka_unit_test(ends_of_a_turn),
    };
    return cmocka_run_group_tests(tests, load_both, free_both);
}
