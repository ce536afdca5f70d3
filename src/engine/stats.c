/* SPDX-License-Identifier: Apache-2.0
 *
 * What an engine says of its work. Counters are read as they stand: each is right, their sum may be a moment apart.
 */
#include "engine/internal.h"

#include "base/machine.h"

#include <stdio.h>

const char *im_cache_miss_name(im_cache_miss miss)
{
    static const char *const name[IM_MISS_KINDS] = {"off", "short", "new", "diverged", "evicted", "window"};
    return (unsigned)miss < IM_MISS_KINDS ? name[miss] : "unknown";
}

static void read_counters(const im__counters *c, im_engine_stats *s)
{
    s->submitted = atomic_load(&c->submitted);
    s->finished = atomic_load(&c->finished);
    s->cancelled = atomic_load(&c->cancelled);
    s->timed_out = atomic_load(&c->timed_out);
    s->failed = atomic_load(&c->failed);
    s->prompt_tokens = atomic_load(&c->prompt_tokens);
    s->cached_tokens = atomic_load(&c->cached_tokens);
    s->generated_tokens = atomic_load(&c->generated_tokens);
    s->steps = atomic_load(&c->steps);
    s->cache_hits = atomic_load(&c->hits);
    for (int i = 0; i < IM_MISS_KINDS; i++) s->cache_misses[i] = atomic_load(&c->misses[i]);
    s->kv_pages_running = atomic_load(&c->pages_held);
    s->kv_pages_cached = atomic_load(&c->pages_kept);
    double began = atomic_load(&c->step_began), now = im__now_ms();
    s->step_ms = began > 0 && now > began ? now - began : 0;
    s->longest_step_ms = atomic_load(&c->longest_step);
    s->device_failures = atomic_load(&c->device_failures); /* which is counted last */
    s->device_fallbacks = atomic_load(&c->device_fallbacks);
}

void im_engine_get_stats(im_engine *e, im_engine_stats *stats)
{
    *stats = (im_engine_stats){0};
    read_counters(&e->counters, stats);
    pthread_mutex_lock(&e->lock);
    im__disk_counts disk = im__tier_count(e->tier);
    stats->kv_pages = e->sizes.running[IM__POOL_FULL] + e->sizes.cached[IM__POOL_FULL];
    stats->queued = (uint32_t)e->queue_length;
    stats->running = (uint32_t)e->running_count;
    pthread_mutex_unlock(&e->lock);
    stats->disk_hits = disk.hits;
    stats->disk_writes = disk.writes;
    stats->disk_dropped = disk.dropped;
    stats->disk_bytes = disk.bytes;
    stats->host_hits = disk.host_hits;
    stats->host_writes = disk.host_writes;
    stats->host_bytes = disk.host_bytes;
}

void im__count_pages(im_engine *e)
{
    size_t kept = e->prefix == NULL ? 0 : im__prefix_idle(e->prefix);
    const im__kv_pool *pool = &e->kv.pool[IM__POOL_FULL];
    atomic_store(&e->counters.pages_held, pool->pages - pool->free_count - kept);
    atomic_store(&e->counters.pages_kept, kept);
}

void im__log(const im_engine *e, im_log_level level, const char *format, ...)
{
    char line[IM_ERROR_MESSAGE_MAX + 128];
    va_list args;
    if (e->options.log == NULL) return;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    e->options.log(e->options.log_user, level, line);
}
