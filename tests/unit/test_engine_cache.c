/* SPDX-License-Identifier: Apache-2.0
 *
 * The prefix cache in the engine: the same bits with and without it, what is found and what is not, several requests that compute one prompt once, in models with
 * and without sliding windows.
 */
#include "engine_fixture.h"

#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { CONTEXT = 512, VOCABULARY = 389 };

static char windowed[64];

static im_engine *open_on(const char *path, const im_engine_options *o)
{
    im_engine *e = NULL;
    im_error err = {IM_OK, ""};
    if (im_engine_open(&e, path, o, &err) != IM_OK) fail_msg("%s", err.message);
    return e;
}

static im_engine_options with_cache(uint32_t chunk, uint32_t sequences, uint64_t bytes)
{
    im_engine_options o = sized(1, chunk, CONTEXT, sequences);
    o.cache_ram = bytes;
    return o;
}

/* ---- one request ------------------------------------------------------------------------------------------------------------------------ */

typedef struct answer {
    int32_t ids[CONTEXT];
    size_t count, cached;
    uint64_t hash;
} answer;

static im_request_options options_for(const int32_t *prompt, size_t n, uint32_t tokens)
{
    im_request_options o;
    im_request_options_defaults(&o);
    o.prompt = prompt;
    o.prompt_len = n;
    o.max_tokens = tokens;
    o.ignore_eos = true;
    return o;
}

static answer finish(im_request *r)
{
    im_result result;
    im_error err = {IM_OK, ""};
    answer a = {.count = 0};
    if (im_request_wait(r, &result, &err) != IM_OK) fail_msg("%s", err.message);
    a.count = result.count;
    a.cached = result.cached_tokens;
    a.hash = result.logits_hash;
    memcpy(a.ids, result.ids, result.count * sizeof *result.ids);
    im_request_free(r);
    return a;
}

static im_request *submit(im_engine *e, const im_request_options *o)
{
    im_request *r = NULL;
    im_error err = {IM_OK, ""};
    if (im_request_submit(e, o, &r, &err) != IM_OK) fail_msg("%s", err.message);
    return r;
}

static answer ask(im_engine *e, const int32_t *prompt, size_t n, uint32_t tokens)
{
    im_request_options o = options_for(prompt, n, tokens);
    return finish(submit(e, &o));
}

static void same(const answer *a, const answer *b)
{
    assert_true(a->hash == b->hash && a->count == b->count);
    assert_memory_equal(a->ids, b->ids, a->count * sizeof *a->ids);
}

/* ---- what is found ---------------------------------------------------------------------------------------------------------------------- */

/* A prompt, the same again, edited, a next turn: each as without a cache. */
static void turns(const char *path, uint32_t chunk)
{
    im_engine_options cached = with_cache(chunk, 2, 64 << 20), bare = sized(1, 64, CONTEXT, 2);
    im_engine *e = open_on(path, &cached), *plain = open_on(path, &bare);
    int32_t text[CONTEXT], edited[CONTEXT];
    make_prompt(text, 200, 1, VOCABULARY);
    answer first = ask(e, text, 200, 30), want = ask(plain, text, 200, 30), again = ask(e, text, 200, 30);
    same(&first, &want);
    same(&again, &want);
    assert_true(first.cached == 0 && again.cached == 192); /* seven more are not worth a copy */
    memcpy(edited, text, sizeof edited);
    edited[150] ^= 1;
    answer other = ask(e, edited, 200, 30), want_other = ask(plain, edited, 200, 30);
    same(&other, &want_other);
    assert_int_equal(other.cached, 150);
    /* The answer is part of the next prompt: 229 of its positions were computed. */
    memcpy(text + 200, first.ids, 30 * sizeof *text);
    make_prompt(text + 230, 100, 9, VOCABULARY);
    answer next = ask(e, text, 330, 5), want_next = ask(plain, text, 330, 5);
    same(&next, &want_next);
    assert_int_equal(next.cached, 229);
    make_prompt(text + 230, 90, 10, VOCABULARY);
    memcpy(text + 320, next.ids, 5 * sizeof *text);
    answer longer = ask(e, text, 325, 100), want_longer = ask(plain, text, 325, 100);
    same(&longer, &want_longer);
    memcpy(text + 325, longer.ids, 100 * sizeof *text);
    answer last = ask(e, text, 425, 3), want_last = ask(plain, text, 425, 3);
    same(&last, &want_last);
    assert_int_equal(last.cached, 424); /* with pages that were filled by an answer */
    im_engine_close(e);
    im_engine_close(plain);
}

