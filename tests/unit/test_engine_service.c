/* SPDX-License-Identifier: Apache-2.0
 *
 * What a server asks of an engine: log-probabilities, penalties and bias, deadlines, a bounded and fair queue, the end callback, counts.
 */
#include "base/machine.h"
#include "engine_fixture.h"

#include <math.h>
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

enum { CONTEXT = 512, VOCABULARY = 389 };

static im_request_options plain(uint32_t tokens)
{
    im_request_options o;
    im_request_options_defaults(&o);
    o.max_tokens = tokens;
    o.ignore_eos = true;
    return o;
}

static im_engine *engine_for(uint32_t sequences, uint32_t max_queue)
{
    im_engine_options o = sized(2, 32, CONTEXT, sequences);
    o.max_queue = max_queue;
    return open_tiny(&o);
}

/* ---- log-probabilities ------------------------------------------------------------------------------------------------------------------ */

typedef struct weights {
    size_t count, top_count;
    float logprob[64];
    im_top_token top[64][20];
    int32_t id[64];
    bool wrong;
} weights;

/* The top list by a sort of all: falling, the lowest id first among equals. */
static size_t rank_of(const float *logits, size_t n, int32_t id)
{
    size_t rank = 0;
    for (size_t i = 0; i < n; i++) rank += logits[i] > logits[id] || (logits[i] == logits[id] && (int32_t)i < id);
    return rank;
}

static bool weigh(void *user, const im_token_event *event)
{
    weights *w = user;
    w->wrong |= event->top_count != w->top_count || w->count >= 64;
    for (size_t i = 0; i < event->top_count; i++) {
        w->wrong |= rank_of(event->logits, event->vocabulary, event->top[i].id) != i;
        w->wrong |= event->top[i].id == event->id && event->top[i].logprob != event->logprob;
        w->top[w->count][i] = event->top[i];
    }
    w->id[w->count] = event->id;
    w->logprob[w->count++] = event->logprob;
    return true;
}

static void check_weights(im_engine *e, im_request_options o, uint32_t top)
{
    weights w = {.top_count = top};
    int32_t text[50];
    float logprob[49], best[49];
    o.want_logits = o.want_logprobs = true;
    o.top_logprobs = top;
    o.on_token = weigh;
    o.user = &w;
    im_request *r = submit_prompt(e, 20, 3, o);
    assert_int_equal(im_request_wait(r, NULL, NULL), IM_OK);
    assert_true(!w.wrong && w.count == 30);
    make_prompt(text, 20, 3, VOCABULARY);
    memcpy(text + 20, w.id, 30 * sizeof *text);
    assert_int_equal(im_engine_score(e, text, 50, logprob, NULL, best, NULL, NULL, NULL), IM_OK);
    assert_memory_equal(w.logprob, logprob + 19, 30 * sizeof *logprob);
    for (size_t i = 0; top > 0 && i < 30; i++) assert_true(w.top[i][0].logprob == best[19 + i]);
    im_request_free(r);
}

static void log_probabilities_are_those_of_a_score(void **state)
{
    (void)state;
    im_engine *e = engine_for(1, 0);
    im_request_options o = plain(30);
    check_weights(e, o, 0);
    check_weights(e, o, 5);
    o.sampling = (im_sampling){.temperature = 2, .top_p = 1, .seed = 5};
    check_weights(e, o, 1);
    check_weights(e, o, 20);
    im_engine_close(e);
}

static bool no_weights(void *user, const im_token_event *event)
{
    *(bool *)user |= event->top_count != 0 || event->logprob != 0;
    return true;
}

static void log_probabilities_only_when_wanted(void **state)
{
    (void)state;
    im_engine *e = engine_for(1, 0);
    bool any = false;
    im_request *r;
    im_request_options o = plain(5);
    o.top_logprobs = 21;
    o.on_token = no_weights;
    o.user = &any;
    r = submit_prompt(e, 5, 1, o);
    assert_int_equal(im_request_wait(r, NULL, NULL), IM_OK);
    assert_false(any);
    im_request_free(r);
    im_engine_close(e);
}

/* ---- penalties and bias ------------------------------------------------------------------------------------------------------------------ */

