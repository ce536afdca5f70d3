/* SPDX-License-Identifier: Apache-2.0
 *
 * The engine on a small model: one answer under every way of computing it, edges of the context, what a callback sees, scoring, refusals.
 */
#include "engine_fixture.h"
#include "hostile_floats.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include <cmocka.h>

enum { CONTEXT = 512, VOCABULARY = 389 };

/* ---- one answer --------------------------------------------------------------------------------------------------------------------- */

static uint64_t hash_with(im_engine_options o, size_t prompt, uint32_t tokens, int neighbours)
{
    im_engine *e = open_tiny(&o);
    uint64_t hash = generate_hash(e, prompt, 7, tokens, neighbours);
    im_engine_close(e);
    return hash;
}

static void one_answer_whatever_the_chunk(void **state)
{
    (void)state;
    static const uint32_t chunks[] = {1, 7, 63, 64, 65, 200, 4096};
    uint64_t want = hash_with(sized(1, 256, CONTEXT, 1), 200, 5, 0);
    for (size_t i = 0; i < sizeof chunks / sizeof *chunks; i++)
        assert_true(hash_with(sized(1, chunks[i], CONTEXT, 1), 200, 5, 0) == want);
}

static void one_answer_whatever_the_threads(void **state)
{
    (void)state;
    static const int threads[] = {2, 3, 8, 33};
    uint64_t want = hash_with(sized(1, 50, CONTEXT, 1), 100, 8, 0);
    for (size_t i = 0; i < sizeof threads / sizeof *threads; i++)
        assert_true(hash_with(sized(threads[i], 50, CONTEXT, 1), 100, 8, 0) == want);
}

static void one_answer_at_every_level(void **state)
{
    (void)state;
    uint64_t want = hash_with(sized(2, 64, CONTEXT, 1), 100, 5, 0);
    for (const char *const *level = im_cpu_levels(); *level != NULL; level++) {
        im_engine_options o = sized(2, 64, CONTEXT, 1);
        im_engine_info info;
        o.cpu_level = *level;
        im_engine *e = open_tiny(&o);
        im_engine_get_info(e, &info);
        assert_string_equal(info.cpu_level, *level);
        assert_true(generate_hash(e, 100, 7, 5, 0) == want);
        im_engine_close(e);
    }
}

static void one_answer_beside_neighbours(void **state)
{
    (void)state;
    uint64_t want = hash_with(sized(2, 64, CONTEXT, 1), 100, 12, 0);
    for (int neighbours = 1; neighbours <= 7; neighbours += 3)
        assert_true(hash_with(sized(2, 16, CONTEXT, 8), 100, 12, neighbours) == want);
}

static uint64_t program_digest(void)
{
    im_model *model;
    im_model_info info;
    if (im_model_open(&model, TINY_MODEL, NULL, NULL) != IM_OK) return 0;
    im_model_get_info(model, &info);
    im_model_close(model);
    return info.program_digest;
}

/* A program may have set another rounding and flush-to-zero; the library computes as the contract says, and gives the caller's state back. */
static void one_answer_in_any_float_environment(void **state)
{
    (void)state;
    uint64_t want = hash_with(sized(2, 64, CONTEXT, 1), 60, 5, 0), want_digest = program_digest();
    hostile_floats();
    uint64_t hash = hash_with(sized(2, 64, CONTEXT, 1), 60, 5, 0), digest = program_digest();
    assert_int_equal(fegetround(), FE_DOWNWARD);
    friendly_floats();
    assert_true(hash == want && digest == want_digest && digest != 0);
}

static bool spoil_floats(void *user, const im_token_event *event)
{
    (void)user, (void)event;
    hostile_floats();
    return true;
}

/* Whatever a callback does to the engine's thread. */
static void one_answer_behind_any_callback(void **state)
{
    (void)state;
    im_engine_options sizes = sized(1, 64, CONTEXT, 1);
    im_request_options o;
    im_result result;
    im_request_options_defaults(&o);
    o.max_tokens = 5;
    o.ignore_eos = true;
    o.on_token = spoil_floats;
    im_engine *e = open_tiny(&sizes);
    im_request *r = submit_prompt(e, 60, 7, o);
    assert_int_equal(im_request_wait(r, &result, NULL), IM_OK);
    im_request_free(r);
    assert_true(result.logits_hash == generate_hash(e, 60, 7, 5, 0));
    im_engine_close(e);
}

