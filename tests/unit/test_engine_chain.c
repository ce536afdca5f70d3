/* SPDX-License-Identifier: Apache-2.0
 *
 * Tokens that a backend chooses one after the other before anybody looks: a processor that does so, under an engine that does not know the difference. The ids, the ends of
 * answers and the logits of what follows are those of one token at a time.
 */
#include "engine/internal.h"
#include "engine_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { CONTEXT = 512, VOCABULARY = 389, TOKENS = 60, NOT_A_NUMBER = -1, NOTHING_ELSE = -2 };

/* ---- a backend that chains ------------------------------------------------------------------------------------------------------------- */

static struct {
    im_status (*plain)(im__backend *b, const im__step *step, im_error *err);
    uint32_t vocab, most;    /* rows beyond the first that it takes */
    uint32_t longest, asked; /* chains that were computed, that were asked for */
    size_t rows_of_asked;    /* rows of the steps that asked */
    int32_t at, instead;     /* what is chosen at a position; NOTHING_ELSE */
} fake;

static int32_t choice_of(const im__backend *b, const float *logits, int32_t position)
{
    return fake.instead != NOTHING_ELSE && position == fake.at ? fake.instead : b->argmax(logits, fake.vocab);
}

static im_status follow(im__backend *b, const im__step *step, im_error *err)
{
    im__row row = step->row[0];
    im__step one = {.row = &row, .rows = 1, .seq = step->seq, .seqs = 1, .logits = step->logits};
    for (uint32_t i = 0; i < step->chain && i < fake.most; i++) {
        row.token = step->choice[i] < 0 ? 0 : step->choice[i];
        row.position++;
        IM__TRY(fake.plain(b, &one, err));
        step->choice[i + 1] = choice_of(b, step->logits, row.position);
        ++*step->chained;
    }
    if (step->chain > fake.asked) fake.asked = step->chain;
    if (*step->chained > fake.longest) fake.longest = *step->chained;
    if (step->chain > 0 && step->rows > fake.rows_of_asked) fake.rows_of_asked = step->rows;
    return IM_OK;
}

static im_status run(im__backend *b, const im__step *step, im_error *err)
{
    IM__TRY(fake.plain(b, step, err));
    size_t wanted = 0;
    for (size_t i = 0; i < step->rows; i++)
        if (step->row[i].wants_logits) {
            step->choice[wanted] = choice_of(b, step->logits + wanted * fake.vocab, step->row[i].position);
            wanted++;
        }
    return follow(b, step, err);
}

/* From now on the idle engine's backend chooses, and chains as many as `most`. */
static void make_chaining(im_engine *e, uint32_t most)
{
    fake.most = most;
    fake.vocab = e->model->program.vocab;
    fake.longest = fake.asked = 0;
    fake.rows_of_asked = 0;
    fake.instead = NOTHING_ELSE;
    fake.plain = e->backend->run;
    e->backend->run = run;
    e->backend->chooses = true;
    e->chain_ms = 1e6; /* a chain's length is not to depend on the machine */
}

static im_engine *open_chaining(uint32_t most)
{
    im_engine_options o = sized(1, 64, CONTEXT, 4);
    o.cache_ram = 16 << 20;
    im_engine *e = open_tiny(&o);
    make_chaining(e, most);
    return e;
}

/* ---- requests ------------------------------------------------------------------------------------------------------------------------------ */

typedef struct answer {
    int32_t ids[CONTEXT];
    size_t count, text_len;
    char text[8 * CONTEXT];
    im_stop_reason reason;
    uint64_t hash;
} answer;

static im_request_options greedy(uint32_t tokens)
{
    im_request_options o;
    im_request_options_defaults(&o);
    o.max_tokens = tokens;
    o.ignore_eos = o.no_hash = true;
    return o;
}

static im_status ask(im_engine *e, const int32_t *prompt, size_t n, im_request_options o, answer *a)
{
    im_request *r;
    im_result result;
    im_error err = {IM_OK, ""};
    o.prompt = prompt;
    o.prompt_len = n;
    if (im_request_submit(e, &o, &r, &err) != IM_OK) fail_msg("%s", err.message);
    im_status status = im_request_wait(r, &result, &err);
    *a = (answer){.count = result.count, .text_len = result.text_len, .reason = result.stop_reason, .hash = result.logits_hash};
    memcpy(a->ids, result.ids, result.count * sizeof *a->ids);
    assert_true(result.text_len < sizeof a->text);
    memcpy(a->text, result.text, result.text_len + 1);
    im_request_free(r);
    return status;
}

static void same_answer(const answer *a, const answer *b)
{
    assert_int_equal(a->count, b->count);
    assert_memory_equal(a->ids, b->ids, a->count * sizeof *a->ids);
    assert_string_equal(a->text, b->text);
    assert_int_equal(a->reason, b->reason);
}

static answer told, plain;
static int32_t prompt[CONTEXT];

/* The same request on an engine that takes one token at a time. */
static void ask_plainly(im_engine_options with, size_t n, im_request_options o)
{
    im_engine *e = open_tiny(&with);
    assert_int_equal(ask(e, prompt, n, o, &plain), IM_OK);
    im_engine_close(e);
}

