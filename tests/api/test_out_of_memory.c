/* SPDX-License-Identifier: Apache-2.0
 *
 * Every allocation between a path and an answer fails once. Each time the caller gets IM_ERR_MEMORY and nothing else, or the right answer where the
 * allocation could be done without; under the address sanitizer nothing is lost.
 */
#include "base/mem.h"

#include <ironmule/ironmule.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define TINY IM_TEST_DATA "/zoo/arch-tiny.gguf"

enum { MOST = 100000 };

typedef im_status attempt(char **answer);

static im_status answer_with(im_engine *engine, char **answer)
{
    im_error err = {IM_OK, ""};
    im_status status = im_answer(engine, "Hello </s> mule", 6, answer, &err);
    if (status != IM_OK) assert_true(err.status == status && err.message[0] != 0);
    return status;
}

static im_status path_to_answer(char **answer)
{
    im_engine *engine = NULL;
    im_error err = {IM_OK, ""};
    im_engine_options o;
    im_engine_options_defaults(&o);
    o.threads = 2;
    o.context = 128;
    im_status status = im_engine_open(&engine, TINY, &o, &err);
    if (status != IM_OK) assert_true(engine == NULL && err.status == status && err.message[0] != 0);
    if (status == IM_OK) status = answer_with(engine, answer);
    im_engine_close(engine);
    return status;
}

static im_model *model;

/* Rendering, tools and variables, encoding, decoding, the program's text. */
static im_status text_to_text(char **answer)
{
    static const char messages[] =
        "[{\"role\": \"user\", \"content\": \"Hello \\u00e9 mule\"}, {\"role\": \"assistant\", \"content\": \"x\"}]";
    im_chat_options o;
    char *rendered = NULL, *program = NULL;
    int32_t *ids = NULL;
    size_t n = 0, len = 0;
    im_chat_options_defaults(&o);
    o.tools = "[{\"name\": \"t\", \"parameters\": {\"a\": [1, 2.5, null]}}]";
    o.variables = "{\"x\": {\"y\": \"z\"}}";
    o.chat_template = "{% for m in messages %}{{ m.content | upper }}{{ tools | tojson }}{% endfor %}{{ x.y ~ namespace(a=1).a }}";
    im_status status = im_model_chat(model, messages, &o, &rendered, &len, &ids, &n, NULL);
    if (status == IM_OK) status = im_model_decode(model, ids, n, answer, NULL, NULL);
    if (status == IM_OK) status = im_model_program(model, &program, NULL);
    im_free(rendered);
    im_free(program);
    im_free(ids);
    return status;
}

/* Did the planned failure happen? Otherwise it is still waiting for an allocation. */
static bool happened(long n)
{
    bool waiting = false;
    for (long i = 0; i < n && !waiting; i++) {
        void *p = im__calloc(1, 1);
        waiting = p == NULL;
        im__free(p);
    }
    im__alloc_fail_after(0);
    return !waiting;
}

/* Number of allocations that were made to fail. */
static long sweep(attempt *run)
{
    char *want = NULL;
    long n = 0, absorbed = 0;
    bool fired = true;
    assert_int_equal(run(&want), IM_OK);
    while (fired) {
        char *answer = NULL;
        im__alloc_fail_after(++n);
        im_status status = run(&answer);
        fired = happened(n);
        assert_true(status == IM_OK || status == IM_ERR_MEMORY);
        if (status == IM_OK) assert_string_equal(answer, want);
        absorbed += fired && status == IM_OK;
        im_free(answer);
        assert_true(n < MOST);
    }
    im_free(want);
    print_message("%ld allocations failed, %ld could be done without\n", n - 1, absorbed);
    return n - 1;
}

static void between_a_path_and_an_answer(void **state)
{
    (void)state;
    assert_true(sweep(path_to_answer) > 100);
}

static void between_text_and_ids(void **state)
{
    (void)state;
    assert_int_equal(im_model_open(&model, TINY, NULL, NULL), IM_OK);
    assert_true(sweep(text_to_text) > 20);
    im_model_close(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(between_a_path_and_an_answer),
        cmocka_unit_test(between_text_and_ids),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
