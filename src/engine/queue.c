/* SPDX-License-Identifier: Apache-2.0
 *
 * Who waits and who is next.
 */
#include "engine/internal.h"

#include "base/machine.h"

void im__request_append(im_request **list, im_request *r)
{
    while (*list != NULL) list = &(*list)->next;
    r->next = NULL;
    *list = r;
}

void im__queue_add(im_engine *e, im_request *r)
{
    im__request_append(&e->queue, r);
    e->queue_length++;
}

static im_request *take(im_engine *e, im_request **at)
{
    im_request *r = *at;
    *at = r->next;
    e->queue_length--;
    return r;
}

static size_t entry(const im_request *r) { return (size_t)((r->client * 0x9e3779b97f4a7c15u) >> 56) % IM__CLIENTS; }

/* The turn that a request would have now: those of a client come one after the other, and who was away does not catch up. */
static uint64_t turn_of(const im_engine *e, const im_request *r)
{
    uint64_t next = e->turns.next[entry(r)];
    return next > e->turns.now ? next : e->turns.now;
}

static im_request **next_in_turn(im_engine *e)
{
    im_request **best = &e->queue;
    for (im_request **at = &e->queue; *at != NULL; at = &(*at)->next)
        if (turn_of(e, *at) < turn_of(e, *best)) best = at;
    return best;
}

static bool has_room(const im_engine *e, size_t running, size_t promised, const im_request *r)
{
    return running < e->options.max_sequences && promised + r->pages <= e->sizes.running[IM__POOL_FULL];
}

/* Nobody overtakes a large request that waits for pages, or it might wait for ever. */
void im__queue_admit(im_engine *e)
{
    while (e->queue != NULL) {
        im_request **next = next_in_turn(e), *r = *next;
        if (!has_room(e, e->running_count, e->pages_promised, r)) return;
        take(e, next);
        e->turns.now = turn_of(e, r);
        e->turns.next[entry(r)] = e->turns.now + 1;
        im__request_append(&e->running, r);
        e->running_count++;
        e->pages_promised += r->pages;
        r->started = im__now_ms();
    }
}

im_request *im__queue_take_over(im_engine *e, bool all)
{
    im_request *over = NULL;
    double now = im__now_ms();
    for (im_request **at = &e->queue; *at != NULL;) {
        im_request *r = *at;
        r->status = im__request_over(r, now, &r->error);
        if (all && r->status == IM_OK) r->status = im__fail(&r->error, IM_ERR_CANCELLED, "cancelled");
        if (r->status == IM_OK)
            at = &r->next;
        else
            im__request_append(&over, take(e, at));
    }
    return over;
}

size_t im__queue_waiting(const im_engine *e)
{
    size_t running = e->running_count, promised = e->pages_promised, waiting = 0;
    for (const im_request *r = e->queue; r != NULL; r = r->next) {
        if (waiting > 0 || !has_room(e, running, promised, r)) {
            waiting++;
        } else {
            running++;
            promised += r->pages;
        }
    }
    return waiting;
}