/* Pages that requests hold: none when all have ended. */
static void nothing_is_held(im_engine *e)
{
    im_engine_stats s;
    im_engine_get_stats(e, &s);
    assert_int_equal(s.kv_pages_running, 0);
}

/* ---- tests ------------------------------------------------------------------------------------------------------------------------------------ */

static void the_same_tokens(void **state)
{
    (void)state;
    static const uint32_t most[] = {0, 1, 3, 100};
    make_prompt(prompt, CONTEXT, 5, VOCABULARY);
    ask_plainly(sized(1, 64, CONTEXT, 4), 70, greedy(TOKENS));
    for (size_t i = 0; i < sizeof most / sizeof *most; i++) {
        im_engine *e = open_chaining(most[i]);
        assert_int_equal(ask(e, prompt, 70, greedy(TOKENS), &told), IM_OK);
        same_answer(&told, &plain);
        assert_true(fake.asked > 2); /* it grows ... */
        assert_true(fake.longest == (most[i] < fake.asked ? most[i] : fake.asked));
        assert_true(fake.asked < 32); /* ... to no more than a burst */
        assert_int_equal(fake.rows_of_asked, 1);
        nothing_is_held(e);
        im_engine_stats s;
        im_engine_get_stats(e, &s);
        assert_int_equal(s.generated_tokens, TOKENS);
        im_engine_close(e);
    }
}

/* The logits of what follows: the conversation goes on from pages that a chain has written, also those of a window. */
static void the_same_logits_later(void **state)
{
    (void)state;
    char path[64];
    make_windowed_model(path, 70);
    make_prompt(prompt, CONTEXT, 6, VOCABULARY);
    im_request_options hashed = greedy(12);
    hashed.no_hash = false;
    for (int round = 0; round < 3; round++) {
        im_engine_options o = sized(1, 64, CONTEXT, 2);
        o.cache_ram = 16 << 20;
        im_engine *e = NULL, *cold = NULL;
        im_error err;
        assert_int_equal(im_engine_open(&e, path, &o, &err), IM_OK);
        assert_int_equal(im_engine_open(&cold, path, &o, &err), IM_OK);
        make_chaining(e, 100);
        size_t n = 50 + 37 * (size_t)round;
        assert_int_equal(ask(e, prompt, n, greedy(100), &told), IM_OK);
        assert_true(fake.longest > 2);
        int32_t all[CONTEXT];
        memcpy(all, prompt, n * sizeof *all);
        memcpy(all + n, told.ids, told.count * sizeof *all);
        n += told.count;
        assert_int_equal(ask(e, all, n, hashed, &told), IM_OK);
        assert_int_equal(ask(cold, all, n, hashed, &plain), IM_OK);
        same_answer(&told, &plain);
        assert_true(told.hash == plain.hash);
        im_engine_stats s;
        im_engine_get_stats(e, &s);
        assert_true(s.cached_tokens >= (n - 1) / 64 * 64);
        im_engine_close(e);
        im_engine_close(cold);
    }
    unlink(path);
}

static void an_answer_ends_inside_a_chain(void **state)
{
    (void)state;
    make_prompt(prompt, CONTEXT, 8, VOCABULARY);
    im_request_options hashed = greedy(8);
    hashed.no_hash = false;
    for (int32_t at = 28; at < 40; at++) {
        im_engine *e = open_chaining(100);
        const im_model *m = im_engine_model(e);
        int32_t end = 0;
        while (!im_model_is_end(m, end)) end++;
        fake.at = 30 - 1 + at; /* where token number `at` is chosen */
        fake.instead = end;
        im_request_options o = greedy(200);
        o.ignore_eos = false;
        assert_int_equal(ask(e, prompt, 30, o, &told), IM_OK);
        assert_int_equal(told.reason, IM_STOP_EOS);
        assert_int_equal(told.count, at + 1);
        assert_int_equal(told.ids[at], end);
        nothing_is_held(e);
        fake.instead = NOTHING_ELSE;
        /* What the chain wrote beyond the end is nobody's: another text goes on from the same beginning. */
        int32_t all[CONTEXT];
        memcpy(all, prompt, 30 * sizeof *all);
        memcpy(all + 30, told.ids, (size_t)at * sizeof *all);
        memcpy(all + 30 + at, prompt + 100, 40 * sizeof *all);
        assert_int_equal(ask(e, all, (size_t)at + 70, hashed, &told), IM_OK);
        im_engine_options with = sized(1, 64, CONTEXT, 4);
        im_engine *cold = open_tiny(&with);
        assert_int_equal(ask(cold, all, (size_t)at + 70, hashed, &plain), IM_OK);
        assert_true(told.hash == plain.hash);
        im_engine_close(cold);
        im_engine_close(e);
    }
}