/* Long prompts share steps, shorter ones are done first; nobody changes anybody's bits. */
static void several_requests_at_once(void **state)
{
    (void)state;
    static const size_t prompt[] = {300, 1, 65, 64, 200, 2};
    enum { REQUESTS = sizeof prompt / sizeof *prompt };
    im_engine_options alone = sized(2, 64, CONTEXT, 1), together = sized(3, 48, CONTEXT, 4);
    im_engine *one = open_tiny(&alone), *all = open_tiny(&together);
    im_request *request[REQUESTS];
    im_request_options o;
    im_request_options_defaults(&o);
    o.max_tokens = 6;
    o.ignore_eos = true;
    for (size_t i = 0; i < REQUESTS; i++) request[i] = submit_prompt(all, prompt[i], (uint32_t)i, o);
    for (size_t i = 0; i < REQUESTS; i++) {
        im_result result;
        assert_int_equal(im_request_wait(request[i], &result, NULL), IM_OK);
        assert_true(result.logits_hash == generate_hash(one, prompt[i], (uint32_t)i, 6, 0));
        im_request_free(request[i]);
    }
    im_engine_close(one);
    im_engine_close(all);
}

/* The seed decides alone: neither neighbours nor the requests before. */
static void a_seed_is_an_answer(void **state)
{
    (void)state;
    im_engine_options sizes = sized(2, 32, CONTEXT, 8);
    im_engine *e = open_tiny(&sizes);
    im_request_options o;
    im_result first, again, other;
    im_request_options_defaults(&o);
    o.max_tokens = 30;
    o.ignore_eos = true;
    o.sampling = (im_sampling){.temperature = 1.5f, .top_k = 100, .top_p = 0.98f, .seed = 12345};
    im_request *a = submit_prompt(e, 20, 3, o);
    assert_int_equal(im_request_wait(a, &first, NULL), IM_OK);
    o.neighbours = 7;
    im_request *b = submit_prompt(e, 20, 3, o);
    assert_int_equal(im_request_wait(b, &again, NULL), IM_OK);
    o.sampling.seed++;
    im_request *c = submit_prompt(e, 20, 3, o);
    assert_int_equal(im_request_wait(c, &other, NULL), IM_OK);
    assert_true(first.logits_hash == again.logits_hash && first.count == 30 && again.count == 30);
    assert_memory_equal(first.ids, again.ids, 30 * sizeof *first.ids);
    assert_memory_not_equal(first.ids, other.ids, 30 * sizeof *first.ids);
    im_request_free(a);
    im_request_free(b);
    im_request_free(c);
    im_engine_close(e);
}

/* ---- edges of the context --------------------------------------------------------------------------------------------------------------- */

static void check_room(uint32_t context, size_t prompt, uint32_t max_tokens, size_t want)
{
    im_engine_options sizes = sized(1, 100, context, 1);
    im_engine *e = open_tiny(&sizes);
    im_request_options o;
    im_result result;
    im_request_options_defaults(&o);
    o.max_tokens = max_tokens;
    o.ignore_eos = true;
    im_request *r = submit_prompt(e, prompt, 1, o);
    assert_int_equal(im_request_wait(r, &result, NULL), IM_OK);
    assert_int_equal(result.count, want);
    assert_int_equal(result.stop_reason, IM_STOP_LENGTH);
    assert_int_equal(result.prompt_tokens, prompt);
    im_request_free(r);
    im_engine_close(e);
}

static void the_answer_ends_where_the_context_does(void **state)
{
    (void)state;
    check_room(2, 1, 100, 1);
    check_room(3, 1, 100, 2);
    check_room(64, 63, 100, 1);
    check_room(65, 64, 1, 1);
    check_room(128, 127, UINT32_MAX, 1);
    check_room(130, 60, UINT32_MAX, 70);
}