static void turns_of_a_conversation(void **state)
{
    (void)state;
    turns(TINY_MODEL, 64);
    turns(TINY_MODEL, 50);
    turns(windowed, 64);
    turns(windowed, 300);
}

static void prompts_of_any_length(void **state)
{
    (void)state;
    im_engine_options cached = with_cache(100, 1, 64 << 20), bare = sized(1, 64, CONTEXT, 1);
    int32_t text[CONTEXT];
    make_prompt(text, CONTEXT, 1, VOCABULARY);
    for (int m = 0; m < 2; m++) {
        im_engine *e = open_on(m == 0 ? TINY_MODEL : windowed, &cached), *plain = open_on(m == 0 ? TINY_MODEL : windowed, &bare);
        for (size_t n = 1; n < CONTEXT; n += n < 200 ? 9 : 31) {
            answer a = ask(e, text, n, 3), want = ask(plain, text, n, 3), b = ask(e, text, n, 3);
            same(&a, &want);
            same(&b, &want);
            assert_int_equal(b.cached, (n - 1) % 64 < 8 ? (n - 1) / 64 * 64 : n - 1); /* the last token is always computed */
        }
        im_engine_close(e);
        im_engine_close(plain);
    }
}

static void who_does_not_want_it(void **state)
{
    (void)state;
    im_engine_options cached = with_cache(64, 4, 64 << 20);
    im_engine *e = open_tiny(&cached);
    int32_t text[CONTEXT];
    im_engine_stats s;
    make_prompt(text, 200, 1, VOCABULARY);
    im_request_options o = options_for(text, 200, 3);
    o.no_cache = true;
    answer first = finish(submit(e, &o)), second = ask(e, text, 200, 3), third = finish(submit(e, &o));
    assert_true(first.cached == 0 && second.cached == 0 && third.cached == 0);
    same(&first, &second);
    same(&first, &third);
    im_engine_get_stats(e, &s);
    assert_true(s.cache_misses[IM_MISS_OFF] == 2 && s.cache_misses[IM_MISS_NEW] == 1 && s.cache_hits == 0);
    o.no_cache = false;
    o.neighbours = 3;
    answer fourth = finish(submit(e, &o));
    same(&first, &fourth);
    assert_int_equal(fourth.cached, 192);
    ask(e, text, 8, 1);
    im_engine_get_stats(e, &s);
    assert_true(s.cache_hits == 1 && s.cached_tokens == 192 && s.prompt_tokens == 808 && s.cache_misses[IM_MISS_SHORT] == 1);
    assert_true(s.kv_pages_running == 0 && s.kv_pages_cached == 4);
    im_engine_close(e);
}

typedef struct lines {
    char text[4000];
} lines;

static void hear_line(void *user, im_log_level level, const char *line)
{
    lines *l = user;
    assert_int_equal(level, IM_LOG_DEBUG);
    strcat(strcat(l->text, line), "\n");
}

static void misses_have_reasons(void **state)
{
    (void)state;
    static lines l;
    im_engine_options cached = with_cache(64, 1, 64 << 20);
    int32_t text[CONTEXT];
    cached.log = hear_line;
    cached.log_user = &l;
    im_engine *e = open_tiny(&cached);
    make_prompt(text, 300, 1, VOCABULARY);
    ask(e, text, 200, 1);
    ask(e, text, 300, 1);
    ask(e, text, 8, 1);
    im_engine_close(e);
    assert_non_null(strstr(l.text, "0 of 200 prompt tokens found; new\n"));
    assert_non_null(strstr(l.text, "200 of 300 prompt tokens found; diverged\n"));
    assert_non_null(strstr(l.text, "0 of 8 prompt tokens found; short\n"));
}