static void a_string_ends_it_too(void **state)
{
    (void)state;
    make_prompt(prompt, CONTEXT, 9, VOCABULARY);
    im_request_options o = greedy(TOKENS);
    ask_plainly(sized(1, 64, CONTEXT, 4), 20, o);
    char stop[4] = {0};
    size_t at = plain.text_len * 2 / 3;
    while (at + 4 < plain.text_len && ((unsigned char)plain.text[at] & 0xc0) == 0x80) at++;
    memcpy(stop, plain.text + at, 3);
    const char *const list[] = {stop, NULL};
    o.stop = list;
    ask_plainly(sized(1, 64, CONTEXT, 4), 20, o);
    assert_int_equal(plain.reason, IM_STOP_STRING);
    im_engine *e = open_chaining(100);
    assert_int_equal(ask(e, prompt, 20, o, &told), IM_OK);
    same_answer(&told, &plain);
    im_engine_close(e);
}

static void lengths_and_the_context_are_kept(void **state)
{
    (void)state;
    make_prompt(prompt, CONTEXT, 10, VOCABULARY);
    for (uint32_t tokens = 1; tokens < 40; tokens += 6) {
        im_engine *e = open_chaining(100);
        assert_int_equal(ask(e, prompt, 20, greedy(tokens), &told), IM_OK);
        assert_int_equal(told.count, tokens);
        assert_int_equal(told.reason, IM_STOP_LENGTH);
        assert_int_equal(ask(e, prompt, CONTEXT - 30, greedy(1000), &told), IM_OK); /* and the context is full */
        assert_int_equal(told.count, 30);
        nothing_is_held(e);
        im_engine_close(e);
    }
}

static void whoever_looks_at_logits_gets_them_one_by_one(void **state)
{
    (void)state;
    make_prompt(prompt, CONTEXT, 11, VOCABULARY);
    im_engine *e = open_chaining(100);
    const im_logit_bias bias = {3, 1.0f};
    im_request_options o[5];
    for (int i = 0; i < 5; i++) o[i] = greedy(24);
    o[0].no_hash = false;
    o[1].sampling.temperature = 0.5f;
    o[2].sampling.bias = &bias, o[2].sampling.bias_count = 1;
    o[3].want_logprobs = true;
    o[4].want_logits = true;
    for (int i = 0; i < 5; i++) assert_int_equal(ask(e, prompt, 20, o[i], &told), IM_OK);
    assert_int_equal(fake.asked, 0);
    int32_t forced[24];
    make_prompt(forced, 24, 3, VOCABULARY);
    im_request_options led = greedy(24);
    led.forced = forced, led.forced_len = 24;
    assert_int_equal(ask(e, prompt, 20, led, &told), IM_OK);
    assert_int_equal(fake.asked, 0);
    assert_memory_equal(told.ids, forced, sizeof forced);
    im_engine_close(e);
}

/* Steps of several requests are not chained; all answers are what they are alone. */
static void company_ends_it(void **state)
{
    (void)state;
    make_prompt(prompt, CONTEXT, 12, VOCABULARY);
    im_engine *e = open_chaining(100);
    im_request_options o = greedy(TOKENS);
    o.neighbours = 2;
    assert_int_equal(ask(e, prompt, 20, o, &told), IM_OK);
    assert_true(fake.rows_of_asked <= 1);
    im_engine_close(e);
    ask_plainly(sized(1, 64, CONTEXT, 4), 20, greedy(TOKENS));
    same_answer(&told, &plain);
}

typedef struct listener {
    uint32_t heard, enough;
} listener;

static bool hears(void *user, const im_token_event *event)
{
    listener *l = user;
    if (event->index != l->heard++) return false;
    return l->heard < l->enough;
}

static void who_has_heard_enough_hears_no_more(void **state)
{
    (void)state;
    make_prompt(prompt, CONTEXT, 13, VOCABULARY);
    for (uint32_t enough = 30; enough < 38; enough++) {
        im_engine *e = open_chaining(100);
        listener l = {0, enough};
        im_request_options o = greedy(200);
        o.on_token = hears;
        o.user = &l;
        assert_int_equal(ask(e, prompt, 20, o, &told), IM_ERR_CANCELLED);
        assert_int_equal(l.heard, enough);
        assert_int_equal(told.count, enough);
        nothing_is_held(e);
        im_engine_close(e);
    }
}

static void a_logit_that_is_no_number_ends_it(void **state)
{
    (void)state;
    make_prompt(prompt, CONTEXT, 14, VOCABULARY);
    im_engine *e = open_chaining(100);
    fake.at = 20 - 1 + 33;
    fake.instead = NOT_A_NUMBER;
    assert_int_equal(ask(e, prompt, 20, greedy(100), &told), IM_ERR_NUMERIC);
    assert_int_equal(told.count, 33);
    nothing_is_held(e);
    im_engine_close(e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_tokens),
        cmocka_unit_test(the_same_logits_later),
        cmocka_unit_test(an_answer_ends_inside_a_chain),
        cmocka_unit_test(a_string_ends_it_too),
        cmocka_unit_test(lengths_and_the_context_are_kept),
        cmocka_unit_test(whoever_looks_at_logits_gets_them_one_by_one),
        cmocka_unit_test(company_ends_it),
        cmocka_unit_test(who_has_heard_enough_hears_no_more),
        cmocka_unit_test(a_logit_that_is_no_number_ends_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
