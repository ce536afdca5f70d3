/* SPDX-License-Identifier: Apache-2.0 */
#include "text/tokenizer/bpe.h"
#include "text/tokenizer/byte_alphabet.h"
#include "text/tokenizer/nfc.h"

#include "base/utf8.h"

#include <string.h>

#define LONGEST_TEXT ((size_t)1 << 30) /* symbols are counted in 32 bits */

typedef struct encoder {
    const im__tokenizer *t;
    im__ids *out;
    im__bpe bpe;
    im__buf text;  /* the stretch at hand, normalised */
    im__buf piece; /* a piece in the byte alphabet */
} encoder;

void im__ids_free(im__ids *ids)
{
    im__free(ids->data);
    *ids = (im__ids){0};
}

static bool push_id(im__ids *ids, int32_t id)
{
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

static bool merge_and_push(encoder *e, const char *text)
{
    if (!im__bpe_merge(&e->bpe, e->t, text)) return false;
    if (e->bpe.count == 0) return true;
    for (int32_t i = 0; i >= 0; i = e->bpe.symbol[i].next) {
        if (!push_id(e->out, e->bpe.symbol[i].id)) return false;
    }
    return true;
}

/* ---- byte level ---- */

/* Id of the piece as a whole token, -1 when it is none. */
static int32_t whole_piece(encoder *e, const char *s, size_t n)
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

static bool encode_piece(void *context, const char *s, size_t n)
{
    encoder *e = context;
    if (e->t->pre->ignore_merges && n > 1) {
        int32_t id = whole_piece(e, s, n);
        if (id >= 0) return push_id(e->out, id);
        if (e->piece.failed) return false;
    }
    if (!im__bpe_reserve(&e->bpe, n)) return false;
    for (size_t i = 0; i < n; i++) {
        int32_t id = e->t->byte_id[(unsigned char)s[i]];
        if (id >= 0) im__bpe_add(&e->bpe, (uint32_t)i, 1, 1, id); /* a byte without a token vanishes */
    }
    return merge_and_push(e, s);
}

static bool encode_byte_level(encoder *e, const char *s, size_t n)
{
    if (e->t->pre->nfc && !im__nfc_is_trivial(s, n)) {
        e->text.len = 0;
        im__nfc_append(&e->text, s, n);
        if (e->text.failed) return false;
        s = e->text.data;
        n = e->text.len;
    }
    return im__pre_split(e->t->pre, s, n, encode_piece, e);
}

/* ---- scores ---- */

/* A character without a token: its bytes, or unknown (several in a row are one). */
static void add_unknown(encoder *e, const char *s, size_t at, size_t len)
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

static bool encode_word(encoder *e, const char *s, size_t n)
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
    return merge_and_push(e, s);
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

/* Bytes at s up to the next place where no token can reach across: in front of a space, unless some piece has one there. */
static size_t word_length(const im__tokenizer *t, const char *s, size_t n)
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

static bool encode_by_scores(encoder *e, const char *text, size_t n)
{
    const im__tokenizer *t = e->t;
    write_spaces(t, &e->text, text, n);
    if (e->text.failed) return false;
    const char *s = e->text.data;
    n = e->text.len;
    for (size_t at = 0, len; at < n; at += len) {
        size_t run = run_at(t, s + at, n - at);
        len = run > 0 ? run * t->space.len : word_length(t, s + at, n - at);
        if (!(run > 0 ? push_id(e->out, t->run_id[run]) : encode_word(e, s + at, len))) return false;
    }
    return true;
}

/* ---- both ---- */

static bool encode_stretch(encoder *e, const char *s, size_t n)
{
    if (n == 0) return true;
    return e->t->byte_level ? encode_byte_level(e, s, n) : encode_by_scores(e, s, n);
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

static bool encode_text(encoder *e, const char *text, size_t n, const im__encode_options *options)
{
    const im__tokenizer *t = e->t;
    size_t span = 0;
    if (options->add_bos && t->adds_bos && !push_id(e->out, t->source.bos)) return false;
    for (size_t at = 0; at < n;) {
        im__added_match m = im__added_tokens_next(&t->added, text, n, at, options, &span);
        if (!encode_stretch(e, text + at, m.begin - at)) return false;
        at = m.end;
        if (m.id < 0) break;
        if (!push_id(e->out, m.id)) return false;
        if (eats_space(t, m.id)) at += white_length(text + at, n - at);
    }
    return !(options->add_eos && t->adds_eos) || push_id(e->out, t->source.eos);
}

im_status im__tokenizer_encode(const im__tokenizer *t, const char *text, size_t n, const im__encode_options *options, im__ids *out,
                               im_error *err)
{
    if (n > LONGEST_TEXT) {
        return im__fail(err, IM_ERR_ARGUMENT, "a text of %zu bytes is too long to be tokenised at once; %zu is the most", n,
                        LONGEST_TEXT);
    }
    size_t before = out->len;
    encoder e = {.t = t, .out = out};
    bool ok = encode_text(&e, text, n, options);
    im__bpe_free(&e.bpe);
    im__buf_free(&e.text);
    im__buf_free(&e.piece);
    if (ok) return IM_OK;
    out->len = before;
    return im__fail(err, IM_ERR_MEMORY, "not enough memory to tokenise a text of %zu bytes", n);
}
