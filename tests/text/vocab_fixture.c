/* SPDX-License-Identifier: Apache-2.0 */
#include "vocab_fixture.h"

#include "base/utf8.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

json_t *vocab_json_load(const char *name)
{
    char path[4096];
    json_error_t err;
    if (name[0] == '/')
        snprintf(path, sizeof path, "%s", name);
    else
        snprintf(path, sizeof path, "%s/tokenizers/%s", IM_TEST_DATA, name);
    json_t *json = json_load_file(path, JSON_ALLOW_NUL, &err);
    if (json == NULL) print_message("%s: line %d: %s\n", path, err.line, err.text);
    return json;
}

json_t *vocab_json_parse(const char *text)
{
    json_error_t err;
    char *copy = strdup(text);
    assert_non_null(copy);
    for (char *p = copy; *p != 0; p++) {
        if (*p == '\'') *p = '"';
    }
    json_t *json = json_loads(copy, JSON_ALLOW_NUL, &err);
    if (json == NULL) fail_msg("%s in %s", err.text, copy);
    free(copy);
    return json;
}

static im__bytes string_of(const json_t *s)
{
    return s == NULL ? (im__bytes){"", 0} : (im__bytes){json_string_value(s), json_string_length(s)};
}

static im__bytes *strings_of(const json_t *list, size_t *count)
{
    *count = json_array_size(list);
    im__bytes *out = calloc(*count + 1, sizeof *out);
    assert_non_null(out);
    for (size_t i = 0; i < *count; i++) out[i] = string_of(json_array_get(list, i));
    return out;
}

static int integer_of(const json_t *object, const char *key)
{
    json_t *v = json_object_get(object, key);
    return json_is_integer(v) ? (int)json_integer_value(v) : -1;
}

void vocab_fixture_init(vocab_fixture *f, json_t *vocab)
{
    const json_t *types = json_object_get(vocab, "types"), *scores = json_object_get(vocab, "scores");
    *f = (vocab_fixture){.owner = json_incref(vocab)};
    im__vocab_source *s = &f->source;
    s->model = string_of(json_object_get(vocab, "model"));
    s->pre = string_of(json_object_get(vocab, "pre"));
    f->token = strings_of(json_object_get(vocab, "tokens"), &s->count);
    f->merge = strings_of(json_object_get(vocab, "merges"), &s->merge_count);
    f->type = calloc(s->count + 1, sizeof *f->type);
    f->score = calloc(s->count + 1, sizeof *f->score);
    assert_true(f->type != NULL && f->score != NULL);
    for (size_t i = 0; i < json_array_size(types) && i < s->count; i++)
        f->type[i] = (int32_t)json_integer_value(json_array_get(types, i));
    for (size_t i = 0; i < json_array_size(scores) && i < s->count; i++)
        f->score[i] = (float)json_number_value(json_array_get(scores, i));
    s->token = f->token;
    s->merge = f->merge;
    s->type = types == NULL ? NULL : f->type;
    s->score = scores == NULL ? NULL : f->score;
    s->bos = integer_of(vocab, "bos");
    s->eos = integer_of(vocab, "eos");
    s->unk = integer_of(vocab, "unk");
    s->pad = integer_of(vocab, "pad");
    s->add_bos = integer_of(vocab, "add_bos");
    s->add_eos = integer_of(vocab, "add_eos");
    s->add_space_prefix = integer_of(vocab, "add_space_prefix");
}

void vocab_fixture_clear(vocab_fixture *f)
{
    free(f->token);
    free(f->merge);
    free(f->score);
    free(f->type);
    json_decref(f->owner);
    *f = (vocab_fixture){0};
}

im__tokenizer *vocab_fixture_tokenizer(const vocab_fixture *f)
{
    im__tokenizer *t = NULL;
    im_error err = {IM_OK, ""};
    if (im__tokenizer_new(&t, &f->source, &err) != IM_OK) fail_msg("%s", err.message);
    return t;
}

static void print_ids(const char *label, const im__ids *ids)
{
    print_message("  %s", label);
    for (size_t i = 0; i < ids->len; i++) print_message(" %d", (int)ids->data[i]);
    print_message("\n");
}

bool vocab_check_ids(const im__tokenizer *t, const char *text, size_t n, const im__encode_options *options, const json_t *ids)
{
    im__ids got = {0};
    im_error err = {IM_OK, ""};
    if (im__tokenizer_encode(t, text, n, options, &got, &err) != IM_OK) fail_msg("%s", err.message);
    bool same = got.len == json_array_size(ids);
    for (size_t i = 0; same && i < got.len; i++) same = got.data[i] == json_integer_value(json_array_get(ids, i));
    if (!same) {
        char *want = json_dumps(ids, JSON_COMPACT);
        print_message("text: %.*s\n  want %s\n", (int)n, text, want);
        print_ids("got ", &got);
        free(want);
    }
    im__ids_free(&got);
    return same;
}

bool vocab_check_string(const im__tokenizer *t, const json_t *text, const im__encode_options *options, const json_t *ids)
{
    return vocab_check_ids(t, json_string_value(text), json_string_length(text), options, ids);
}

bool vocab_check_decode(const im__tokenizer *t, const json_t *ids, bool show_special, const char *want, size_t n)
{
    im__decoder d;
    im__buf out = {0};
    bool whole = true;
    im__decoder_init(&d, t, show_special);
    for (size_t i = 0; i < json_array_size(ids); i++) {
        size_t before = out.len;
        im__decoder_feed(&d, (int32_t)json_integer_value(json_array_get(ids, i)), &out);
        whole = whole && im__utf8_valid(out.data == NULL ? "" : out.data + before, out.len - before);
    }
    im__decoder_finish(&d, &out);
    bool same = whole && out.len == n && (n == 0 || memcmp(out.data, want, n) == 0);
    if (!same) print_message("decoded: %.*s\n  want: %.*s\n", (int)out.len, out.data == NULL ? "" : out.data, (int)n, want);
    im__buf_free(&out);
    return same;
}

size_t vocab_count_repeated(const im__tokenizer *t, const char *unit, size_t times)
{
    size_t len = strlen(unit);
    char *text = malloc(len * times + 1);
    im__ids ids = {0};
    const im__encode_options options = {.parse_special = true};
    assert_non_null(text);
    for (size_t i = 0; i < times; i++) memcpy(text + i * len, unit, len);
    assert_int_equal(im__tokenizer_encode(t, text, len * times, &options, &ids, NULL), IM_OK);
    size_t count = ids.len;
    im__ids_free(&ids);
    free(text);
    return count;
}
