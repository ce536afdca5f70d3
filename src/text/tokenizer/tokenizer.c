/* SPDX-License-Identifier: Apache-2.0 */
#include "text/tokenizer/tokenizer_inside.h"

#include "text/tokenizer/byte_alphabet.h"

#include "base/utf8.h"

#include <string.h>

#define MOST_TOKENS ((size_t)1 << 24)
#define LONGEST_PIECE 65535

static const im__bytes mark = {"\xe2\x96\x81", 3}; /* U+2581 */
static const im__bytes blank = {" ", 1};

static bool same(im__bytes a, const char *b) { return a.len == strlen(b) && memcmp(a.ptr, b, a.len) == 0; }

static im_status no_memory(im_error *err)
{
    return im__fail(err, IM_ERR_MEMORY, "not enough memory for the tables of the vocabulary");
}

/* ---- checks ---- */

static im_status check_id(const char *key, int32_t id, size_t count, im_error *err)
{
    if (id >= -1 && (id < 0 || (size_t)id < count)) return IM_OK;
    return im__fail(err, IM_ERR_FORMAT, "the vocabulary has %zu tokens, but %s is %ld", count, key, (long)id);
}

static im_status check_pieces(const im__vocab_source *s, im_error *err)
{
    for (size_t i = 0; i < s->count; i++) {
        if (s->token[i].len > LONGEST_PIECE) {
            return im__fail(err, IM_ERR_FORMAT, "token %zu of the vocabulary is %zu bytes long", i, s->token[i].len);
        }
        if (s->type != NULL && (s->type[i] < 0 || s->type[i] > IM__TOKEN_BYTE)) {
            return im__fail(err, IM_ERR_FORMAT, "token %zu of the vocabulary has the unknown type %ld", i, (long)s->type[i]);
        }
    }
    return IM_OK;
}

static im_status check_source(const im__vocab_source *s, im_error *err)
{
    if (s->count == 0 || s->count > MOST_TOKENS) {
        return im__fail(err, IM_ERR_FORMAT, "a vocabulary of %zu tokens is not possible (1 to %zu are)", s->count, MOST_TOKENS);
    }
    if (s->merge_count > 8 * MOST_TOKENS) {
        return im__fail(err, IM_ERR_FORMAT, "a vocabulary with %zu merges is not possible", s->merge_count);
    }
    IM__TRY(check_id("tokenizer.ggml.bos_token_id", s->bos, s->count, err));
    IM__TRY(check_id("tokenizer.ggml.eos_token_id", s->eos, s->count, err));
    IM__TRY(check_id("tokenizer.ggml.unknown_token_id", s->unk, s->count, err));
    IM__TRY(check_id("tokenizer.ggml.padding_token_id", s->pad, s->count, err));
    for (size_t i = 0; i < s->end_count; i++) IM__TRY(check_id("an end token", s->end[i], s->count, err));
    return check_pieces(s, err);
}

static im_status unknown_pre(const im__vocab_source *s, im_error *err)
{
    im__buf names = {0};
    for (const char *const *n = im__tokenizer_pre_names(); *n != NULL; n++)
        im__buf_printf(&names, "%s%s", names.len > 0 ? " " : "", *n);
    const char *where = s->force_pre ? "asked for" : "of the file (tokenizer.ggml.pre)";
    const char *what = s->force_pre ? "known are" : "if its pattern is one of these, force it with --pre NAME";
    im_status status = im__fail(err, IM_ERR_UNSUPPORTED, "the pre-tokeniser \"%.*s\" %s is not known; %s: %s",
                                (int)(s->pre.len > 64 ? 64 : s->pre.len), s->pre.ptr, where, what, names.failed ? "" : names.data);
    im__buf_free(&names);
    return status;
}

/* ---- tables ---- */

/* Ordinary pieces first: they win over a control token that is written the same. */
static im_status fill_pieces(im__tokenizer *t, im_error *err)
{
    if (!im__piece_map_init(&t->pieces, t->source.token, t->source.count)) return no_memory(err);
    for (int pass = 0; pass < 2; pass++) {
        for (size_t i = 0; i < t->source.count; i++) {
            if (t->source.token[i].len == 0) continue;
            if (im__token_merges(t, (int32_t)i) == (pass == 0)) im__piece_map_add(&t->pieces, (int32_t)i);
        }
    }
    return IM_OK;
}

