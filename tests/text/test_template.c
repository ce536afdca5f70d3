/* SPDX-License-Identifier: Apache-2.0
 * Chat templates against renderings by transformers and Jinja, and the rules of our own. */
#include "base/mem.h"
#include "template_cases.h"
#include "text/chat/template.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

/* Published texts that are not kept here are taken from this folder when it is given (see template_cases.h). */
#define TEXTS "IM_TEMPLATE_TEXTS"

static void run_file(const char *name, int at_least)
{
    char path[4096];
    template_tally sum = {0};
    snprintf(path, sizeof path, "%s/templates/%s", IM_TEST_DATA, name);
    assert_true(run_template_cases(path, getenv(TEXTS), &sum));
    printf("%s: %d cases, %d wrong, %d templates left out\n", name, sum.cases, sum.wrong, sum.left_out);
    assert_int_equal(sum.wrong, 0);
    assert_true(sum.cases >= at_least);
}

static void published_templates(void **state)
{
    (void)state;
    run_file("golden.json", 85);
}

static void snippets(void **state)
{
    (void)state;
    run_file("snippets.json", 280);
}

static void rules(void **state)
{
    (void)state;
    run_file("rules.json", 165);
}

static im_status render(const char *source, size_t n, const char *messages, im__rendered *out, im_error *err)
{
    im__template *t;
    im__template_input in = {.messages = messages, .messages_len = strlen(messages), .add_generation_prompt = true};
    im_status status = im__template_new(&t, source, n, err);
    *out = (im__rendered){0};
    if (status != IM_OK) return status;
    status = im__template_render(t, &in, out, err);
    im__template_free(t);
    return status;
}

/* ---- hostile nesting on a small stack ---- */

#define COUNT 1000

/* head, then `unit` COUNT times, then `tail` COUNT times, then `end`. */
static char *repeated(const char *head, const char *unit, const char *tail, const char *end)
{
    im__buf b = {0};
    im__buf_puts(&b, head);
    for (int i = 0; i < COUNT; i++) im__buf_puts(&b, unit);
    for (int i = 0; i < COUNT; i++) im__buf_puts(&b, tail);
    im__buf_puts(&b, end);
    return b.data;
}

static void *nested_thread(void *result)
{
    static const char *const forms[][4] = {
        {"{{ ", "(", "", ""},
        {"{{ ", "[", "", ""},
        {"{{ ", "{1:", "", ""},
        {"{{ ", "not ", "", "1 }}"},
        {"{{ ", "- ", "", "1 }}"},
        {"{{ x", "[x", "", ""},
        {"{{ x", "(x", "", ""},
        {"{{ x", "|f(x", "", ""},
        {"{{ ", "1 if 1 else ", "", "1 }}"},
        {"{{ x", ".a", "", " }}"},
        {"{{ ''", "|string", "", " }}"},
        {"{{ ''", "|map('list')", "", "|list }}"},
        {"", "{% if true %}", "{% endif %}", ""},
        {"", "{% for a in [1] %}", "{% endfor %}", ""},
        {"", "{% macro f() %}", "{% endmacro %}", ""},
        {"{% set ", "(", "", ""},
        {"{% macro f(n) %}{{ [f(n + 1)]|map('string')|list if ", "true and ", "", "true else '' }}{% endmacro %}{{ f(0) }}"},
        {"{% macro f() %}{% if true %}{% for x in [1] %}{% set y %}{% filter upper %}{% with %}{{ ((((f()))))|upper ", "~ '' ", "",
         "}}{% endwith %}{% endfilter %}{% endset %}{{ y }}{% endfor %}{% endif %}{% endmacro %}{{ f() }}"},
        {"{% macro f() %}{{ caller() }}{% endmacro %}{% macro g() %}{% call f() %}{{ g() }}", "{{ '' }}", "",
         "{% endcall %}{% endmacro %}{{ g() }}"},
        {"{% for x in [[1]] recursive %}{{ loop([x]) ", "~ ''", "", " }}{% endfor %}"},
        {"{% set n = namespace(x=[]) %}{% for i in range(1000) %}{% set n.x = [n.x] %}{% endfor %}{{ n.x ", "~ ''", "", " }}"},
        {"{% set n = namespace(x={}) %}{% for i in range(1000) %}{% set n.x = {'a': n.x} %}{% endfor %}{{ n.x|tojson ", "~ ''", "",
         " }}"},
        {"{% set n = namespace(x=(1,)) %}{% for i in range(1000) %}{% set n.x = (n.x,) %}{% endfor %}{{ {n.x: 1} ", "~ ''", "",
         " }}"},
        {"{% set n = namespace(x=[]) %}{% for i in range(1000) %}{% set n.x = [n.x] %}{% endfor %}{{ n.x < [n.x] ", "or 1", "",
         " }}"},
        {"{% set n = namespace(x=[]) %}{% for i in range(1000) %}{% set n.x = [n.x] %}{% endfor %}{{ n.x in [[n.x]] ", "or 1", "",
         " }}"},
    };
    size_t *failed = result;
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        im_error err = {0};
        im__rendered r;
        char *source = repeated(forms[i][0], forms[i][1], forms[i][2], forms[i][3]);
        im_status status = render(source, strlen(source), "[{\"role\":\"user\",\"content\":\"x\"}]", &r, &err);
        if (status != IM_ERR_TEMPLATE) {
            printf("form %zu: status %d %s\n", i, (int)status, err.message);
            ++*failed;
        }
        im__rendered_free(&r);
        im__free(source);
    }
    return NULL;
}

