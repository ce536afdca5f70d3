/* SPDX-License-Identifier: Apache-2.0
 *
 * When the device fails for good. What it held is lost, but nothing that was said: a request has all its tokens, and the processor gives each further one the same bits.
 */
#include "engine/internal.h"

#include <stdio.h>

/* The folder stays, what lies in the host's memory goes; its thread must not touch the device's pages any more. */
static void close_tier(im_engine *e)
{
    pthread_mutex_lock(&e->lock);
    im__tier *tier = e->tier;
    e->tier = NULL;
    pthread_mutex_unlock(&e->lock);
    im__tier_close(tier);
}

/* It begins again from its tokens; the loop opens its sequence. */
static void begin_again(im_engine *e, im_request *r)
{
    if (r->seq.length > r->again) r->again = r->seq.length;
    if (r->seq_open) im__kv_seq_free(&e->kv, &r->seq);
    r->seq_open = r->loading = r->load.busy = r->load_tried = r->looked = false;
    r->cached = r->branch = 0;
}

static bool move(im_engine *e, const im_error *why)
{
    im_error err;
    char note[IM_ERROR_MESSAGE_MAX + 64];
    snprintf(note, sizeof note, "the GPU failed while it computed: %s", why->message);
    close_tier(e);
    for (im_request *r = e->running; r != NULL; r = r->next) begin_again(e, r);
    if (im__engine_move_to_cpu(e, note, &err) == IM_OK) return true;
    im__log(e, IM_LOG_WARNING, "the processor cannot take over: %s", err.message);
    return false;
}

/* When it is settled how it ends: moving takes as long as a start, and whoever looks meanwhile must not believe that the engine is lost. */
static bool count(im_engine *e, bool moved)
{
    atomic_store(&e->counters.device_fallbacks, moved);
    atomic_store(&e->counters.device_failures, 1);
    return moved;
}

bool im__engine_fall_back(im_engine *e, const im_error *why)
{
    if (e->fallback.tried) return false; /* and so it stays */
    e->fallback.tried = true;
    im__log(e, IM_LOG_WARNING, "the GPU has failed: %s", why->message);
    if (!e->fallback.allowed) {
        im__log(e, IM_LOG_WARNING, "no further request is answered; a fallback to the processor was not asked for");
        return count(e, false);
    }
    im__log(e, IM_LOG_WARNING, "the processor takes over; %zu requests begin again from their tokens", e->running_count);
    if (!count(e, move(e, why))) return false;
    im__log(e, IM_LOG_INFO, "on the processor: %s, %d threads", e->info.cpu_level, e->info.threads);
    return true;
}
