/* SPDX-License-Identifier: Apache-2.0 */
#include "verify.h"

#include <errno.h>
#include <semaphore.h>
#include <string.h>

static const char who[] = "verify";

/* One request, and what its callback writes: the engine's thread fills it in, which is done with it when im_request_wait returns. */
typedef struct watch {
    verify_prompt *prompt;
    bool is_reference;
    verify_difference difference;
    im_request *request;
} watch;

/* ---- the callback ------------------------------------------------------------------------------------------------------------------------ */

static uint32_t bits(const float *x)
{
    uint32_t u;
    memcpy(&u, x, sizeof u);
    return u;
}

static void locate(verify_difference *d, uint32_t step, const float *got, const float *want, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (bits(got + i) == bits(want + i)) continue;
        *d = (verify_difference){.found = true, .step = step, .row = (uint32_t)i, .got = bits(got + i), .want = bits(want + i)};
        return;
    }
}

/* All bits of every step are held against the reference while they are there, so that also a difference that does not come again is found in its place. */
static bool on_token(void *user, const im_token_event *event)
{
    watch *w = user;
    size_t bytes = event->vocabulary * sizeof(float);
    if (event->index >= w->prompt->tokens) return false;
    float *reference = w->prompt->logits + (size_t)event->index * event->vocabulary;
    if (w->is_reference)
        memcpy(reference, event->logits, bytes);
    else if (!w->difference.found && memcmp(reference, event->logits, bytes) != 0)
        locate(&w->difference, event->index, event->logits, reference, event->vocabulary);
    return true;
}

/* ---- one request -------------------------------------------------------------------------------------------------------------------------- */

static im_status submit(im_engine *e, watch *w, const verify_arm *arm, im_error *err)
{
    im_request_options o;
    im_request_options_defaults(&o);
    o.prompt = w->prompt->ids;
    o.prompt_len = w->prompt->n;
    o.max_tokens = w->prompt->tokens;
    o.ignore_eos = true;
    o.want_logits = !arm->tokens_only;
    o.no_hash = arm->tokens_only;
    o.no_cache = !arm->warm;
    o.neighbours = arm->beside ? 0 : arm->batch - 1;
    o.on_token = arm->tokens_only ? NULL : on_token;
    o.user = w;
    return im_request_submit(e, &o, &w->request, err);
}

static void keep_reference(verify_prompt *p, const im_result *r)
{
    p->hash = r->logits_hash;
    memcpy(p->answer, r->ids, r->count * sizeof *p->answer);
}

/* Tokens follow from the logits, so they can only differ alone where they were chosen in another way. */
static void compare_ids(verify_difference *d, const verify_prompt *p, const im_result *r)
{
    for (uint32_t i = 0; i < p->tokens && !d->found; i++) {
        int32_t got = i < r->count ? r->ids[i] : -1;
        if (got == p->answer[i]) continue;
        *d = (verify_difference){.found = true, .ids = true, .step = i, .got = (uint32_t)got, .want = (uint32_t)p->answer[i]};
    }
}

static void judge(const watch *w, const im_result *r, verify_outcome *out)
{
    verify_difference d = w->difference;
    compare_ids(&d, w->prompt, r);
    if (out->ran && !out->same) return;
    out->ran = true;
    out->same = !d.found;
    out->difference = d;
    out->hash = r->logits_hash;
    out->cached = r->cached_tokens;
    out->tokens_per_s = r->generate_ms > 0 ? (double)(r->count - 1) * 1e3 / r->generate_ms : 0;
}

static im_status finish(watch *w, verify_outcome *out, im_error *err)
{
    im_result r;
    interrupt_set(w->request);
    im_status status = im_request_wait(w->request, &r, err);
    interrupt_clear();
    if (status == IM_OK && interrupted()) status = IM_ERR_CANCELLED; /* it was done already, but what follows is not wanted */
    if (status != IM_OK) return status;
    if (w->is_reference) keep_reference(w->prompt, &r);
    judge(w, &r, out);
    return IM_OK;
}

/* ---- many -------------------------------------------------------------------------------------------------------------------------------------- */

/* A request that stands in the engine's way until all others are queued, so that they begin in the same step: without it the first of them might be done before the
 * last one is there. */
typedef struct gate {
    sem_t reached, open;
    im_request *request;
} gate;

static void pass(sem_t *s)
{
    while (sem_wait(s) != 0 && errno == EINTR) continue;
}

