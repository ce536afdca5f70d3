/* SPDX-License-Identifier: Apache-2.0 */
#include "http_parse.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const http_limits limits = {.head = 2048, .body = 64};

/* Feeds `n` bytes in pieces of `piece`; returns how many were used. */
static size_t feed(http_parser *p, const char *data, size_t n, size_t piece)
{
    size_t used = 0;
    while (used < n && p->step != HTTP_COMPLETE && p->step != HTTP_BAD) {
        size_t part = n - used < piece ? n - used : piece;
        /* In a block of its own size, so that a sanitizer sees one byte too many. */
        char *exact = malloc(part);
        assert_non_null(exact);
        memcpy(exact, data + used, part);
        used += http_parser_feed(p, exact, part);
        free(exact);
        if (p->step == HTTP_HEAD_READ) http_parser_body(p, true);
    }
    return used;
}

#define WHOLE 1000000
#define HOST "Host: a\r\n"

static void good_requests(void **state)
{
    static const struct {
        const char *text, *method, *path, *query, *host, *body;
        bool keep;
    } all[] = {
        {"GET / HTTP/1.1\r\n" HOST "\r\n", "GET", "/", "", "a", NULL, true},
        {"GET /a/?b=c HTTP/1.1\r\n" HOST "\r\n", "GET", "/a", "b=c", "a", NULL, true},
        {"\r\n\r\nGET / HTTP/1.1\r\n" HOST "\r\n", "GET", "/", "", "a", NULL, true},
        {"GET http://h:1/x?y HTTP/1.1\r\n" HOST "\r\n", "GET", "/x", "y", "h:1", NULL, true},
        {"GET http://h HTTP/1.1\r\n" HOST "\r\n", "GET", "/", "", "h", NULL, true},
        {"GET http://h?q HTTP/1.1\r\n" HOST "\r\n", "GET", "/", "q", "h", NULL, true},
        {"OPTIONS * HTTP/1.1\r\n" HOST "\r\n", "OPTIONS", "*", "", "a", NULL, true},
        {"GET / HTTP/1.0\r\n\r\n", "GET", "/", "", "", NULL, false},
        {"GET / HTTP/1.0\r\nconnection: x, Keep-Alive\r\n\r\n", "GET", "/", "", "", NULL, true},
        {"GET / HTTP/1.1\r\n" HOST "CONNECTION: Close\r\n\r\n", "GET", "/", "", "a", NULL, false},
        {"POST / HTTP/1.1\r\n" HOST "content-length:\t 5 \r\n\r\nhello", "POST", "/", "", "a", "hello", true},
        {"POST / HTTP/1.1\r\n" HOST "Content-Length: 0\r\n\r\n", "POST", "/", "", "a", NULL, true},
        {"POST / HTTP/1.1\r\n" HOST "Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello", "POST", "/", "", "a", "hello", true},
        {"POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: CHUNKED\r\n\r\n2\r\nhe\r\n003 ;x=\"y\"\r\nllo\r\n0\r\nA: b\r\n\r\n", "POST",
         "/", "", "a", "hello", true},
        {"POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "POST", "/", "", "a", NULL, true},
    };
    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        size_t n = strlen(all[i].text), pieces[] = {WHOLE, 1, 2, 3, 7};
        for (size_t k = 0; k < sizeof pieces / sizeof *pieces; k++) {
            http_parser p;
            http_parser_init(&p, &limits);
            assert_false(http_parser_begun(&p));
            size_t used = feed(&p, all[i].text, n, pieces[k]);
            if (p.step != HTTP_COMPLETE) print_message("%s: %s\n", all[i].text, p.why);
            assert_int_equal(p.step, HTTP_COMPLETE);
            assert_int_equal(used, n);
            assert_string_equal(p.request.method, all[i].method);
            assert_string_equal(p.request.path, all[i].path);
            assert_string_equal(p.request.query, all[i].query);
            assert_string_equal(p.request.host, all[i].host);
            assert_int_equal(p.request.keep_alive, all[i].keep);
            if (all[i].body == NULL)
                assert_int_equal(p.body_len, 0);
            else
                assert_string_equal(p.body, all[i].body);
            http_parser_next(&p);
            assert_false(http_parser_begun(&p));
            http_parser_free(&p);
        }
    }
}