/* Number of spaces that the piece consists of, 0 when there is something else in it. */
static size_t count_spaces(const im__tokenizer *t, im__bytes piece)
{
    size_t n = 0;
    for (size_t at = 0; at < piece.len; n++) {
        if (piece.ptr[at] == ' ')
            at++;
        else if (piece.len - at >= t->space.len && memcmp(piece.ptr + at, t->space.ptr, t->space.len) == 0)
            at += t->space.len;
        else
            return 0;
    }
    return n;
}

/* A user-defined run of spaces is looked for as pieces write it, in the raw text and again once spaces are rewritten: a text may have
 * the mark itself. */
static bool take_run(im__tokenizer *t, int32_t id)
{
    size_t n = count_spaces(t, t->source.token[id]);
    if (t->byte_level || t->space_prefix || n < 2 || n >= IM__RUN_MAX || t->run_id[n] >= 0) return false;
    t->run_id[n] = id;
    if (n > t->run_longest) t->run_longest = n;
    return true;
}

static im_status write_run_text(im__tokenizer *t, im_error *err)
{
    t->run_text = im__calloc(t->run_longest, t->space.len);
    if (t->run_text == NULL) return no_memory(err);
    for (size_t i = 0; i < t->run_longest; i++) memcpy(t->run_text + i * t->space.len, t->space.ptr, t->space.len);
    return IM_OK;
}

static bool is_added(const im__tokenizer *t, size_t id)
{
    int32_t type = t->source.type == NULL ? IM__TOKEN_NORMAL : t->source.type[id];
    return (type == IM__TOKEN_CONTROL || type == IM__TOKEN_UNKNOWN || type == IM__TOKEN_USER_DEFINED) &&
           t->source.token[id].len > 0;
}

static im_status fill_added(im__tokenizer *t, im_error *err)
{
    size_t count = 0;
    for (size_t i = 0; i < t->source.count; i++) count += is_added(t, i);
    im__added_token *entry = im__calloc(count, sizeof *entry);
    if (entry == NULL) return no_memory(err);
    t->added.entry = entry;
    count = 0;
    for (size_t i = 0; i < t->source.count; i++) {
        if (!is_added(t, i)) continue;
        bool control = t->source.type[i] != IM__TOKEN_USER_DEFINED;
        if (t->source.token[i].len > IM__ADDED_MAX) {
            return im__fail(err, IM_ERR_FORMAT, "the special token %zu is %zu bytes long; %d is the most", i,
                            t->source.token[i].len, IM__ADDED_MAX);
        }
        entry[count++] = (im__added_token){.text = t->source.token[i], .id = (int32_t)i, .control = control};
        if (!control) take_run(t, (int32_t)i);
    }
    if (t->run_longest > 0) IM__TRY(write_run_text(t, err));
    for (size_t i = 0; i < count; i++) {
        size_t n = count_spaces(t, entry[i].text);
        if (n < IM__RUN_MAX && t->run_longest > 0 && t->run_id[n] == entry[i].id)
            entry[i].text = (im__bytes){t->run_text, n * t->space.len};
    }
    im__added_tokens_init(&t->added, entry, count);
    return IM_OK;
}

/* ---- scores ---- */

static im_status fill_byte_tokens(im__tokenizer *t, im_error *err)
{
    for (size_t i = 0; t->source.type != NULL && i < t->source.count; i++) {
        if (t->source.type[i] != IM__TOKEN_BYTE) continue;
        int byte = im__token_byte(t->source.token[i]);
        if (byte < 0) return im__fail(err, IM_ERR_FORMAT, "token %zu is a byte token, but is not written as <0xHH>", i);
        if (t->byte_id[byte] >= 0) {
            return im__fail(err, IM_ERR_FORMAT, "tokens %ld and %zu both stand for the byte %02X", (long)t->byte_id[byte], i,
                            (unsigned)byte);
        }
        t->byte_id[byte] = (int32_t)i;
    }
    return IM_OK;
}

static bool is_space(const im__tokenizer *t, const char *at) { return memcmp(at, t->space.ptr, t->space.len) == 0; }

