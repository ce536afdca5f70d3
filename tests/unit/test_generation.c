/* SPDX-License-Identifier: Apache-2.0
 *
 * A whole generation with a real model, made for the sanitizers: a chat prompt read in chunks, three threads, seven neighbours, callbacks, a request
 * that another thread cancels, scoring, an engine that is closed at work.
 */
#include <ironmule/ironmule.h>

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

static char path[4096];
static im_engine *engine; /* one for all tests: reading the weights takes most of the time */

static void engine_opens(void **state)
{
    (void)state;
    im_engine_options o;
    im_error err = {IM_OK, ""};
    im_engine_options_defaults(&o);
    o.threads = 3;
    o.context = 160;
    o.chunk = 20;
    o.max_sequences = 8;
    if (im_engine_open(&engine, path, &o, &err) != IM_OK) fail_msg("%s", err.message);
}

static int32_t *chat_prompt(size_t *n)
{
    static const char messages[] =
        "[{\"role\": \"user\", \"content\": \"Name three colours of the rainbow, and say \\\"done\\\".\"}]";
    int32_t *ids = NULL;
    im_error err = {IM_OK, ""};
    if (im_model_chat(im_engine_model(engine), messages, NULL, NULL, NULL, &ids, n, &err) != IM_OK) fail_msg("%s", err.message);
    return ids;
}

typedef struct watcher {
    atomic_size_t tokens, bytes;
} watcher;

static bool watch(void *user, const im_token_event *event)
{
    watcher *w = user;
    atomic_fetch_add(&w->tokens, 1);
    atomic_fetch_add(&w->bytes, event->text_len);
    return true;
}

static im_request *ask(uint32_t tokens, int neighbours, watcher *w)
{
    im_request_options o;
    im_request *request = NULL;
    im_error err = {IM_OK, ""};
    im_request_options_defaults(&o);
    int32_t *ids = chat_prompt(&o.prompt_len);
    o.prompt = ids;
    o.max_tokens = tokens;
    o.neighbours = neighbours;
    o.on_token = watch;
    o.user = w;
    if (im_request_submit(engine, &o, &request, &err) != IM_OK) fail_msg("%s", err.message);
    im_free(ids);
    return request;
}

static void generated_alone_and_in_company(void **state)
{
    (void)state;
    enum { TOKENS = 6 };
    im_result alone, company;
    watcher w = {0};
    im_request *a = ask(TOKENS, 0, &w), *b = NULL;
    assert_int_equal(im_request_wait(a, &alone, NULL), IM_OK);
    assert_true(alone.count > 0 && alone.text_len > 0);
    assert_true(atomic_load(&w.tokens) == alone.count && atomic_load(&w.bytes) == alone.text_len);
    b = ask(TOKENS, 7, &w);
    assert_int_equal(im_request_wait(b, &company, NULL), IM_OK);
    assert_true(alone.logits_hash == company.logits_hash);
    assert_string_equal(alone.text, company.text);
    im_request_free(a);
    im_request_free(b);
}

typedef struct killer {
    im_request *victim;
    watcher *w;
} killer;

static void *cancel_after_a_token(void *given)
{
    killer *k = given;
    struct timespec t = {0, 1000000};
    while (atomic_load(&k->w->tokens) < 1) nanosleep(&t, NULL);
    im_request_cancel(k->victim);
    return NULL;
}

static void cancelled_by_another_thread(void **state)
{
    (void)state;
    watcher first = {0}, second = {0};
    im_result result;
    pthread_t thread;
    im_request *a = ask(100, 1, &first), *b = ask(3, 0, &second);
    killer k = {a, &first};
    assert_int_equal(pthread_create(&thread, NULL, cancel_after_a_token, &k), 0);
    assert_int_equal(im_request_wait(a, &result, NULL), IM_ERR_CANCELLED);
    assert_true(result.count >= 1 && result.count < 100);
    pthread_join(thread, NULL);
    assert_int_equal(im_request_wait(b, &result, NULL), IM_OK);
    im_request_free(a);
    im_request_free(b);
}

static void closed_at_work(void **state)
{
    (void)state;
    watcher w = {0};
    size_t n;
    float logprob[160];
    im_request *running = ask(100, 0, &w);
    int32_t *ids = chat_prompt(&n);
    assert_int_equal(im_engine_score(engine, ids, n, logprob, NULL, NULL, NULL, NULL, NULL), IM_OK); /* in the same steps */
    for (size_t i = 0; i + 1 < n; i++) assert_true(logprob[i] <= 0 && logprob[i] > -100);
    im_engine_close(engine);
    im_request_wait(running, NULL, NULL);
    im_request_free(running);
    im_free(ids);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(engine_opens),
        cmocka_unit_test(generated_alone_and_in_company),
        cmocka_unit_test(cancelled_by_another_thread),
        cmocka_unit_test(closed_at_work),
    };
    const char *folder = getenv("IM_TEST_MODELS");
    snprintf(path, sizeof path, "%s/SmolLM2-135M-Instruct.Q4_1.gguf", folder == NULL ? "" : folder);
    if (folder == NULL || access(path, R_OK) != 0) {
        puts("SmolLM2-135M-Instruct is not here (IM_TEST_MODELS)");
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
