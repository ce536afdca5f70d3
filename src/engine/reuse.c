/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/internal.h"

#include <string.h>

static bool takes_part(const im_request *r) { return r->name != NULL; }

/* Positions of the prompt that may come from the cache: not that of its last token, whose logits are needed. */
static size_t takeable(const im_request *r) { return r->prompt - 1; }
static size_t takeable_pages(const im_request *r) { return takeable(r) / IM__PAGE; }

/* Stands before positions that may come from the cache. */
static bool at_boundary(const im_request *r)
{
    size_t length = r->seq.length;
    return takes_part(r) && length % IM__PAGE == 0 && length < takeable(r) && r->seq.named == length / IM__PAGE;
}

/* Before a whole page of them. */
static bool at_page(const im_request *r) { return at_boundary(r) && r->seq.named < takeable_pages(r); }

/* Behind the last `taken` of its positions; those that were counted before, on a device that has failed, count as found again and not as read again. */
static void count_taken(im_request *r, size_t taken)
{
    im__counters *c = &r->engine->counters;
    size_t anew = r->seq.length > r->again ? r->seq.length - r->again : 0;
    r->cached += taken;
    atomic_fetch_add_explicit(&c->prompt_tokens, anew < taken ? anew : taken, memory_order_relaxed);
    atomic_fetch_add_explicit(&c->cached_tokens, taken, memory_order_relaxed);
}

/* Once for each request: what of its prompt is on disk and not in memory. */
static void load(im_request *r)
{
    im_engine *e = r->engine;
    if (r->load_tried || e->tier == NULL || !at_page(r) || im__reuse_waits(e, r)) return;
    r->load_tried = true;
    r->loading = im__tier_load_begin(e->tier, &r->load, &r->seq, r->ids, r->name, takeable_pages(r));
}

void im__reuse_collect(im_engine *e)
{
    im__tier_collect(e->tier);
    for (im_request *r = e->running; r != NULL; r = r->next) {
        if (!r->loading || r->load.busy) continue;
        r->loading = r->looked = false;
        count_taken(r, im__tier_load_end(e->tier, &r->load, &r->seq) * IM__PAGE);
        im__prefix_end_of_turn(e->prefix, &r->seq, r->seq.length);
    }
}

static void take_pages(im_request *r)
{
    if (!at_page(r)) return;
    size_t before = r->seq.length;
    im__prefix_found found = im__prefix_attach(r->engine->prefix, &r->seq, r->ids, r->name, takeable_pages(r));
    if (!r->looked || r->seq.length > before) {
        r->miss = found.miss;
        r->branch = found.pages * IM__PAGE;
    }
    r->looked = true;
    count_taken(r, r->seq.length - before);
    /* What was of use once may be again: a system prompt that many texts begin with. */
    if (r->seq.length > before) im__prefix_end_of_turn(r->engine->prefix, &r->seq, r->seq.length);
}

/* Is `other` about to have the page of r's text that ends at position `end`? Only one that is further, or as far and before it in the list, so that nobody waits in a
 * circle. */
static bool computes(const im_request *other, bool before, const im_request *r, size_t end)
{
    const im__page_name *name = &r->name[end / IM__PAGE - 1], *own = other->name == NULL ? NULL : &other->name[end / IM__PAGE - 1];
    if (own == NULL || other->prompt < end || other->seq.length >= end) return false;
    if (other->seq.length < r->seq.length || (other->seq.length == r->seq.length && !before)) return false;
    return own->low == name->low && own->high == name->high && memcmp(other->ids, r->ids, end * sizeof *r->ids) == 0;
}

bool im__reuse_waits(const im_engine *e, const im_request *r)
{
    bool before = true;
    if (!at_page(r)) return false;
    for (const im_request *other = e->running; other != NULL; other = other->next) {
        if (other == r)
            before = false;
        else if (computes(other, before, r, r->seq.length + IM__PAGE))
            return true;
    }
    return false;
}

/* Whoever waits for the whole page does not want a part of it. */
static void take_part(im_request *r)
{
    im_engine *e = r->engine;
    if (!at_boundary(r) || im__reuse_waits(e, r)) return;
    im__prefix_part part = im__prefix_attach_part(e->prefix, &r->seq, r->ids, takeable(r));
    for (int k = 0; k < IM__POOLS; k++)
        if (part.from[k] >= 0) e->backend->page_copy(e->backend, (im__pool_kind)k, part.from[k], part.to[k]);
    count_taken(r, part.positions);
}

void im__reuse_take(im_request *r)
{
    if (r->loading) return;
    take_pages(r);
    load(r);
    if (!r->loading) take_part(r);
}

void im__reuse_give(im_request *r)
{
    size_t length = r->seq.length + r->in_step, full = length / IM__PAGE;
    if (!takes_part(r)) return;
    if (full > r->names) {
        im__page_names(r->ids, r->names, full, r->name);
        r->names = full;
    }
    im__prefix_name(r->engine->prefix, &r->seq, full, r->ids, r->name);
    if (r->branch > 0 && length >= r->branch) {
        im__prefix_end_of_turn(r->engine->prefix, &r->seq, r->branch);
        r->branch = 0;
    }
}

void im__reuse_end_of_prompt(im_request *r)
{
    im_engine *e = r->engine;
    size_t most = takeable_pages(r);
    im_cache_miss miss = !takes_part(r) ? IM_MISS_OFF : most == 0 ? IM_MISS_SHORT : r->miss;
    if (takes_part(r)) im__prefix_end_of_turn(e->prefix, &r->seq, r->prompt);
    if (r->is_companion) return;
    if (r->cached > 0) atomic_fetch_add(&e->counters.hits, 1);
    if (r->cached > 0 && r->cached / IM__PAGE == most) return;
    atomic_fetch_add(&e->counters.misses[miss], 1);
    if (e->prefix != NULL)
        im__log(e, IM_LOG_DEBUG, "prefix cache: %zu of %zu prompt tokens found; %s", r->cached, r->prompt,
                im_cache_miss_name(miss));
}

void im__reuse_leave(im_request *r)
{
    im_engine *e = r->engine;
    if (!takes_part(r) || r->prompt_done == 0) return;
    im__prefix_end_of_turn(e->prefix, &r->seq, r->seq.named * IM__PAGE);
    im__tier_store(e->tier, &r->seq, r->ids, r->name);
    im__prefix_leave_tail(e->prefix, &r->seq, r->ids);
}