/* A sanitizer makes frames several times larger. */
#if defined(SMALL_STACK)
#elif defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SMALL_STACK ((size_t)2 << 20)
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(undefined_behavior_sanitizer)
#define SMALL_STACK ((size_t)2 << 20)
#endif
#endif
#ifndef SMALL_STACK
#define SMALL_STACK ((size_t)256 << 10)
#endif

static void nesting_needs_little_stack(void **state)
{
    (void)state;
    pthread_t thread;
    pthread_attr_t attr;
    size_t failed = 0;
    pthread_attr_init(&attr);
    assert_int_equal(pthread_attr_setstacksize(&attr, SMALL_STACK), 0);
    assert_int_equal(pthread_create(&thread, &attr, nested_thread, &failed), 0);
    pthread_join(thread, NULL);
    pthread_attr_destroy(&attr);
    assert_int_equal(failed, 0);
}

/* ---- memory, threads, time ---- */

static const char sample[] =
    "{% macro line(m) %}{{ m.role ~ ': ' + m.content|trim }}\n{% endmacro %}"
    "{% for m in messages %}{{ line(m) }}{{ m|tojson|length }}{% endfor %}{{ messages|map(attribute='role')|join }}";
static const char talk[] =
    "[{\"role\":\"system\",\"content\":\"be \\u00e9\"},{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\" hi\"}]},"
    "{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"a\\\":1}\"}}]}]";

static void every_allocation_may_fail(void **state)
{
    (void)state;
    im__rendered good, r;
    im_error err;
    assert_int_equal(render(sample, strlen(sample), talk, &good, &err), IM_OK);
    long n = 1;
    for (;; n++) {
        im__alloc_fail_after(n);
        im_status status = render(sample, strlen(sample), talk, &r, &err);
        bool reached = status != IM_OK;
        im__alloc_fail_after(0);
        if (!reached && n > 200) break;
        if (reached) {
            assert_int_equal(status, IM_ERR_MEMORY);
            assert_null(r.text.data);
            assert_null(r.plain);
        } else {
            assert_int_equal(r.text.len, good.text.len);
        }
        im__rendered_free(&r);
    }
    im__rendered_free(&r);
    im__rendered_free(&good);
}

typedef struct shared {
    const im__template *t;
    const im__rendered *good;
    int wrong;
} shared;

static void *render_many(void *arg)
{
    shared *s = arg;
    im__template_input in = {.messages = talk, .messages_len = strlen(talk), .add_generation_prompt = true};
    for (int i = 0; i < 200; i++) {
        im__rendered r;
        im_status status = im__template_render(s->t, &in, &r, NULL);
        s->wrong += status != IM_OK || r.text.len != s->good->text.len || memcmp(r.text.data, s->good->text.data, r.text.len) != 0;
        im__rendered_free(&r);
    }
    return NULL;
}

