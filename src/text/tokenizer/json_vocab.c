/* SPDX-License-Identifier: Apache-2.0 */
#include "text/tokenizer/json_build.h"

#include <string.h>

#define LONGEST_PIECE 65535

/* Nothing, or an empty string: a feature that is not in use. */
static bool unused(im__json v) { return im__json_absent(v) || im__json_is(v, ""); }

im_status im__json_read_model(im__json_build *b, im__json_items *members)
{
    im__json key, value, type = {NULL, 0}, dropout = type, fuse_unk = type, byte_fallback = type, ignore_merges = type,
                         prefix = type, suffix = type;
    unsigned seen = 0;
    double rate = 0;
    const im__json_field field[] = {
        {"type", &type},
        {"dropout", &dropout},
        {"unk_token", &b->unk_token},
        {"continuing_subword_prefix", &prefix},
        {"end_of_word_suffix", &suffix},
        {"fuse_unk", &fuse_unk},
        {"byte_fallback", &byte_fallback},
        {"ignore_merges", &ignore_merges},
        {"vocab", &b->vocab},
        {"merges", &b->merges},
        {0},
    };
    if (!members->named) return im__fail(b->err, IM_ERR_FORMAT, "%s: \"model\" is a list, not an object", b->name);
    while (im__json_next(members, &key, &value)) {
        if (im__json_is(key, "type") && !im__json_is(value, "BPE")) return im__json_unknown(b, "the kind of model", value);
        IM__TRY(im__json_take(b, key, value, "\"model\"", field, &seen));
    }
    if (type.len == 0) return im__fail(b->err, IM_ERR_FORMAT, "%s: \"model\" has no type", b->name);
    if (!im__json_absent(dropout) && !(im__json_double(dropout, &rate) && rate == 0))
        return im__json_unknown(b, "the dropout", dropout);
    if (!unused(prefix)) return im__json_unknown(b, "the continuing_subword_prefix", prefix);
    if (!unused(suffix)) return im__json_unknown(b, "the end_of_word_suffix", suffix);
    IM__TRY(im__json_flag(b, fuse_unk, "fuse_unk", false, &b->r->fuse_unk));
    IM__TRY(im__json_flag(b, byte_fallback, "byte_fallback", false, &b->byte_fallback));
    return im__json_flag(b, ignore_merges, "ignore_merges", false, &b->ignore_merges);
}

/* ---- the vocabulary ---- */

static im_status place(im__json_build *b, im__bytes text, uint64_t id, im__token_type type)
{
    if (id >= b->capacity)
        return im__fail(b->err, IM_ERR_FORMAT, "%s: a token has the id %llu, more than the vocabulary has tokens", b->name,
                        (unsigned long long)id);
    if (text.len == 0 || text.len > LONGEST_PIECE)
        return im__fail(b->err, IM_ERR_FORMAT, "%s: token %llu is %zu bytes long", b->name, (unsigned long long)id, text.len);
    if (b->r->token[id].ptr != NULL)
        return im__fail(b->err, IM_ERR_FORMAT, "%s: two tokens have the id %llu", b->name, (unsigned long long)id);
    b->r->token[id] = text;
    b->r->type[id] = (int32_t)type;
    if (id >= b->count) b->count = (size_t)id + 1;
    return IM_OK;
}

im_status im__json_read_vocab(im__json_build *b)
{
    im__json key, value;
    im__bytes text;
    uint64_t id;
    if (im__json_kind_of(b->vocab) != IM__JSON_OBJECT)
        return im__fail(b->err, IM_ERR_FORMAT, "%s: the vocabulary is %s, not an object", b->name, im__json_kind_name(b->vocab));
    im__json_items items = im__json_items_of(b->vocab);
    while (im__json_next(&items, &key, &value)) {
        if (!im__json_u64(value, &id))
            return im__fail(b->err, IM_ERR_FORMAT, "%s: the id of token %.*s is not a number from 0 on", b->name,
                            (int)(key.len > 80 ? 80 : key.len), key.ptr);
        IM__TRY(im__json_bytes(b, key, "a token", &text));
        IM__TRY(place(b, text, id, IM__TOKEN_NORMAL));
        if (b->options->rows > 0 && id >= b->options->rows)
            return im__fail(b->err, IM_ERR_FORMAT, "%s: token %llu is beyond the %zu rows of the model's embedding", b->name,
                            (unsigned long long)id, b->options->rows);
    }
    return IM_OK;
}

