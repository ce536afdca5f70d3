/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/kv.h"

static size_t pages_for(uint64_t positions) { return (size_t)((positions + IM__PAGE - 1) / IM__PAGE); }

static uint32_t widest_window(const im__program *p)
{
    uint32_t widest = 0;
    for (size_t i = 0; i < p->kv_count; i++)
        if (p->kv[i].window > widest) widest = p->kv[i].window;
    return widest;
}

void im__kv_pages(const im__program *p, uint32_t context, uint32_t chunk, uint32_t sequences, size_t pages[IM__POOLS])
{
    size_t whole = pages_for(context), window = pages_for((uint64_t)widest_window(p) + chunk) + 1;
    if (window > whole) window = whole;
    pages[IM__POOL_FULL] = im__kv_page_bytes(p, IM__POOL_FULL) > 0 ? whole * sequences : 0;
    pages[IM__POOL_WINDOW] = im__kv_page_bytes(p, IM__POOL_WINDOW) > 0 ? window * sequences : 0;
}

im_status im__kv_new(im__kv *kv, const im__program *p, uint32_t context, const size_t pages[IM__POOLS], im_error *err)
{
    *kv = (im__kv){.context = context, .window = widest_window(p)};
    for (int k = 0; k < IM__POOLS; k++) {
        im__kv_pool *pool = &kv->pool[k];
        pool->free = im__calloc(pages[k], sizeof *pool->free);
        if (pool->free == NULL) {
            im__kv_free(kv);
            return im__fail(err, IM_ERR_MEMORY, "out of memory");
        }
        pool->pages = pool->free_count = pages[k];
        for (size_t i = 0; i < pages[k]; i++) pool->free[i] = (int32_t)(pages[k] - 1 - i);
    }
    return IM_OK;
}

void im__kv_free(im__kv *kv)
{
    for (int k = 0; k < IM__POOLS; k++) im__free(kv->pool[k].free);
    *kv = (im__kv){0};
}

im_status im__kv_seq_new(im__kv_seq *s, const im__kv *kv, im_error *err)
{
    *s = (im__kv_seq){.entries = pages_for(kv->context)};
    for (int k = 0; k < IM__POOLS; k++) {
        s->table[k] = im__calloc(s->entries, sizeof(int32_t));
        if (s->table[k] == NULL) {
            for (int i = 0; i < k; i++) im__free(s->table[i]);
            *s = (im__kv_seq){0};
            return im__fail(err, IM_ERR_MEMORY, "out of memory");
        }
        for (size_t i = 0; i < s->entries; i++) s->table[k][i] = -1;
    }
    return IM_OK;
}

static void give_back(im__kv_pool *pool, int32_t *entry)
{
    if (*entry < 0) return;
    pool->free[pool->free_count++] = *entry;
    *entry = -1;
}

void im__kv_seq_free(im__kv *kv, im__kv_seq *s)
{
    for (int k = 0; k < IM__POOLS; k++) {
        for (size_t i = 0; s->table[k] != NULL && i < s->entries; i++) give_back(&kv->pool[k], &s->table[k][i]);
        im__free(s->table[k]);
    }
    *s = (im__kv_seq){0};
}

bool im__kv_reserve(im__kv *kv, im__kv_seq *s, uint32_t more)
{
    if (more > kv->context - s->length) return false;
    for (int k = 0; k < IM__POOLS; k++) {
        im__kv_pool *pool = &kv->pool[k];
        if (pool->pages == 0) continue;
        for (size_t i = s->length / IM__PAGE; i < pages_for((uint64_t)s->length + more); i++) {
            if (s->table[k][i] >= 0) continue;
            if (pool->free_count == 0) return false;
            s->table[k][i] = pool->free[--pool->free_count];
        }
    }
    return true;
}

void im__kv_advance(im__kv *kv, im__kv_seq *s, uint32_t more)
{
    s->length += more;
    if (kv->pool[IM__POOL_WINDOW].pages == 0) return;
    /* The next row, at position `length`, sees positions above length - window. */
    while ((s->window_first + 1) * IM__PAGE + kv->window <= (uint64_t)s->length + 1)
        give_back(&kv->pool[IM__POOL_WINDOW], &s->table[IM__POOL_WINDOW][s->window_first++]);
}
