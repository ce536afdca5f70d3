/* SPDX-License-Identifier: Apache-2.0
 *
 * One connection of a client: requests in, answers out, in order; deadlines that no byte postpones; and an end that does not cut off the last answer.
 *
 * A request's life: its head is read -> router_decide -> its body is read -> router_handle -> conn_answer, or conn_stream_... -> the next request. While an answer
 * is on its way, bytes of the next request wait. A client that closes its side while its answer is computed is taken as gone (its job is told).
 */
#ifndef IRONMULE_SERVE_CONN_H
#define IRONMULE_SERVE_CONN_H

#include "server.h"

#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <sys/socket.h>

typedef struct route route;

typedef enum conn_phase {
    CONN_IDLE,   /* nothing of a request has come */
    CONN_HEAD,   /* a part of a head */
    CONN_BODY,   /* reading a body, to be kept or thrown away */
    CONN_ANSWER, /* the request is complete; its answer is being made or written */
    CONN_FLUSH,  /* the last answer is being written */
    CONN_LINGER  /* said goodbye; what the client still sends is thrown away, so that it reads the answer */
} conn_phase;

/* An answer that says no. All texts are static or live as long as the request. */
typedef struct refusal {
    int status; /* 0: not refused */
    const char *message, *param, *code;

} refusal;

struct conn {
    server *s;
    conn *next, *before;
    struct bufferevent *bev;
    struct event *timer;
    http_parser parser;
    conn_phase phase;
    const route *route; /* of the present request; NULL: unknown path */
    int key;            /* number of its API key */
    bool head_only;     /* HEAD */
    bool allow_origin;  /* the answer names the request's origin */
    bool close_after;   /* no further request on this connection */
    bool streaming, chunked;
    bool local;       /* over a Unix socket */
    bool eof;         /* the client has closed its side */
    bool silent;      /* a stream in which nothing was written since the last comment */
    const char *drop; /* why it goes as soon as nothing of it is in use: it reads too slowly, ...; NULL: it stays */
    refusal refusal;
    char refusal_text[256]; /* room for a message that is put together */
    job *job;               /* that computes the present answer */
    size_t body_bytes;      /* counted in the server's */
    bool fresh;             /* nothing has been asked yet */
    uint64_t address;       /* hash of the client's address */
    char peer[64];
    char id[130]; /* of the present request: X-Request-Id */
    double begun; /* ms: when the present request's first byte came */
    int status;   /* of the present answer */
    journal_request log;
};

/* Takes over a connected socket. false (and the socket is closed): no memory, or too many connections. */
bool conn_open(server *s, int fd, const struct sockaddr *address, int address_len);

/* Ends it a little later, never within the call, and without another byte: an answer cannot be completed. `reason` is static. */
void conn_break(conn *c, const char *reason);

/* Ends it now; the job, if any, is cancelled. */
void conn_close(conn *c, const char *reason);

/* A whole answer. `headers`: further lines, each ending in CR LF; NULL: none. The text is copied. */
void conn_answer(conn *c, int status, const char *type, const void *body, size_t n, const char *headers);
/* The same with an error body; `param` and `code` may be NULL. */
void conn_refuse(conn *c, int status, const char *message, const char *param, const char *code);

/* An answer in pieces. A client that reads too slowly is dropped a little later, never within the call. */
void conn_stream_begin(conn *c, const char *type);
void conn_stream_write(conn *c, const void *data, size_t n);
void conn_stream_end(conn *c);

/* From now on a job that streams is reminded (job_remind) each time it was silent for `seconds`; 0: never. */
void conn_remind(conn *c, double seconds);

/* Nothing is pending here: for a drain. */
bool conn_is_idle(const conn *c);

/* {"error": {...}} as text; free with free. Never NULL for status and code that fit: falls back to a static copy when memory is short (then *copy is NULL). */
char *error_body(int status, const char *message, const char *param, const char *code);

#endif
