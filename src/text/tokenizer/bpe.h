/* SPDX-License-Identifier: Apache-2.0
 *
 * Byte-pair merging of one piece of text: always the best pair of neighbours first, the leftmost among equals, in n log n at worst.
 * What "best" means is the family's: the rank of the merge, or the score of the piece that it makes.
 */
#ifndef IRONMULE_TEXT_BPE_H
#define IRONMULE_TEXT_BPE_H

#include "text/tokenizer/tokenizer_inside.h"

/* A stretch of the piece that is one token. Symbols form a list in text order. */
typedef struct im__bpe_symbol {
    uint32_t start, len; /* bytes; len 0 once merged into its left neighbour */
    uint32_t chars;      /* characters; 0: never merges */
    int32_t id;
    int32_t prev, next; /* indexes, -1 at the ends */
} im__bpe_symbol;

typedef struct im__bpe_pair {
    uint64_t order; /* smaller is better */
    int32_t id;     /* token that the pair makes; breaks ties of order, then pos does */
    uint32_t pos;   /* index of the left symbol */
    uint32_t len;   /* bytes of both: tells whether the symbols are still those that the pair was made for */
} im__bpe_pair;

/* Memory that is kept between pieces. Start with {0}. */
typedef struct im__bpe {
    im__bpe_symbol *symbol;
    size_t count, cap;
    im__bpe_pair *heap;
    size_t heap_len, heap_cap;
} im__bpe;

void im__bpe_free(im__bpe *b);

/* Makes room for `count` symbols of a piece to come; false on exhaustion. */
bool im__bpe_reserve(im__bpe *b, size_t count);

/* Appends a symbol; there is room for it. */
void im__bpe_add(im__bpe *b, uint32_t start, uint32_t len, uint32_t chars, int32_t id);

/* Merges b->symbol[0..count), whose starts refer to `text`. Afterwards symbol 0 and its `next` chain are the tokens. False on exhaustion. */
bool im__bpe_merge(im__bpe *b, const im__tokenizer *t, const char *text);

#endif
