/* SPDX-License-Identifier: Apache-2.0
 *
 * What tokenizer_config.json and special_tokens_map.json say: more added tokens, and which tokens begin and end a text.
 */
#include "text/tokenizer/json_build.h"

#include <string.h>

/* ---- added_tokens_decoder ---- */

static bool decimal(im__json key, uint64_t *out)
{
    im__json digits = {key.ptr + 1, key.len - 2};
    return digits.len > 0 && digits.ptr[0] >= '0' && digits.ptr[0] <= '9' && im__json_u64(digits, out);
}

/* The entry of this id, looked for from *hint on: the two files have the same order. */
static im__json_added *added_at(im__json_build *b, int32_t id, size_t *hint)
{
    for (size_t i = 0; i < b->added_count; i++) {
        size_t at = (*hint + i) % b->added_count;
        if (b->added[at].id != id) continue;
        *hint = at + 1;
        return &b->added[at];
    }
    return NULL;
}

static im_status read_entry(im__json_build *b, im__json v, im__json_added *out)
{
    im__json content, single_word, lstrip, rstrip, normalized, special;
    const im__json_field field[] = {
        {"content", &content},       {"single_word", &single_word}, {"lstrip", &lstrip}, {"rstrip", &rstrip},
        {"normalized", &normalized}, {"special", &special},         {"__type", NULL},    {0}};
    IM__TRY(im__json_fields(b, v, "an entry of added_tokens_decoder", field));
    IM__TRY(im__json_bytes(b, content, "the content of an entry of added_tokens_decoder", &out->text));
    IM__TRY(im__json_flag(b, special, "special", false, &out->special));
    IM__TRY(im__json_flag(b, normalized, "normalized", !out->special, &out->normalized));
    IM__TRY(im__json_flag(b, single_word, "single_word", false, &out->single_word));
    IM__TRY(im__json_flag(b, lstrip, "lstrip", false, &out->lstrip));
    return im__json_flag(b, rstrip, "rstrip", false, &out->rstrip);
}

im_status im__json_read_added_config(im__json_build *b)
{
    im__json list, key, value;
    im__json_added a;
    uint64_t id;
    size_t hint = 0;
    if (im__json_member(b->config, "added_tokens_decoder", &list) == 0) return IM_OK;
    for (im__json_items items = im__json_items_of(list); items.named && im__json_next(&items, &key, &value);) {
        IM__TRY(read_entry(b, value, &a));
        if (!decimal(key, &id) || id >= b->capacity)
            return im__fail(b->err, IM_ERR_FORMAT, "%s: added_tokens_decoder has the id %.*s, which cannot be", b->name,
                            (int)(key.len > 24 ? 24 : key.len), key.ptr);
        a.id = (int32_t)id;
        im__json_added *known = added_at(b, a.id, &hint);
        bool same = known != NULL && known->text.len == a.text.len && memcmp(known->text.ptr, a.text.ptr, a.text.len) == 0;
        if (same) /* the flags of tokenizer.json stay, but for this one */
            known->special = known->special || a.special;
        else
            IM__TRY(im__json_add(b, &a));
    }
    return IM_OK;
}

/* ---- tokens by name ---- */

/* The text of a token that a file names by itself, or as an object with its content; false: none. */
static bool named_token(im__json file, const char *key, im__json *out)
{
    if (im__json_member(file, key, out) == 0) return false;
    if (im__json_kind_of(*out) == IM__JSON_OBJECT) im__json_member(*out, "content", out);
    return im__json_kind_of(*out) == IM__JSON_STRING;
}

/* The id of a token that begins or ends texts; it is special, whatever tokenizer.json says. */
static im_status token_by_key(im__json_build *b, const char *key, int32_t *out)
{
    im__json v;
    im__bytes text;
    size_t hint = 0;
    *out = -1;
    if (!named_token(b->config, key, &v) && !named_token(b->special_tokens_map, key, &v)) return IM_OK;
    IM__TRY(im__json_bytes(b, v, key, &text));
    if (text.len == 0) return IM_OK;
    int32_t id = im__piece_map_find(&b->t->pieces, text.ptr, text.len);
    if (id < 0)
        return im__fail(b->err, IM_ERR_FORMAT, "%s: the %s of tokenizer_config.json is not in the vocabulary", b->name, key);
    *out = id;
    if (b->r->type[id] == IM__TOKEN_CONTROL) return IM_OK;
    b->r->type[id] = IM__TOKEN_CONTROL;
    im__json_added *known = added_at(b, id, &hint);
    if (known != NULL) {
        known->special = true;
        return IM_OK;
    }
    const im__json_added added = {.text = b->r->token[id], .id = id, .special = true};
    return im__json_add(b, &added);
}

/* Classes of tokenizers for which the switches of tokenizer_config.json replace the post-processor. */
static bool has_switches(const im__json_build *b)
{
    static const char *const name[] = {"LlamaTokenizer", "LlamaTokenizerFast", "CodeLlamaTokenizer", "CodeLlamaTokenizerFast",
                                       "GemmaTokenizer", "GemmaTokenizerFast", "CohereTokenizer",    "CohereTokenizerFast"};
    im__json v;
    if (im__json_member(b->config, "tokenizer_class", &v) == 0) return false;
    for (size_t i = 0; i < sizeof name / sizeof *name; i++) {
        if (im__json_is(v, name[i])) return true;
    }
    return false;
}

static im_status switch_of(im__json_build *b, const char *key, int32_t token, int32_t *edge)
{
    im__json v;
    bool on;
    if (!has_switches(b) || im__json_member(b->config, key, &v) == 0 || im__json_absent(v)) return IM_OK;
    IM__TRY(im__json_flag(b, v, key, false, &on));
    *edge = on ? token : -1;
    return IM_OK;
}

/* The token that the post-processor puts at an edge of a text must be the one that the configuration names for it, if it names one. */
static im_status agree(im__json_build *b, const char *key, int32_t edge, int32_t *token, bool *adds)
{
    *adds = edge >= 0;
    if (edge >= 0 && *token < 0) *token = edge;
    if (edge < 0 || edge == *token) return IM_OK;
    return im__fail(b->err, IM_ERR_UNSUPPORTED, "%s: the post-processor adds token %ld, but the %s is token %ld", b->name,
                    (long)edge, key, (long)*token);
}

im_status im__json_read_config(im__json_build *b)
{
    im__vocab_source *s = &b->t->source;
    IM__TRY(token_by_key(b, "bos_token", &s->bos));
    IM__TRY(token_by_key(b, "eos_token", &s->eos));
    IM__TRY(switch_of(b, "add_bos_token", s->bos, &b->prefix));
    IM__TRY(switch_of(b, "add_eos_token", s->eos, &b->suffix));
    IM__TRY(agree(b, "bos_token", b->prefix, &s->bos, &b->t->adds_bos));
    return agree(b, "eos_token", b->suffix, &s->eos, &b->t->adds_eos);
}
