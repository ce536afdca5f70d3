/* SPDX-License-Identifier: Apache-2.0
 *
 * What the files of the server share. Everything here belongs to the event loop's thread, except where a field says otherwise.
 */
#ifndef IRONMULE_SERVE_SERVER_H
#define IRONMULE_SERVE_SERVER_H

#include "guard.h"
#include "journal.h"
#include "mailbox.h"
#include "metrics.h"
#include "serve.h"
#include "worker.h"

#include <event2/event.h>
#include <openssl/ssl.h>
#include <stdatomic.h>
#include <sys/types.h>

typedef struct conn conn;
typedef struct job job;

enum { SERVER_MAX_LISTENERS = 8 };

typedef struct server {
    const serve_options *o;
    char model_id[256];
    time_t started;
    im_model_info model;         /* immutable from the start: any thread */
    _Atomic(im_engine *) engine; /* NULL until loaded */
    struct event_base *base;
    struct evconnlistener *listener[SERVER_MAX_LISTENERS];
    size_t listeners;
    char *unix_made; /* path of a socket to remove at the end */
    SSL_CTX *tls;
    guard guard;
    journal journal;
    metrics metrics;
    mailbox mailbox;
    worker_pool workers;
    conn *conns; /* all of them */
    size_t conn_count;
    size_t body_bytes; /* of all connections */
    job *jobs;         /* all that are not finished, also those whose client is gone */
    size_t job_count;
    struct event *on_term, *on_int, *drain_timer, *watch_timer, *notify_timer, *accept_timer;
    int draining; /* the signal that asked for it; 0: none */
    bool loading, stuck, load_failed;
    im_error load_error;
    pthread_t loader;
    bool loader_started;
    int exit_code;
    uint64_t next_id; /* of requests */
    uint64_t id_salt; /* makes ids of two runs differ */
} server;

/* Milliseconds of a clock that never goes back. */
double server_now_ms(void);

/* "prefix-" and 24 hexadecimal digits, unlike any other. */
void server_new_id(server *s, const char *prefix, char out[48]);

/* Leaves the loop when it is draining and nothing is left to do. */
void server_maybe_done(server *s);

#endif
