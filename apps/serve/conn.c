/* SPDX-License-Identifier: Apache-2.0 */
#include "conn.h"

#include "job.h"
#include "memory.h"
#include "router.h"

#include <arpa/inet.h>
#include <errno.h>
#include <event2/bufferevent_ssl.h>
#include <jansson.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/rand.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { READ_AHEAD = 65536, WRITE_AHEAD = 262144, SMALL_BODY = 16384, LINGER_S = 2 };

static void advance(conn *c);
static void refuse_unread(conn *c, int status, const char *message, const char *code);

/* ---- deadlines ---------------------------------------------------------------------------------------------------------------------------- */

static void set_deadline(conn *c, double seconds)
{
    struct timeval t = {.tv_sec = (time_t)seconds, .tv_usec = (suseconds_t)((seconds - (double)(time_t)seconds) * 1e6)};
    if (evtimer_add(c->timer, &t) != 0) conn_break(c, "memory"); /* it would stay for ever */
}

static void set_phase(conn *c, conn_phase phase)
{
    const serve_options *o = c->s->o;
    if (c->phase == phase && phase != CONN_IDLE) return;
    c->phase = phase;
    switch (phase) {
    case CONN_IDLE: set_deadline(c, o->idle_s); break;
    case CONN_HEAD:
        if (!c->fresh) set_deadline(c, o->head_s); /* of a new connection the deadline runs since it was opened */
        break;
    case CONN_BODY: set_deadline(c, o->body_s); break;
    case CONN_ANSWER: evtimer_del(c->timer); break;
    case CONN_FLUSH: set_deadline(c, o->write_s); break;
    case CONN_LINGER: set_deadline(c, LINGER_S); break;
    }
}

void conn_remind(conn *c, double seconds)
{
    c->silent = true;
    if (seconds > 0 && c->phase == CONN_ANSWER) set_deadline(c, seconds);
}

static void remind(conn *c)
{
    if (c->job != NULL && c->silent) job_remind(c->job);
    conn_remind(c, c->s->o->comment_s);
}

static void on_deadline(evutil_socket_t fd, short what, void *user)
{
    conn *c = user;
    (void)fd;
    (void)what;
    if (c->phase == CONN_ANSWER)
        remind(c);
    else if (c->phase == CONN_HEAD)
        refuse_unread(c, 408, "the head of the request took too long", "request_timeout");
    else if (c->phase == CONN_BODY)
        refuse_unread(c, 408, "the body of the request took too long", "request_timeout");
    else
        conn_close(c, c->phase == CONN_IDLE ? "idle" : c->phase == CONN_FLUSH ? "slow_reader" : NULL);
}

/* ---- life -------------------------------------------------------------------------------------------------------------------------------- */

static void unlink_conn(conn *c)
{
    if (c->before != NULL)
        c->before->next = c->next;
    else
        c->s->conns = c->next;
    if (c->next != NULL) c->next->before = c->before;
    c->s->conn_count--;
}

static void link_conn(conn *c)
{
    c->next = c->s->conns;
    if (c->next != NULL) c->next->before = c;
    c->s->conns = c;
    c->s->conn_count++;
}

void conn_break(conn *c, const char *reason)
{
    if (c->drop != NULL) return;
    c->drop = reason;
    bufferevent_trigger_event(c->bev, BEV_EVENT_TIMEOUT, BEV_TRIG_DEFER_CALLBACKS);
}

/* What was being answered gets its line in the log, also when the client did not wait for it. */
static void finish_log(conn *c)
{
    journal_request *l = &c->log;
    if (c->begun == 0 || c->id[0] == 0) return;
    l->id = c->id;
    l->peer = c->peer;
    l->status = c->status != 0 ? c->status : 499; /* the client did not wait for an answer */
    l->ms = server_now_ms() - c->begun;
    if (c->status != 0) metrics_count(&c->s->metrics, METRIC_ANSWERS, c->route != NULL ? c->route->label : "other", c->status);
    if (!c->s->o->quiet) journal_answered(&c->s->journal, l);
    c->begun = 0;
}

