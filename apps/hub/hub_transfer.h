/* SPDX-License-Identifier: Apache-2.0
 *
 * One GET of one address of the Hub: its redirects, its failures and what to do about them. The caller drives libcurl (easy or multi) and
 * asks `hub_transfer_judge` after each attempt what comes next.
 */
#ifndef IRONMULE_HUB_TRANSFER_H
#define IRONMULE_HUB_TRANSFER_H

#include "hub/hub_net.h"

#include <curl/curl.h>

typedef enum hub_verdict {
    HUB_COMPLETE, /* the body has arrived, as far as the server sent one */
    HUB_FOLLOW,   /* start again at once: redirected */
    HUB_RETRY,    /* start again after `wait` seconds */
    HUB_RESTART,  /* the range was refused: start again without what is there */
    HUB_REFUSED   /* `err` says why */
} hub_verdict;

typedef struct hub_transfer {
    CURL *easy;
    struct curl_slist *headers;
    const hub_env *env;
    const hub_id *id;
    const char *what;   /* the file's name; NULL: the list of files */
    char *first, *url;  /* the Hub's own address; where redirects have led */
    int hops, failures; /* since the last byte that arrived */
    bool restarted;     /* once is enough */
    double wait;        /* seconds, after HUB_RETRY */
    /* the answer to this attempt */
    long status;
    char *location;
    size_t head;        /* bytes of headers */
    double retry_after; /* seconds; negative: not told */
    char code[48];      /* X-Error-Code */
    bool ranged;
    uint64_t range_from; /* of Content-Range */
} hub_transfer;

/* `url` is copied. */
im_status hub_transfer_open(hub_transfer *t, const hub_env *e, const hub_id *id, const char *what, const char *url, im_error *err);
void hub_transfer_close(hub_transfer *t);

/* Sets libcurl up for one attempt from byte `from`; body bytes of an answer with status 200 or 206 go to `sink`, and to `user`. */
im_status hub_transfer_prepare(hub_transfer *t, uint64_t from, curl_write_callback sink, void *user, im_error *err);

hub_verdict hub_transfer_judge(hub_transfer *t, CURLcode code, im_error *err);

/* For a path in an address: what is not plain becomes %NN. Free with free; NULL: out of memory. */
char *hub_escape(const char *text, bool keep_slashes);

#endif