static void threads_share_a_template(void **state)
{
    (void)state;
    im__template *t;
    im__rendered good;
    pthread_t threads[3];
    assert_int_equal(render(sample, strlen(sample), talk, &good, NULL), IM_OK);
    assert_int_equal(im__template_new(&t, sample, strlen(sample), NULL), IM_OK);
    shared s[3] = {{t, &good, 0}, {t, &good, 0}, {t, &good, 0}};
    for (int i = 0; i < 3; i++) assert_int_equal(pthread_create(&threads[i], NULL, render_many, &s[i]), 0);
    for (int i = 0; i < 3; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(s[i].wrong, 0);
    }
    im__template_free(t);
    im__rendered_free(&good);
}

/* Processor time to render a conversation of `turns` messages of `bytes` bytes, gathered in one growing string. */
static double render_time(int turns, int bytes)
{
    static const char source[] =
        "{% set ns = namespace(t='') %}{% for m in messages %}{% set ns.t = ns.t + '<' + m.role + '>' + m.content|trim "
        "%}{% set ns.t = ns.t ~ '</>' %}{% endfor %}{{ ns.t }}";
    im__buf b = {0};
    im__rendered r;
    struct timespec begin, end;
    im__buf_puts(&b, "[");
    for (int i = 0; i < turns; i++) {
        im__buf_puts(&b, i > 0 ? ",{\"role\":\"user\",\"content\":\"" : "{\"role\":\"user\",\"content\":\"");
        for (int k = 0; k < bytes; k++) im__buf_append(&b, &"abc "[k % 4], 1);
        im__buf_puts(&b, "\"}");
    }
    im__buf_puts(&b, "]");
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begin);
    assert_int_equal(render(source, strlen(source), b.data, &r, NULL), IM_OK);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &end);
    assert_true(r.text.len >= (size_t)turns * (size_t)bytes / 2);
    im__rendered_free(&r);
    im__buf_free(&b);
    return (double)(end.tv_sec - begin.tv_sec) + (double)(end.tv_nsec - begin.tv_nsec) * 1e-9;
}

static void time_is_linear(void **state)
{
    (void)state;
    double small = render_time(500, 200), large = render_time(8000, 200); /* 16 times the work; quadratic would be 256 times */
    printf("500 messages %.4f s, 8000 messages %.4f s\n", small, large);
    assert_true(large < 64 * small + 0.05);
}

static void odd_sources(void **state)
{
    (void)state;
    im_error err;
    im__rendered r;
    const char *hi = "[{\"role\":\"user\",\"content\":\"x\"}]";
    assert_int_equal(render("", 0, hi, &r, &err), IM_OK);
    assert_int_equal(r.text.len, 0);
    im__rendered_free(&r);
    assert_int_equal(render("a\xff", 2, hi, &r, &err), IM_ERR_TEMPLATE);
    assert_non_null(strstr(err.message, "UTF-8"));
    assert_int_equal(render("a\0b", 3, hi, &r, &err), IM_OK);
    assert_int_equal(r.text.len, 3);
    im__rendered_free(&r);
    char *large = calloc(1, (1 << 20) + 1);
    memset(large, 'a', 1 << 20);
    assert_int_equal(render(large, 1 << 20, hi, &r, &err), IM_OK);
    im__rendered_free(&r);
    large[1 << 20] = 'a';
    assert_int_equal(render(large, (1 << 20) + 1, hi, &r, &err), IM_ERR_TEMPLATE);
    free(large);
    assert_int_equal(render("x", 1, "[{\"role\":\"user\",\"content\":\"\xff\"}]", &r, &err), IM_ERR_TEMPLATE);
    assert_non_null(strstr(err.message, "UTF-8"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(published_templates),
        cmocka_unit_test(snippets),
        cmocka_unit_test(rules),
        cmocka_unit_test(nesting_needs_little_stack),
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(threads_share_a_template),
        cmocka_unit_test(time_is_linear),
        cmocka_unit_test(odd_sources),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