void conn_close(conn *c, const char *reason)
{
    server *s = c->s;
    if (reason != NULL) metrics_count(&s->metrics, METRIC_DROPPED, reason, 0);
    if (c->phase == CONN_ANSWER) {
        c->log.reason = reason != NULL ? reason : "client_left";
        finish_log(c);
    }
    if (c->job != NULL) job_abandon(c->job);
    unlink_conn(c);
    s->body_bytes -= c->body_bytes;
    event_free(c->timer);
    bufferevent_free(c->bev);
    http_parser_free(&c->parser);
    free(c);
    server_maybe_done(s);
}

bool conn_is_idle(const conn *c)
{
    bool written = evbuffer_get_length(bufferevent_get_output(c->bev)) == 0;
    return c->phase == CONN_LINGER || (c->phase == CONN_IDLE && written);
}

/* ---- answers ---------------------------------------------------------------------------------------------------------------------------- */

static const char *status_text(int status)
{
    static const struct {
        int status;
        const char *text;
    } all[] = {{200, "OK"},
               {204, "No Content"},
               {400, "Bad Request"},
               {401, "Unauthorized"},
               {403, "Forbidden"},
               {404, "Not Found"},
               {405, "Method Not Allowed"},
               {408, "Request Timeout"},
               {413, "Content Too Large"},
               {414, "URI Too Long"},
               {417, "Expectation Failed"},
               {431, "Request Header Fields Too Large"},
               {500, "Internal Server Error"},
               {501, "Not Implemented"},
               {503, "Service Unavailable"},
               {504, "Gateway Timeout"},
               {505, "HTTP Version Not Supported"}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i].status == status) return all[i].text;
    return "Unknown";
}

static void write_head(conn *c, int status, const char *type, const char *headers)
{
    struct evbuffer *out = bufferevent_get_output(c->bev);
    char date[64];
    time_t now = time(NULL);
    struct tm parts;
    gmtime_r(&now, &parts);
    strftime(date, sizeof date, "%a, %d %b %Y %H:%M:%S GMT", &parts);
    evbuffer_add_printf(out, "HTTP/1.1 %d %s\r\nDate: %s\r\n", status, status_text(status), date);
    if (type != NULL) evbuffer_add_printf(out, "Content-Type: %s\r\n", type);
    if (c->id[0] != 0) evbuffer_add_printf(out, "X-Request-Id: %s\r\n", c->id);
    if (c->allow_origin)
        evbuffer_add_printf(out,
                            "Access-Control-Allow-Origin: %s\r\nAccess-Control-Expose-Headers: X-Request-Id, Retry-After\r\n"
                            "Vary: Origin\r\n",
                            http_request_header(&c->parser.request, "origin"));
    evbuffer_add_printf(out, "X-Content-Type-Options: nosniff\r\nCache-Control: no-store\r\n");
    if (headers != NULL) evbuffer_add_printf(out, "%s", headers);
    if (c->close_after)
        evbuffer_add_printf(out, "Connection: close\r\n");
    else if (c->parser.request.minor == 0)
        evbuffer_add_printf(out, "Connection: keep-alive\r\n");
    c->status = status;
}

static void let_go_of_body(conn *c)
{
    http_parser_let_go(&c->parser);
    c->s->body_bytes -= c->body_bytes;
    c->body_bytes = 0;
}

/* The answer is in the output buffer, all of it. */
static void answered(conn *c)
{
    if (c->parser.step != HTTP_COMPLETE || !c->parser.request.keep_alive || c->s->draining != 0) c->close_after = true;
    if (c->drop != NULL) c->log.reason = c->drop;
    finish_log(c);
    c->job = NULL;
    c->streaming = false;
    c->log = (journal_request){.id = NULL};
    c->status = 0;
    c->head_only = c->allow_origin = false;
    let_go_of_body(c);
    if (c->close_after) {
        set_phase(c, CONN_FLUSH);
        bufferevent_trigger(c->bev, EV_WRITE, BEV_TRIG_DEFER_CALLBACKS);
        return;
    }
    http_parser_next(&c->parser);
    c->id[0] = 0;
    c->route = NULL;
    set_phase(c, CONN_IDLE);
    /* What came behind this request is read from the loop, not from here: answers must not nest. */
    bufferevent_trigger(c->bev, EV_READ, BEV_TRIG_DEFER_CALLBACKS | BEV_TRIG_IGNORE_WATERMARKS);
}

