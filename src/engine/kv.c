/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/kv.h"

#define USUAL_TOKENS 4096 /* of a conversation that is worth keeping */

static size_t pages_for(uint64_t positions) { return (size_t)((positions + IM__PAGE - 1) / IM__PAGE); }

static size_t least(size_t a, size_t b) { return a < b ? a : b; }

static uint32_t widest_window(const im__program *p)
{
    uint32_t widest = 0;
    for (size_t i = 0; i < p->kv_count; i++)
        if (p->kv[i].window > widest) widest = p->kv[i].window;
    return widest;
}

size_t im__kv_seq_pages(uint64_t positions) { return pages_for(positions); }

/* Memory of the cache for each pool, in the proportion in which a usual conversation needs them: all its pages of layers that see everything, and those of the
 * window at two points, the end and the turn before. */
static void plan_cache(const im__program *p, const im__kv_needs *n, im__kv_sizes *s)
{
    size_t full = im__kv_page_bytes(p, IM__POOL_FULL), window = im__kv_page_bytes(p, IM__POOL_WINDOW);
    size_t usual = pages_for(n->context < USUAL_TOKENS ? n->context : USUAL_TOKENS);
    size_t in_windows = least(usual, 2 * (pages_for(widest_window(p)) + 1));
    double full_weight = (double)full * (double)usual, window_weight = (double)window * (double)in_windows;
    uint64_t window_bytes =
        full_weight + window_weight > 0 ? (uint64_t)((double)n->cache_bytes * (window_weight / (full_weight + window_weight))) : 0;
    if (window > 0) s->cached[IM__POOL_WINDOW] = (size_t)(window_bytes / window);
    if (full > 0) s->cached[IM__POOL_FULL] = (size_t)((n->cache_bytes - window_bytes) / full);
    if (full == 0) s->cached[IM__POOL_FULL] = s->cached[IM__POOL_WINDOW];
}

void im__kv_plan(const im__program *p, const im__kv_needs *n, im__kv_sizes *s)
{
    *s = (im__kv_sizes){{0}, {0}};
    size_t whole = pages_for(n->context), window = least(whole, pages_for((uint64_t)widest_window(p) + n->chunk) + 1);
    size_t all = whole * n->sequences;
    if (n->ahead) window = least(whole, window + pages_for(widest_window(p)) + 1);
    if (n->tokens > 0) all = least(all, pages_for(n->tokens));
    s->running[IM__POOL_FULL] = all;
    if (im__kv_page_bytes(p, IM__POOL_WINDOW) > 0) s->running[IM__POOL_WINDOW] = least(all, window * n->sequences);
    if (n->cache_bytes > 0) plan_cache(p, n, s);
}

size_t im__kv_memory_pages(const im__program *p, const im__kv_sizes *s, im__pool_kind pool)
{
    return im__kv_page_bytes(p, pool) > 0 ? s->running[pool] + s->cached[pool] : 0;
}

static im_status new_pool(im__kv_pool *pool, size_t pages, im_error *err)
{
    pool->free = im__calloc(pages, sizeof *pool->free);
    pool->holders = im__calloc(pages, sizeof *pool->holders);
    if (pool->free == NULL || pool->holders == NULL) return im__fail(err, IM_ERR_MEMORY, "out of memory");
    pool->pages = pool->free_count = pages;
    for (size_t i = 0; i < pages; i++) pool->free[i] = (int32_t)(pages - 1 - i);
    return IM_OK;
}

im_status im__kv_new(im__kv *kv, const im__program *p, uint32_t context, const im__kv_sizes *sizes, im_error *err)
{
    *kv = (im__kv){.context = context, .window = widest_window(p)};
    for (int k = 0; k < IM__POOLS; k++) {
        im_status status = new_pool(&kv->pool[k], sizes->running[k] + sizes->cached[k], err);
        if (status == IM_OK) continue;
        im__kv_free(kv);
        return status;
    }
    return IM_OK;
}

