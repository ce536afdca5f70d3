/* SPDX-License-Identifier: Apache-2.0
 *
 * Between requests and the prefix cache's tiers in the host's memory and on disk: which pages of a prompt are worth loading, which of a finished request are to be stored. On the engine's
 * thread.
 */
#ifndef IRONMULE_ENGINE_TIER_H
#define IRONMULE_ENGINE_TIER_H

#include "engine/prefix_disk.h"

typedef struct im__tier im__tier; /* NULL: there is none, and every call does nothing */

/* `o`: without most_pages. */
im_status im__tier_open(im__tier **out, im__prefix *cache, im__kv *kv, const im__disk_options *o, im_error *err);
void im__tier_stop(im__tier *t); /* waits for its thread; collects nothing more */
void im__tier_close(im__tier *t);
/* Bytes that it takes beside what it holds. */
size_t im__tier_bytes(const size_t page_bytes[IM__POOLS], size_t most_pages);

/* One request's load: embedded in it, it must outlive the job. */
typedef struct im__tier_load {
    im__disk_job job;
    bool busy; /* the sequence belongs to the disk's thread: nobody touches it */
} im__tier_load;

/* A sequence at a page boundary, all its pages named: begins to load what the folder has of its next pages up to `most`. false: nothing, or not now. */
bool im__tier_load_begin(im__tier *t, im__tier_load *l, im__kv_seq *s, const int32_t *ids, const im__page_name *name, size_t most);
/* A finished load: pages that came are part of the sequence now. Returns how many. */
size_t im__tier_load_end(im__tier *t, im__tier_load *l, im__kv_seq *s);

/* Stores the named pages of a sequence that is about to go; ids and names are copied. */
void im__tier_store(im__tier *t, const im__kv_seq *s, const int32_t *ids, const im__page_name *name);

/* Looks after finished jobs: loads are no longer busy, but not ended; what was pinned for storing is let go of. */
void im__tier_collect(im__tier *t);
im__disk_counts im__tier_count(im__tier *t); /* any thread */

#endif