void conn_answer(conn *c, int status, const char *type, const void *body, size_t n, const char *headers)
{
    struct evbuffer *out = bufferevent_get_output(c->bev);
    if (c->parser.step != HTTP_COMPLETE || !c->parser.request.keep_alive || c->s->draining != 0) c->close_after = true;
    write_head(c, status, type, headers);
    if (status != 204) evbuffer_add_printf(out, "Content-Length: %zu\r\n", n);
    evbuffer_add(out, "\r\n", 2);
    if (!c->head_only && n > 0) evbuffer_add(out, body, n);
    if (memory_was_short()) conn_break(c, "memory");
    answered(c);
}

static const char *error_type(int status)
{
    if (status == 401) return "authentication_error";
    if (status == 403) return "permission_error";
    return status >= 500 ? "server_error" : "invalid_request_error";
}

char *error_body(int status, const char *message, const char *param, const char *code)
{
    json_t *doc = json_pack("{s:{s:s, s:s, s:s?, s:s?}}", "error", "message", message, "type", error_type(status), "param", param,
                            "code", code);
    char *text = doc == NULL ? NULL : json_dumps(doc, JSON_PRESERVE_ORDER);
    json_decref(doc);
    return text;
}

void conn_refuse(conn *c, int status, const char *message, const char *param, const char *code)
{
    static const char last_resort[] = "{\"error\": {\"message\": \"out of memory\", \"type\": \"server_error\", \"param\": null, "
                                      "\"code\": null}}";
    char headers[128] = "";
    char *body = error_body(status, message, param, code);
    memory_was_short(); /* that is why, or does not matter */
    if (status == 503) snprintf(headers, sizeof headers, "Retry-After: %d\r\n", c->s->loading ? 5 : 1);
    if (status == 401) snprintf(headers, sizeof headers, "WWW-Authenticate: Bearer realm=\"ironmule\"\r\n");
    if (status == 405) snprintf(headers, sizeof headers, "Allow: %s\r\n", c->route->post ? "POST, OPTIONS" : "GET, HEAD, OPTIONS");
    metrics_count(&c->s->metrics, METRIC_REFUSALS, code != NULL ? code : "bad_request", 0);
    c->log.reason = code != NULL ? code : "bad_request";
    conn_answer(c, status, "application/json", body != NULL ? body : last_resort,
                body != NULL ? strlen(body) : sizeof last_resort - 1, headers);
    free(body);
}

void conn_stream_begin(conn *c, const char *type)
{
    c->streaming = true;
    c->chunked = c->parser.request.minor > 0;
    if (!c->parser.request.keep_alive || !c->chunked || c->s->draining != 0) c->close_after = true;
    write_head(c, 200, type, c->chunked ? "Transfer-Encoding: chunked\r\nX-Accel-Buffering: no\r\n" : NULL);
    evbuffer_add(bufferevent_get_output(c->bev), "\r\n", 2);
    if (memory_was_short()) conn_break(c, "memory");
}

void conn_stream_write(conn *c, const void *data, size_t n)
{
    struct evbuffer *out = bufferevent_get_output(c->bev);
    if (n == 0 || c->drop != NULL) return;
    c->silent = false;
    if (c->chunked) evbuffer_add_printf(out, "%zx\r\n", n);
    evbuffer_add(out, data, n);
    if (c->chunked) evbuffer_add(out, "\r\n", 2);
    if (memory_was_short())
        conn_break(c, "memory");
    else if (evbuffer_get_length(out) > c->s->o->max_output)
        conn_break(c, "slow_reader");
}

void conn_stream_end(conn *c)
{
    if (c->chunked && c->drop == NULL) evbuffer_add(bufferevent_get_output(c->bev), "0\r\n\r\n", 5);
    if (memory_was_short()) conn_break(c, "memory");
    answered(c);
}

/* ---- requests ---------------------------------------------------------------------------------------------------------------------------- */

static void name_freely(conn *c)
{
    char id[48];
    server_new_id(c->s, "req-", id);
    snprintf(c->id, sizeof c->id, "%s", id);
}

/* A request's own id is taken over when it can stand in a header and a log as it is. */
static void name_request(conn *c)
{
    const char *given = http_request_header(&c->parser.request, "x-request-id");
    size_t n = given == NULL ? 0 : strlen(given);
    if (n > 0 && n < sizeof c->id && strspn(given, "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz-_.:") == n)
        memcpy(c->id, given, n + 1);
    else
        name_freely(c);
}