static void a_prompt_that_fills_the_context(void **state)
{
    (void)state;
    im_engine_options sizes = sized(1, 100, 64, 1);
    im_engine *e = open_tiny(&sizes);
    int32_t ids[100] = {0};
    im_request_options o;
    im_request *r = NULL;
    im_error err;
    im_request_options_defaults(&o);
    o.prompt = ids;
    o.prompt_len = 64;
    assert_int_equal(im_request_submit(e, &o, &r, &err), IM_ERR_CONTEXT);
    assert_null(r);
    assert_non_null(strstr(err.message, "64 tokens"));
    assert_non_null(strstr(err.message, "64 positions"));
    o.prompt_len = 100;
    assert_int_equal(im_request_submit(e, &o, &r, NULL), IM_ERR_CONTEXT);
    im_engine_close(e);
}

/* ---- what a callback sees ---------------------------------------------------------------------------------------------------------------- */

typedef struct heard {
    char text[8192];
    size_t len;
    int32_t id[CONTEXT];
    uint32_t count;
    bool wrong, want_logits;
    XXH3_state_t *hash;
    size_t prompt_done, prompt_calls;
} heard;

static bool hear(void *user, const im_token_event *event)
{
    heard *h = user;
    h->wrong |= event->index != h->count || h->len + event->text_len >= sizeof h->text || event->vocabulary != VOCABULARY ||
                (event->logits != NULL) != h->want_logits;
    if (event->logits != NULL) XXH3_64bits_update(h->hash, event->logits, VOCABULARY * sizeof(float));
    memcpy(h->text + h->len, event->text, event->text_len);
    h->len += event->text_len;
    h->id[h->count++] = event->id;
    return true;
}

static void hear_prompt(void *user, size_t done, size_t total)
{
    heard *h = user;
    h->wrong |= total != 100 || done <= h->prompt_done || done > total;
    h->prompt_done = done;
    h->prompt_calls++;
}

static im_request_options hearing(heard *h, uint32_t tokens)
{
    im_request_options o;
    im_request_options_defaults(&o);
    o.max_tokens = tokens;
    o.ignore_eos = true;
    o.want_logits = h->want_logits;
    o.on_token = hear;
    o.on_prompt = hear_prompt;
    o.user = h;
    return o;
}

static void callbacks_see_everything_once(void **state)
{
    (void)state;
    im_engine_options sizes = sized(2, 30, CONTEXT, 1);
    im_engine *e = open_tiny(&sizes);
    static heard h;
    h = (heard){.want_logits = true, .hash = XXH3_createState()};
    XXH3_64bits_reset(h.hash);
    im_result result;
    im_request *r = submit_prompt(e, 100, 5, hearing(&h, 40));
    assert_int_equal(im_request_wait(r, &result, NULL), IM_OK);
    assert_false(h.wrong);
    assert_true(h.prompt_done == 100 && h.prompt_calls == 4);
    assert_true(h.count == 40 && result.count == 40);
    assert_memory_equal(h.id, result.ids, 40 * sizeof *h.id);
    assert_int_equal(h.len, result.text_len);
    assert_memory_equal(h.text, result.text, h.len);
    assert_int_equal(result.text[result.text_len], 0);
    assert_true(XXH3_64bits_digest(h.hash) == result.logits_hash);
    assert_true(result.prompt_ms > 0 && result.first_token_ms >= result.prompt_ms && result.generate_ms > 0);
    XXH3_freeState(h.hash);
    im_request_free(r);
    im_engine_close(e);
}

/* The text up to `stop`, through result and callback alike. */
static void check_stop(im_engine *e, const char *full, const char *stop, size_t cut)
{
    static heard h;
    h = (heard){.count = 0};
    const char *const list[] = {"never there", stop, NULL};
    im_result result;
    im_request_options o = hearing(&h, 40);
    o.stop = list;
    im_request *r = submit_prompt(e, 100, 5, o);
    assert_int_equal(im_request_wait(r, &result, NULL), IM_OK);
    assert_int_equal(result.stop_reason, IM_STOP_STRING);
    assert_true(result.text_len == cut && h.len == cut);
    assert_memory_equal(result.text, full, cut);
    assert_memory_equal(h.text, full, cut);
    im_request_free(r);
}

