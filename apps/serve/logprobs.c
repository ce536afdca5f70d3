/* SPDX-License-Identifier: Apache-2.0 */
#include "job.h"

#include "memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A token's entry waits as [entry, number of its bytes] until its text is sent. */

/* ---- text ------------------------------------------------------------------------------------------------------------------------------------- */

/* Bytes of the character at `s`, 0 when there is no whole valid one: jansson judges. */
static size_t valid_at(const char *s, size_t n)
{
    static const unsigned char lengths[16] = {1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 2, 2, 3, 4};
    size_t want = lengths[(unsigned char)s[0] >> 4];
    if (want == 0 || want > n) return 0;
    json_t *one = json_stringn(s, want);
    json_decref(one);
    return one == NULL ? 0 : want;
}

json_t *text_of_bytes(const char *bytes, size_t n)
{
    json_t *whole = json_stringn(bytes, n);
    if (whole != NULL) return whole;
    char *clean = malloc(3 * n + 1);
    if (clean == NULL) memory_lacked();
    size_t used = 0;
    for (size_t i = 0; clean != NULL && i < n;) {
        size_t len = valid_at(bytes + i, n - i);
        memcpy(clean + used, len > 0 ? bytes + i : "\xef\xbf\xbd", len > 0 ? len : 3);
        used += len > 0 ? len : 3;
        i += len > 0 ? len : 1;
    }
    whole = clean == NULL ? NULL : json_stringn(clean, used);
    free(clean);
    return whole;
}

static json_t *byte_list(const char *bytes, size_t n)
{
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++) json_array_append_new(list, json_integer((unsigned char)bytes[i]));
    return list;
}

/* ---- entries ------------------------------------------------------------------------------------------------------------------------------------ */

/* Control tokens have a name and no text. Twice, since the first token of a text may lose the blank in front. */
static bool has_text(const im_model *model, int32_t id)
{
    const int32_t twice[] = {id, id};
    char *text;
    size_t n;
    if (im_model_decode(model, twice, 2, &text, &n, NULL) != IM_OK) {
        memory_lacked(); /* what else can be wrong with it */
        return false;
    }
    im_free(text);
    return n > 0;
}

/* {"token", "logprob", "bytes"}: what a token is. Bytes are null for one that adds nothing to the text. */
static json_t *token_entry(const job *j, int32_t id, float logprob, size_t *length)
{
    const im_model *model = j->s->o->model;
    char *bytes = NULL;
    size_t n = 0;
    if (im_model_token_bytes(model, id, &bytes, &n, NULL) != IM_OK) {
        memory_lacked();
        n = 0;
    }
    bool text = n > 0 && has_text(model, id);
    json_t *entry = json_pack("{s:o, s:f, s:o}", "token", text_of_bytes(n > 0 ? bytes : "", n), "logprob",
                              isfinite(logprob) ? (double)logprob : -9999.0, "bytes", text ? byte_list(bytes, n) : json_null());
    im_free(bytes);
    if (length != NULL) *length = text ? n : 0;
    return entry;
}

void logprobs_add(const job *j, choice *c, const token_letter *t)
{
    size_t n = 0;
    if (im_model_is_end(j->s->o->model, t->id) && !j->f.ignore_eos) return; /* no part of the text */
    json_t *entry = token_entry(j, t->id, t->logprob, &n), *top = json_array();
    for (uint32_t i = 0; i < t->top_count; i++) json_array_append_new(top, token_entry(j, t->top[i].id, t->top[i].logprob, NULL));
    json_object_set_new(entry, "top_logprobs", top);
    json_array_append_new(c->entries, json_pack("[o, I]", entry, (json_int_t)n));
}

/* A stop text began inside this token: its entry keeps the `n` bytes in front. */
static void cut_entry(json_t *entry, size_t n)
{
    json_t *bytes = json_object_get(entry, "bytes");
    char *text = malloc(n + 1);
    if (text == NULL) memory_lacked();
    for (size_t i = 0; text != NULL && i < n; i++) text[i] = (char)json_integer_value(json_array_get(bytes, i));
    if (text != NULL) json_object_set_new(entry, "token", text_of_bytes(text, n));
    while (json_array_size(bytes) > n) json_array_remove(bytes, json_array_size(bytes) - 1);
    free(text);
}

/* Those entries whose text was sent. At the end of an answer that no stop text cut, also those that have none. */
static json_t *take_sent(choice *c, bool ended)
{
    bool cut = ended && c->result.stop_reason == IM_STOP_STRING;
    json_t *taken = json_array();
    size_t n = 0;
    for (; n < json_array_size(c->entries); n++) {
        const json_t *pair = json_array_get(c->entries, n);
        size_t bytes = (size_t)json_integer_value(json_array_get(pair, 1));
        bool whole = c->taken + bytes <= c->sent || (ended && !cut);
        if (!whole && !(cut && c->taken < c->sent)) break;
        json_t *entry = json_array_get(pair, 0);
        if (!whole) cut_entry(entry, c->sent - c->taken);
        c->taken += whole ? bytes : c->sent - c->taken;
        json_array_append(taken, entry);
    }
    for (; n > 0; n--) json_array_remove(c->entries, 0);
    return taken;
}

/* ---- the older shape of /v1/completions --------------------------------------------------------------------------------------------------------- */

static size_t letters_in(const char *text)
{
    size_t n = 0;
    for (; *text != 0; text++) n += ((unsigned char)*text & 0xc0) != 0x80;
    return n;
}

static json_t *top_object(const json_t *entry)
{
    const json_t *list = json_object_get(entry, "top_logprobs");
    json_t *all = json_object();
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *one = json_array_get(list, i);
        const char *token = json_string_value(json_object_get(one, "token"));
        /* Different tokens may look alike when they are halves of characters: the likelier one stays. */
        if (token != NULL && json_object_get(all, token) == NULL) json_object_set(all, token, json_object_get(one, "logprob"));
    }
    return all;
}

static json_t *completion_shape(const job *j, choice *c, json_t *entries)
{
    json_t *tokens = json_array(), *logprobs = json_array(), *top = json_array(), *offsets = json_array();
    for (size_t i = 0; i < json_array_size(entries); i++) {
        const json_t *entry = json_array_get(entries, i);
        json_array_append(tokens, json_object_get(entry, "token"));
        json_array_append(logprobs, json_object_get(entry, "logprob"));
        json_array_append_new(offsets, json_integer((json_int_t)c->letters));
        json_array_append_new(top, top_object(entry));
        const char *text = json_string_value(json_object_get(entry, "token"));
        bool counts = text != NULL && !json_is_null(json_object_get(entry, "bytes"));
        c->letters += counts ? letters_in(text) : 0;
    }
    json_decref(entries);
    if (j->f.top_logprobs == 0) {
        json_decref(top);
        top = json_null();
    }
    return json_pack("{s:o, s:o, s:o, s:o}", "tokens", tokens, "token_logprobs", logprobs, "top_logprobs", top, "text_offset",
                     offsets);
}

json_t *logprobs_take(const job *j, choice *c, bool ended)
{
    if (c->entries == NULL) return json_null();
    json_t *taken = take_sent(c, ended);
    if (!j->f.chat) return completion_shape(j, c, taken);
    return json_pack("{s:o, s:n}", "content", taken, "refusal");
}