/* An answer to something that is no request, or not a whole one. */
static void refuse_unread(conn *c, int status, const char *message, const char *code)
{
    if (c->id[0] == 0) {
        name_freely(c);
        c->log = (journal_request){.method = "-", .path = "-"};
    }
    c->close_after = true;
    set_phase(c, CONN_ANSWER);
    conn_refuse(c, status, message, NULL, code);
}

/* Clients that write head and body apart, and wait in between for word of the head, wait for the kernel's delayed acknowledgement: 40 ms. */
static void acknowledge(conn *c)
{
    int one = 1;
    bool waits = c->parser.step == HTTP_BODY && evbuffer_get_length(bufferevent_get_input(c->bev)) == 0;
    if (waits && !c->local) setsockopt(bufferevent_getfd(c->bev), IPPROTO_TCP, TCP_QUICKACK, &one, sizeof one);
}

static void on_head(conn *c)
{
    const http_request *r = &c->parser.request;
    struct evbuffer *out = bufferevent_get_output(c->bev);
    c->fresh = false;
    c->refusal = (refusal){.status = 0};
    c->head_only = strcmp(r->method, "HEAD") == 0;
    c->log = (journal_request){.method = r->method, .path = r->path};
    name_request(c);
    router_decide(c);
    http_parser_body(&c->parser, c->refusal.status == 0);
    /* Whoever waits for a word before sending a body, or sends more than is read, gets the answer at once and no further turn. */
    bool at_once = c->parser.step == HTTP_BAD || (c->refusal.status != 0 && r->expect_continue);
    if (!at_once) {
        set_phase(c, CONN_BODY);
        acknowledge(c);
        if (r->expect_continue && evbuffer_get_length(bufferevent_get_input(c->bev)) == 0)
            evbuffer_add_printf(out, "HTTP/1.1 100 Continue\r\n\r\n");
        if (memory_was_short()) conn_break(c, "memory");
        return;
    }
    c->close_after = true;
    set_phase(c, CONN_ANSWER);
    if (c->refusal.status != 0)
        conn_refuse(c, c->refusal.status, c->refusal.message, c->refusal.param, c->refusal.code);
    else
        conn_refuse(c, c->parser.status, c->parser.why, NULL, c->parser.status == 413 ? "body_too_long" : NULL);
}

static void on_complete(conn *c)
{
    set_phase(c, CONN_ANSWER);
    if (c->refusal.status != 0)
        conn_refuse(c, c->refusal.status, c->refusal.message, c->refusal.param, c->refusal.code);
    else
        router_handle(c);
}

/* Bodies of all connections share a budget, so that many of them together cannot take all memory; small ones go through whatever others send. false: refused. */
static bool account(conn *c, size_t now)
{
    server *s = c->s;
    s->body_bytes += now - c->body_bytes;
    c->body_bytes = now;
    if (s->body_bytes <= s->o->max_bodies || now <= SMALL_BODY) return true;
    refuse_unread(c, 503, "too many large requests at once", "memory");
    return false;
}

static const char *parser_code(const conn *c)
{
    return c->parser.status == 413 ? "body_too_long" : c->parser.status == 503 ? "memory" : "bad_http";
}

/* Reads on as far as a request is complete; one at a time, and none while answers to earlier ones are not read. */
static void advance(conn *c)
{
    struct evbuffer *in = bufferevent_get_input(c->bev), *out = bufferevent_get_output(c->bev);
    memory_was_short(); /* what others lacked is no matter here */
    while (c->phase <= CONN_BODY && c->drop == NULL && evbuffer_get_length(out) <= WRITE_AHEAD) {
        if (c->parser.step == HTTP_COMPLETE) {
            on_complete(c);
            return;
        }
        size_t n = evbuffer_get_contiguous_space(in);
        if (n == 0 && c->eof) {
            c->close_after = true;
            set_phase(c, CONN_FLUSH);
            bufferevent_trigger(c->bev, EV_WRITE, BEV_TRIG_DEFER_CALLBACKS);
        }
        if (n == 0) return;
        if (c->phase == CONN_IDLE) {
            c->begun = server_now_ms();
            set_phase(c, CONN_HEAD);
        }
        const char *data = (const char *)evbuffer_pullup(in, (ev_ssize_t)n);
        evbuffer_drain(in, http_parser_feed(&c->parser, data, n));
        if (c->parser.body_cap > c->body_bytes && !account(c, c->parser.body_cap)) return;
        if (c->parser.step == HTTP_HEAD_READ)
            on_head(c);
        else if (c->parser.step == HTTP_BAD)
            refuse_unread(c, c->parser.status, c->parser.why, parser_code(c));
    }
}

