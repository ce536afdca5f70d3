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

void im__queue_admit(im_engine *e)
{
    while (e->queue != NULL && e->running_count < e->options.max_sequences) {
        im_request *r = take(e, next_in_turn(e));
        e->turns.now = turn_of(e, r);
        e->turns.next[entry(r)] = e->turns.now + 1;
        im__request_append(&e->running, r);
        e->running_count++;
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
    size_t room = e->options.max_sequences - e->running_count;
    return e->queue_length > room ? e->queue_length - room : 0;
}
