/* SPDX-License-Identifier: Apache-2.0
 *
 * The loop: admit requests, build a step from what each of them needs next, run it, hand out the logits.
 */
#include "engine/internal.h"

#include "base/machine.h"

#include <string.h>

/* ---- admission ------------------------------------------------------------------------------------------------------------------ */

static void leave(im_engine *e, im_request *r)
{
    im_request **at = &e->running;
    while (*at != r) at = &(*at)->next;
    *at = r->next;
    e->running_count--;
    e->pages_promised -= r->pages;
}

/* Ends a running request: its pages go back first, so that whoever waits finds the engine free. */
static void retire(im_engine *e, im_request *r, im_status status, const im_error *error)
{
    if (r->seq_open) {
        im__reuse_leave(r);
        im__kv_seq_free(&e->kv, &r->seq);
        im__count_pages(e);
    }
    r->seq_open = false;
    pthread_mutex_lock(&e->lock);
    leave(e, r);
    pthread_mutex_unlock(&e->lock);
    im__request_end(r, status, error);
}

/* Ends the running requests that are over, or all; those whose pages are being loaded when the disk has let go of them. */
static void retire_over(im_engine *e, bool all)
{
    double now = im__now_ms();
    for (im_request *r = e->running, *next; r != NULL; r = next) {
        im_error error = {IM_ERR_CANCELLED, "cancelled"};
        next = r->next;
        im_status status = im__request_over(r, now, &error);
        if (status == IM_OK && !all) continue;
        if (r->loading)
            atomic_store(&r->load.job.cancel, true);
        else
            retire(e, r, error.status, &error);
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
    size_t rows, members;
} building;

static void add_rows(im_engine *e, building *b, im_request *r, size_t n)
{
    size_t first = r->seq.length;
    for (size_t i = 0; i < n; i++) {
        bool wants = r->kind == IM__REQUEST_SCORE || first + i + 1 == r->known;
        e->row[b->rows++] = (im__row){
            .token = r->ids[first + i], .position = (int32_t)(first + i), .seq = (uint32_t)b->members, .wants_logits = wants};
    }
    for (int k = 0; k < IM__POOLS; k++) e->tables[b->members].pages[k] = r->seq.table[k];
    e->member[b->members++] = r;
}

/* `ahead`: positions behind the rows that get pages as well. */
static building build(im_engine *e, uint32_t ahead)
{
    building b = {0};
    for (im_request *r = e->running, *next; r != NULL; r = next) {
        next = r->next;
        if (r->in_step == 0) continue;
        if (im__kv_reserve(&e->kv, &r->seq, (uint32_t)r->in_step + ahead)) {
            add_rows(e, &b, r, r->in_step);
        } else {
            im_error error;
            im__fail(&error, IM_ERR_INTERNAL, "the KV cache is exhausted although it was planned for");
            retire(e, r, IM_ERR_INTERNAL, &error);
        }
    }
    im__count_pages(e);
    return b;
}

/* ---- after a step ------------------------------------------------------------------------------------------------------------------ */

static size_t logit_rows(const im_request *r, size_t first)
{
    if (r->kind == IM__REQUEST_SCORE) return r->in_step;
    return first + r->in_step == r->known ? 1 : 0;
}

/* Hands its logits to a request; ends it when that was the last of it, and is false then. */
static bool take(im_engine *e, im_request *r, const float *logits, const int32_t *choice, size_t first)
{
    if (r->kind == IM__REQUEST_SCORE) {
        im__score_take_logits(r, logits, first, r->in_step);
        if (r->status == IM_OK && r->seq.length < r->known) return true;
    } else {
        if (logit_rows(r, first) == 0) return true;
        if (r->prompt_done == 0) {
            r->prompt_done = im__now_ms();
            im__reuse_end_of_prompt(r);
        }
        im__request_take_logits(r, logits, choice);
        if (r->status == IM_OK && r->stop_reason == IM_STOP_NONE) return true;
    }
    retire(e, r, r->status, &r->error);
    return false;
}

static void count_prompt(im_engine *e, const im_request *r, size_t first)
{
    size_t from = first < r->again ? r->again : first, end = r->seq.length < r->prompt ? r->seq.length : r->prompt;
    size_t n = from < end ? end - from : 0;
    if (!r->is_companion) atomic_fetch_add_explicit(&e->counters.prompt_tokens, n, memory_order_relaxed);
}

/* The rows of a request were computed; false: it hears no more of this step. */
static bool hand_over(im_engine *e, im_request *r, const float *logits, const int32_t *choice)
{
    size_t first = r->seq.length;
    im__reuse_give(r);
    im__kv_advance(&e->kv, &r->seq, (uint32_t)r->in_step);
    count_prompt(e, r, first);
    if (atomic_load(&r->cancelled)) return false; /* who has cancelled hears no more of it */
    if (r->on_prompt != NULL && first < r->prompt) r->on_prompt(r->user, r->seq.length, r->prompt);
    return take(e, r, logits, choice, first);
}

/* `chained`: rows behind the only one, each with the token that the one before it has chosen. */
static void deliver(im_engine *e, const building *b, uint32_t chained)
{
    const float *logits = e->logits;
    const int32_t *choice = e->backend->chooses ? e->choice : NULL;
    for (size_t m = 0; m < b->members; m++) {
        im_request *r = e->member[m];
        size_t n = logit_rows(r, r->seq.length);
        bool goes_on = hand_over(e, r, logits, choice);
        for (uint32_t i = 0; i < chained && goes_on; i++) goes_on = hand_over(e, r, logits, ++choice);
        logits += n * e->model->program.vocab;
        if (choice != NULL) choice += n;
    }
}

static void fail_all(im_engine *e, const building *b, im_status status, const im_error *error)
{
    for (size_t m = 0; m < b->members; m++) retire(e, e->member[m], status, error);
}

static im_status compute(im_engine *e, const im__step *step, size_t prompt_rows, im_error *err)
{
    double began = im__now_ms();
    atomic_store(&e->counters.step_began, began);
    im_status status = e->backend->run(e->backend, step, err);
    double took = im__now_ms() - began;
    atomic_store(&e->counters.step_began, 0);
    if (took > atomic_load(&e->counters.longest_step)) atomic_store(&e->counters.longest_step, took);
    uint32_t steps = 1 + *step->chained;
    atomic_fetch_add_explicit(&e->counters.steps, steps, memory_order_relaxed);
    if (status == IM_OK) im__pace_note(&e->pace, step->rows - prompt_rows, prompt_rows, took / steps);
    return status;
}

static bool needs_logits(const im_engine *e, const building *b)
{
    for (size_t m = 0; m < b->members; m++) {
        const im_request *r = e->member[m];
        if (logit_rows(r, r->seq.length) > 0 && im__request_needs_logits(r)) return true;
    }
    return false;
}

static void run_step(im_engine *e)
{
    im_error error = {IM_OK, ""};
    im__schedule(e);
    uint32_t chain = im__schedule_chain(e), chained = 0;
    building b = build(e, chain);
    e->stalled = b.rows == 0 && e->running != NULL;
    if (b.rows == 0) return;
    size_t prompt_rows = 0;
    for (size_t i = 0; i < b.members; i++)
        if (e->member[i]->in_step > 1) prompt_rows += e->member[i]->in_step;
    im__step step = {.row = e->row,
                     .rows = b.rows,
                     .seq = e->tables,
                     .seqs = b.members,
                     .logits = e->logits,
                     .choice = e->backend->chooses ? e->choice : NULL,
                     .choice_only = !needs_logits(e, &b),
                     .chain = chain,
                     .chained = &chained,
                     /* one request alone may stop in the middle of a step; with others beside it, it leaves after the step */
                     .cancel = b.members == 1 ? &e->member[0]->cancelled : &e->abandon};
    im_status status = compute(e, &step, prompt_rows, &error);
    if (status == IM_OK)
        deliver(e, &b, chained);
    else if (status != IM_ERR_DEVICE || !im__engine_fall_back(e, &error))
        fail_all(e, &b, status, &error);
}

/* ---- between requests -------------------------------------------------------------------------------------------------------------- */

enum { PAGES_READY = 2 }; /* for a question and its answer */

static bool somebody_waits(im_engine *e)
{
    pthread_mutex_lock(&e->lock);
    bool waits = e->queue != NULL || e->closing;
    pthread_mutex_unlock(&e->lock);
    return waits;
}

/* The system gives memory when it is touched, which on a virtual machine may take longer than a step: the pages that the next turn of a conversation will need are touched while
 * nobody waits. */
static void make_pages_ready(im_engine *e)
{
    if (e->prefix == NULL || e->backend->page_touch == NULL) return;
    for (int k = 0; k < IM__POOLS; k++)
        for (int32_t page = 0; page >= 0 && !somebody_waits(e);) {
            page = im__kv_next_untouched(&e->kv, (im__pool_kind)k, PAGES_READY);
            if (page >= 0) e->backend->page_touch(e->backend, (im__pool_kind)k, page);
        }
}

/* ---- the thread ----------------------------------------------------------------------------------------------------------------------- */

/* Waits for work; false when the engine closes. Waiting requests that are over end, of a closing engine all. */
static bool wait_for_work(im_engine *e)
{
    pthread_mutex_lock(&e->lock);
    while (!e->closing && !e->look_again && (e->stalled || (e->queue == NULL && e->running == NULL)))
        pthread_cond_wait(&e->wake, &e->lock);
    e->look_again = false;
    bool closing = e->closing;
    im_request *over = im__queue_take_over(e, closing);
    im__queue_admit(e);
    pthread_mutex_unlock(&e->lock);
    for (im_request *next; over != NULL; over = next) {
        next = over->next;
        im__request_end(over, over->status, &over->error);
    }
    return !closing;
}

/* What is being loaded is given up, soon. */
static void close_down(im_engine *e)
{
    for (;;) {
        im__reuse_collect(e);
        retire_over(e, true);
        if (e->running == NULL) break;
        pthread_mutex_lock(&e->lock);
        while (!e->look_again) pthread_cond_wait(&e->wake, &e->lock);
        e->look_again = false;
        pthread_mutex_unlock(&e->lock);
    }
    im__tier_stop(e->tier);
}

void *im__engine_main(void *engine)
{
    im_engine *e = engine;
    while (wait_for_work(e)) {
        im__reuse_collect(e);
        retire_over(e, false);
        open_sequences(e);
        run_step(e);
        if (e->running == NULL) make_pages_ready(e);
    }
    close_down(e);
    return NULL;
}