/* Texts that part anywhere: each goes on in a copy of the page in which it parts, whether that was filled by a prompt or an answer, is full or not. */
static void texts_part_in_the_middle_of_pages(void **state)
{
    (void)state;
    im_engine_options cached = with_cache(100, 1, 64 << 20), bare = sized(1, 64, CONTEXT, 1);
    int32_t text[CONTEXT], other[CONTEXT];
    for (int m = 0; m < 2; m++) {
        im_engine *e = open_on(m == 0 ? TINY_MODEL : windowed, &cached), *plain = open_on(m == 0 ? TINY_MODEL : windowed, &bare);
        make_prompt(text, 180, 1, VOCABULARY);
        answer first = ask(e, text, 180, 60);
        memcpy(text + 180, first.ids, 60 * sizeof *text);
        for (size_t same_until = 8; same_until < 240; same_until += 11) {
            memcpy(other, text, sizeof other);
            for (size_t i = same_until; i < 300; i++) other[i] = (text[i % 240] + 1 + (int32_t)same_until) % VOCABULARY;
            answer a = ask(e, other, 300, 4), want = ask(plain, other, 300, 4);
            same(&a, &want);
            assert_int_equal(a.cached, same_until < 239 && same_until % 64 < 8 ? same_until / 64 * 64 : same_until);
        }
        im_engine_close(e);
        im_engine_close(plain);
    }
}

/* Far more texts than fit; the right answer whatever is left of them. */
static void little_memory(void **state)
{
    (void)state;
    static const uint64_t bytes[] = {1, 60 << 10, 400 << 10};
    for (int m = 0; m < 2; m++) {
        im_engine_options bare = sized(1, 64, CONTEXT, 1);
        im_engine *plain = open_on(m == 0 ? TINY_MODEL : windowed, &bare);
        for (size_t i = 0; i < 3; i++) {
            im_engine_options cached = with_cache(64, 2, bytes[i]);
            im_engine *e = open_on(m == 0 ? TINY_MODEL : windowed, &cached);
            for (uint32_t k = 0; k < 14; k++) {
                int32_t text[CONTEXT];
                make_prompt(text, 300, k * k % 7, VOCABULARY);
                make_prompt(text + 200, 100, k % 3, VOCABULARY);
                answer a = ask(e, text, 150 + k * 10, 2), want = ask(plain, text, 150 + k * 10, 2);
                same(&a, &want);
            }
            im_engine_close(e);
        }
        im_engine_close(plain);
    }
}

/* ---- several at once -------------------------------------------------------------------------------------------------------------------- */

/* A gate in the first token's callback holds the engine's thread. */
typedef struct gate {
    sem_t entered, leave;
} gate;

static bool at_token(void *user, const im_token_event *event)
{
    gate *g = user;
    if (event->index > 0) return true;
    sem_post(&g->entered);
    sem_wait(&g->leave);
    return true;
}

static im_request *hold(im_engine *e, gate *g)
{
    static const int32_t prompt[] = {1, 2, 3};
    im_request_options o = options_for(prompt, 3, 2);
    sem_init(&g->entered, 0, 0);
    sem_init(&g->leave, 0, 0);
    o.on_token = at_token;
    o.user = g;
    im_request *r = submit(e, &o);
    sem_wait(&g->entered);
    return r;
}

/* Four branches of a prompt and four texts with one beginning, all submitted at the same time: each page is computed once. Part of the first one is known: nobody but the
 * first takes that in place of the whole page. */
static void at_once(const char *path, uint32_t chunk)
{
    enum { N = 8 };
    im_engine_options cached = with_cache(chunk, N + 1, 64 << 20), bare = sized(1, 64, CONTEXT, 1);
    im_engine *e = open_on(path, &cached), *plain = open_on(path, &bare);
    static int32_t text[N][CONTEXT];
    im_request *r[N];
    gate g;
    im_engine_stats s;
    make_prompt(text[0], 300, 1, VOCABULARY);
    make_prompt(text[0] + 40, 100, 2, VOCABULARY);
    ask(e, text[0], 100, 1);
    im_request *held = hold(e, &g);
    for (size_t i = 0; i < N; i++) {
        make_prompt(text[i], 300, 1, VOCABULARY);
        if (i >= 4) make_prompt(text[i] + 256, 40, (uint32_t)i, VOCABULARY);
        im_request_options o = options_for(text[i], 300, 20);
        o.sampling = (im_sampling){.temperature = i % 2 == 0 ? 0 : 1, .top_p = 1, .seed = i};
        r[i] = submit(e, &o);
    }
    sem_post(&g.leave);
    for (size_t i = 0; i < N; i++) {
        im_request_options o = options_for(text[i], 300, 20);
        o.sampling = (im_sampling){.temperature = i % 2 == 0 ? 0 : 1, .top_p = 1, .seed = i};
        answer got = finish(r[i]), want = finish(submit(plain, &o));
        same(&got, &want);
        assert_int_equal(got.cached, i == 0 ? 40 : 256);
    }
    im_request_free(held);
    im_engine_get_stats(e, &s);
    assert_int_equal(s.prompt_tokens - s.cached_tokens, 100 + 3 + 300 - 40 + 7 * (300 - 256));
    assert_int_equal(s.kv_pages_running, 0);
    im_engine_close(e);
    im_engine_close(plain);
}

