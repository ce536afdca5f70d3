/* SPDX-License-Identifier: Apache-2.0
 *
 * The state of one call of im__tokenizer_encode, and the steps that both kinds of vocabulary take. Functions give false when memory runs out.
 */
#ifndef IRONMULE_TEXT_ENCODER_H
#define IRONMULE_TEXT_ENCODER_H

#include "text/tokenizer/bpe.h"

#define IM__TEXT_MAX ((size_t)1 << 30) /* bytes of a text; symbols are counted in 32 bits */

typedef struct im__encoder {
    const im__tokenizer *t;
    const im__encode_options *options;
    im__ids *out;
    im__bpe bpe;
    im__buf text, spare;         /* the stretch at hand, normalised */
    im__buf prepared, prepared2; /* a part of it, prepared for the pre-tokeniser */
    im__buf piece;               /* a piece in the byte alphabet */
} im__encoder;

bool im__encoder_push(im__encoder *e, int32_t id);

/* Merges the symbols that were added and puts out the tokens. */
bool im__encoder_merge(im__encoder *e, const char *text);

/* The bytes of one pre-token; an im__pre_sink. */
bool im__encode_byte_piece(void *encoder, const char *s, size_t n);

/* Bytes at s up to the next place where no token can reach across. */
size_t im__word_length(const im__tokenizer *t, const char *s, size_t n);

/* Applies edits to *s, which afterwards lies where it was or in one of the two buffers; false also when they make it more than eight
 * times as long. `first`: it begins the text. */
bool im__edits_apply(const im__edit *edit, size_t count, im__bytes *s, bool first, im__buf *a, im__buf *b);

/* Text between two added tokens by the rules of a tokenizer.json. `touches_plain`: some of it lies in a plain span; `first`: it begins the text. */
bool im__encode_by_rules(im__encoder *e, const char *s, size_t n, bool first, bool touches_plain);

#endif
