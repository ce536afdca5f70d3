/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/tier.h"

#include <string.h>

enum { STORES = 16 }; /* texts that may wait to be stored; of more, some are not */

typedef struct store {
    im__disk_job job;
    bool busy;
    int32_t *ids, *page[IM__POOLS];
    im__page_name *name;
} store;

struct im__tier {
    im__disk *disk;
    im__prefix *cache;
    im__kv *kv;
    size_t most_pages;
    store store[STORES];
};

/* ---- loading ---------------------------------------------------------------------------------------------------------------------------- */

/* Does the folder have the pages of windows that a row at page `end` sees, as far as the sequence has not? */
static bool has_windows(im__tier *t, const im__page_name *name, size_t begin, size_t end)
{
    size_t first = im__kv_window_first(t->kv, (uint32_t)(end * IM__PAGE));
    for (size_t i = first > begin ? first : begin; i < end; i++)
        if (!im__disk_has(t->disk, IM__POOL_WINDOW, &name[i])) return false;
    return true;
}

static size_t reach(im__tier *t, size_t begin, const im__page_name *name, size_t most)
{
    size_t end = begin;
    while (end < most && im__disk_has(t->disk, IM__POOL_FULL, &name[end])) end++;
    if (t->kv->pool[IM__POOL_WINDOW].pages == 0) return end;
    while (end > begin && !has_windows(t, name, begin, end)) end--;
    return end;
}

bool im__tier_load_begin(im__tier *t, im__tier_load *l, im__kv_seq *s, const int32_t *ids, const im__page_name *name, size_t most)
{
    size_t begin = s->length / IM__PAGE, end = t == NULL ? begin : reach(t, begin, name, most);
    if (end == begin) return false;
    if (!im__kv_reserve_ahead(t->kv, s, end)) {
        im__kv_give_up_ahead(t->kv, s);
        return false;
    }
    l->job = (im__disk_job){.load = true, .begin = begin, .end = end, .ids = ids, .name = name};
    for (int k = 0; k < IM__POOLS; k++) l->job.page[k] = s->table[k];
    l->busy = true;
    im__disk_submit(t->disk, &l->job);
    return true;
}

/* Without all pages of its window a sequence cannot go on from anywhere but where it was. */
size_t im__tier_load_end(im__tier *t, im__tier_load *l, im__kv_seq *s)
{
    const im__disk_job *job = &l->job;
    bool windows = t->kv->pool[IM__POOL_WINDOW].pages > 0;
    size_t end = windows && job->done < job->end ? job->begin : job->done;
    if (end > job->begin) {
        im__prefix_name(t->cache, s, end, job->ids, job->name);
        im__kv_advance(t->kv, s, (uint32_t)((end - job->begin) * IM__PAGE));
    }
    im__kv_give_up_ahead(t->kv, s);
    return end - job->begin;
}

/* ---- storing ---------------------------------------------------------------------------------------------------------------------------- */

void im__tier_store(im__tier *t, const im__kv_seq *s, const int32_t *ids, const im__page_name *name)
{
    store *free = NULL;
    for (int i = 0; t != NULL && i < STORES; i++)
        if (!t->store[i].busy) free = &t->store[i];
    if (free == NULL || s->named == 0) return;
    if (im__prefix_is_stored(t->cache, s, s->named) && reach(t, 0, name, s->named) == s->named) {
        im__disk_use(t->disk, name, s->named); /* though the tier has not been asked */
        return;
    }
    size_t end = im__prefix_pin(t->cache, s, s->named, free->page);
    if (end == 0) return;
    memcpy(free->ids, ids, end * IM__PAGE * sizeof *ids);
    memcpy(free->name, name, end * sizeof *name);
    free->job = (im__disk_job){.end = end, .ids = free->ids, .name = free->name};
    for (int k = 0; k < IM__POOLS; k++) free->job.page[k] = free->page[k];
    free->busy = true;
    im__disk_submit(t->disk, &free->job);
}

void im__tier_collect(im__tier *t)
{
    im__disk_job *next, *job = t == NULL ? NULL : im__disk_finished(t->disk);
    for (; job != NULL; job = next) {
        next = job->next;
        if (job->load) {
            ((im__tier_load *)job)->busy = false;
            continue;
        }
        store *s = (store *)job;
        im__prefix_unpin(t->cache, job->end, s->page, job->done);
        s->busy = false;
    }
}

im__disk_counts im__tier_count(im__tier *t) { return t == NULL ? (im__disk_counts){0} : im__disk_count(t->disk); }

/* ---- life ------------------------------------------------------------------------------------------------------------------------------- */

size_t im__tier_bytes(const size_t page_bytes[IM__POOLS], size_t most_pages)
{
    size_t text = most_pages * (IM__PAGE * sizeof(int32_t) + sizeof(im__page_name) + IM__POOLS * sizeof(int32_t));
    size_t largest =
        page_bytes[IM__POOL_FULL] > page_bytes[IM__POOL_WINDOW] ? page_bytes[IM__POOL_FULL] : page_bytes[IM__POOL_WINDOW];
    return sizeof(im__tier) + STORES * text + largest + most_pages * IM__PAGE * sizeof(int32_t) + IM__PAGE_FILE_HEADER;
}

static bool make_store(store *s, size_t most_pages)
{
    s->ids = im__calloc(most_pages, IM__PAGE * sizeof *s->ids);
    s->name = im__calloc(most_pages, sizeof *s->name);
    for (int k = 0; k < IM__POOLS; k++) s->page[k] = im__calloc(most_pages, sizeof(int32_t));
    return s->ids != NULL && s->name != NULL && s->page[IM__POOL_FULL] != NULL && s->page[IM__POOL_WINDOW] != NULL;
}

static im_status open_tier(im__tier *t, const im__disk_options *o, im_error *err)
{
    im__disk_options options = *o;
    t->most_pages = options.most_pages = im__kv_seq_pages(t->kv->context);
    for (int i = 0; i < STORES; i++)
        if (!make_store(&t->store[i], t->most_pages)) return im__fail(err, IM_ERR_MEMORY, "out of memory");
    return im__disk_open(&t->disk, &options, err);
}

im_status im__tier_open(im__tier **out, im__prefix *cache, im__kv *kv, const im__disk_options *o, im_error *err)
{
    im__tier *t = im__calloc(1, sizeof *t);
    if (t == NULL) return im__fail(err, IM_ERR_MEMORY, "out of memory");
    t->cache = cache;
    t->kv = kv;
    im_status status = open_tier(t, o, err);
    if (status == IM_OK)
        *out = t;
    else
        im__tier_close(t);
    return status;
}

void im__tier_stop(im__tier *t)
{
    if (t != NULL) im__disk_stop(t->disk);
}

void im__tier_close(im__tier *t)
{
    if (t == NULL) return;
    im__disk_close(t->disk);
    for (int i = 0; i < STORES; i++) {
        im__free(t->store[i].ids);
        im__free(t->store[i].name);
        for (int k = 0; k < IM__POOLS; k++) im__free(t->store[i].page[k]);
    }
    im__free(t);
}
