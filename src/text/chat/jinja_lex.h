/* SPDX-License-Identifier: Apache-2.0
 *
 * Template text to tokens, one at a time, with Jinja's rules for white space: trim_blocks and lstrip_blocks on, one newline at the end
 * of the template dropped, "-" and "+" in tags. Comments are skipped; a raw section comes out as text.
 */
#ifndef IRONMULE_TEXT_JINJA_LEX_H
#define IRONMULE_TEXT_JINJA_LEX_H

#include "text/chat/jinja_value.h"

typedef enum im__jtoken_kind {
    T_END,
    T_TEXT,
    T_BLOCK_BEGIN,
    T_BLOCK_END,
    T_VAR_BEGIN,
    T_VAR_END,
    T_NAME,
    T_STRING, /* text: unescaped */
    T_INT,    /* text: decimal digits */
    T_FLOAT,  /* text: without underscores */
    T_OP      /* op: one or two characters packed as IM__OP() */
} im__jtoken_kind;

#define IM__OP(a, b) ((unsigned)(unsigned char)(a) << 8 | (unsigned)(unsigned char)(b))

typedef struct im__jtoken {
    im__jtoken_kind kind;
    unsigned line;
    unsigned op;
    const char *p; /* text, in the source or in the arena */
    size_t n;
} im__jtoken;

typedef struct im__jlexer {
    im__jrun *run;       /* whose arena outlives the tokens */
    const char *p, *end; /* what is left */
    const char *start;
    unsigned line;
    bool line_start;     /* lstrip_blocks may take blanks at p: a line starts there */
    int mode;            /* 0: text; 'v', 'b': in a variable or block tag */
    char pending;        /* tag that starts after the text just given: 'v' or 'b' */
    size_t pending_skip; /* its length */
    char brackets[128];  /* open brackets of the tag */
    unsigned open;
} im__jlexer;

/* The source is valid UTF-8; newlines are normalised into the arena. False: no memory. */
bool im__jlexer_start(im__jlexer *lex, im__jrun *run, const char *source, size_t n);
/* False: not a template; the error names the line. */
bool im__jlexer_next(im__jlexer *lex, im__jtoken *out);

#endif