static void stop_strings_cut_the_text(void **state)
{
    (void)state;
    im_engine_options sizes = sized(2, 100, CONTEXT, 1);
    im_engine *e = open_tiny(&sizes);
    static heard h;
    h = (heard){.count = 0};
    im_result full;
    im_request *r = submit_prompt(e, 100, 5, hearing(&h, 40));
    assert_int_equal(im_request_wait(r, &full, NULL), IM_OK);
    assert_true(full.text_len > 30);
    for (size_t at = 0; at + 12 < full.text_len; at += 5) /* of several lengths, so that they begin and end within tokens */
        for (size_t n = 1; n < 12; n += 5) {
            char stop[16] = {0};
            memcpy(stop, full.text + at, n);
            if (strlen(stop) == n) check_stop(e, full.text, stop, (size_t)(strstr(full.text, stop) - full.text));
        }
    im_request_free(r);
    im_engine_close(e);
}

static void forced_ids_are_taken(void **state)
{
    (void)state;
    static const int32_t forced[] = {5, 300, 17, 5};
    im_engine_options sizes = sized(2, 100, CONTEXT, 1);
    im_engine *e = open_tiny(&sizes);
    im_request_options o;
    im_result result;
    im_request_options_defaults(&o);
    o.max_tokens = 8;
    o.ignore_eos = true;
    o.forced = forced;
    o.forced_len = 4;
    im_request *r = submit_prompt(e, 10, 5, o);
    assert_int_equal(im_request_wait(r, &result, NULL), IM_OK);
    assert_int_equal(result.count, 8);
    assert_memory_equal(result.ids, forced, sizeof forced);
    im_request_free(r);
    im_engine_close(e);
}

/* ---- scoring -------------------------------------------------------------------------------------------------------------------------------- */

typedef struct table {
    int32_t id[200];
    float logprob[200], best_logprob[200];
    int32_t best[200];
    size_t n, prompt;
} table;

/* Log-probabilities from the logits of a forced generation: another way to the same numbers. */
static bool note(void *user, const im_token_event *event)
{
    table *t = user;
    double sum = 0, max = (double)event->logits[0];
    size_t at = t->prompt - 1 + event->index;
    t->best[at] = 0;
    for (size_t i = 1; i < event->vocabulary; i++)
        if ((double)event->logits[i] > max) max = (double)event->logits[i], t->best[at] = (int32_t)i;
    for (size_t i = 0; i < event->vocabulary; i++) sum += exp((double)event->logits[i] - max);
    t->logprob[at] = (float)((double)event->logits[t->id[at + 1]] - max - log(sum));
    t->best_logprob[at] = (float)-log(sum);
    return true;
}

static void scores_are_those_of_a_forced_answer(void **state)
{
    (void)state;
    static table want = {.n = 200, .prompt = 1};
    static float logprob[199], best_logprob[199];
    static int32_t best[199];
    im_engine_options sizes = sized(2, 64, 256, 1);
    im_engine *e = open_tiny(&sizes);
    im_request_options o;
    im_request_options_defaults(&o);
    make_prompt(want.id, want.n, 9, VOCABULARY);
    o.max_tokens = 199;
    o.ignore_eos = o.want_logits = true;
    o.forced = want.id + 1;
    o.forced_len = 199;
    o.on_token = note;
    o.user = &want;
    im_request *r = submit_prompt(e, 1, 9, o);
    assert_int_equal(im_request_wait(r, NULL, NULL), IM_OK);
    im_request_free(r);
    assert_int_equal(im_engine_score(e, want.id, 200, logprob, best, best_logprob, NULL, NULL, NULL), IM_OK);
    assert_memory_equal(logprob, want.logprob, sizeof logprob);
    assert_memory_equal(best, want.best, sizeof best);
    assert_memory_equal(best_logprob, want.best_logprob, sizeof best_logprob);
    im_engine_close(e);
}

static bool stop_at_half(void *user, size_t done, size_t total)
{
    *(size_t *)user = done;
    return done < total / 2;
}

