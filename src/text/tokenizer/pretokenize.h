/* SPDX-License-Identifier: Apache-2.0
 *
 * Cutting a text into the pieces within which a byte-level BPE merges. A pattern is a list of stages, as in the tokenizer.json of a
 * family: each stage cuts every piece of the stage before it into its matches and what lies between them. A stage is an ordered
 * list of rules, the first that matches at a place wins; rules are data, read by one scanner without a regular-expression engine, in time
 * linear in the text and with constant stack.
 */
#ifndef IRONMULE_TEXT_PRETOKENIZE_H
#define IRONMULE_TEXT_PRETOKENIZE_H

#include "text/tokenizer/char_class.h"
#include "text/tokenizer/tokenizer.h"

typedef struct im__char_range {
    uint32_t first, last;
} im__char_range;

/* A set of characters: a class of `mask` but for those of `except`, or one of the characters in `ascii`, or in one of the ranges (both lists closed by
 * {0, 0}); or with `negate` all others. */
typedef struct im__char_set {
    uint32_t mask;
    bool negate;
    const char *ascii;
    const im__char_range *range, *except;
} im__char_set;

typedef enum im__pre_rule_kind {
    IM__PRE_END = 0,        /* ends a list of rules */
    IM__PRE_RUN,            /* prefix? run{1,max} tail*    (max 0: no bound) */
    IM__PRE_RUN_PREFIXED,   /* prefix run{1,max} tail* */
    IM__PRE_CONTRACTION,    /* 's 't 're 've 'm 'll 'd */
    IM__PRE_CONTRACTION_CI, /* the same, either case */
    IM__PRE_CASED_LOWER,    /* prefix? upper* lower+, with `suffix` then a contraction in either case, optional */
    IM__PRE_CASED_UPPER,    /* prefix? upper+ lower*, the same */
    IM__PRE_SPACE_LINES,    /* \s*[\r\n]+ */
    IM__PRE_SPACE_LINE,     /* \s*[\r\n] */
    IM__PRE_SPACE_BEFORE,   /* \s+(?!\S) */
    IM__PRE_SPACE,          /* \s+ */
    IM__PRE_DIGITS3,        /* [0-9][0-9][0-9] */
    /* Only as the one rule of a stage: */
    IM__PRE_SPACE_AT_END, /* \s+$ */
    IM__PRE_THOUSANDS,    /* an empty match in front of each group of three digits, counted from the end of the digits */
    IM__PRE_BYTE_NUMBERS, /* runs of bytes that the byte alphabet shows as a digit */
    IM__PRE_CUT_BEFORE,   /* a cut before, behind or on both sides of each occurrence of `literal` */
    IM__PRE_CUT_BEHIND,
    IM__PRE_CUT_AROUND
} im__pre_rule_kind;

typedef struct im__pre_rule {
    im__pre_rule_kind kind;
    const im__char_set *prefix, *run, *tail; /* NULL: none */
    unsigned max;
    bool suffix;
    im__bytes literal; /* not empty; IM__PRE_CUT_... only */
} im__pre_rule;

/* What a name in tokenizer.ggml.pre stands for. */
typedef struct im__pre {
    const char *name;
    const im__pre_rule *const *stage; /* NULL-terminated */
    bool ignore_merges;               /* a piece that is a token as a whole needs no merges */
    bool add_bos;                     /* when the file does not say */
    bool nfc;                         /* the text is brought to Unicode NFC first */
} im__pre;

/* NULL when the name is not known. */
const im__pre *im__pre_find(const char *name, size_t n);

/* The stage that cuts a text as this regular expression of a tokenizer.json does, NULL when it is not known. *covers: its matches leave
 * nothing between them. */
const im__pre_rule *im__pre_stage_find(const char *regex, size_t n, bool *covers);

/* Stages that tokenizer.json names by other words: the regular expression of GPT-2, each number character alone, runs of them, runs as the byte
 * alphabet shows them, punctuation one by one and in runs. */
typedef enum im__pre_known {
    IM__PRE_KNOWN_GPT2,
    IM__PRE_KNOWN_EACH_NUMBER,
    IM__PRE_KNOWN_NUMBERS,
    IM__PRE_KNOWN_BYTE_NUMBERS,
    IM__PRE_KNOWN_EACH_SIGN,
    IM__PRE_KNOWN_SIGNS
} im__pre_known;
const im__pre_rule *im__pre_stage_known(im__pre_known which);

/* Gets the pieces in order; none is empty, together they are the text. Returns false to stop. */
typedef bool im__pre_sink(void *context, const char *piece, size_t n);

/* False when the sink stopped it. */
bool im__pre_split(const im__pre *pre, const char *text, size_t n, im__pre_sink *sink, void *context);

#endif