static bool on_gate(void *user, const im_token_event *event)
{
    gate *g = user;
    (void)event;
    sem_post(&g->reached);
    pass(&g->open);
    return true;
}

static void on_gate_end(void *user)
{
    gate *g = user;
    sem_post(&g->reached); /* it may have failed before its token */
}

static im_status gate_close(gate *g, im_engine *e, const verify_prompts *prompts, im_error *err)
{
    im_request_options o;
    im_request_options_defaults(&o);
    o.prompt = prompts->item[0].ids;
    o.prompt_len = o.max_tokens = 1;
    o.no_hash = o.no_cache = true;
    o.on_token = on_gate;
    o.on_end = on_gate_end;
    o.user = g;
    sem_init(&g->reached, 0, 0);
    sem_init(&g->open, 0, 0);
    im_status status = im_request_submit(e, &o, &g->request, err);
    if (status == IM_OK) pass(&g->reached);
    return status;
}

static void gate_open(gate *g)
{
    sem_post(&g->open);
    im_request_free(g->request);
    sem_destroy(&g->reached);
    sem_destroy(&g->open);
}

static im_status submit_all(im_engine *e, const verify_arm *arm, watch *w, size_t count, const verify_prompts *prompts,
                            im_error *err)
{
    gate g = {.request = NULL};
    im_status status = count > 1 ? gate_close(&g, e, prompts, err) : IM_OK;
    for (size_t i = 0; i < count && status == IM_OK; i++) status = submit(e, &w[i], arm, err);
    if (count > 1) gate_open(&g);
    return status;
}

/* Waits for each and frees them; those behind one that failed are cancelled. outcome: [prompts->count]. */
static int run_together(im_engine *e, const verify_arm *arm, watch *w, size_t count, const verify_prompts *prompts,
                        verify_outcome *outcome)
{
    im_error err;
    im_status status = submit_all(e, arm, w, count, prompts, &err);
    for (size_t i = 0; i < count && status == IM_OK; i++) status = finish(&w[i], &outcome[w[i].prompt - prompts->item], &err);
    for (size_t i = 0; i < count; i++) im_request_cancel(w[i].request);
    for (size_t i = 0; i < count; i++) im_request_free(w[i].request);
    if (status == IM_OK) return EXIT_DONE;
    return status == IM_ERR_CANCELLED && interrupted() ? EXIT_INTERRUPTED : say_failed(who, &err);
}

/* Several requests at once: the prompts in turn, as often as the batch has room. */
static int run_beside(im_engine *e, const verify_arm *arm, verify_prompts *prompts, verify_outcome *outcome)
{
    watch w[VERIFY_MOST_SEQUENCES] = {{0}};
    size_t count = 0;
    while (count < (size_t)arm->batch)
        for (size_t i = 0; i < prompts->count && count < (size_t)arm->batch; i++)
            if (prompts->item[i].n <= arm->most) w[count++].prompt = &prompts->item[i];
    return run_together(e, arm, w, count, prompts, outcome);
}

static int run_one_by_one(im_engine *e, const verify_arm *arm, verify_prompts *prompts, bool is_reference, verify_outcome *outcome)
{
    for (size_t i = 0; i < prompts->count; i++) {
        watch w = {.prompt = &prompts->item[i], .is_reference = is_reference};
        int code = w.prompt->n > arm->most ? EXIT_DONE : run_together(e, arm, &w, 1, prompts, outcome);
        if (code != EXIT_DONE) return code;
    }
    return EXIT_DONE;
}

static int run_once(im_engine *e, const verify_arm *arm, verify_prompts *prompts, bool is_reference, verify_outcome *outcome)
{
    memset(outcome, 0, prompts->count * sizeof *outcome);
    return arm->beside ? run_beside(e, arm, prompts, outcome) : run_one_by_one(e, arm, prompts, is_reference, outcome);
}

/* An arm with a warm cache runs twice: what the first run leaves behind is what the second one finds. A difference in the first one is not passed over. */
int verify_run(im_engine *e, const verify_arm *arm, verify_prompts *prompts, bool is_reference, verify_outcome *outcome)
{
    verify_outcome first[VERIFY_MOST_PROMPTS] = {{0}};
    int code = arm->warm ? run_once(e, arm, prompts, false, first) : EXIT_DONE;
    if (code == EXIT_DONE) code = run_once(e, arm, prompts, is_reference, outcome);
    for (size_t i = 0; i < prompts->count && code == EXIT_DONE; i++)
        if (first[i].ran && !first[i].same) outcome[i] = first[i];
    return code;
}
