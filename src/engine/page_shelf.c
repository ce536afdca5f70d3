/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/page_shelf.h"

#include "base/mem.h"

#include <pthread.h>
#include <string.h>

enum { LEAST_BUCKETS = 64 };

typedef struct item item;
struct item {
    im__page_name name;
    im__pool_kind pool;
    item *next;          /* of the bucket */
    item *older, *newer; /* by use */
    uint64_t used;       /* when last, by the shelf's clock */
    size_t n;
    char bytes[];
};

struct im__shelf {
    uint64_t limit;
    pthread_mutex_t lock;
    uint64_t clock; /* puts and touches so far */
    uint64_t bytes; /* with the items' own */
    item **bucket;  /* [buckets] a power of two */
    size_t buckets, count;
    item *oldest, *newest;
};

/* ---- under the lock ------------------------------------------------------------------------------------------------------------- */

static uint64_t size_of(const item *i) { return sizeof *i + i->n; }

static item **place_of(const im__shelf *s, im__pool_kind pool, const im__page_name *name)
{
    item **at = &s->bucket[(name->low + (size_t)pool) & (s->buckets - 1)];
    while (*at != NULL && ((*at)->pool != pool || (*at)->name.low != name->low || (*at)->name.high != name->high))
        at = &(*at)->next;
    return at;
}

static void unlink_item(im__shelf *s, item *i)
{
    *(i->older == NULL ? &s->oldest : &i->older->newer) = i->newer;
    *(i->newer == NULL ? &s->newest : &i->newer->older) = i->older;
}

static void link_newest(im__shelf *s, item *i)
{
    i->used = ++s->clock;
    i->older = s->newest;
    i->newer = NULL;
    *(s->newest == NULL ? &s->oldest : &s->newest->newer) = i;
    s->newest = i;
}

static void drop(im__shelf *s, item **at)
{
    item *i = *at;
    *at = i->next;
    unlink_item(s, i);
    s->bytes -= size_of(i);
    s->count--;
    im__free(i);
}

/* Buckets that cannot be had are done without: the lists become longer. */
static void grow(im__shelf *s)
{
    if (s->count < s->buckets) return;
    item **bucket = im__calloc(2 * s->buckets, sizeof *bucket);
    if (bucket == NULL) return;
    im__free(s->bucket);
    s->bucket = bucket;
    s->buckets *= 2;
    for (item *i = s->oldest; i != NULL; i = i->newer) {
        item **at = &s->bucket[(i->name.low + (size_t)i->pool) & (s->buckets - 1)];
        i->next = *at;
        *at = i;
    }
}

/* Room for so many bytes in place of the oldest; false: there is none, and nothing has gone. */
static bool make_room(im__shelf *s, uint64_t bytes, uint64_t since)
{
    uint64_t held = s->bytes;
    const item *kept = s->oldest;
    for (; held + bytes > s->limit && kept != NULL && kept->used <= since; kept = kept->newer) held -= size_of(kept);
    if (held + bytes > s->limit) return false;
    while (s->oldest != kept) drop(s, place_of(s, s->oldest->pool, &s->oldest->name));
    return true;
}

static void add(im__shelf *s, item *i)
{
    grow(s);
    item **at = place_of(s, i->pool, &i->name);
    i->next = NULL;
    *at = i;
    link_newest(s, i);
    s->bytes += size_of(i);
    s->count++;
}

/* ---- the door ------------------------------------------------------------------------------------------------------------------- */

bool im__shelf_has(im__shelf *s, im__pool_kind pool, const im__page_name *name)
{
    pthread_mutex_lock(&s->lock);
    bool has = *place_of(s, pool, name) != NULL;
    pthread_mutex_unlock(&s->lock);
    return has;
}

bool im__shelf_touch(im__shelf *s, im__pool_kind pool, const im__page_name *name)
{
    pthread_mutex_lock(&s->lock);
    item *i = *place_of(s, pool, name);
    if (i != NULL) {
        unlink_item(s, i);
        link_newest(s, i);
    }
    pthread_mutex_unlock(&s->lock);
    return i != NULL;
}

uint64_t im__shelf_bytes(im__shelf *s)
{
    pthread_mutex_lock(&s->lock);
    uint64_t bytes = s->bytes;
    pthread_mutex_unlock(&s->lock);
    return bytes;
}

const void *im__shelf_get(im__shelf *s, im__pool_kind pool, const im__page_name *name, size_t n)
{
    pthread_mutex_lock(&s->lock);
    const item *i = *place_of(s, pool, name);
    pthread_mutex_unlock(&s->lock);
    return i != NULL && i->n == n ? i->bytes : NULL;
}

uint64_t im__shelf_now(im__shelf *s)
{
    pthread_mutex_lock(&s->lock);
    uint64_t now = s->clock;
    pthread_mutex_unlock(&s->lock);
    return now;
}

bool im__shelf_put(im__shelf *s, im__pool_kind pool, const im__page_name *name, const void *bytes, size_t n, uint64_t since)
{
    size_t all;
    item *i = im__add(sizeof *i, n, &all) && all <= s->limit ? im__realloc(NULL, 1, all) : NULL;
    if (i == NULL) return false;
    i->name = *name;
    i->pool = pool;
    i->n = n;
    memcpy(i->bytes, bytes, n);
    im__shelf_drop(s, pool, name);
    pthread_mutex_lock(&s->lock);
    bool room = make_room(s, all, since);
    if (room) add(s, i);
    pthread_mutex_unlock(&s->lock);
    if (!room) im__free(i);
    return room;
}

void im__shelf_drop(im__shelf *s, im__pool_kind pool, const im__page_name *name)
{
    pthread_mutex_lock(&s->lock);
    item **at = place_of(s, pool, name);
    if (*at != NULL) drop(s, at);
    pthread_mutex_unlock(&s->lock);
}

im_status im__shelf_new(im__shelf **out, uint64_t limit, im_error *err)
{
    im__shelf *s = im__calloc(1, sizeof *s);
    item **bucket = im__calloc(LEAST_BUCKETS, sizeof *bucket);
    if (s == NULL || bucket == NULL) {
        im__free(s);
        im__free(bucket);
        return im__fail(err, IM_ERR_MEMORY, "out of memory");
    }
    *s = (im__shelf){.limit = limit, .bucket = bucket, .buckets = LEAST_BUCKETS};
    pthread_mutex_init(&s->lock, NULL);
    *out = s;
    return IM_OK;
}

void im__shelf_free(im__shelf *s)
{
    if (s == NULL) return;
    while (s->oldest != NULL) drop(s, place_of(s, s->oldest->pool, &s->oldest->name));
    im__free(s->bucket);
    pthread_mutex_destroy(&s->lock);
    im__free(s);
}