static im_result answer(im_engine *e, im_request_options o, im_request **r)
{
    im_result result;
    im_error err = {IM_OK, ""};
    *r = submit_prompt(e, 10, 3, o);
    if (im_request_wait(*r, &result, &err) != IM_OK) fail_msg("%s", err.message);
    return result;
}

static void bias_excludes_and_forces(void **state)
{
    (void)state;
    im_engine *e = engine_for(1, 0);
    im_request *first, *second;
    im_request_options o = plain(20);
    im_result usual = answer(e, o, &first);
    im_logit_bias bias[2] = {{usual.ids[0], -100}, {usual.ids[7], 100}};
    o.sampling.bias = bias;
    o.sampling.bias_count = 1;
    im_result without = answer(e, o, &second);
    for (size_t i = 0; i < without.count; i++) assert_int_not_equal(without.ids[i], usual.ids[0]);
    im_request_free(second);
    o.sampling.bias_count = 2;
    im_result always = answer(e, o, &second);
    for (size_t i = 0; i < always.count; i++) assert_int_equal(always.ids[i], usual.ids[7]);
    im_request_free(second);
    bias[0].bias = 0; /* nothing changes */
    o.sampling.bias_count = 1;
    im_result same = answer(e, o, &second);
    assert_true(same.logits_hash == usual.logits_hash);
    im_request_free(second);
    im_request_free(first);
    im_engine_close(e);
}

/* What is shown are the model's own logits: a forced answer has the same hash under any penalties. */
static void penalties_do_not_touch_what_is_shown(void **state)
{
    (void)state;
    static const int32_t forced[20] = {7, 7, 7, 9, 9, 11};
    im_engine *e = engine_for(1, 0);
    im_request *first, *second;
    im_request_options o = plain(20);
    o.forced = forced;
    o.forced_len = 20;
    im_result usual = answer(e, o, &first);
    o.sampling.repetition_penalty = 3;
    o.sampling.presence_penalty = o.sampling.frequency_penalty = 2;
    im_result with = answer(e, o, &second);
    assert_true(usual.logits_hash == with.logits_hash);
    im_request_free(second);
    im_request_free(first);
    im_engine_close(e);
}

static size_t distinct(const im_result *r)
{
    size_t n = 0;
    for (size_t i = 0; i < r->count; i++) {
        size_t k = 0;
        while (r->ids[k] != r->ids[i]) k++;
        n += k == i;
    }
    return n;
}

static void penalties_make_new_tokens(void **state)
{
    (void)state;
    im_engine *e = engine_for(1, 0);
    im_request *first, *second, *third;
    im_request_options o = plain(100);
    im_result usual = answer(e, o, &first);
    o.sampling.repetition_penalty = 100;
    im_result repeated = answer(e, o, &second);
    o.sampling.repetition_penalty = 1;
    o.sampling.frequency_penalty = o.sampling.presence_penalty = 2;
    im_result counted = answer(e, o, &third);
    assert_true(distinct(&repeated) > distinct(&usual) && distinct(&counted) > distinct(&usual));
    im_request_free(first);
    im_request_free(second);
    im_request_free(third);
    im_engine_close(e);
}

static void refuse(im_engine *e, im_request_options o, const char *word)
{
    static const int32_t prompt[] = {1, 2};
    im_request *r = NULL;
    im_error err = {IM_OK, ""};
    o.prompt = prompt;
    o.prompt_len = 2;
    assert_int_equal(im_request_submit(e, &o, &r, &err), IM_ERR_ARGUMENT);
    assert_null(r);
    if (strstr(err.message, word) == NULL) fail_msg("%s", err.message);
}

