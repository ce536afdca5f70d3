/* SPDX-License-Identifier: Apache-2.0
 *
 * Who may ask: API keys, names that this server answers to (against a web page that points its own name here), and pages of other origins (CORS).
 */
#ifndef IRONMULE_SERVE_GUARD_H
#define IRONMULE_SERVE_GUARD_H

#include "http_parse.h"
#include "serve.h"

typedef struct guard {
    unsigned char (*digests)[32]; /* SHA-256 of each key: the keys themselves are not kept */
    size_t keys;
    const serve_names *origins, *hosts;
    const char *bound_host;
    bool check_host; /* reachable from this machine without a key: only its own names are answered */
} guard;

/* Reads the keys: lines of a file, or of an environment variable's value; blank lines and those that begin with # do not count. Errors: IM_ERR_IO, IM_ERR_FORMAT
 * (no key at all, one that is shorter than 8 letters or has a blank inside). */
im_status guard_open(guard *g, const serve_options *o, im_error *err);
void guard_close(guard *g);

/* Number of the key that the Authorization header holds (0 ..), or -1. Every key is compared, each in constant time. Without keys: 0. */
int guard_key(const guard *g, const http_request *r);

/* Is the Host header one of this server's names? */
bool guard_host(const guard *g, const http_request *r);

/* What the Origin header means. */
typedef enum guard_origin {
    ORIGIN_NONE,    /* not a page of another origin */
    ORIGIN_ALLOWED, /* answers name it in Access-Control-Allow-Origin */
    ORIGIN_FOREIGN  /* neither this server's own page nor allowed */
} guard_origin;
guard_origin guard_check_origin(const guard *g, const http_request *r);

#endif