static void a_prompt_is_computed_once(void **state)
{
    (void)state;
    at_once(TINY_MODEL, 256);
    at_once(TINY_MODEL, 40);
    at_once(TINY_MODEL, 512); /* with room for two of them in a step */
    at_once(windowed, 256);
    at_once(windowed, 30);
}

static void cancel_at_chunk(void *user, size_t done, size_t total)
{
    (void)total;
    if (done >= 100) im_request_cancel(*(im_request **)user);
}

/* Who computes for others goes; they go on. */
static void the_first_one_is_cancelled(void **state)
{
    (void)state;
    im_engine_options cached = with_cache(32, 5, 64 << 20), bare = sized(1, 64, CONTEXT, 1);
    im_engine *e = open_on(windowed, &cached), *plain = open_on(windowed, &bare);
    int32_t text[CONTEXT];
    gate g;
    make_prompt(text, 300, 1, VOCABULARY);
    im_request *held = hold(e, &g), *r[4], *first = NULL;
    im_request_options o = options_for(text, 300, 10), watched = o;
    watched.on_prompt = cancel_at_chunk;
    watched.user = &first;
    first = submit(e, &watched);
    for (int i = 0; i < 4; i++) r[i] = submit(e, &o);
    sem_post(&g.leave);
    answer want = ask(plain, text, 300, 10);
    assert_int_equal(im_request_wait(first, NULL, NULL), IM_ERR_CANCELLED);
    for (int i = 0; i < 4; i++) {
        answer got = finish(r[i]);
        same(&got, &want);
        assert_true(got.cached >= 64);
    }
    im_request_free(first);
    im_request_free(held);
    im_engine_close(e);
    im_engine_close(plain);
}

/* ---- a limit of positions --------------------------------------------------------------------------------------------------------------- */

typedef struct presence {
    int now, most;
} presence;

static bool come_and_go(void *user, const im_token_event *event)
{
    presence *p = user;
    if (event->index == 0) p->now++;
    if (p->now > p->most) p->most = p->now;
    if (event->index == 156) p->now--;
    return true;
}

static void requests_wait_for_pages(void **state)
{
    (void)state;
    im_engine_options o = sized(1, 64, CONTEXT, 8);
    int32_t text[CONTEXT];
    o.kv_tokens = 640;
    o.cache_ram = 1 << 20;
    im_engine *e = open_tiny(&o);
    im_request *r[6], *refused = NULL;
    im_error err;
    presence at = {.now = 0};
    gate g;
    im_request *held = hold(e, &g); /* a page */
    make_prompt(text, 500, 1, VOCABULARY);
    for (int i = 0; i < 6; i++) {
        im_request_options each = options_for(text, 100 + (size_t)i, 157); /* 4 pages, or 5 */
        each.on_token = come_and_go;
        each.user = &at;
        r[i] = submit(e, &each);
    }
    sem_post(&g.leave);
    for (int i = 0; i < 6; i++) assert_int_equal(finish(r[i]).count, 157);
    assert_true(at.now == 0 && at.most == 2);
    im_request_free(held);
    im_engine_close(e);
    o.kv_tokens = 300; /* 5 pages */
    e = open_tiny(&o);
    im_request_options whole = options_for(text, 200, 121), more = options_for(text, 200, 122);
    assert_int_equal(finish(submit(e, &whole)).count, 121);
    assert_int_equal(im_request_submit(e, &more, &refused, &err), IM_ERR_MEMORY);
    assert_null(refused);
    assert_non_null(strstr(err.message, "6 KV pages"));
    assert_non_null(strstr(err.message, "has 5"));
    whole.neighbours = 1;
    assert_int_equal(im_request_submit(e, &whole, &refused, &err), IM_ERR_MEMORY);
    im_engine_close(e);
}

