/* SPDX-License-Identifier: Apache-2.0
 *
 * The prefix cache: full KV pages under the name of the text that they end, so that a sequence with the same beginning takes them in place of computing them. Where texts part
 * in the middle of a page, a sequence goes on in a copy of it. The bits are those that it would have computed (docs/numerics.md), so nothing but time depends on it.
 *
 * How to use, on the engine's thread only:
 *     im__page_names      names of the pages of a prompt, once
 *     im__prefix_attach   before a sequence computes at a page boundary: takes what is there
 *     im__prefix_attach_part   when that ends: the beginning of the next page, as a copy
 *     im__prefix_name     after a step, before im__kv_advance: gives names to the pages that became full
 *     im__prefix_end_of_turn   where a prompt or an answer ends: the window's pages there are worth keeping
 *     im__prefix_leave_tail    before a sequence goes: its last page, partly filled, stays behind
 *     im__kv_seq_free     as always: pages with a name stay behind
 *
 * A name is XXH3-128 over the name of the page before and the page's 64 ids. It only finds; what decides is the parent page and the ids themselves, page by page from the
 * beginning, so no collision can give a wrong page.
 *
 * Invariants
 *  1. A node is a page of the full pool with a name, or a tail: the last page of a text, of which the first positions are filled. Its parent is a node with a name, or it is
 *     the first page of a text. Parents are never evicted before their children.
 *  2. A sequence with `named` = n holds the nodes of its first n pages; its further pages have no name and no other holder.
 *  3. A node may have a page of the window pool as well: the same positions of layers with a sliding window. Whoever holds that page holds the node.
 *  4. Nodes without a holder are at most cached[FULL], pages of windows without one at most cached[WINDOW]: what is least recently used goes, leaves first. Using a
 *     node is using all before it, later, so the least recently used one is a leaf.
 *  5. Positions 0 .. L - 1 can be taken when all nodes up to L are there and the window pages of those that the row at L sees.
 *  6. Window pages at ends of turns go after all others.
 *  7. Nobody holds a tail. What is copied of a page is followed in the copy by positions of another text, which are written before they are read: a row sees nothing behind
 *     itself.
 */
#ifndef IRONMULE_ENGINE_PREFIX_H
#define IRONMULE_ENGINE_PREFIX_H

#include "engine/kv.h"

#include <ironmule/ironmule.h>

typedef struct im__page_name {
    uint64_t low, high;
} im__page_name;

/* Names of the full pages begin .. end - 1 of a text; those before are in name[] already. */
void im__page_names(const int32_t *ids, size_t begin, size_t end, im__page_name *name);

typedef struct im__prefix im__prefix;

/* Sets kv->keep. Takes all its memory now. */
im_status im__prefix_new(im__prefix **out, im__kv *kv, const im__kv_sizes *sizes, im_error *err);
void im__prefix_free(im__prefix *c); /* after the sequences, before the pools */
/* Bytes of its bookkeeping. */
size_t im__prefix_bytes(const im__kv_sizes *sizes, uint32_t context);

/* What im__prefix_attach found. */
typedef struct im__prefix_found {
    size_t pages;       /* of this text, known when it looked, whether or not they could be taken */
    size_t taken;       /* pages that the sequence has now, from the first one on */
    im_cache_miss miss; /* when fewer than `most` were taken: why */
} im__prefix_found;

/* The sequence stands at a page boundary and has named all its pages: takes as many of the pages up to `most` as can be had. */
im__prefix_found im__prefix_attach(im__prefix *c, im__kv_seq *s, const int32_t *ids, const im__page_name *name, size_t most);

#define IM__PART_LEAST 8 /* positions that are worth the copy of a page */

/* Pages to copy at once, from[k] to to[k], so that the sequence has `positions` more; -1: none of this pool. */
typedef struct im__prefix_part {
    size_t positions; /* 0: nothing was taken */
    int32_t from[IM__POOLS], to[IM__POOLS];
} im__prefix_part;

/* The sequence stands at a page boundary, has named all its pages and has attached what it could: takes positions of the next page, none from position `end` of the text on,
 * of that page which has most of them. */
im__prefix_part im__prefix_attach_part(im__prefix *c, im__kv_seq *s, const int32_t *ids, size_t end);

/* The first `full` pages of the sequence are computed: gives names to those that have none. One that is known already is given up for the known one. ids and names
 * cover them. */
void im__prefix_name(im__prefix *c, im__kv_seq *s, size_t full, const int32_t *ids, const im__page_name *name);

/* The full pages of positions 0 .. boundary - 1 of the sequence are named: the window pages that a row there sees belong to the end of a turn. */
void im__prefix_end_of_turn(im__prefix *c, const im__kv_seq *s, size_t boundary);

/* A sequence that is about to go and has named all its full pages: the page behind them becomes a tail, unless the cache has its positions already. Tails that it continues
 * go. */
void im__prefix_leave_tail(im__prefix *c, im__kv_seq *s, const int32_t *ids);

/* For the tier on disk. Pins the pages of the first `end` nodes of a sequence, of windows those at ends of turns, and writes them to page[] (-1: none): they stay where they
 * are until unpinned, whoever lets go of them. Returns of how many nodes, which may be fewer: pins are limited as idle pages are. */
size_t im__prefix_pin(im__prefix *c, const im__kv_seq *s, size_t end, int32_t *const page[IM__POOLS]);
/* `stored`: of the first so many pages it is known that they are on disk. */
void im__prefix_unpin(im__prefix *c, size_t count, int32_t *const page[IM__POOLS], size_t stored);
/* Are all pages that im__prefix_pin would pin known to be on disk? */
bool im__prefix_is_stored(const im__prefix *c, const im__kv_seq *s, size_t end);

/* Nodes that no sequence holds. */
size_t im__prefix_idle(const im__prefix *c);

#endif
