/* SPDX-License-Identifier: Apache-2.0
 *
 * The loop: admit requests, build a step from what each of them needs next, run it, hand out the logits.
 */
#include "engine/internal.h"

#include "base/machine.h"

#include <string.h>

/* ---- admission ------------------------------------------------------------------------------------------------------------------ */

void im__request_append(im_request **list, im_request *r)
{
    while (*list != NULL) list = &(*list)->next;
    r->next = NULL;
    *list = r;
}

/* Moves queued requests to the running ones while there is room. Under the lock. */
static void admit(im_engine *e)
{
    while (e->queue != NULL && e->running_count < e->options.max_sequences) {
        im_request *r = e->queue;
        e->queue = r->next;
        im__request_append(&e->running, r);
        e->running_count++;
        r->started = im__now_ms();
    }
}

static void leave(im_engine *e, im_request *r)
{
    im_request **at = &e->running;
    while (*at != r) at = &(*at)->next;
    *at = r->next;
    e->running_count--;
}

/* Ends a running request: its pages go back first, so that whoever waits finds the engine free. */
static void retire(im_engine *e, im_request *r, im_status status, const im_error *error)
{
    if (r->seq_open) im__kv_seq_free(&e->kv, &r->seq);
    r->seq_open = false;
    pthread_mutex_lock(&e->lock);
    leave(e, r);
    pthread_mutex_unlock(&e->lock);
    im__request_end(r, status, error);
}

/* Takes the requests out of the queue that were cancelled before they began, or all. Under the lock; returns them as a list. */
static im_request *take_cancelled(im_engine *e, bool all)
{
    im_request *taken = NULL;
    for (im_request **at = &e->queue; *at != NULL;) {
        im_request *r = *at;
        if (all || atomic_load(&r->cancelled)) {
            *at = r->next;
            im__request_append(&taken, r);
        } else {
            at = &r->next;
        }
    }
    return taken;
}

static void retire_cancelled(im_engine *e, bool all)
{
    for (im_request *r = e->running, *next; r != NULL; r = next) {
        im_error error = {IM_ERR_CANCELLED, "cancelled"};
        next = r->next;
        if (all || atomic_load(&r->cancelled)) retire(e, r, IM_ERR_CANCELLED, &error);
    }
}

static void open_sequences(im_engine *e)
{
    for (im_request *r = e->running, *next; r != NULL; r = next) {
        im_error error = {IM_OK, ""};
        next = r->next;
        if (r->seq_open) continue;
        if (im__kv_seq_new(&r->seq, &e->kv, &error) == IM_OK)
            r->seq_open = true;
        else
            retire(e, r, error.status, &error);
    }
}

/* ---- building a step --------------------------------------------------------------------------------------------------------------- */

typedef struct building {
    size_t rows, members, logits, prompt_left; /* prompt rows that this step may still take */
} building;

static void add_rows(im_engine *e, building *b, im_request *r, size_t n)
{
    size_t first = r->seq.length;
    for (size_t i = 0; i < n; i++) {
        bool wants = r->kind == IM__REQUEST_SCORE || first + i + 1 == r->known;
        e->row[b->rows++] = (im__row){
            .token = r->ids[first + i], .position = (int32_t)(first + i), .seq = (uint32_t)b->members, .wants_logits = wants};
        b->logits += wants;
    }
    for (int k = 0; k < IM__POOLS; k++) e->tables[b->members].pages[k] = r->seq.table[k];
    e->member[b->members++] = r;
    r->in_step = n;
}

/* Rows that a request takes part with: one when it decodes, a piece of its prompt otherwise; 0: not in this step. A text that is scored leaves a row of
 * logits to each request that is not placed yet. */
static size_t rows_for(const im_engine *e, const building *b, const im_request *r)
{
    size_t pending = r->known - r->seq.length, behind = e->running_count - b->members - 1;
    size_t room = e->max_logit_rows - b->logits - behind;
    if (pending == 1) return 1;
    size_t n = pending < b->prompt_left ? pending : b->prompt_left;
    return r->kind == IM__REQUEST_SCORE && n > room ? room : n;
}

