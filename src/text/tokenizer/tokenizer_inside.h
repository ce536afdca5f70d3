/* SPDX-License-Identifier: Apache-2.0
 *
 * What the files of the tokenizer share. Outside of this folder use tokenizer.h.
 */
#ifndef IRONMULE_TEXT_TOKENIZER_INSIDE_H
#define IRONMULE_TEXT_TOKENIZER_INSIDE_H

#include "text/tokenizer/added_tokens.h"
#include "text/tokenizer/piece_map.h"
#include "text/tokenizer/pretokenize.h"
#include "text/tokenizer/tokenizer.h"

#define IM__RUN_MAX 256 /* longest run of spaces that may be a token of its own, plus one */
#define IM__END_MAX 64  /* most tokens that end a turn */

struct im__tokenizer {
    im__vocab_source source;
    bool byte_level; /* "gpt2"; else "llama" */
    bool adds_bos, adds_eos;
    im__piece_map pieces;
    im__added_tokens added;
    int32_t byte_id[256]; /* token of a single byte, -1: none */
    int32_t end[IM__END_MAX];
    size_t end_count;

    /* byte level */
    im__pair_map pairs;
    const im__pre *pre;

    /* scores */
    im__bytes space;             /* how pieces write a space: U+2581 or " " */
    bool space_prefix;           /* a space is put before each stretch of text, and taken away again when decoding */
    bool control_eats_space;     /* white space behind a control token belongs to it (Phi 3) */
    int32_t run_id[IM__RUN_MAX]; /* user-defined token of so many spaces, -1: none */
    size_t run_longest;          /* 0: there are none */
    char *run_text;              /* the longest such run as pieces write it */
    bool joins_space[256];       /* some piece has a space inside, behind this byte: text must not be cut there */
};

/* May the token come out of text that is not looked at for special tokens? */
static inline bool im__token_merges(const im__tokenizer *t, int32_t id)
{
    int32_t type = t->source.type == NULL ? IM__TOKEN_NORMAL : t->source.type[id];
    return type == IM__TOKEN_NORMAL || type == IM__TOKEN_USER_DEFINED || type == 0;
}

static inline bool im__token_in_vocabulary(const im__tokenizer *t, int32_t id) { return id >= 0 && (size_t)id < t->source.count; }

/* The byte that a byte token, written <0xHH>, stands for; -1 when the piece is not written so. */
int im__token_byte(im__bytes piece);

/* Fills in t->end from the source and by name. */
void im__token_ends_init(im__tokenizer *t);

#endif