static void scores_of_any_length(void **state)
{
    (void)state;
    int32_t ids[64];
    float logprob[63];
    size_t done = 0;
    im_error err;
    im_engine_options sizes = sized(1, 64, 64, 1);
    im_engine *e = open_tiny(&sizes);
    make_prompt(ids, 64, 1, VOCABULARY);
    assert_int_equal(im_engine_score(e, ids, 64, logprob, NULL, NULL, NULL, NULL, NULL), IM_OK); /* fills the context */
    assert_int_equal(im_engine_score(e, ids, 2, logprob, NULL, NULL, NULL, NULL, NULL), IM_OK);
    assert_int_equal(im_engine_score(e, ids, 1, logprob, NULL, NULL, NULL, NULL, &err), IM_ERR_ARGUMENT);
    assert_int_equal(im_engine_score(e, ids, 65, logprob, NULL, NULL, NULL, NULL, &err), IM_ERR_CONTEXT);
    assert_int_equal(im_engine_score(e, ids, 64, logprob, NULL, NULL, stop_at_half, &done, &err), IM_ERR_CANCELLED);
    assert_true(done >= 32 && done < 64);
    ids[40] = VOCABULARY;
    assert_int_equal(im_engine_score(e, ids, 64, logprob, NULL, NULL, NULL, NULL, &err), IM_ERR_ARGUMENT);
    im_engine_close(e);
}

/* ---- refusals ---------------------------------------------------------------------------------------------------------------------------------- */