/* Added tokens that the vocabulary does not have get a place of their own. Those that the model has no row for are left out. */
static im_status place_added(im__json_build *b)
{
    size_t kept = 0;
    for (size_t i = 0; i < b->added_count; i++) {
        const im__json_added *a = &b->added[i];
        im__token_type type = a->special ? IM__TOKEN_CONTROL : IM__TOKEN_USER_DEFINED;
        bool there = (size_t)a->id < b->capacity && b->r->token[a->id].ptr == a->text.ptr;
        if (b->options->rows > 0 && (size_t)a->id >= b->options->rows) continue;
        if (!there) IM__TRY(place(b, a->text, (uint64_t)a->id, type));
        b->r->type[a->id] = (int32_t)type;
        b->added[kept++] = *a;
    }
    b->added_count = kept;
    return IM_OK;
}

static im_status fill_holes(im__json_build *b)
{
    if (b->options->rows > b->count) b->count = b->options->rows;
    if (b->count == 0) return im__fail(b->err, IM_ERR_FORMAT, "%s: the vocabulary is empty", b->name);
    for (size_t i = 0; i < b->count; i++) {
        if (b->r->token[i].ptr != NULL) continue;
        b->r->token[i] = (im__bytes){"", 0};
        b->r->type[i] = IM__TOKEN_UNUSED;
    }
    return IM_OK;
}

int32_t im__json_byte_token(const im__json_build *b, unsigned byte)
{
    static const char digits[] = "0123456789ABCDEF";
    const char piece[6] = {'<', '0', 'x', digits[byte >> 4], digits[byte & 15], '>'};
    return im__piece_map_find(&b->t->pieces, piece, sizeof piece);
}

im_status im__json_close_vocab(im__json_build *b)
{
    im__vocab_source *s = &b->t->source;
    IM__TRY(place_added(b));
    IM__TRY(fill_holes(b));
    s->count = b->count;
    s->token = b->r->token;
    s->type = b->r->type;
    if (!im__piece_map_init(&b->t->pieces, s->token, s->count)) return im__json_memory(b);
    for (size_t i = 0; i < s->count; i++) {
        if (s->token[i].len == 0) continue;
        int32_t first = im__piece_map_add(&b->t->pieces, (int32_t)i);
        if ((size_t)first != i)
            return im__fail(b->err, IM_ERR_FORMAT, "%s: tokens %ld and %zu are the same string", b->name, (long)first, i);
    }
    for (unsigned byte = 0; b->byte_fallback && byte < 256; byte++) b->t->byte_id[byte] = im__json_byte_token(b, byte);
    if (im__json_absent(b->unk_token)) return IM_OK;
    im__bytes unk;
    IM__TRY(im__json_bytes(b, b->unk_token, "unk_token", &unk));
    s->unk = im__piece_map_find(&b->t->pieces, unk.ptr, unk.len);
    if (s->unk >= 0) return IM_OK;
    return im__fail(b->err, IM_ERR_FORMAT, "%s: the unk_token is not in the vocabulary", b->name);
}

/* ---- merges ---- */

typedef struct merges {
    im__pair_slot *pair;
    size_t count, cap;
    im__buf left, both; /* a string as written; the two parts of the merge behind each other */
    size_t cut;         /* where the right part begins */
} merges;

/* "left right" */
static bool split_string(merges *m, im__json v)
{
    m->left.len = 0;
    im__json_text(v, &m->left);
    const char *gap = m->left.len == 0 ? NULL : memchr(m->left.data, ' ', m->left.len);
    if (gap == NULL || m->left.failed) return false;
    size_t rest = m->left.len - (size_t)(gap - m->left.data) - 1;
    m->cut = (size_t)(gap - m->left.data);
    im__buf_append(&m->both, m->left.data, m->cut);
    im__buf_append(&m->both, gap + 1, rest);
    return memchr(gap + 1, ' ', rest) == NULL;
}

