/* SPDX-License-Identifier: Apache-2.0 */
#include "text/tokenizer/byte_alphabet.h"
#include "text/tokenizer/tokenizer_inside.h"

#include "base/utf8.h"

#include <string.h>

static const char replacement[] = "\xef\xbf\xbd"; /* U+FFFD */

/* A piece in the byte alphabet as bytes; one with any other character in it (an added token) stands for itself. */
static void append_from_alphabet(im__bytes piece, im__buf *out)
{
    size_t before = out->len;
    for (size_t at = 0, len; at < piece.len; at += len) {
        uint32_t code;
        len = im__utf8_decode(piece.ptr + at, piece.len - at, &code);
        int byte = len == 0 ? -1 : im__byte_from_code(code);
        if (byte < 0) {
            out->len = before;
            im__buf_append(out, piece.ptr, piece.len);
            return;
        }
        char c = (char)byte;
        im__buf_append(out, &c, 1);
    }
}

static void append_with_spaces(const im__tokenizer *t, im__bytes piece, im__buf *out)
{
    for (size_t at = 0; at < piece.len;) {
        const char *mark = memmem(piece.ptr + at, piece.len - at, t->space.ptr, t->space.len);
        size_t len = mark == NULL ? piece.len - at : (size_t)(mark - piece.ptr) - at;
        im__buf_append(out, piece.ptr + at, len);
        at += len;
        if (mark == NULL) continue;
        im__buf_append(out, " ", 1);
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

void im__tokenizer_piece(const im__tokenizer *t, int32_t id, bool show_special, im__buf *out)
{
    if (!im__token_in_vocabulary(t, id) || hidden(t, id, show_special)) return;
    im__bytes piece = t->source.token[id];
    if (t->byte_level) {
        append_from_alphabet(piece, out);
    } else if (im__tokenizer_type(t, id) == IM__TOKEN_BYTE) {
        char byte = (char)im__token_byte(piece);
        im__buf_append(out, &byte, 1);
    } else {
        append_with_spaces(t, piece, out);
    }
}

void im__decoder_init(im__decoder *d, const im__tokenizer *t, bool show_special)
{
    *d = (im__decoder){.t = t, .show_special = show_special};
}

/* Whole characters go out here; the first space is dropped where encoding had put it there. */
static void emit(im__decoder *d, const char *bytes, size_t n, im__buf *out)
{
    bool drop = !d->started && d->t->space_prefix && !d->t->byte_level && bytes[0] == ' ';
    d->started = true;
    if (!drop) im__buf_append(out, bytes, n);
}

/* Gives up on the held bytes: the family of byte tokens shows one U+FFFD for each of them, the other one for all. */
static void give_up(im__decoder *d, im__buf *out)
{
    size_t times = d->t->byte_level && d->held_len > 0 ? 1 : d->held_len;
    for (size_t i = 0; i < times; i++) emit(d, replacement, 3, out);
    d->held_len = 0;
}

static void feed_byte(im__decoder *d, char byte, im__buf *out)
{
    uint32_t code;
    d->held[d->held_len++] = byte;
    if (im__utf8_decode(d->held, d->held_len, &code) == d->held_len) {
        emit(d, d->held, d->held_len, out);
        d->held_len = 0;
    } else if (im__utf8_incomplete_tail(d->held, d->held_len) != d->held_len) {
        bool first = --d->held_len == 0; /* what is held was a beginning, and this byte does not continue it */
        if (first) d->held_len = 1;
        give_up(d, out);
        if (!first) feed_byte(d, byte, out); /* at most once: nothing is held now */
    }
}

void im__decoder_feed(im__decoder *d, int32_t id, im__buf *out)
{
    im__buf piece = {0};
    im__tokenizer_piece(d->t, id, d->show_special, &piece);
    bool whole = !d->t->byte_level && im__tokenizer_type(d->t, id) != IM__TOKEN_BYTE;
    if (whole && piece.len > 0) give_up(d, out);
    for (size_t i = 0; i < piece.len; i++) feed_byte(d, piece.data[i], out);
    if (whole && piece.len > 0) give_up(d, out);
    if (piece.failed) out->failed = true;
    im__buf_free(&piece);
}

void im__decoder_finish(im__decoder *d, im__buf *out) { give_up(d, out); }
