/* SPDX-License-Identifier: Apache-2.0
 *
 * What an engine says of its work. Counters are read as they stand: each is right, their sum may be a moment apart.
 */
#include "engine/internal.h"

#include "base/machine.h"

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
    double began = atomic_load(&c->step_began), now = im__now_ms();
    s->step_ms = began > 0 && now > began ? now - began : 0;
    s->longest_step_ms = atomic_load(&c->longest_step);
}

void im_engine_get_stats(im_engine *e, im_engine_stats *stats)
{
    *stats = (im_engine_stats){0};
    read_counters(&e->counters, stats);
    pthread_mutex_lock(&e->lock);
    stats->queued = (uint32_t)e->queue_length;
    stats->running = (uint32_t)e->running_count;
    pthread_mutex_unlock(&e->lock);
}
