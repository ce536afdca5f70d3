/* SPDX-License-Identifier: Apache-2.0
 *
 * Bookkeeping of KV pages: which physical page of a backend's pools holds which 64 positions of which sequences. The memory itself is the
 * backend's. Nothing is allocated after im__kv_new and im__kv_seq_new.
 *
 * A page is free, or held by one or more sequences, or by nobody but the prefix cache (prefix.h), which is asked when the last sequence lets go of it. Pages that several
 * sequences hold are full and never written again.
 *
 * The pool of layers that see everything exists in the bookkeeping even if a model has no such layer: its pages then have no memory and only count.
 */
#ifndef IRONMULE_ENGINE_KV_H
#define IRONMULE_ENGINE_KV_H

#include "backend/backend.h"

typedef struct im__kv_pool {
    int32_t *free; /* stack of free pages */
    size_t free_count, pages;
    uint32_t *holders; /* [pages] sequences that have it in their table */
    size_t touched;    /* pages below it have been in use, or im__kv_next_untouched has named them */
} im__kv_pool;

/* Is told that the last sequence has let go of a page; false: the page becomes free. It may free other pages (im__kv_give_back), not reserve any. */
typedef bool im__kv_keep_fn(void *keeper, im__pool_kind pool, int32_t page);

typedef struct im__kv {
    im__kv_pool pool[IM__POOLS];
    uint32_t context;     /* positions a sequence may have */
    uint32_t window;      /* widest sliding window; 0: no such layers */
    im__kv_keep_fn *keep; /* NULL: nothing is kept */
    void *keeper;
} im__kv;

/* One sequence: page tables of both pools and the number of positions stored. */
typedef struct im__kv_seq {
    int32_t *table[IM__POOLS]; /* [pages of the context] -1: none */
    size_t entries;
    size_t window_first; /* first page of the window pool that is still held */
    size_t named;        /* leading pages that the prefix cache knows by name */
    uint32_t length;
} im__kv_seq;

/* What pools are sized by. */
typedef struct im__kv_needs {
    uint32_t context, chunk, sequences; /* at most `chunk` rows of one sequence are computed at a time */
    uint64_t tokens;                    /* positions that all sequences hold together; 0: sequences x context */
    uint64_t cache_bytes;               /* for pages that no sequence holds */
    bool ahead;                         /* sequences use im__kv_reserve_ahead */
} im__kv_needs;

/* Pages of each pool. Sequences whose im__kv_seq_pages add up to running[IM__POOL_FULL] at most never run out, whatever the cache keeps beside them. */
typedef struct im__kv_sizes {
    size_t running[IM__POOLS], cached[IM__POOLS];
} im__kv_sizes;

void im__kv_plan(const im__program *p, const im__kv_needs *needs, im__kv_sizes *sizes);
/* Pages that a sequence of so many positions holds at most, by which it is admitted. */
size_t im__kv_seq_pages(uint64_t positions);
/* Pages of a pool for which the backend has memory. */
size_t im__kv_memory_pages(const im__program *p, const im__kv_sizes *sizes, im__pool_kind pool);

im_status im__kv_new(im__kv *kv, const im__program *p, uint32_t context, const im__kv_sizes *sizes, im_error *err);
void im__kv_free(im__kv *kv);

im_status im__kv_seq_new(im__kv_seq *s, const im__kv *kv, im_error *err);
void im__kv_seq_free(im__kv *kv, im__kv_seq *s); /* lets go of all pages, the last one first */

/* Makes room for positions length .. length + more - 1. False when a pool is exhausted (the plan makes this impossible for admitted sequences) or the
 * context would be exceeded. */
bool im__kv_reserve(im__kv *kv, im__kv_seq *s, uint32_t more);
/* Makes room for what a sequence at page boundary `end` has that this one, at one before, has not: pages that are to be filled from elsewhere, of windows only those
 * that a row there sees. im__kv_advance follows, or im__kv_give_up_ahead, which lets go of all pages behind the length. */
bool im__kv_reserve_ahead(im__kv *kv, im__kv_seq *s, size_t end);
void im__kv_give_up_ahead(im__kv *kv, im__kv_seq *s);
/* `more` positions have been computed; window pages that no later row can see are let go of. */
void im__kv_advance(im__kv *kv, im__kv_seq *s, uint32_t more);

/* First page of the window pool that the row at position `length` sees. */
size_t im__kv_window_first(const im__kv *kv, uint32_t length);

/* A page that is among the next `ahead` ones to be taken and has never been in use, so that its memory may be there only when it is touched; -1: none. It counts as touched. */
int32_t im__kv_next_untouched(im__kv *kv, im__pool_kind pool, size_t ahead);

/* For the prefix cache. One holder more or less of a page; a page that nobody holds or keeps any more. */
void im__kv_hold(im__kv *kv, im__pool_kind pool, int32_t page);
void im__kv_let_go(im__kv *kv, im__pool_kind pool, int32_t *entry); /* *entry becomes -1 */
void im__kv_give_back(im__kv *kv, im__pool_kind pool, int32_t page);

#endif
