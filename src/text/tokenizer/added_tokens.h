/* SPDX-License-Identifier: Apache-2.0
 *
 * Tokens that are cut out of a text before everything else: user-defined ones always, control tokens where the caller allows it.
 * Leftmost first, longest at the same place.
 *
 *     size_t at = 0, span = 0; // everything before `at` is done
 *     for (im__added_match m = {0}; ; at = m.end) {
 *         m = im__added_tokens_next(a, text, n, &m, options, &span);
 *         ordinary text from `at` to m.begin, if that is not empty; then m.id, if there is one, else leave
 *     }
 */
#ifndef IRONMULE_TEXT_ADDED_TOKENS_H
#define IRONMULE_TEXT_ADDED_TOKENS_H

#include "text/tokenizer/tokenizer.h"

/* Longest string that is looked for; a vocabulary with a longer one is refused (the search costs that much per byte at worst). */
#define IM__ADDED_MAX 1024

typedef struct im__added_token {
    im__bytes text; /* borrowed */
    int32_t id;
    bool control;
    bool single_word;    /* only where no letter, digit or mark stands next to it */
    bool lstrip, rstrip; /* takes the white space before and behind it along */
} im__added_token;

typedef struct im__added_tokens {
    im__added_token *entry; /* sorted by bytes, no two alike */
    size_t count;
    uint32_t first[257]; /* entries that begin with byte b are first[b] .. first[b + 1] - 1 */
} im__added_tokens;

/* Sorts and indexes entry[0..count), which `a` owns from then on (also freed on failure by im__added_tokens_free). Of entries with the same text the lowest id stays. */
void im__added_tokens_init(im__added_tokens *a, im__added_token *entry, size_t count);
void im__added_tokens_free(im__added_tokens *a);

typedef struct im__added_match {
    size_t begin, end; /* in the text, with the white space that it takes along */
    size_t resume;     /* where to look for the next one */
    size_t white;      /* from `resume` up to here is white space, as far as is known */
    int32_t id;        /* -1: no match, begin = end = n */
} im__added_match;

/* The match that follows `last` in text[0..n); white space that `last` took is not taken along again. Control tokens count only with parse_special, and not
 * when they touch a span of `plain`; *span is a cursor into plain[] that starts at 0 and is kept from call to call. */
im__added_match im__added_tokens_next(const im__added_tokens *a, const char *text, size_t n, const im__added_match *last,
                                      const im__encode_options *options, size_t *span);

/* True when text[begin..end) touches a plain span. *span is a cursor that starts at 0 and is kept between calls with growing `begin`: spans that end
 * before `begin` are left behind for good. */
bool im__spans_touch(const im__encode_options *options, size_t begin, size_t end, size_t *span);

#endif
