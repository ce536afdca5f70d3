/* SPDX-License-Identifier: Apache-2.0 */
#include "text/tokenizer/byte_alphabet.h"
#include "text/tokenizer/tokenizer_inside.h"

#include "base/utf8.h"

#include <string.h>

static const char replacement[] = "\xef\xbf\xbd"; /* U+FFFD */

/* Gets the bytes of a token in parts. */
typedef void sink(void *context, const char *bytes, size_t n);

/* True when the piece is written in the byte alphabet; one with any other character in it (an added token) stands for itself. */
static bool in_alphabet(im__bytes piece)
{
    uint32_t code;
    for (size_t at = 0, len; at < piece.len; at += len) {
        len = im__utf8_decode(piece.ptr + at, piece.len - at, &code);
        if (len == 0 || im__byte_from_code(code) < 0) return false;
    }
    return true;
}

static void give_alphabet(im__bytes piece, sink *give, void *context)
{
    uint32_t code;
    for (size_t at = 0; at < piece.len;) {
        at += im__utf8_decode(piece.ptr + at, piece.len - at, &code);
        char byte = (char)im__byte_from_code(code);
        give(context, &byte, 1);
    }
}

static void give_with_spaces(const im__tokenizer *t, im__bytes piece, bool drop_marks, sink *give, void *context)
{
    for (size_t at = 0; at < piece.len;) {
        const char *mark = memmem(piece.ptr + at, piece.len - at, t->space.ptr, t->space.len);
        size_t len = mark == NULL ? piece.len - at : (size_t)(mark - piece.ptr) - at;
        if (len > 0) give(context, piece.ptr + at, len);
        at += len;
        if (mark == NULL) continue;
        if (!drop_marks) give(context, " ", 1);
        at += t->space.len;
    }
}

int im__token_byte(im__bytes piece)
{
    static const char digits[] = "0123456789ABCDEF";
    if (piece.len != 6 || memcmp(piece.ptr, "<0x", 3) != 0 || piece.ptr[5] != '>') return -1;
    const char *high = memchr(digits, piece.ptr[3], 16), *low = memchr(digits, piece.ptr[4], 16);
    return high == NULL || low == NULL ? -1 : (int)((high - digits) * 16 + (low - digits));
}

static bool hidden(const im__tokenizer *t, int32_t id, bool show_special)
{
    im__token_type type = im__tokenizer_type(t, id);
    return type == IM__TOKEN_UNUSED || (!show_special && (type == IM__TOKEN_CONTROL || type == IM__TOKEN_UNKNOWN));
}

/* `first`: nothing was given before. */
static void give_piece(const im__tokenizer *t, int32_t id, bool show_special, bool first, sink *give, void *context)
{
    if (!im__token_in_vocabulary(t, id) || hidden(t, id, show_special)) return;
    im__bytes piece = t->source.token[id];
    if (t->byte_level && in_alphabet(piece)) {
        give_alphabet(piece, give, context);
    } else if (t->byte_level) {
        give(context, piece.ptr, piece.len);
    } else if (im__tokenizer_type(t, id) == IM__TOKEN_BYTE) {
        char byte = (char)im__token_byte(piece);
        give(context, &byte, 1);
    } else {
        give_with_spaces(t, piece, first && t->json != NULL && t->json->first_marks_vanish, give, context);
    }
}

static void to_buffer(void *context, const char *bytes, size_t n) { im__buf_append(context, bytes, n); }

void im__tokenizer_piece(const im__tokenizer *t, int32_t id, bool show_special, im__buf *out)
{
    give_piece(t, id, show_special, false, to_buffer, out);
}

void im__decoder_init(im__decoder *d, const im__tokenizer *t, bool show_special)
{
    *d = (im__decoder){.t = t, .show_special = show_special};
}

/* Whole characters go out here; the first space is dropped where encoding had put it there. */
static void emit(im__decoder *d, const char *bytes, size_t n, im__buf *out)
{
    bool drop = !d->started && d->t->space_prefix && bytes[0] == ' ';
    d->started = true;
    if (!drop) im__buf_append(out, bytes, n);
}

/* Gives up on the held bytes: where they came from byte tokens one U+FFFD stands for each of them, else one for all. */
static void give_up(im__decoder *d, bool each, im__buf *out)
{
    size_t times = each || d->held_len == 0 ? d->held_len : 1;
    for (size_t i = 0; i < times; i++) emit(d, replacement, 3, out);
    d->held_len = 0;
}

/* Holds one more byte, and lets the character out when it is whole. False when the held bytes cannot become one. */
static bool hold(im__decoder *d, char byte, im__buf *out)
{
    uint32_t code;
    d->held[d->held_len++] = byte;
    if (im__utf8_decode(d->held, d->held_len, &code) == d->held_len) {
        emit(d, d->held, d->held_len, out);
        d->held_len = 0;
    }
    return d->held_len == 0 || im__utf8_incomplete_tail(d->held, d->held_len) == d->held_len;
}

static void feed_byte(im__decoder *d, char byte, im__buf *out)
{
    if (hold(d, byte, out)) return;
    bool alone = d->held_len == 1;
    if (!alone) d->held_len--;
    give_up(d, false, out);
    if (!alone && !hold(d, byte, out)) give_up(d, false, out);
}

typedef struct feeding {
    im__decoder *d;
    im__buf *out;
} feeding;

static void feed_bytes(void *context, const char *bytes, size_t n)
{
    feeding *f = context;
    for (size_t i = 0; i < n; i++) feed_byte(f->d, bytes[i], f->out);
}

/* Byte tokens in a row are one string for the reference: when it is broken, a U+FFFD stands for each of its bytes. Characters that were
 * whole before the break are out already. */
static void feed_byte_token(im__decoder *d, char byte, im__buf *out)
{
    if (d->broken) {
        emit(d, replacement, 3, out);
    } else if (!hold(d, byte, out)) {
        d->broken = true;
        give_up(d, true, out);
    }
}

void im__decoder_feed(im__decoder *d, int32_t id, im__buf *out)
{
    const im__tokenizer *t = d->t;
    feeding f = {d, out};
    if (!im__token_in_vocabulary(t, id) || hidden(t, id, d->show_special) || t->source.token[id].len == 0) return;
    if (!t->byte_level && im__tokenizer_type(t, id) == IM__TOKEN_BYTE) {
        feed_byte_token(d, (char)im__token_byte(t->source.token[id]), out);
        return;
    }
    if (!t->byte_level) im__decoder_finish(d, out);
    give_piece(t, id, d->show_special, !d->started, feed_bytes, &f);
    d->started = true;
    if (!t->byte_level) give_up(d, false, out);
}

void im__decoder_finish(im__decoder *d, im__buf *out)
{
    give_up(d, !d->t->byte_level, out);
    d->broken = false;
}