static void the_plan_counts_it(void **state)
{
    (void)state;
    im_model *m;
    im_memory_plan whole, part, cached;
    im_engine_options o = sized(1, 64, 512, 32);
    assert_int_equal(im_model_open(&m, TINY_MODEL, NULL, NULL), IM_OK);
    assert_int_equal(im_engine_plan(m, &o, &whole, NULL), IM_OK);
    o.kv_tokens = 1024;
    assert_int_equal(im_engine_plan(m, &o, &part, NULL), IM_OK);
    o.cache_ram = 1 << 20;
    assert_int_equal(im_engine_plan(m, &o, &cached, NULL), IM_OK);
    assert_int_equal(whole.kv, 32 * 512 * whole.kv_bytes_per_token);
    assert_int_equal(part.kv, 1024 * part.kv_bytes_per_token);
    assert_true(cached.kv > part.kv + (1 << 20) * 9 / 10 && cached.kv <= part.kv + (1 << 20) && cached.workspace > part.workspace);
    im_model_close(m);
}

/* ---- steps ------------------------------------------------------------------------------------------------------------------------------ */

typedef struct watch {
    gate gate;       /* at the first token of the answer that runs */
    unsigned tokens; /* of it */
    unsigned at_end; /* how many there were when the other's prompt was done */
} watch;

static bool count(void *user, const im_token_event *event)
{
    watch *w = user;
    w->tokens++;
    return at_token(&w->gate, event);
}

static bool note(void *user, const im_token_event *event)
{
    watch *w = user;
    if (event->index == 0) w->at_end = w->tokens;
    return true;
}

/* With a budget too small for anything a prompt comes in pieces: of 16 rows at first, and even where more of them seem to cost nothing at most twice as many each time.
 * The answer beside it gets a token with each. */
static void a_long_prompt_does_not_hold_up_answers(void **state)
{
    (void)state;
    static const int32_t start[] = {1};
    im_engine_options o = sized(2, 512, CONTEXT, 2);
    int32_t text[CONTEXT];
    watch w = {.at_end = 0};
    o.max_step_ms = 1e-6;
    im_engine *e = open_tiny(&o);
    make_prompt(text, 320, 1, VOCABULARY);
    im_request_options running = options_for(start, 1, 500), prompt = options_for(text, 320, 1);
    running.on_token = count;
    prompt.on_token = note;
    running.user = prompt.user = &w;
    sem_init(&w.gate.entered, 0, 0);
    sem_init(&w.gate.leave, 0, 0);
    im_request *a = submit(e, &running), *b;
    sem_wait(&w.gate.entered);
    b = submit(e, &prompt);
    sem_post(&w.gate.leave);
    answer got = finish(b);
    assert_true(w.at_end >= 5);
    im_request_cancel(a);
    im_request_free(a);
    im_engine_close(e);
    im_engine_options bare = sized(1, 64, CONTEXT, 1);
    e = open_tiny(&bare);
    answer want = ask(e, text, 320, 1);
    same(&got, &want);
    im_engine_close(e);
}

typedef struct race {
    atomic_uint finished;
    unsigned place[2];
} race;

typedef struct runner {
    race *race;
    int who;
} runner;

static bool arrive(void *user, const im_token_event *event)
{
    runner *r = user;
    (void)event;
    r->race->place[r->who] = atomic_fetch_add(&r->race->finished, 1);
    return true;
}

/* A short prompt that comes behind a long one is done before it. */
static void a_short_prompt_overtakes(void **state)
{
    (void)state;
    im_engine_options o = sized(2, 64, CONTEXT, 3);
    im_engine *e = open_tiny(&o);
    int32_t text[CONTEXT];
    gate g;
    race order = {.finished = 0};
    runner runners[2] = {{&order, 0}, {&order, 1}};
    make_prompt(text, 500, 1, VOCABULARY);
    im_request *held = hold(e, &g), *r[2];
    for (int i = 0; i < 2; i++) {
        im_request_options each = options_for(text + i, i == 0 ? 500 : 40, 1);
        each.on_token = arrive;
        each.user = &runners[i];
        r[i] = submit(e, &each);
    }
    sem_post(&g.leave);
    for (int i = 0; i < 2; i++) finish(r[i]);
    assert_true(order.place[1] < order.place[0]);
    im_request_free(held);
    im_engine_close(e);
}