void im__token_note_spaces(im__tokenizer *t)
{
    const size_t len = t->space.len;
    for (size_t i = 0; i < t->source.count; i++) {
        const im__bytes piece = t->source.token[i];
        if (piece.len < 2 || memchr(piece.ptr + 1, t->space.ptr[0], piece.len - 1) == NULL || !im__token_merges(t, (int32_t)i))
            continue;
        for (size_t at = 1; at + len <= piece.len; at++) {
            bool in_run = at >= len && is_space(t, piece.ptr + at - len); /* never cut anyway */
            if (!in_run && is_space(t, piece.ptr + at)) t->joins_space[(unsigned char)piece.ptr[at - 1]] = true;
        }
    }
}

static bool has_control(const im__tokenizer *t, const char *name)
{
    int32_t id = im__piece_map_find(&t->pieces, name, strlen(name));
    return id >= 0 && im__tokenizer_type(t, id) == IM__TOKEN_CONTROL;
}

static im_status init_scores(im__tokenizer *t, im_error *err)
{
    if (t->source.score == NULL)
        return im__fail(err, IM_ERR_FORMAT, "a vocabulary of the kind \"llama\" needs tokenizer.ggml.scores");
    bool marks = im__piece_map_find(&t->pieces, mark.ptr, mark.len) >= 0;
    t->space = marks || im__piece_map_find(&t->pieces, blank.ptr, blank.len) < 0 ? mark : blank;
    t->space_prefix = t->source.add_space_prefix != 0;
    t->adds_bos = t->source.add_bos != 0;
    t->control_eats_space = has_control(t, "<|user|>") && has_control(t, "<|assistant|>") && has_control(t, "<|end|>");
    im__token_note_spaces(t);
    return fill_byte_tokens(t, err);
}

/* ---- byte level ---- */

void im__token_note_letters(im__tokenizer *t)
{
    char bytes[4];
    for (unsigned b = 0; b < 256; b++) {
        int32_t id = im__piece_map_find(&t->pieces, bytes, im__utf8_encode(im__byte_to_code(b), bytes));
        t->byte_id[b] = id >= 0 && im__token_merges(t, id) ? id : -1;
    }
}

/* Ids of the two halves of a merge and of the whole; false when one is not in the vocabulary. `guess` is a likely id of the whole. */
static bool resolve_merge(const im__tokenizer *t, im__bytes merge, im__buf *joined, int32_t guess, im__pair_slot *pair)
{
    const char *gap = merge.len < 2 ? NULL : memchr(merge.ptr + 1, ' ', merge.len - 1);
    if (gap == NULL) return false;
    size_t left = (size_t)(gap - merge.ptr), right = merge.len - left - 1;
    pair->left = im__piece_map_find(&t->pieces, merge.ptr, left);
    pair->right = im__piece_map_find(&t->pieces, gap + 1, right);
    joined->len = 0;
    im__buf_append(joined, merge.ptr, left);
    im__buf_append(joined, gap + 1, right);
    if (joined->failed || pair->left < 0 || pair->right < 0) return false;
    if (im__token_in_vocabulary(t, guess) && t->source.token[guess].len == joined->len && im__token_merges(t, guess) &&
        memcmp(t->source.token[guess].ptr, joined->data, joined->len) == 0)
        pair->id = guess;
    else
        pair->id = im__piece_map_find(&t->pieces, joined->data, joined->len);
    return pair->id >= 0;
}

static im_status fill_merges(im__tokenizer *t, im_error *err)
{
    im__buf joined = {0};
    im__pair_slot pair = {.id = -2};
    if (!im__pair_map_init(&t->pairs, t->source.merge_count)) return no_memory(err);
    for (size_t i = 0; i < t->source.merge_count; i++) {
        const im__bytes merge = t->source.merge[i];
        if (!resolve_merge(t, merge, &joined, pair.id + 1, &pair)) {
            bool memory = joined.failed;
            im__buf_free(&joined);
            if (memory) return no_memory(err);
            return im__fail(err, IM_ERR_FORMAT,
                            "merge %zu of the vocabulary, \"%.*s\", is not made of two tokens that make a third", i,
                            (int)(merge.len > 64 ? 64 : merge.len), merge.ptr);
        }
        pair.rank = (uint32_t)i;
        if (im__token_merges(t, pair.id)) im__pair_map_add(&t->pairs, pair);
    }
    im__buf_free(&joined);
    return IM_OK;
}

