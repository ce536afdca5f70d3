/* SPDX-License-Identifier: Apache-2.0
 *
 * A strict reader of HTTP/1.x requests (RFC 9110, 9112) that knows nothing of sockets: bytes go in as they come, in pieces of any size. Whatever two readers might
 * understand differently is refused: a blank before the colon, folded lines, bare line feeds, several lengths, a length beside a transfer coding.
 *
 *     http_parser_init(&p, &limits);
 *     used = http_parser_feed(&p, data, n)      until p.step is HTTP_HEAD_READ: p.request is filled in, nothing of the body was touched
 *     http_parser_body(&p, true)                keep the body (false: read it, and let it go)
 *     used = http_parser_feed(&p, ...)          until p.step is HTTP_COMPLETE
 *     http_parser_next(&p)                      for the next request of the same connection
 *
 * A bad request leaves HTTP_BAD with p.status (400, 408 never, 413, 414, 417, 431, 501, 505) and p.why; the connection cannot be read any further then.
 */
#ifndef IRONMULE_SERVE_HTTP_PARSE_H
#define IRONMULE_SERVE_HTTP_PARSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct http_limits {
    size_t head; /* bytes of request line and headers; also of trailers */
    size_t body; /* bytes of a body that is kept or thrown away */
} http_limits;

enum { HTTP_MAX_HEADERS = 100, HTTP_MAX_TARGET = 4096 };

typedef enum http_step {
    HTTP_HEAD,
    HTTP_HEAD_READ, /* waits for http_parser_body */
    HTTP_BODY,
    HTTP_COMPLETE,
    HTTP_BAD
} http_step;

typedef struct http_header {
    const char *name; /* in lower case */
    const char *value;
} http_header;

/* Texts live until http_parser_next or http_parser_free. */
typedef struct http_request {
    const char *method, *path,
        *query;       /* path without its query and without a slash at its end ("/" alone stays); query may be "" */
    const char *host; /* of the header, or of a target in absolute form; "" when an HTTP/1.0 request has none */
    int minor;        /* HTTP/1.minor: 0 or 1 */
    bool keep_alive, expect_continue, chunked;
    bool has_body;   /* something follows the head */
    uint64_t length; /* of the body; 0 when chunked */
    http_header header[HTTP_MAX_HEADERS];
    size_t headers;
} http_request;

typedef struct http_parser {
    http_limits limits;
    http_step step;
    http_request request;
    char *head, *body; /* body: body_len bytes and a terminating zero; NULL when there is none */
    size_t head_len, head_cap, body_len, body_cap;
    int status;      /* of HTTP_BAD */
    const char *why; /* lives as long as the parser */
    /* inside */
    bool keep;
    int part;          /* of a chunked body */
    uint64_t left;     /* bytes of the body, or of this chunk */
    uint64_t received; /* bytes of the body so far */
    size_t line;       /* bytes of the chunk's line or of the trailers so far */
    char text[160];    /* room for a reason that has numbers */
} http_parser;

void http_parser_init(http_parser *p, const http_limits *limits);
void http_parser_free(http_parser *p);
void http_parser_let_go(http_parser *p); /* of the body that was kept; no more of it may be fed */
void http_parser_next(http_parser *p);

/* How many of the n bytes were used: all of them, or as many as belong to what was waited for. */
size_t http_parser_feed(http_parser *p, const char *data, size_t n);

/* After HTTP_HEAD_READ. A body that is announced as longer than the limit is HTTP_BAD at once. */
void http_parser_body(http_parser *p, bool keep);

/* Has anything of the next request arrived? */
bool http_parser_begun(const http_parser *p);

/* Value of a header (name in lower case), or NULL. Of one that is there twice the first. */
const char *http_request_header(const http_request *r, const char *name);

/* Is `token` one of the elements of a comma-separated list? Letters of any case. */
bool http_list_has(const char *list, const char *token);

#endif