/* ["left", "right"] */
static bool split_pair(merges *m, im__json_items *parts)
{
    im__json part;
    if (!im__json_next(parts, NULL, &part) || !im__json_text(part, &m->both)) return false;
    m->cut = m->both.len;
    return im__json_next(parts, NULL, &part) && im__json_text(part, &m->both) && !im__json_next(parts, NULL, &part);
}

/* The parts of the next merge, in *good whether they are two; false at the end of the list. */
static bool next_merge(merges *m, im__json_items *list, bool *good)
{
    im__json_items parts;
    im__json v;
    m->both.len = 0;
    if (im__json_enter(list, &parts)) {
        *good = !parts.named && split_pair(m, &parts);
        im__json_leave(list, &parts);
        return true;
    }
    if (!im__json_next(list, NULL, &v)) return false;
    *good = im__json_kind_of(v) == IM__JSON_STRING && split_string(m, v);
    return true;
}

/* `guess`: a likely id of the whole. */
static bool resolve_merge(const im__tokenizer *t, const merges *m, int32_t guess, im__pair_slot *pair)
{
    const char *both = m->both.data;
    if (m->cut == 0 || m->cut == m->both.len) return false;
    pair->left = im__piece_map_find(&t->pieces, both, m->cut);
    pair->right = im__piece_map_find(&t->pieces, both + m->cut, m->both.len - m->cut);
    if (pair->left < 0 || pair->right < 0) return false;
    bool guessed = im__token_in_vocabulary(t, guess) && t->source.token[guess].len == m->both.len &&
                   memcmp(t->source.token[guess].ptr, both, m->both.len) == 0;
    pair->id = guessed ? guess : im__piece_map_find(&t->pieces, both, m->both.len);
    return pair->id >= 0;
}

static bool push_pair(merges *m, im__pair_slot pair)
{
    if (m->count == m->cap) {
        size_t cap = m->cap == 0 ? 1024 : 2 * m->cap;
        im__pair_slot *grown = im__realloc(m->pair, cap, sizeof *grown);
        if (grown == NULL) return false;
        m->pair = grown;
        m->cap = cap;
    }
    m->pair[m->count++] = pair;
    return true;
}

/* Does the token stand for text that is written in another way? */
static bool is_strange(const im__json_build *b, int32_t id)
{
    return id == b->t->source.unk || (b->byte_fallback && im__token_byte(b->t->source.token[id]) >= 0);
}

/* A merge that would make a control token out of plain text is left out: where such text counts, the token is cut out of it before. */
static im_status collect_merges(im__json_build *b, merges *m)
{
    bool two;
    im__pair_slot pair = {.id = -2};
    im__json_items items = im__json_items_of(b->merges);
    for (uint32_t rank = 0; next_merge(m, &items, &two); rank++) {
        if (m->both.failed || m->left.failed) return im__json_memory(b);
        if (!two || !resolve_merge(b->t, m, pair.id + 1, &pair))
            return im__fail(b->err, IM_ERR_FORMAT, "%s: merge %lu, %.*s, is not made of two tokens that make a third", b->name,
                            (unsigned long)rank, (int)(m->both.len > 80 ? 80 : m->both.len), m->both.len == 0 ? "" : m->both.data);
        pair.rank = rank;
        b->merges_strange = b->merges_strange || is_strange(b, pair.left) || is_strange(b, pair.right);
        if (im__tokenizer_type(b->t, pair.id) != IM__TOKEN_CONTROL && !push_pair(m, pair)) return im__json_memory(b);
    }
    return IM_OK;
}

im_status im__json_read_merges(im__json_build *b)
{
    merges m = {0};
    if (im__json_kind_of(b->merges) != IM__JSON_ARRAY)
        return im__fail(b->err, IM_ERR_FORMAT, "%s: the merges are %s, not a list", b->name, im__json_kind_name(b->merges));
    im_status status = collect_merges(b, &m);
    if (status == IM_OK && !im__pair_map_init(&b->t->pairs, m.count)) status = im__json_memory(b);
    for (size_t i = 0; status == IM_OK && i < m.count; i++) im__pair_map_add(&b->t->pairs, m.pair[i]);
    im__free(m.pair);
    im__buf_free(&m.left);
    im__buf_free(&m.both);
    return status;
}