static void what_cannot_be_is_refused(void **state)
{
    (void)state;
    im_engine *e = engine_for(1, 0);
    static im_logit_bias all[VOCABULARY];
    im_logit_bias high = {VOCABULARY, 0}, low = {-1, 0}, much = {1, 101}, nan = {1, NAN};
    im_request_options ok = plain(1), o;
    o = ok, o.deadline_ms = -1, refuse(e, o, "deadline");
    o = ok, o.deadline_ms = NAN, refuse(e, o, "deadline");
    o = ok, o.want_logprobs = true, o.top_logprobs = 21, refuse(e, o, "21");
    o = ok, o.sampling.repetition_penalty = -1, refuse(e, o, "repetition_penalty");
    o = ok, o.sampling.repetition_penalty = NAN, refuse(e, o, "repetition_penalty");
    o = ok, o.sampling.frequency_penalty = 2.5f, refuse(e, o, "frequency_penalty");
    o = ok, o.sampling.presence_penalty = -2.5f, refuse(e, o, "presence_penalty");
    ok.sampling.bias_count = 1;
    refuse(e, ok, "NULL");
    o = ok, o.sampling.bias = &high, refuse(e, o, "389");
    o = ok, o.sampling.bias = &low, refuse(e, o, "-1");
    o = ok, o.sampling.bias = &much, refuse(e, o, "101");
    o = ok, o.sampling.bias = &nan, refuse(e, o, "bias");
    o = ok, o.sampling.bias = all, o.sampling.bias_count = VOCABULARY, refuse(e, o, "389");
    im_engine_close(e);
}

/* ---- the end ---------------------------------------------------------------------------------------------------------------------------- */

typedef struct ending {
    sem_t over;
    atomic_int calls;
    im_request *request; /* asked for its result from within, when not NULL */
    im_status status;
} ending;

static void at_end(void *user)
{
    ending *n = user;
    atomic_fetch_add(&n->calls, 1);
    if (n->request != NULL) n->status = im_request_wait(n->request, NULL, NULL);
    sem_post(&n->over);
}

static void the_end_is_heard_once(void **state)
{
    (void)state;
    im_engine *e = engine_for(1, 0);
    for (int i = 0; i < 50; i++) {
        ending n = {.calls = 0};
        sem_init(&n.over, 0, 0);
        im_request_options o = plain(1 + (uint32_t)i % 3);
        o.on_end = at_end;
        o.user = &n;
        im_request *r = submit_prompt(e, 3, 1, o);
        if (i % 5 == 0) im_request_cancel(r);
        if (i % 2 == 0) sem_wait(&n.over);
        if (i % 3 == 0) im_request_wait(r, NULL, NULL);
        im_request_free(r);
        assert_int_equal(atomic_load(&n.calls), 1); /* whoever waited waited for it too */
        sem_destroy(&n.over);
    }
    im_engine_close(e);
}

/* A gate in the first token's callback holds the engine's thread. */
typedef struct gate {
    sem_t entered, leave;
    ending end;
} gate;

static bool at_token(void *user, const im_token_event *event)
{
    gate *g = user;
    if (event->index > 0) return true;
    sem_post(&g->entered);
    sem_wait(&g->leave);
    return true;
}

static void gate_end(void *user) { at_end(&((gate *)user)->end); }

static im_request *hold(im_engine *e, gate *g, im_request_options o)
{
    memset(g, 0, sizeof *g);
    sem_init(&g->entered, 0, 0);
    sem_init(&g->leave, 0, 0);
    sem_init(&g->end.over, 0, 0);
    o.on_token = at_token;
    o.on_end = gate_end;
    o.user = g;
    im_request *r = submit_prompt(e, 4, 1, o);
    sem_wait(&g->entered);
    return r;
}

static void the_end_may_ask_for_the_result(void **state)
{
    (void)state;
    im_engine *e = engine_for(1, 0);
    gate g;
    im_request *r = hold(e, &g, plain(3));
    g.end.request = r;
    g.end.status = IM_ERR_INTERNAL;
    sem_post(&g.leave);
    sem_wait(&g.end.over);
    assert_int_equal(im_request_wait(r, NULL, NULL), IM_OK);
    assert_int_equal(g.end.status, IM_OK);
    im_request_free(r);
    im_engine_close(e);
}

static void the_end_of_a_closing_engine(void **state)
{
    (void)state;
    im_engine *e = engine_for(1, 0);
    gate g;
    ending n = {.calls = 0};
    sem_init(&n.over, 0, 0);
    im_request *running = hold(e, &g, plain(100));
    im_request_options o = plain(3);
    o.on_end = at_end;
    o.user = &n;
    im_request *queued = submit_prompt(e, 3, 1, o);
    sem_post(&g.leave);
    im_engine_close(e);
    assert_true(atomic_load(&n.calls) == 1 && atomic_load(&g.end.calls) == 1);
    im_request_free(running);
    im_request_free(queued);
}