/* ---- events ------------------------------------------------------------------------------------------------------------------------------ */

static void on_read(struct bufferevent *bev, void *user)
{
    conn *c = user;
    if (c->phase == CONN_LINGER || c->phase == CONN_FLUSH)
        evbuffer_drain(bufferevent_get_input(bev), evbuffer_get_length(bufferevent_get_input(bev)));
    else
        advance(c);
}

static void on_write(struct bufferevent *bev, void *user)
{
    conn *c = user;
    if (c->phase <= CONN_BODY) advance(c); /* it may have waited for room */
    /* The last answer was on its way when the end began. */
    if (c->phase == CONN_IDLE && c->s->draining != 0 && conn_is_idle(c)) {
        conn_close(c, NULL);
        return;
    }
    if (c->phase != CONN_FLUSH || evbuffer_get_length(bufferevent_get_output(bev)) > 0) return;
    if (c->eof) {
        conn_close(c, NULL);
        return;
    }
    SSL *ssl = bufferevent_openssl_get_ssl(bev);
    if (ssl != NULL) SSL_shutdown(ssl);
    shutdown(bufferevent_getfd(bev), SHUT_WR);
    set_phase(c, CONN_LINGER);
}

/* HTTP where TLS is spoken, which the library knows by its first letters. The answer goes past it. */
static bool answer_plain(conn *c)
{
    static const char no[] = "HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n"
                             "{\"error\": {\"message\": \"this port speaks TLS: the address begins with https://\", \"type\": "
                             "\"invalid_request_error\", \"param\": null, \"code\": \"bad_http\"}}\n";
    char rest[4096];
    bool plain = false;
    int fd = bufferevent_getfd(c->bev);
    for (unsigned long why; (why = bufferevent_get_openssl_error(c->bev)) != 0;)
        plain = plain || ERR_GET_REASON(why) == SSL_R_HTTP_REQUEST;
    if (!plain) return false;
    metrics_count(&c->s->metrics, METRIC_REFUSALS, "bad_http", 0);
    ssize_t unheard = send(fd, no, sizeof no - 1, MSG_DONTWAIT | MSG_NOSIGNAL);
    (void)unheard;
    /* What is left unread would take the answer back. */
    for (int turns = 0; turns < 64 && recv(fd, rest, sizeof rest, MSG_DONTWAIT) > 0; turns++) continue;
    shutdown(fd, SHUT_WR);
    set_phase(c, CONN_LINGER);
    return true;
}

static void on_event(struct bufferevent *bev, short what, void *user)
{
    conn *c = user;
    (void)bev;
    if (what & BEV_EVENT_CONNECTED) return;
    if (what & BEV_EVENT_TIMEOUT) {
        conn_close(c, c->drop != NULL ? c->drop : "slow_reader");
        return;
    }
    if ((what & BEV_EVENT_ERROR) != 0 && c->s->tls != NULL && c->fresh && answer_plain(c)) return;
    /* The end of what it sent and a failure to write may come in one call; after a failure nothing is written any more. */
    if ((what & BEV_EVENT_ERROR) != 0 || (what & BEV_EVENT_EOF) == 0 || c->job != NULL || c->phase == CONN_LINGER) {
        conn_close(c, NULL);
        return;
    }
    c->eof = true; /* it may still read what was asked before */
    if (c->phase <= CONN_BODY) advance(c);
}

/* ---- opening ------------------------------------------------------------------------------------------------------------------------------ */

/* FNV-1a; only to tell clients apart. */
static uint64_t hash_bytes(const void *data, size_t n)
{
    const unsigned char *p = data;
    uint64_t h = 0xcbf29ce484222325u;
    for (size_t i = 0; i < n; i++) h = (h ^ p[i]) * 0x100000001b3u;
    return h;
}

