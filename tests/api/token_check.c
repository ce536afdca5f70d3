/* SPDX-License-Identifier: Apache-2.0
 *
 * Text through the public door against golden ids: token_check MODEL.gguf GOLDEN.json
 * GOLDEN: {"strings": [{"text", "ids", "ids_plain"?, "decoded"?, "plain_ambiguous"?}], "adds_bos"?: id or null, "chat"?: {"messages", "text", "ids"}}.
 * Prints what differs. Exit 0: nothing; 1: something; 2: could not run.
 */
#include <ironmule/ironmule.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int failures;

static void differs(const char *what, const char *text)
{
    if (failures++ < 20) printf("%s: %.80s\n", what, text);
}

/* Are these the ids, perhaps behind a first one? */
static bool equal(const int32_t *ids, size_t n, const json_t *want, const json_t *before)
{
    size_t skip = json_is_integer(before) ? 1 : 0, i;
    const json_t *item;
    if (n != json_array_size(want) + skip || (skip == 1 && ids[0] != json_integer_value(before))) return false;
    json_array_foreach(want, i, item) if (ids[i + skip] != json_integer_value(item)) return false;
    return true;
}

static void check_encode(const im_model *m, const json_t *row, unsigned flags, const json_t *want, const json_t *before,
                         const char *what)
{
    im_error err;
    int32_t *ids;
    size_t n;
    const json_t *text = json_object_get(row, "text");
    if (im_model_encode(m, json_string_value(text), json_string_length(text), flags, &ids, &n, &err) != IM_OK) {
        differs(err.message, json_string_value(text));
        return;
    }
    if (!equal(ids, n, want, before)) differs(what, json_string_value(text));
    im_free(ids);
}

static bool says(const char *text, size_t n, const json_t *want)
{
    return n == json_string_length(want) && memcmp(text, json_string_value(want), n) == 0;
}

/* The oracle spells control tokens out, im_model_decode leaves them out: there the tokens' own bytes are judged. */
static bool spelled_out(const im_model *m, const int32_t *ids, size_t count, const json_t *want)
{
    char all[1 << 16], *bytes;
    size_t used = 0, n;
    for (size_t i = 0; i < count; i++) {
        if (im_model_token_bytes(m, ids[i], &bytes, &n, NULL) != IM_OK) return false;
        if (n <= sizeof all - used) memcpy(all + used, bytes, n);
        used += n;
        im_free(bytes);
        if (used > sizeof all) return false;
    }
    return says(all, used, want);
}

static void check_decode(const im_model *m, const json_t *row)
{
    im_error err;
    char *text;
    size_t count = json_array_size(json_object_get(row, "ids")), n;
    const json_t *want = json_object_get(row, "decoded");
    bool control = json_object_get(row, "ids_plain") != NULL || json_is_true(json_object_get(row, "plain_ambiguous"));
    if (want == NULL) want = json_object_get(row, "text");
    int32_t ids[4096];
    if (count > sizeof ids / sizeof *ids) return differs("too many ids for this test", json_string_value(want));
    for (size_t i = 0; i < count; i++) ids[i] = (int32_t)json_integer_value(json_array_get(json_object_get(row, "ids"), i));
    if (im_model_decode(m, ids, count, &text, &n, &err) != IM_OK) return differs(err.message, json_string_value(want));
    if (!says(text, n, want) && !(control && spelled_out(m, ids, count, want))) differs("decoded", json_string_value(want));
    im_free(text);
}

static void check_string(const im_model *m, const json_t *row, const json_t *bos)
{
    const json_t *ids = json_object_get(row, "ids"), *plain = json_object_get(row, "ids_plain");
    check_encode(m, row, IM_ENCODE_NO_BOS, ids, NULL, "parsed");
    check_encode(m, row, IM_ENCODE_DEFAULT, ids, bos, "with BOS");
    if (!json_is_true(json_object_get(row, "plain_ambiguous")))
        check_encode(m, row, IM_ENCODE_NO_BOS | IM_ENCODE_PLAIN, plain == NULL ? ids : plain, NULL, "plain");
    check_decode(m, row);
}

static void check_chat(const im_model *m, const json_t *chat)
{
    im_error err;
    char *text, *messages = json_dumps(json_object_get(chat, "messages"), 0);
    int32_t *ids;
    size_t len, n;
    im_status status = im_model_chat(m, messages, NULL, &text, &len, &ids, &n, &err);
    free(messages);
    if (status != IM_OK) return differs(err.message, "chat");
    if (strcmp(text, json_string_value(json_object_get(chat, "text"))) != 0) differs("chat renders", text);
    if (!equal(ids, n, json_object_get(chat, "ids"), NULL)) differs("chat has other ids", text);
    im_free(text);
    im_free(ids);
}

int main(int argc, char **argv)
{
    im_error err;
    im_model *m;
    im_model_options o;
    json_t *golden = argc > 2 ? json_load_file(argv[2], 0, NULL) : NULL, *row;
    size_t i;
    if (golden == NULL) return fprintf(stderr, "usage: token_check MODEL GOLDEN\n"), 2;
    im_model_options_defaults(&o);
    o.vocabulary_only = true;
    if (im_model_open(&m, argv[1], &o, &err) != IM_OK) return fprintf(stderr, "%s\n", err.message), 2;
    json_array_foreach(json_object_get(golden, "strings"), i, row) check_string(m, row, json_object_get(golden, "adds_bos"));
    if (json_object_get(golden, "chat") != NULL) check_chat(m, json_object_get(golden, "chat"));
    printf("%zu strings, %d differences\n", i, failures);
    im_model_close(m);
    json_decref(golden);
    return failures > 0;
}
