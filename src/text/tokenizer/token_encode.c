/* SPDX-License-Identifier: Apache-2.0 */
#include "text/tokenizer/byte_alphabet.h"
#include "text/tokenizer/encoder.h"
#include "text/tokenizer/nfc.h"

#include "base/utf8.h"

#include <string.h>

void im__ids_free(im__ids *ids)
{
    im__free(ids->data);
    *ids = (im__ids){0};
}

bool im__encoder_push(im__encoder *e, int32_t id)
{
    im__ids *ids = e->out;
    if (ids->len == ids->cap) {
        size_t cap = ids->cap < 64 ? 64 : ids->cap * 2;
        int32_t *grown = im__realloc(ids->data, cap, sizeof *grown);
        if (grown == NULL) return false;
        ids->data = grown;
        ids->cap = cap;
    }
    ids->data[ids->len++] = id;
    return true;
}

bool im__encoder_merge(im__encoder *e, const char *text)
{
    if (!im__bpe_merge(&e->bpe, e->t, text)) return false;
    if (e->bpe.count == 0) return true;
    for (int32_t i = 0; i >= 0; i = e->bpe.symbol[i].next) {
        if (!im__encoder_push(e, e->bpe.symbol[i].id)) return false;
    }
    return true;
}

/* ---- byte level ---- */

/* Id of the piece as a whole token, -1 when it is none. */
static int32_t whole_piece(im__encoder *e, const char *s, size_t n)
{
    char bytes[4];
    if (n > e->t->pieces.longest) return -1;
    e->piece.len = 0;
    for (size_t i = 0; i < n; i++) {
        im__buf_append(&e->piece, bytes, im__utf8_encode(im__byte_to_code((unsigned char)s[i]), bytes));
    }
    if (e->piece.failed) return -1;
    int32_t id = im__piece_map_find(&e->t->pieces, e->piece.data, e->piece.len);
    return id >= 0 && im__token_merges(e->t, id) ? id : -1;
}

bool im__encode_byte_piece(void *encoder, const char *s, size_t n)
{
    im__encoder *e = encoder;
    if (e->t->pre->ignore_merges && n > 1) {
        int32_t id = whole_piece(e, s, n);
        if (id >= 0) return im__encoder_push(e, id);
        if (e->piece.failed) return false;
    }
    if (!im__bpe_reserve(&e->bpe, n)) return false;
    for (size_t i = 0; i < n; i++) {
        int32_t id = e->t->byte_id[(unsigned char)s[i]];
        if (id >= 0) im__bpe_add(&e->bpe, (uint32_t)i, 1, 1, id); /* a byte without a token vanishes */
    }
    return im__encoder_merge(e, s);
}

static bool encode_byte_level(im__encoder *e, const char *s, size_t n)
{
    if (e->t->pre->nfc && !im__nfc_is_trivial(s, n)) {
        e->text.len = 0;
        im__nfc_append(&e->text, s, n);
        if (e->text.failed) return false;
        s = e->text.data;
        n = e->text.len;
    }
    return im__pre_split(e->t->pre, s, n, im__encode_byte_piece, e);
}

/* ---- scores ---- */

/* A character without a token: its bytes, or unknown (several in a row are one). */
static void add_unknown(im__encoder *e, const char *s, size_t at, size_t len)
{
    const im__tokenizer *t = e->t;
    bool bytes = true;
    for (size_t i = 0; i < len; i++) bytes = bytes && t->byte_id[(unsigned char)s[at + i]] >= 0;
    for (size_t i = 0; bytes && i < len; i++) im__bpe_add(&e->bpe, (uint32_t)(at + i), 1, 0, t->byte_id[(unsigned char)s[at + i]]);
    if (bytes || t->source.unk < 0) return;
    const im__bpe_symbol *last = e->bpe.count > 0 ? &e->bpe.symbol[e->bpe.count - 1] : NULL;
    if (last == NULL || last->chars != 0 || last->id != t->source.unk)
        im__bpe_add(&e->bpe, (uint32_t)at, (uint32_t)len, 0, t->source.unk);
}

static bool encode_word(im__encoder *e, const char *s, size_t n)
{
    const im__tokenizer *t = e->t;
    if (!im__bpe_reserve(&e->bpe, n)) return false;
    for (size_t at = 0, len; at < n; at += len) {
        uint32_t code;
        len = im__utf8_decode(s + at, n - at, &code);
        if (len == 0) len = 1;
        int32_t id = im__piece_map_find(&t->pieces, s + at, len);
        if (id >= 0 && im__token_merges(t, id))
            im__bpe_add(&e->bpe, (uint32_t)at, (uint32_t)len, 1, id);
        else
            add_unknown(e, s, at, len);
    }
    return im__encoder_merge(e, s);
}

static bool space_at(const im__tokenizer *t, const char *s, size_t n)
{
    return n >= t->space.len && memcmp(s, t->space.ptr, t->space.len) == 0;
}