static void name_peer(conn *c, const struct sockaddr *address)
{
    char text[INET6_ADDRSTRLEN] = "";
    if (address->sa_family == AF_INET) {
        const struct sockaddr_in *a = (const void *)address;
        inet_ntop(AF_INET, &a->sin_addr, text, sizeof text);
        c->address = hash_bytes(&a->sin_addr, sizeof a->sin_addr);
    } else if (address->sa_family == AF_INET6) {
        const struct sockaddr_in6 *a = (const void *)address;
        inet_ntop(AF_INET6, &a->sin6_addr, text, sizeof text);
        c->address = hash_bytes(&a->sin6_addr, 8); /* of a network that belongs to one subscriber */
    }
    c->local = address->sa_family == AF_UNIX;
    snprintf(c->peer, sizeof c->peer, "%s", c->local ? "unix" : text);
}

/* Someone who says nothing gives way to someone who may: the connection that has been idle longest, or has been sending its head for longest. */
static bool make_room(server *s)
{
    conn *victim = NULL;
    for (conn *c = s->conns; c != NULL; c = c->next) /* the newest stand first */
        if (conn_is_idle(c) || (c->phase == CONN_HEAD && server_now_ms() - c->begun > 1000)) victim = c;
    if (victim == NULL) return false;
    conn_close(victim, "made_room");
    return true;
}

static struct bufferevent *make_stream(server *s, int fd)
{
    const int options = BEV_OPT_CLOSE_ON_FREE | BEV_OPT_DEFER_CALLBACKS;
    if (s->tls == NULL) return bufferevent_socket_new(s->base, fd, options);
    SSL *ssl = SSL_new(s->tls);
    if (ssl == NULL) return NULL;
    struct bufferevent *bev = bufferevent_openssl_socket_new(s->base, fd, ssl, BUFFEREVENT_SSL_ACCEPTING, options);
    if (bev == NULL)
        SSL_free(ssl);
    else
        bufferevent_openssl_set_allow_dirty_shutdown(bev, 1);
    return bev;
}

bool conn_open(server *s, int fd, const struct sockaddr *address, int address_len)
{
    const http_limits limits = {.head = s->o->max_head, .body = s->o->max_body};
    const struct timeval write_limit = {.tv_sec = (time_t)s->o->write_s};
    int one = 1;
    (void)address_len;
    s->metrics.accepted++;
    memory_was_short(); /* what others lacked is no matter here */
    if (s->conn_count >= s->o->max_connections && !make_room(s)) {
        static const char full[] =
            "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n"
            "{\"error\": {\"message\": \"all connections of the server are taken\", \"type\": \"server_error\", \"param\": null, "
            "\"code\": \"connections\"}}\n";
        metrics_count(&s->metrics, METRIC_REFUSALS, "connections", 0);
        ssize_t unheard = s->tls == NULL ? send(fd, full, sizeof full - 1, MSG_DONTWAIT | MSG_NOSIGNAL) : 0;
        (void)unheard;
        close(fd);
        return false;
    }
    conn *c = memory_is_short() ? NULL : calloc(1, sizeof *c);
    if (c != NULL) c->bev = make_stream(s, fd);
    if (c == NULL || c->bev == NULL) {
        free(c);
        close(fd);
        return false;
    }
    c->s = s;
    http_parser_init(&c->parser, &limits);
    c->timer = evtimer_new(s->base, on_deadline, c);
    if (c->timer == NULL || memory_was_short()) {
        if (c->timer != NULL) event_free(c->timer);
        bufferevent_free(c->bev);
        free(c);
        return false;
    }
    name_peer(c, address);
    if (!c->local) setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    link_conn(c);
    bufferevent_setcb(c->bev, on_read, on_write, on_event, c);
    bufferevent_setwatermark(c->bev, EV_READ, 0, READ_AHEAD);
    bufferevent_set_timeouts(c->bev, NULL, &write_limit);
    c->fresh = true;
    set_deadline(c, s->o->head_s); /* a new connection has as long as a head has; a kept one may be idle */
    bufferevent_enable(c->bev, EV_READ | EV_WRITE);
    return true;
}