void im__kv_free(im__kv *kv)
{
    for (int k = 0; k < IM__POOLS; k++) {
        im__free(kv->pool[k].free);
        im__free(kv->pool[k].holders);
    }
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

void im__kv_give_back(im__kv *kv, im__pool_kind k, int32_t page) { kv->pool[k].free[kv->pool[k].free_count++] = page; }

void im__kv_hold(im__kv *kv, im__pool_kind k, int32_t page) { kv->pool[k].holders[page]++; }

void im__kv_let_go(im__kv *kv, im__pool_kind k, int32_t *entry)
{
    int32_t page = *entry;
    if (page < 0) return;
    *entry = -1;
    if (--kv->pool[k].holders[page] > 0) return;
    if (kv->keep == NULL || !kv->keep(kv->keeper, k, page)) im__kv_give_back(kv, k, page);
}

/* Pages of the window go first: whoever holds one holds the other page of these positions as well. */
void im__kv_seq_free(im__kv *kv, im__kv_seq *s)
{
    for (int k = IM__POOLS; k-- > 0;) {
        for (size_t i = s->entries; s->table[k] != NULL && i-- > 0;) im__kv_let_go(kv, (im__pool_kind)k, &s->table[k][i]);
        im__free(s->table[k]);
    }
    *s = (im__kv_seq){0};
}

/* Pages come into use in rising order. */
static void touch(im__kv_pool *pool, int32_t page)
{
    if ((size_t)page >= pool->touched) pool->touched = (size_t)page + 1;
}

int32_t im__kv_next_untouched(im__kv *kv, im__pool_kind k, size_t ahead)
{
    im__kv_pool *pool = &kv->pool[k];
    for (size_t i = 1; i <= ahead && i <= pool->free_count; i++) {
        int32_t page = pool->free[pool->free_count - i];
        if ((size_t)page < pool->touched) continue;
        touch(pool, page);
        return page;
    }
    return -1;
}

/* Entries begin .. end - 1 of a table that have no page get one. */
static bool fill(im__kv *kv, im__kv_seq *s, im__pool_kind k, size_t begin, size_t end)
{
    im__kv_pool *pool = &kv->pool[k];
    for (size_t i = begin; pool->pages > 0 && i < end; i++) {
        if (s->table[k][i] >= 0) continue;
        if (pool->free_count == 0) return false;
        s->table[k][i] = pool->free[--pool->free_count];
        touch(pool, s->table[k][i]);
        im__kv_hold(kv, k, s->table[k][i]);
    }
    return true;
}

bool im__kv_reserve(im__kv *kv, im__kv_seq *s, uint32_t more)
{
    if (more > kv->context - s->length) return false;
    size_t begin = s->length / IM__PAGE, end = pages_for((uint64_t)s->length + more);
    return fill(kv, s, IM__POOL_FULL, begin, end) && fill(kv, s, IM__POOL_WINDOW, begin, end);
}

bool im__kv_reserve_ahead(im__kv *kv, im__kv_seq *s, size_t end)
{
    size_t begin = s->length / IM__PAGE, first = im__kv_window_first(kv, (uint32_t)(end * IM__PAGE));
    return fill(kv, s, IM__POOL_FULL, begin, end) && fill(kv, s, IM__POOL_WINDOW, first > begin ? first : begin, end);
}

void im__kv_give_up_ahead(im__kv *kv, im__kv_seq *s)
{
    for (int k = IM__POOLS; k-- > 0;)
        for (size_t i = s->entries; i-- > pages_for(s->length);) im__kv_let_go(kv, (im__pool_kind)k, &s->table[k][i]);
}

size_t im__kv_window_first(const im__kv *kv, uint32_t length)
{
    return (uint64_t)length + 1 > kv->window ? (size_t)((length + 1 - kv->window) / IM__PAGE) : 0;
}

void im__kv_advance(im__kv *kv, im__kv_seq *s, uint32_t more)
{
    s->length += more;
    if (kv->pool[IM__POOL_WINDOW].pages == 0) return;
    for (size_t first = im__kv_window_first(kv, s->length); s->window_first < first; s->window_first++)
        im__kv_let_go(kv, IM__POOL_WINDOW, &s->table[IM__POOL_WINDOW][s->window_first]);
}
