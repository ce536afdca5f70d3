/* SPDX-License-Identifier: Apache-2.0
 *
 * Who takes part in the next step with how many rows. Every request that waits for its next token has its row. Prompts share what room is left: most of it goes to the
 * oldest, so that the first of them is done soon; a part to the one with least left, so that a short newcomer does not wait behind a long one. Everybody gets on:
 * the oldest always, and who is younger becomes it.
 */
#include "engine/internal.h"

enum { PARTS = 4, MOST_CHAINED = 16 };

static size_t pending(const im_request *r) { return r->known - r->seq.length; }
static bool decodes(const im_request *r) { return pending(r) == 1 && !r->loading; }

typedef struct sharing {
    size_t rows;   /* prompt rows that this step may still take */
    size_t logits; /* rows of logits that nobody has a right to */
} sharing;

/* A row of logits belongs to each request, so that a text that is scored never takes another's. */
static void give(sharing *s, im_request *r, size_t most)
{
    size_t n = pending(r) - r->in_step;
    if (n > most) n = most;
    if (n > s->rows) n = s->rows;
    if (r->kind == IM__REQUEST_SCORE) {
        size_t right = r->in_step == 0 ? 1 : 0;
        if (n > s->logits + right) n = s->logits + right;
        if (n > right) s->logits -= n - right;
    }
    r->in_step += n;
    s->rows -= n;
}

/* Reads a prompt and is not waiting for somebody else to compute it. */
static bool reads(const im_engine *e, const im_request *r) { return !decodes(r) && !r->loading && !im__reuse_waits(e, r); }

static im_request *with_least_left(const im_engine *e)
{
    im_request *best = NULL;
    for (im_request *r = e->running; r != NULL; r = r->next)
        if ((best == NULL || pending(r) < pending(best)) && reads(e, r)) best = r;
    return best;
}

static size_t prompt_room(const im_engine *e, bool somebody_decodes)
{
    size_t chunk = e->options.chunk;
    if (!somebody_decodes || e->options.max_step_ms == 0) return chunk;
    size_t rows = im__pace_rows(&e->pace, e->options.max_step_ms);
    return rows < chunk ? rows : chunk;
}

/* The part of a small room is the whole of it, every so many steps. */
static size_t part_of(const im_engine *e, size_t room)
{
    if (room >= PARTS * IM__PACE_TILE) return room / PARTS / IM__PACE_TILE * IM__PACE_TILE;
    return atomic_load_explicit(&e->counters.steps, memory_order_relaxed) % PARTS == 0 ? room : 0;
}

static void share(im_engine *e, bool somebody_decodes)
{
    sharing s = {.rows = prompt_room(e, somebody_decodes), .logits = e->max_logit_rows - e->running_count};
    im_request *shortest = with_least_left(e);
    if (shortest == NULL) return;
    give(&s, shortest, part_of(e, s.rows));
    for (im_request *r = e->running; r != NULL && s.rows > 0; r = r->next)
        if (reads(e, r)) give(&s, r, s.rows);
}

void im__schedule(im_engine *e)
{
    bool somebody_decodes = false;
    for (im_request *r = e->running; r != NULL; r = r->next) {
        im__reuse_take(r);
        r->in_step = decodes(r) ? 1 : 0;
        somebody_decodes |= decodes(r);
    }
    share(e, somebody_decodes);
}

/* ---- tokens chosen one after the other ---------------------------------------------------------------------------------------------- */

static size_t least(size_t a, size_t b) { return a < b ? a : b; }

/* Nobody but the backend needs to look at its tokens: there is no hash, no drawing, nothing forced. What ends an answer is found afterwards; what follows it was in vain. */
static bool goes_by_itself(const im_request *r)
{
    return r->in_step == 1 && r->kind == IM__REQUEST_GENERATE && decodes(r) && r->known > r->prompt &&
           !im__request_needs_logits(r) && r->known - r->prompt >= r->forced_len;
}

static bool anybody_waits(im_engine *e)
{
    pthread_mutex_lock(&e->lock);
    bool waits = e->queue != NULL || e->closing;
    pthread_mutex_unlock(&e->lock);
    return waits;
}

/* The first tokens come one or two at a time, later ones up to twice as many as there are already. */
uint32_t im__schedule_chain(im_engine *e)
{
    const im_request *r = e->running;
    if (!e->backend->chooses || r == NULL || r->next != NULL || !goes_by_itself(r) || anybody_waits(e)) return 0;
    double one = im__pace_decode(&e->pace), budget = e->chain_ms;
    if (e->options.max_step_ms > 0 && e->options.max_step_ms < budget) budget = e->options.max_step_ms;
    size_t n = least(MOST_CHAINED, least(2 * (r->known - r->prompt), r->capacity - r->known));
    n = least(n, least(e->max_logit_rows, e->options.chunk));
    n = one > 0 ? least(n, (size_t)(budget / one)) : 0;
    return n > 1 ? (uint32_t)n - 1 : 0;
}
