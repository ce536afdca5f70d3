/* SPDX-License-Identifier: Apache-2.0 */
#include "text/tokenizer/encoder.h"
#include "text/tokenizer/nfc.h"

#include "base/utf8.h"

#include <string.h>

/* ---- changes of the text ---- */

static bool begins_with(im__bytes s, im__bytes with) { return s.len >= with.len && memcmp(s.ptr, with.ptr, with.len) == 0; }

static bool changes(const im__edit *edit, im__bytes s, bool first)
{
    switch (edit->kind) {
    case IM__EDIT_NFC: return !im__nfc_is_trivial(s.ptr, s.len);
    case IM__EDIT_REPLACE: return memmem(s.ptr, s.len, edit->from.ptr, edit->from.len) != NULL;
    case IM__EDIT_PREPEND: return true;
    case IM__EDIT_BEGIN_WITH: return !begins_with(s, edit->to);
    case IM__EDIT_BEGIN_FIRST_WITH: return first && !begins_with(s, edit->to);
    }
    return false;
}

/* Stops behind `most` bytes. */
static void replace(im__buf *out, const im__edit *edit, im__bytes s, size_t most)
{
    for (size_t at = 0; at < s.len && out->len <= most;) {
        const char *found = memmem(s.ptr + at, s.len - at, edit->from.ptr, edit->from.len);
        size_t len = found == NULL ? s.len - at : (size_t)(found - s.ptr) - at;
        im__buf_append(out, s.ptr + at, len);
        at += len;
        if (found == NULL) continue;
        im__buf_append(out, edit->to.ptr, edit->to.len);
        at += edit->from.len;
    }
}

static bool apply(im__buf *out, const im__edit *edit, im__bytes s, size_t most)
{
    out->len = 0;
    if (edit->kind == IM__EDIT_NFC) {
        im__nfc_append(out, s.ptr, s.len);
    } else if (edit->kind == IM__EDIT_REPLACE) {
        replace(out, edit, s, most);
    } else {
        im__buf_append(out, edit->to.ptr, edit->to.len);
        im__buf_append(out, s.ptr, s.len);
    }
    return !out->failed && out->len <= most;
}

/* Edits of a hostile file could blow up a text: none of a family makes it more than three times as long. */
static size_t most_bytes(size_t n) { return n > IM__TEXT_MAX / 8 ? IM__TEXT_MAX : 8 * n + 1024; }

bool im__edits_apply(const im__edit *edit, size_t count, im__bytes *s, bool first, im__buf *a, im__buf *b)
{
    const size_t most = most_bytes(s->len);
    for (size_t i = 0; i < count && s->len > 0; i++) {
        if (!changes(&edit[i], *s, first)) continue;
        if (!apply(a, &edit[i], *s, most)) return false;
        *s = (im__bytes){a->data, a->len};
        im__buf *used = a;
        a = b;
        b = used;
    }
    return true;
}

/* ---- merging of characters ---- */

typedef struct unknown {
    uint32_t at, len; /* len 0: none is waiting */
} unknown;

static void put_unknown(im__encoder *e, unknown *u)
{
    if (u->len > 0) im__bpe_add(&e->bpe, u->at, u->len, 1, e->t->source.unk);
    u->len = 0;
}

static void add_bytes(im__encoder *e, const char *s, size_t at, size_t len)
{
    for (size_t i = 0; i < len; i++) im__bpe_add(&e->bpe, (uint32_t)(at + i), 1, 1, e->t->byte_id[(unsigned char)s[at + i]]);
}

static bool has_bytes(const im__tokenizer *t, const char *s, size_t len)
{
    bool all = true;
    for (size_t i = 0; i < len; i++) all = all && t->byte_id[(unsigned char)s[i]] >= 0;
    return all;
}

/* A character without a token becomes its bytes, or unknown; without either it vanishes. An unknown one waits for the next character with a token. */
static void add_strange(im__encoder *e, const char *s, size_t at, size_t len, unknown *u)
{
    const im__tokenizer *t = e->t;
    if (has_bytes(t, s + at, len)) {
        add_bytes(e, s, at, len);
    } else if (t->source.unk >= 0 && u->len > 0 && t->json->fuse_unk) {
        u->len += (uint32_t)len;
    } else if (t->source.unk >= 0) {
        put_unknown(e, u);
        *u = (unknown){(uint32_t)at, (uint32_t)len};
    }
}

static bool encode_word(im__encoder *e, const char *s, size_t n)
{
    const im__tokenizer *t = e->t;
    unknown waiting = {0, 0};
    if (!im__bpe_reserve(&e->bpe, n)) return false;
    for (size_t at = 0, len; at < n; at += len) {
        uint32_t code;
        len = im__utf8_decode(s + at, n - at, &code);
        if (len == 0) len = 1;
        int32_t id = im__piece_map_find(&t->pieces, s + at, len);
        if (id >= 0 && im__tokenizer_type(t, id) != IM__TOKEN_CONTROL) {
            put_unknown(e, &waiting);
            im__bpe_add(&e->bpe, (uint32_t)at, (uint32_t)len, 1, id);
        } else {
            add_strange(e, s, at, len, &waiting);
        }
    }
    put_unknown(e, &waiting);
    return im__encoder_merge(e, s);
}

static bool encode_piece(void *encoder, const char *s, size_t n)
{
    im__encoder *e = encoder;
    const im__tokenizer *t = e->t;
    int32_t id = t->pre->ignore_merges ? im__piece_map_find(&t->pieces, s, n) : -1;
    if (id >= 0 && im__tokenizer_type(t, id) != IM__TOKEN_CONTROL) return im__encoder_push(e, id);
    for (size_t at = 0, len; at < n; at += len) {
        len = im__word_length(t, s + at, n - at);
        if (!encode_word(e, s + at, len)) return false;
    }
    return true;
}

/* ---- a stretch ---- */

static bool encode_normal(im__encoder *e, im__bytes s, bool first)
{
    const im__tokenizer *t = e->t;
    if (!im__edits_apply(t->json->prepare, t->json->prepare_count, &s, first, &e->prepared, &e->prepared2)) return false;
    return im__pre_split(t->pre, s.ptr, s.len, t->byte_level ? im__encode_byte_piece : encode_piece, e);
}

bool im__encode_by_rules(im__encoder *e, const char *text, size_t n, bool first, bool touches_plain)
{
    const im__json_rules *r = e->t->json;
    im__bytes s = {text, n};
    if (!im__edits_apply(r->normal, r->normal_count, &s, first, &e->text, &e->spare)) return false;
    if (r->late.count == 0) return s.len == 0 || encode_normal(e, s, first);
    const im__encode_options options = {.parse_special = e->options->parse_special && !touches_plain};
    im__added_match m = {.id = -1};
    for (size_t at = 0, span = 0;; at = m.end) {
        m = im__added_tokens_next(&r->late, s.ptr, s.len, &m, &options, &span);
        if (m.begin > at && !encode_normal(e, (im__bytes){s.ptr + at, m.begin - at}, first && at == 0)) return false;
        if (m.id < 0) return true;
        if (!im__encoder_push(e, m.id)) return false;
    }
}