static void nap(long milliseconds) { nanosleep(&(struct timespec){.tv_nsec = milliseconds * 1000000}, NULL); }

/* ---- deadlines -------------------------------------------------------------------------------------------------------------------------- */

static void a_deadline_keeps_what_there_is(void **state)
{
    (void)state;
    im_engine *e = engine_for(1, 0);
    gate g;
    im_result result;
    im_error err;
    im_request_options o = plain(500);
    o.deadline_ms = 1500;
    im_request *r = hold(e, &g, o);
    double began = im__now_ms();
    while (im__now_ms() - began < 1505) nap(10);
    sem_post(&g.leave);
    assert_int_equal(im_request_wait(r, &result, &err), IM_ERR_TIMEOUT);
    assert_int_equal(result.count, 1);
    assert_non_null(strstr(err.message, "1500 ms"));
    im_request_free(r);
    o.deadline_ms = 1e9;
    o.max_tokens = 3;
    r = submit_prompt(e, 4, 1, o);
    assert_int_equal(im_request_wait(r, &result, &err), IM_OK);
    im_request_free(r);
    im_engine_close(e);
}

static void a_deadline_in_the_queue(void **state)
{
    (void)state;
    im_engine *e = engine_for(1, 0);
    gate g;
    im_result result;
    im_engine_stats stats;
    im_request_options o = plain(5);
    im_request *running = hold(e, &g, plain(3));
    o.deadline_ms = 1e-3;
    im_request *queued = submit_prompt(e, 4, 1, o);
    sem_post(&g.leave);
    assert_int_equal(im_request_wait(queued, &result, NULL), IM_ERR_TIMEOUT);
    assert_int_equal(result.count, 0);
    assert_int_equal(im_request_wait(running, NULL, NULL), IM_OK);
    im_engine_get_stats(e, &stats);
    assert_true(stats.timed_out == 1 && stats.finished == 1 && stats.submitted == 2);
    im_request_free(queued);
    im_request_free(running);
    im_engine_close(e);
}

/* ---- the queue -------------------------------------------------------------------------------------------------------------------------- */

static void a_full_queue_says_so(void **state)
{
    (void)state;
    static const int32_t prompt[] = {1};
    im_engine *e = engine_for(2, 2);
    gate g;
    im_error err;
    im_request *r[4], *refused = NULL;
    im_request_options o = plain(2);
    im_engine_stats stats;
    r[0] = hold(e, &g, plain(3));
    for (int i = 1; i < 4; i++) r[i] = submit_prompt(e, 2, 1, o); /* one that will find a place, two that wait */
    o.prompt = prompt;
    o.prompt_len = 1;
    assert_int_equal(im_request_submit(e, &o, &refused, &err), IM_ERR_BUSY);
    assert_null(refused);
    im_engine_get_stats(e, &stats);
    assert_true(stats.queued == 3 && stats.running == 1 && stats.submitted == 4);
    sem_post(&g.leave);
    for (int i = 0; i < 4; i++) assert_int_equal(im_request_wait(r[i], NULL, NULL), IM_OK);
    assert_int_equal(im_request_submit(e, &o, &refused, &err), IM_OK);
    im_request_free(refused);
    for (int i = 0; i < 4; i++) im_request_free(r[i]);
    im_engine_close(e);
}

typedef struct order {
    uint64_t client[16];
    size_t count;
} order;

typedef struct turn {
    order *order;
    uint64_t client;
} turn;

static bool note_turn(void *user, const im_token_event *event)
{
    turn *t = user;
    (void)event;
    t->order->client[t->order->count++] = t->client;
    return true;
}