static void options_that_cannot_be(void **state)
{
    (void)state;
    const struct {
        im_engine_options o;
        im_status status;
        const char *word;
    } cases[] = {
        {sized(-1, 0, 0, 0), IM_ERR_ARGUMENT, "threads"},
        {sized(5000, 0, 0, 0), IM_ERR_ARGUMENT, "threads"},
        {sized(1, 5000, 0, 0), IM_ERR_ARGUMENT, "chunk"},
        {sized(1, 0, 1, 0), IM_ERR_ARGUMENT, "context"},
        {sized(1, 0, (1u << 24) + 1, 0), IM_ERR_ARGUMENT, "context"},
        {sized(1, 0, 0, 5000), IM_ERR_ARGUMENT, "sequences"},
        {{.size = sizeof(im_engine_options), .device = "gpu"}, IM_ERR_UNSUPPORTED, "gpu"},
        {{.size = sizeof(im_engine_options), .cpu_level = "mmx"}, IM_ERR_ARGUMENT, "mmx"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        im_engine *e = NULL;
        im_error err = {IM_OK, ""};
        assert_int_equal(im_engine_open(&e, TINY_MODEL, &cases[i].o, &err), cases[i].status);
        assert_null(e);
        if (strstr(err.message, cases[i].word) == NULL) fail_msg("%s", err.message);
    }
    assert_int_equal(im_engine_open(NULL, TINY_MODEL, NULL, NULL), IM_ERR_ARGUMENT);
    assert_int_equal(im_engine_plan(NULL, NULL, NULL, NULL), IM_ERR_ARGUMENT);
}

static void more_memory_than_there_is(void **state)
{
    (void)state;
    im_engine_options o = sized(1, 0, 1u << 24, 1024);
    im_engine *e = NULL;
    im_error err = {IM_OK, ""};
    im_machine_info machine;
    im_machine_get_info(&machine);
    if (machine.memory_available == 0) skip();
    assert_int_equal(im_engine_open(&e, TINY_MODEL, &o, &err), IM_ERR_MEMORY);
    assert_non_null(strstr(err.message, "MiB"));
}

static void refuse(im_engine *e, const im_request_options *o, const char *word)
{
    im_request *r = NULL;
    im_error err = {IM_OK, ""};
    assert_int_equal(im_request_submit(e, o, &r, &err), IM_ERR_ARGUMENT);
    assert_null(r);
    if (strstr(err.message, word) == NULL) fail_msg("%s", err.message);
}

static void requests_that_cannot_be(void **state)
{
    (void)state;
    static const int32_t good[] = {1, 2}, bad[] = {1, -1}, high[] = {1, VOCABULARY};
    static const char *const empty_stop[] = {"a", "", NULL};
    im_engine_options sizes = sized(1, 0, 64, 2);
    im_engine *e = open_tiny(&sizes);
    im_request_options ok, o;
    im_request_options_defaults(&ok);
    ok.prompt = good;
    ok.prompt_len = 2;
    o = ok, o.prompt = NULL, refuse(e, &o, "prompt");
    o = ok, o.prompt_len = 0, refuse(e, &o, "prompt");
    o = ok, o.prompt = bad, refuse(e, &o, "token 1 is -1");
    o = ok, o.prompt = high, refuse(e, &o, "389");
    o = ok, o.max_tokens = 0, refuse(e, &o, "max_tokens");
    o = ok, o.neighbours = 2, refuse(e, &o, "neighbours");
    o = ok, o.neighbours = -1, refuse(e, &o, "neighbours");
    o = ok, o.sampling.top_p = 0, refuse(e, &o, "top_p");
    o = ok, o.sampling.temperature = NAN, refuse(e, &o, "temperature");
    o = ok, o.forced_len = 1, refuse(e, &o, "forced");
    o = ok, o.forced = bad, o.forced_len = 2, refuse(e, &o, "forced");
    o = ok, o.stop = empty_stop, refuse(e, &o, "stop");
    im_request *r;
    assert_int_equal(im_request_submit(NULL, &ok, &r, NULL), IM_ERR_ARGUMENT);
    assert_int_equal(im_request_submit(e, NULL, &r, NULL), IM_ERR_ARGUMENT);
    assert_int_equal(im_request_wait(NULL, NULL, NULL), IM_ERR_ARGUMENT);
    im_request_cancel(NULL);
    im_request_free(NULL);
    im_engine_close(e);
    im_engine_close(NULL);
}

/* Defaults for a caller whose struct is shorter, or longer, than the library's: never beyond its end, and nothing left undefined. */
static void defaults_of_any_size(void **state)
{
    (void)state;
    for (size_t size = 0; size <= sizeof(im_request_options) + 40; size++) {
        struct {
            im_request_options o;
            unsigned char behind[64];
        } room;
        memset(&room, 0xa5, sizeof room);
        im_request_options_init(&room.o, size);
        const unsigned char *bytes = (const unsigned char *)&room;
        for (size_t i = size; i < sizeof room; i++) assert_int_equal(bytes[i], 0xa5);
        for (size_t i = sizeof room.o; i < size; i++) assert_int_equal(bytes[i], 0);
        if (size < sizeof room.o) continue;
        assert_true(room.o.size == size && room.o.max_tokens == 256 && room.o.sampling.top_p == 1 && room.o.prompt == NULL);
    }
}

/* A caller built for a shorter struct: what it does not have keeps its default. */
static void shorter_options(void **state)
{
    (void)state;
    im_engine_options sizes = sized(1, 0, 64, 1);
    im_engine *e = open_tiny(&sizes);
    int32_t prompt[1] = {1};
    im_request_options o;
    im_request *r;
    im_result result;
    memset(&o, 0xff, sizeof o);
    o.size = offsetof(im_request_options, max_tokens);
    o.prompt = prompt;
    o.prompt_len = 1;
    assert_int_equal(im_request_submit(e, &o, &r, NULL), IM_OK);
    assert_int_equal(im_request_wait(r, &result, NULL), IM_OK);
    assert_true(result.count >= 1 && result.count <= 63);
    im_request_free(r);
    im_engine_close(e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_answer_whatever_the_chunk),
        cmocka_unit_test(one_answer_whatever_the_threads),
        cmocka_unit_test(one_answer_at_every_level),
        cmocka_unit_test(one_answer_beside_neighbours),
        cmocka_unit_test(one_answer_in_any_float_environment),
        cmocka_unit_test(one_answer_behind_any_callback),
        cmocka_unit_test(several_requests_at_once),
        cmocka_unit_test(a_seed_is_an_answer),
        cmocka_unit_test(the_answer_ends_where_the_context_does),
        cmocka_unit_test(a_prompt_that_fills_the_context),
        cmocka_unit_test(callbacks_see_everything_once),
        cmocka_unit_test(stop_strings_cut_the_text),
        cmocka_unit_test(forced_ids_are_taken),
        cmocka_unit_test(scores_are_those_of_a_forced_answer),
        cmocka_unit_test(scores_of_any_length),
        cmocka_unit_test(options_that_cannot_be),
        cmocka_unit_test(more_memory_than_there_is),
        cmocka_unit_test(requests_that_cannot_be),
        cmocka_unit_test(defaults_of_any_size),
        cmocka_unit_test(shorter_options),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
