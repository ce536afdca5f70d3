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

/* A change of the text on its way to the merges. */
typedef enum im__edit_kind {
    IM__EDIT_NFC,
    IM__EDIT_REPLACE,         /* each `from` by `to` */
    IM__EDIT_PREPEND,         /* `to` in front */
    IM__EDIT_BEGIN_WITH,      /* `to` in front, unless it is there */
    IM__EDIT_BEGIN_FIRST_WITH /* the same, but only where the stretch begins the whole text */
} im__edit_kind;

typedef struct im__edit {
    im__edit_kind kind;
    im__bytes from, to;
} im__edit;

#define IM__EDITS_MAX 8
#define IM__STAGES_MAX 8

/* What only a tokenizer.json says; it owns the vocabulary. A stretch of text between added tokens goes through `normal`, then `late` is cut out of it, and
 * what lies between goes through `prepare` and the stages of `pre`. */
typedef struct im__json_rules {
    im__edit normal[IM__EDITS_MAX], prepare[IM__EDITS_MAX];
    size_t normal_count, prepare_count;
    im__added_tokens late; /* added tokens that are looked for in the normalised text */
    im__pre pre;
    const im__pre_rule *stage[IM__STAGES_MAX + 1];
    im__pre_rule literal[IM__STAGES_MAX];
    bool fuse_unk;           /* unknown characters in a row are one token */
    bool first_marks_vanish; /* decoding drops the marks of spaces in the first token */
    char *arena, *late_text; /* the bytes of all strings; those of `late` */
    im__bytes *token;        /* [source.count] */
    int32_t *type;           /* [source.count] */
    int32_t end[IM__END_MAX];
} im__json_rules;

struct im__tokenizer {
    im__vocab_source source;
    bool byte_level;      /* "gpt2"; else "llama" */
    bool by_rank;         /* pairs merge in the order of the merge list; else by the scores of what they make */
    im__json_rules *json; /* NULL: made from a model file's vocabulary */
    bool adds_bos, adds_eos;
    im__piece_map pieces;
    im__added_tokens added;
    int32_t byte_id[256]; /* token of a single byte, -1: none */
    int32_t end[IM__END_MAX];
    size_t end_count;

    im__pair_map pairs; /* by_rank only */
    const im__pre *pre; /* byte level, and all of tokenizer.json */

    /* characters */
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

/* A tokenizer of nothing, to be filled; NULL when memory is short. */
im__tokenizer *im__tokenizer_blank(void);

/* Frees what a tokenizer.json gave; NULL allowed. */
void im__json_rules_free(im__json_rules *rules);

/* Notes in joins_space where pieces have a space inside. */
void im__token_note_spaces(im__tokenizer *t);

/* Notes in byte_id the letters of the byte alphabet. */
void im__token_note_letters(im__tokenizer *t);

/* Fills in t->end from the source and by name. */
void im__token_ends_init(im__tokenizer *t);

#endif