/* One place; while it is held client 1 queues five requests, then 2 three, then 3 one. */
static void clients_take_turns(void **state)
{
    (void)state;
    static const uint64_t queued[] = {1, 1, 1, 1, 1, 2, 2, 2, 3}, want[] = {2, 3, 1, 2, 1, 2, 1, 1, 1};
    enum { N = sizeof queued / sizeof *queued };
    im_engine *e = engine_for(1, 0);
    gate g;
    order o = {.count = 0};
    turn t[N];
    im_request *r[N];
    im_request_options options = plain(1);
    options.client = 1;
    im_request *held = hold(e, &g, options); /* so client 1 has had its turn */
    options.on_token = note_turn;
    for (size_t i = 0; i < N; i++) {
        t[i] = (turn){&o, queued[i]};
        options.client = queued[i];
        options.user = &t[i];
        r[i] = submit_prompt(e, 2, 1, options);
    }
    sem_post(&g.leave);
    for (size_t i = 0; i < N; i++) im_request_free((im_request_wait(r[i], NULL, NULL), r[i]));
    assert_int_equal(o.count, N);
    for (size_t i = 0; i < N; i++) assert_int_equal(o.client[i], want[i]);
    im_request_free(held);
    im_engine_close(e);
}

/* ---- counts ------------------------------------------------------------------------------------------------------------------------------ */

static void counts_are_right(void **state)
{
    (void)state;
    im_engine *e = engine_for(4, 0);
    im_engine_stats s;
    im_request_options o = plain(7);
    o.neighbours = 3; /* not counted */
    im_request *r = submit_prompt(e, 100, 1, o);
    assert_int_equal(im_request_wait(r, NULL, NULL), IM_OK);
    im_request_free(r);
    im_engine_get_stats(e, &s);
    assert_true(s.submitted == 1 && s.finished == 1 && s.cancelled == 0 && s.failed == 0);
    assert_true(s.prompt_tokens == 100 && s.cached_tokens == 0 && s.generated_tokens == 7);
    assert_true(s.steps >= 10 && s.longest_step_ms > 0 && s.queued == 0 && s.running == 0 && s.step_ms == 0);
    r = submit_prompt(e, 10, 1, plain(400));
    im_request_cancel(r);
    im_request_free(r);
    im_engine_get_stats(e, &s);
    assert_true(s.submitted == 2 && s.cancelled == 1);
    im_engine_close(e);
}

static void the_same_engine_has_the_same_fingerprint(void **state)
{
    (void)state;
    char name[32];
    for (int i = 0; i < 3; i++) {
        im_engine_info info;
        im_engine *e = engine_for(i < 2 ? 1 : 2, 0);
        im_engine_get_info(e, &info);
        assert_int_equal(strlen(info.fingerprint), 19);
        assert_memory_equal(info.fingerprint, "im-", 3);
        if (i == 0) strcpy(name, info.fingerprint);
        if (i == 1) assert_string_equal(name, info.fingerprint);
        if (i == 2) assert_string_not_equal(name, info.fingerprint); /* another plan */
        im_engine_close(e);
    }
}

static void names_of_numbers(void **state)
{
    (void)state;
    assert_string_equal(im_status_name(IM_ERR_TIMEOUT), "timeout");
    assert_string_equal(im_status_name(IM_ERR_BUSY), "busy");
    assert_string_equal(im_cache_miss_name(IM_MISS_OFF), "off");
    assert_string_equal(im_cache_miss_name(IM_MISS_WINDOW), "window");
    assert_string_equal(im_cache_miss_name(IM_MISS_KINDS), "unknown");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(log_probabilities_are_those_of_a_score),
        cmocka_unit_test(log_probabilities_only_when_wanted),
        cmocka_unit_test(bias_excludes_and_forces),
        cmocka_unit_test(penalties_do_not_touch_what_is_shown),
        cmocka_unit_test(penalties_make_new_tokens),
        cmocka_unit_test(what_cannot_be_is_refused),
        cmocka_unit_test(the_end_is_heard_once),
        cmocka_unit_test(the_end_may_ask_for_the_result),
        cmocka_unit_test(the_end_of_a_closing_engine),
        cmocka_unit_test(a_deadline_keeps_what_there_is),
        cmocka_unit_test(a_deadline_in_the_queue),
        cmocka_unit_test(a_full_queue_says_so),
        cmocka_unit_test(clients_take_turns),
        cmocka_unit_test(counts_are_right),
        cmocka_unit_test(the_same_engine_has_the_same_fingerprint),
        cmocka_unit_test(names_of_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
