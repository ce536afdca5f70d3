/* SPDX-License-Identifier: Apache-2.0
 *
 * Bookkeeping of KV pages: which physical page of a backend's pools holds which 64 positions of which sequence. The memory itself is the
 * backend's. Nothing is allocated after im__kv_new and im__kv_seq_new.
 */
#ifndef IRONMULE_ENGINE_KV_H
#define IRONMULE_ENGINE_KV_H

#include "backend/backend.h"

typedef struct im__kv_pool {
    int32_t *free; /* stack of free pages */
    size_t free_count, pages;
} im__kv_pool;

typedef struct im__kv {
    im__kv_pool pool[IM__POOLS];
    uint32_t context; /* positions a sequence may have */
    uint32_t window;  /* widest sliding window; 0: no such layers */
} im__kv;

/* One sequence: page tables of both pools and the number of positions stored. */
typedef struct im__kv_seq {
    int32_t *table[IM__POOLS]; /* [pages of the context] -1: none */
    size_t entries;
    size_t window_first; /* first page of the window pool that is still held */
    uint32_t length;
} im__kv_seq;

/* Pages that `sequences` sequences of `context` positions need in each pool when at most `chunk` rows of one are computed at a time. */
void im__kv_pages(const im__program *p, uint32_t context, uint32_t chunk, uint32_t sequences, size_t pages[IM__POOLS]);

im_status im__kv_new(im__kv *kv, const im__program *p, uint32_t context, const size_t pages[IM__POOLS], im_error *err);
void im__kv_free(im__kv *kv);

im_status im__kv_seq_new(im__kv_seq *s, const im__kv *kv, im_error *err);
void im__kv_seq_free(im__kv *kv, im__kv_seq *s); /* gives all pages back */

/* Makes room for positions length .. length + more - 1. False when a pool is exhausted (the plan makes this impossible for admitted sequences) or the
 * context would be exceeded. */
bool im__kv_reserve(im__kv *kv, im__kv_seq *s, uint32_t more);
/* `more` positions have been computed; window pages that no later row can see are given back. */
void im__kv_advance(im__kv *kv, im__kv_seq *s, uint32_t more);

#endif