/* ---- many threads ----------------------------------------------------------------------------------------------------------------------- */

typedef struct client {
    im_engine *engine;
    uint32_t seed;
    const uint64_t *want;
    atomic_int *wrong;
} client;

enum { TEXTS = 6, TEXT = 180 };

static void text_of(int32_t *text, uint32_t which)
{
    make_prompt(text, TEXT, which % 2, VOCABULARY);
    make_prompt(text + 100, TEXT - 100, which, VOCABULARY);
}

static uint32_t next_random(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

static void *use(void *given)
{
    client *c = given;
    int32_t text[TEXT];
    for (int i = 0; i < 15; i++) {
        im_result result;
        uint32_t which = next_random(&c->seed) % TEXTS;
        text_of(text, which);
        im_request_options o = options_for(text, TEXT, 8);
        o.no_cache = next_random(&c->seed) % 8 == 0;
        o.client = c->seed % 3;
        im_request *r = submit(c->engine, &o);
        if (next_random(&c->seed) % 4 == 0) {
            usleep(next_random(&c->seed) % 3000);
            im_request_cancel(r);
        }
        im_status status = im_request_wait(r, &result, NULL);
        if (status != IM_ERR_CANCELLED && (status != IM_OK || result.logits_hash != c->want[which])) atomic_fetch_add(c->wrong, 1);
        im_request_free(r);
    }
    return NULL;
}

static void soak(const char *path, uint64_t bytes)
{
    enum { CLIENTS = 6 };
    im_engine_options o = with_cache(48, 4, bytes);
    im_engine_stats s;
    int32_t text[TEXT];
    uint64_t want[TEXTS];
    atomic_int wrong = 0;
    client c[CLIENTS];
    pthread_t thread[CLIENTS];
    o.max_step_ms = 1;
    o.threads = 2;
    im_engine *e = open_on(path, &o);
    for (uint32_t i = 0; i < TEXTS; i++) {
        text_of(text, i);
        im_request_options each = options_for(text, TEXT, 8);
        each.no_cache = true;
        want[i] = finish(submit(e, &each)).hash;
    }
    for (uint32_t i = 0; i < CLIENTS; i++) {
        c[i] = (client){e, i, want, &wrong};
        assert_int_equal(pthread_create(&thread[i], NULL, use, &c[i]), 0);
    }
    for (int i = 0; i < 20; i++) {
        im_engine_get_stats(e, &s);
        usleep(1000);
    }
    for (int i = 0; i < CLIENTS; i++) pthread_join(thread[i], NULL);
    im_engine_get_stats(e, &s);
    assert_true(s.running == 0 && s.queued == 0 && s.kv_pages_running == 0 && s.kv_pages_cached <= s.kv_pages);
    assert_int_equal(atomic_load(&wrong), 0);
    im_engine_close(e);
}

static void many_threads_at_once(void **state)
{
    (void)state;
    soak(TINY_MODEL, 32 << 10);
    soak(TINY_MODEL, 4 << 20);
    soak(windowed, 400 << 10);
    soak(windowed, 8 << 20);
}

static int set_up(void **state)
{
    (void)state;
    make_windowed_model(windowed, 100);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    return unlink(windowed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(turns_of_a_conversation),
        cmocka_unit_test(prompts_of_any_length),
        cmocka_unit_test(texts_part_in_the_middle_of_pages),
        cmocka_unit_test(who_does_not_want_it),
        cmocka_unit_test(misses_have_reasons),
        cmocka_unit_test(little_memory),
        cmocka_unit_test(a_prompt_is_computed_once),
        cmocka_unit_test(the_first_one_is_cancelled),
        cmocka_unit_test(requests_wait_for_pages),
        cmocka_unit_test(the_plan_counts_it),
        cmocka_unit_test(a_long_prompt_does_not_hold_up_answers),
        cmocka_unit_test(a_short_prompt_overtakes),
        cmocka_unit_test(many_threads_at_once),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
