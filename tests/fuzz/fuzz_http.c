/* SPDX-License-Identifier: Apache-2.0
 *
 * Bytes as they come from a socket, read as requests: once in one piece, once in pieces whose sizes the first byte decides. Both must find the same requests, and
 * the same end.
 */
#include "http_parse.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef struct digest {
    uint64_t hash;
    int requests, status;
    http_step step;
} digest;

static void add(digest *d, const void *bytes, size_t n)
{
    const unsigned char *p = bytes;
    for (size_t i = 0; i < n; i++) d->hash = (d->hash ^ p[i]) * 0x100000001b3u;
    d->hash = (d->hash ^ n) * 0x100000001b3u;
}

static void add_text(digest *d, const char *s) { add(d, s, strlen(s)); }

static void add_request(digest *d, const http_parser *p)
{
    const http_request *r = &p->request;
    add_text(d, r->method);
    add_text(d, r->path);
    add_text(d, r->query);
    add_text(d, r->host);
    for (size_t i = 0; i < r->headers; i++) {
        add_text(d, r->header[i].name);
        add_text(d, r->header[i].value);
    }
    add(d, p->body, p->body_len);
    d->requests++;
}

/* Sizes of the pieces: from a small generator; whole when `seed` is 0. */
static digest read_all(const char *data, size_t n, unsigned seed)
{
    const http_limits limits = {.head = 1024, .body = 512};
    http_parser p;
    digest d = {.hash = 0xcbf29ce484222325u};
    size_t at = 0, idle = 0;
    http_parser_init(&p, &limits);
    while (at < n && p.step != HTTP_BAD) {
        size_t part = n - at;
        if (seed != 0) {
            seed = seed * 1103515245u + 12345u;
            size_t piece = 1 + (seed >> 16) % 9;
            part = piece < part ? piece : part;
        }
        size_t used = http_parser_feed(&p, data + at, part);
        if (used > part) abort();
        idle = used == 0 ? idle + 1 : 0;
        if (idle > 2) abort(); /* it must move on */
        at += used;
        if (p.step == HTTP_HEAD_READ) http_parser_body(&p, (d.requests & 1) == 0);
        if (p.step != HTTP_COMPLETE) continue;
        add_request(&d, &p);
        http_parser_next(&p);
    }
    d.step = p.step;
    d.status = p.step == HTTP_BAD ? p.status : 0;
    http_parser_free(&p);
    return d;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1) return 0;
    digest whole = read_all((const char *)data + 1, size - 1, 0), pieces = read_all((const char *)data + 1, size - 1, data[0] + 1u);
    if (whole.hash != pieces.hash || whole.requests != pieces.requests || whole.step != pieces.step ||
        whole.status != pieces.status) {
        fprintf(stderr, "whole: %d requests, step %d, status %d; pieces: %d, %d, %d\n", whole.requests, whole.step, whole.status,
                pieces.requests, pieces.step, pieces.status);
        abort();
    }
    return 0;
}