static void bad_requests(void **state)
{
    static const struct {
        int status;
        const char *text;
    } all[] = {
        {400, "GET / HTTP/1.1\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\n" HOST HOST "\r\n"},
        {400, "GET / HTTP/1.1\r\nHost : a\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\nHost: a b\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\nHost: a@b\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\n" HOST " folded\r\n\r\n"},
        {400, "GET / HTTP/1.1\nHost: a\n\n"},
        {400, "GET / HTTP/1.1\r\nHost: a\rb\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\n" HOST "X: \x01\r\n\r\n"},
        {400, "GET /\r\n\r\n"},
        {400, "\r\n\r\n\r\n\r\n\r\n\r\n\r\n\r\n\r\n\r\n\r\n\r\n"},
        {400, "GET / HTTP/1.1 \r\n" HOST "\r\n"},
        {400, "GET / http/1.1\r\n" HOST "\r\n"},
        {400, "G(T / HTTP/1.1\r\n" HOST "\r\n"},
        {400, "GET a HTTP/1.1\r\n" HOST "\r\n"},
        {400, "GET http://u@h/ HTTP/1.1\r\n" HOST "\r\n"},
        {400, "GET http:///x HTTP/1.1\r\n" HOST "\r\n"},
        {400, "GET * HTTP/1.1\r\n" HOST "\r\n"},
        {400, "GET /\x80 HTTP/1.1\r\n" HOST "\r\n"},
        {505, "GET / HTTP/2.0\r\n" HOST "\r\n"},
        {417, "POST / HTTP/1.1\r\n" HOST "Expect: 200-ok\r\n\r\n"},
        {400, "POST / HTTP/1.1\r\n" HOST "Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello"},
        {400, "POST / HTTP/1.1\r\n" HOST "Content-Length: 5, 5\r\n\r\nhello"},
        {400, "POST / HTTP/1.1\r\n" HOST "Content-Length: \r\n\r\nhello"},
        {400, "POST / HTTP/1.1\r\n" HOST "Content-Length: +5\r\n\r\nhello"},
        {413, "POST / HTTP/1.1\r\n" HOST "Content-Length: 65\r\n\r\n"},
        {413, "POST / HTTP/1.1\r\n" HOST "Content-Length: 99999999999999999999999\r\n\r\n"},
        {400, "POST / HTTP/1.1\r\n" HOST "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n"},
        {501, "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: gzip\r\n\r\n"},
        {400, "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n"},
        {400, "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\nx\r\n"},
        {400, "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n1\r\nab\r\n"},
        {400, "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n1\nab\r\n"},
        {400, "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n1;x\na\r\n"},
        {400, "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n1 2\r\na\r\n"},
        {400, "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n1 \r\na\r\n"},
        {400, "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n1 x;y\r\na\r\n"},
        {400, "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n0\r\n\n"},
        {400, "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n0\r\nX: y\n\r\n"},
        {400, "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n0\r\nX\rY: y\r\n\r\n"},
        {400, "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\r\n"},
        {413, "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n41\r\n"},
        {413, "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n0000000000000001\r\n"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        size_t pieces[] = {WHOLE, 1, 5};
        for (size_t k = 0; k < sizeof pieces / sizeof *pieces; k++) {
            http_parser p;
            http_parser_init(&p, &limits);
            feed(&p, all[i].text, strlen(all[i].text), pieces[k]);
            if (p.step != HTTP_BAD || p.status != all[i].status)
                print_message("%s: step %d, status %d\n", all[i].text, p.step, p.status);
            assert_int_equal(p.step, HTTP_BAD);
            assert_int_equal(p.status, all[i].status);
            assert_non_null(p.why);
            http_parser_free(&p);
        }
    }
}

static void too_much(void **state)
{
    (void)state;
    http_parser p;
    char text[8192];
    int n = snprintf(text, sizeof text, "GET / HTTP/1.1\r\n" HOST "X: ");
    memset(text + n, 'a', sizeof text - (size_t)n);
    http_parser_init(&p, &limits);
    feed(&p, text, sizeof text, 100);
    assert_int_equal(p.status, 431);
    assert_true(p.head_cap < 8192); /* the limit bounds the memory too */
    http_parser_free(&p);

    n = snprintf(text, sizeof text, "GET / HTTP/1.1\r\n" HOST);
    for (int i = 0; i < HTTP_MAX_HEADERS; i++) n += snprintf(text + n, sizeof text - (size_t)n, "X: a\r\n");
    n += snprintf(text + n, sizeof text - (size_t)n, "\r\n");
    http_parser_init(&p, &limits);
    feed(&p, text, (size_t)n, WHOLE);
    assert_int_equal(p.status, 431);
    http_parser_free(&p);

    n = snprintf(text, sizeof text, "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n0\r\n");
    memset(text + n, 'a', sizeof text - (size_t)n);
    http_parser_init(&p, &limits);
    feed(&p, text, sizeof text, 100);
    assert_int_equal(p.status, 431);
    http_parser_free(&p);
}

static void what_follows_stays(void **state)
{
    static const char text[] = "POST /a HTTP/1.1\r\n" HOST "Content-Length: 3\r\n\r\nabcGET /b HTTP/1.1\r\n" HOST "\r\n";
    (void)state;
    http_parser p;
    http_parser_init(&p, &limits);
    size_t used = feed(&p, text, sizeof text - 1, WHOLE);
    assert_string_equal(p.request.path, "/a");
    assert_string_equal(p.body, "abc");
    http_parser_next(&p);
    used += feed(&p, text + used, sizeof text - 1 - used, WHOLE);
    assert_int_equal(used, sizeof text - 1);
    assert_string_equal(p.request.path, "/b");
    http_parser_free(&p);
}

static void a_body_may_be_let_go(void **state)
{
    static const char text[] = "POST /a HTTP/1.1\r\n" HOST "Expect: 100-Continue\r\nContent-Length: 5\r\n\r\n";
    (void)state;
    http_parser p;
    http_parser_init(&p, &limits);
    assert_int_equal(http_parser_feed(&p, text, sizeof text - 1), sizeof text - 1);
    assert_int_equal(p.step, HTTP_HEAD_READ);
    assert_true(p.request.expect_continue && p.request.has_body);
    http_parser_body(&p, false);
    assert_int_equal(http_parser_feed(&p, "hello", 5), 5);
    assert_int_equal(p.step, HTTP_COMPLETE);
    assert_null(p.body);
    http_parser_free(&p);
}

static void lists(void **state)
{
    (void)state;
    assert_true(http_list_has("close", "close"));
    assert_true(http_list_has(" a ,\tClose , b", "close"));
    assert_false(http_list_has("closed", "close"));
    assert_false(http_list_has("a close", "close"));
    assert_false(http_list_has("", "close"));
    assert_false(http_list_has(NULL, "close"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_requests),      cmocka_unit_test(bad_requests),         cmocka_unit_test(too_much),
        cmocka_unit_test(what_follows_stays), cmocka_unit_test(a_body_may_be_let_go), cmocka_unit_test(lists),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