/* Spaces at s that are one user-defined token: how many, 0 for none. */
static size_t run_at(const im__tokenizer *t, const char *s, size_t n)
{
    size_t count = 0;
    while (count < t->run_longest && space_at(t, s + count * t->space.len, n - count * t->space.len)) count++;
    while (count > 0 && t->run_id[count] < 0) count--;
    return count;
}

/* In front of a space, unless some piece has one there. */
size_t im__word_length(const im__tokenizer *t, const char *s, size_t n)
{
    size_t at = 0;
    bool in_spaces = true;
    while (at < n) {
        if (!space_at(t, s + at, n - at)) {
            in_spaces = false;
            at++;
        } else if (at > 0 && run_at(t, s + at, n - at) > 0) {
            break;
        } else {
            if (!in_spaces && !t->joins_space[(unsigned char)s[at - 1]]) break;
            in_spaces = true;
            at += t->space.len;
        }
    }
    return at;
}

static void write_spaces(const im__tokenizer *t, im__buf *out, const char *s, size_t n)
{
    out->len = 0;
    if (t->space_prefix) im__buf_append(out, t->space.ptr, t->space.len);
    for (size_t at = 0; at < n;) {
        const char *space = memchr(s + at, ' ', n - at);
        size_t len = space == NULL ? n - at : (size_t)(space - s) - at;
        im__buf_append(out, s + at, len);
        at += len;
        if (space != NULL) {
            im__buf_append(out, t->space.ptr, t->space.len);
            at++;
        }
    }
}

static bool encode_by_scores(im__encoder *e, const char *text, size_t n)
{
    const im__tokenizer *t = e->t;
    write_spaces(t, &e->text, text, n);
    if (e->text.failed) return false;
    const char *s = e->text.data;
    n = e->text.len;
    for (size_t at = 0, len; at < n; at += len) {
        size_t run = run_at(t, s + at, n - at);
        len = run > 0 ? run * t->space.len : im__word_length(t, s + at, n - at);
        if (!(run > 0 ? im__encoder_push(e, t->run_id[run]) : encode_word(e, s + at, len))) return false;
    }
    return true;
}

/* ---- both ---- */

/* `plain` is a cursor for im__spans_touch. */
static bool encode_stretch(im__encoder *e, const char *text, size_t begin, size_t end, size_t *plain)
{
    if (e->t->json != NULL)
        return im__encode_by_rules(e, text + begin, end - begin, begin == 0, im__spans_touch(e->options, begin, end, plain));
    return e->t->byte_level ? encode_byte_level(e, text + begin, end - begin) : encode_by_scores(e, text + begin, end - begin);
}

static bool eats_space(const im__tokenizer *t, int32_t id)
{
    if (!t->control_eats_space || im__tokenizer_type(t, id) != IM__TOKEN_CONTROL || id == t->source.unk || id == t->source.bos)
        return false;
    static const char text_end[] = "<|endoftext|>";
    const im__bytes raw = t->source.token[id];
    return raw.len != sizeof text_end - 1 || memcmp(raw.ptr, text_end, raw.len) != 0;
}

static size_t white_length(const char *s, size_t n)
{
    size_t at = 0;
    for (im__char c; at < n && ((c = im__char_at(s + at, n - at)).cls & IM__CC_SPACE) != 0;) at += c.bytes;
    return at;
}

static bool encode_text(im__encoder *e, const char *text, size_t n)
{
    const im__tokenizer *t = e->t;
    const im__encode_options *options = e->options;
    im__added_match m = {.id = -1};
    size_t span = 0, plain = 0;
    if (options->add_bos && t->adds_bos && !im__encoder_push(e, t->source.bos)) return false;
    for (size_t at = 0;; at = m.end) {
        m = im__added_tokens_next(&t->added, text, n, &m, options, &span);
        if (m.begin > at && !encode_stretch(e, text, at, m.begin, &plain)) return false;
        if (m.id < 0) break;
        if (!im__encoder_push(e, m.id)) return false;
        if (eats_space(t, m.id)) m.resume = m.end += white_length(text + m.end, n - m.end);
    }
    return !(options->add_eos && t->adds_eos) || im__encoder_push(e, t->source.eos);
}

im_status im__tokenizer_encode(const im__tokenizer *t, const char *text, size_t n, const im__encode_options *options, im__ids *out,
                               im_error *err)
{
    if (n > IM__TEXT_MAX) {
        return im__fail(err, IM_ERR_ARGUMENT, "a text of %zu bytes is too long to be tokenised at once; %zu is the most", n,
                        IM__TEXT_MAX);
    }
    size_t before = out->len;
    im__encoder e = {.t = t, .options = options, .out = out};
    bool ok = encode_text(&e, text, n);
    im__bpe_free(&e.bpe);
    im__buf_free(&e.text);
    im__buf_free(&e.spare);
    im__buf_free(&e.prepared);
    im__buf_free(&e.prepared2);
    im__buf_free(&e.piece);
    if (ok) return IM_OK;
    out->len = before;
    return im__fail(err, IM_ERR_MEMORY, "not enough memory to tokenise a text of %zu bytes", n);
}
