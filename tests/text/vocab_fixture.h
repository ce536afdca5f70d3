/* SPDX-License-Identifier: Apache-2.0
 *
 * Vocabularies for tests, from JSON: {"model": "llama", "pre": "", "tokens": [...], "types": [...], "scores": [...], "merges": [...], "bos": 1, ...}.
 * Everything but model and tokens may be absent. Helpers fail the running cmocka test when something is wrong with the data.
 */
#ifndef IRONMULE_TESTS_VOCAB_FIXTURE_H
#define IRONMULE_TESTS_VOCAB_FIXTURE_H

#include "text/tokenizer/tokenizer.h"

#include <jansson.h>

/* Parsed file of tests/data/tokenizers, or any path that begins with '/'. NULL when it cannot be read. */
json_t *vocab_json_load(const char *name);
/* The same from text in which ' stands for ". */
json_t *vocab_json_parse(const char *text);

typedef struct vocab_fixture {
    im__vocab_source source;
    im__bytes *token, *merge;
    float *score;
    int32_t *type;
    json_t *owner; /* keeps the strings */
} vocab_fixture;

/* Fills in `f` from the description; holds a reference to it. Free with vocab_fixture_clear. */
void vocab_fixture_init(vocab_fixture *f, json_t *vocab);
void vocab_fixture_clear(vocab_fixture *f);
/* Fails the test with the library's message when it cannot be made. */
im__tokenizer *vocab_fixture_tokenizer(const vocab_fixture *f);

/* Encodes text[0..n) and compares with the ids of a JSON array; prints both and returns false when they differ. */
bool vocab_check_ids(const im__tokenizer *t, const char *text, size_t n, const im__encode_options *options, const json_t *ids);
bool vocab_check_string(const im__tokenizer *t, const json_t *text, const im__encode_options *options, const json_t *ids);

/* Decodes ids one at a time and compares with `want`; also checks that nothing but whole characters ever comes out. */
bool vocab_check_decode(const im__tokenizer *t, const json_t *ids, bool show_special, const char *want, size_t n);

/* Number of ids of the text `unit` repeated `times`. */
size_t vocab_count_repeated(const im__tokenizer *t, const char *unit, size_t times);

#endif