static building build(im_engine *e)
{
    building b = {.prompt_left = e->options.chunk};
    for (im_request *r = e->running, *next; r != NULL; r = next) {
        next = r->next;
        size_t n = rows_for(e, &b, r);
        r->in_step = 0;
        if (n == 0) continue;
        if (!im__kv_reserve(&e->kv, &r->seq, (uint32_t)n)) {
            im_error error;
            im__fail(&error, IM_ERR_INTERNAL, "the KV cache is exhausted although it was planned for");
            retire(e, r, IM_ERR_INTERNAL, &error);
            continue;
        }
        if (r->known - r->seq.length > 1) b.prompt_left -= n;
        add_rows(e, &b, r, n);
    }
    return b;
}

/* ---- after a step ------------------------------------------------------------------------------------------------------------------ */

static size_t logit_rows(const im_request *r, size_t first)
{
    if (r->kind == IM__REQUEST_SCORE) return r->in_step;
    return first + r->in_step == r->known ? 1 : 0;
}

/* Hands its logits to a request; ends it when that was the last of it. */
static void take(im_engine *e, im_request *r, const float *logits, size_t first)
{
    if (r->kind == IM__REQUEST_SCORE) {
        im__score_take_logits(r, logits, first, r->in_step);
        if (r->status == IM_OK && r->seq.length < r->known) return;
    } else {
        if (logit_rows(r, first) == 0) return;
        if (r->prompt_done == 0) r->prompt_done = im__now_ms();
        im__request_take_logits(r, logits);
        if (r->status == IM_OK && r->stop_reason == IM_STOP_NONE) return;
    }
    retire(e, r, r->status, &r->error);
}

static void deliver(im_engine *e, const building *b)
{
    const float *logits = e->logits;
    for (size_t m = 0; m < b->members; m++) {
        im_request *r = e->member[m];
        size_t first = r->seq.length, n = logit_rows(r, first);
        im__kv_advance(&e->kv, &r->seq, (uint32_t)r->in_step);
        if (!atomic_load(&r->cancelled)) { /* who has cancelled hears no more of it */
            if (r->on_prompt != NULL && first < r->prompt) r->on_prompt(r->user, r->seq.length, r->prompt);
            take(e, r, logits, first);
        }
        logits += n * e->model->program.vocab;
    }
}

static void fail_all(im_engine *e, const building *b, im_status status, const im_error *error)
{
    for (size_t m = 0; m < b->members; m++) retire(e, e->member[m], status, error);
}

static void run_step(im_engine *e)
{
    im_error error = {IM_OK, ""};
    building b = build(e);
    if (b.rows == 0) return;
    im__step step = {.row = e->row,
                     .rows = b.rows,
                     .seq = e->tables,
                     .seqs = b.members,
                     .logits = e->logits,
                     /* one request alone may stop in the middle of a step; with others beside it, it leaves after the step */
                     .cancel = b.members == 1 ? &e->member[0]->cancelled : &e->abandon};
    im_status status = e->backend->run(e->backend, &step, &error);
    if (status == IM_OK)
        deliver(e, &b);
    else
        fail_all(e, &b, status, &error);
}

/* ---- the thread ----------------------------------------------------------------------------------------------------------------------- */

/* Waits for work; false when the engine closes. Queued requests that were cancelled end, of a closing engine all. */
static bool wait_for_work(im_engine *e)
{
    pthread_mutex_lock(&e->lock);
    while (!e->closing && e->queue == NULL && e->running == NULL) pthread_cond_wait(&e->wake, &e->lock);
    bool closing = e->closing;
    im_request *dropped = take_cancelled(e, closing);
    admit(e);
    pthread_mutex_unlock(&e->lock);
    for (im_request *next; dropped != NULL; dropped = next) {
        im_error error = {IM_ERR_CANCELLED, "cancelled"};
        next = dropped->next;
        im__request_end(dropped, IM_ERR_CANCELLED, &error);
    }
    return !closing;
}

void *im__engine_main(void *engine)
{
    im_engine *e = engine;
    bool open = true;
    while (open) {
        open = wait_for_work(e);
        retire_cancelled(e, !open);
        if (!open) break;
        open_sequences(e);
        run_step(e);
    }
    return NULL;
}