static im_status init_byte_level(im__tokenizer *t, im_error *err)
{
    static const im__bytes fallback = {"default", 7};
    const im__bytes name = t->source.pre.len == 0 ? fallback : t->source.pre;
    t->pre = im__pre_find(name.ptr, name.len);
    if (t->pre == NULL) return unknown_pre(&t->source, err);
    t->adds_bos = t->source.add_bos == 1 || (t->source.add_bos < 0 && t->pre->add_bos);
    im__token_note_letters(t);
    return fill_merges(t, err);
}

/* ---- the door ---- */

static im_status build(im__tokenizer *t, im_error *err)
{
    t->byte_level = t->by_rank = same(t->source.model, "gpt2");
    if (!t->byte_level && !same(t->source.model, "llama")) {
        return im__fail(err, IM_ERR_UNSUPPORTED,
                        "the tokeniser \"%.*s\" (tokenizer.ggml.model) is not known; known are llama and gpt2",
                        (int)(t->source.model.len > 64 ? 64 : t->source.model.len), t->source.model.ptr);
    }
    if (!t->byte_level && t->source.force_pre)
        return im__fail(err, IM_ERR_UNSUPPORTED,
                        "a pre-tokeniser cannot be forced: the vocabulary (tokenizer.ggml.model \"llama\") uses none");
    IM__TRY(check_source(&t->source, err));
    IM__TRY(fill_pieces(t, err));
    IM__TRY(t->byte_level ? init_byte_level(t, err) : init_scores(t, err));
    IM__TRY(fill_added(t, err));
    t->adds_bos = t->adds_bos && t->source.bos >= 0;
    t->adds_eos = t->source.add_eos == 1 && t->source.eos >= 0;
    im__token_ends_init(t);
    return IM_OK;
}

im__tokenizer *im__tokenizer_blank(void)
{
    im__tokenizer *t = im__calloc(1, sizeof *t);
    if (t == NULL) return NULL;
    t->space = blank;
    t->source =
        (im__vocab_source){.bos = -1, .eos = -1, .unk = -1, .pad = -1, .add_bos = -1, .add_eos = -1, .add_space_prefix = -1};
    for (size_t i = 0; i < 256; i++) t->byte_id[i] = -1;
    for (size_t i = 0; i < IM__RUN_MAX; i++) t->run_id[i] = -1;
    return t;
}

im_status im__tokenizer_new(im__tokenizer **out, const im__vocab_source *source, im_error *err)
{
    im__tokenizer *t = im__tokenizer_blank();
    if (t == NULL) return no_memory(err);
    t->source = *source;
    im_status status = build(t, err);
    if (status == IM_OK)
        *out = t;
    else
        im__tokenizer_free(t);
    return status;
}

void im__tokenizer_free(im__tokenizer *t)
{
    if (t == NULL) return;
    im__piece_map_free(&t->pieces);
    im__pair_map_free(&t->pairs);
    im__added_tokens_free(&t->added);
    im__free(t->run_text);
    im__json_rules_free(t->json);
    im__free(t);
}

im__bytes im__tokenizer_raw(const im__tokenizer *t, int32_t id)
{
    return im__token_in_vocabulary(t, id) ? t->source.token[id] : (im__bytes){NULL, 0};
}

size_t im__tokenizer_count(const im__tokenizer *t) { return t->source.count; }
int32_t im__tokenizer_bos(const im__tokenizer *t) { return t->source.bos; }
int32_t im__tokenizer_eos(const im__tokenizer *t) { return t->source.eos; }
bool im__tokenizer_adds_bos(const im__tokenizer *t) { return t->adds_bos; }

im__token_type im__tokenizer_type(const im__tokenizer *t, int32_t id)
{
    if (!im__token_in_vocabulary(t, id)) return IM__TOKEN_UNUSED;
    int32_t type = t->source.type == NULL ? IM__TOKEN_NORMAL : t->source.type[id];
    return type == 0 ? IM__TOKEN_NORMAL : (im__token_type)type;
}

int32_t im__tokenizer_find(const im__tokenizer *t, const char *piece, size_t n) { return im__piece_map_find(&t->pieces, piece, n); }
