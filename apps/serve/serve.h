/* SPDX-License-Identifier: Apache-2.0
 *
 * The HTTP server: an API of OpenAI's shape in front of one engine. This header is all that the command line sees of it.
 *
 * Three kinds of threads. The event loop (the thread that calls serve_run) owns every connection and job, and never computes: it answers health, metrics and refusals
 * at once. Two workers read bodies, render templates, encode text and submit requests: one for small bodies, one for large ones. The engine's thread hands each
 * token to the loop through the mailbox and never waits for it.
 */
#ifndef IRONMULE_SERVE_SERVE_H
#define IRONMULE_SERVE_SERVE_H

#include <ironmule/ironmule.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SERVE_MAX_NAMES = 16, SERVE_NOTE = 512 };

typedef struct serve_names {
    const char *item[SERVE_MAX_NAMES + 1]; /* NULL-terminated */
    size_t count;
} serve_names;

/* Everything is borrowed and must outlive serve_run. Times in seconds, sizes in bytes. */
typedef struct serve_options {
    im_model *model; /* opened by the caller, closed by the caller */
    serve_names
        aliases;    /* further names of the model, beside the file's name without .gguf; the first one is what answers call it */
    bool any_model; /* requests may name any model */
    const char *chat_template; /* text of a template to use in place of the model's; NULL: the model's */
    im_engine_options engine;
    im_memory_plan plan; /* of that engine, for the log */

    const char *host; /* address to listen on: "127.0.0.1", "::1", "0.0.0.0" ... */
    int port;
    const char *unix_path; /* a Unix socket in place of the address; NULL: none */
    const char *tls_cert, *tls_key;
    const char *key_env, *key_file; /* where API keys stand, one a line; NULL: none */
    serve_names origins;            /* that may use the server from a browser; "*": all */
    serve_names hosts;              /* further names that this server answers to; "*": all */

    size_t max_head, max_body, max_output; /* of a request's head and body; of an answer that waits for a slow reader */
    size_t max_bodies;                     /* bytes of the bodies of all connections together */
    uint32_t max_connections;
    uint32_t max_choices; /* answers that one request may ask for */
    double head_s, body_s, idle_s, write_s;
    double request_s; /* a request may take so long from its arrival; 0: no limit */
    double drain_s, stuck_s;
    double comment_s;            /* a stream that has had nothing to say for so long sends a comment; 0: never */
    uint32_t default_max_tokens; /* when a request does not say; 0: as the context allows */

    bool log_json, log_debug, quiet; /* quiet: no line for each request */
} serve_options;

/* Defaults of everything but the model. */
void serve_options_defaults(serve_options *o);

/* Is this address reachable from this machine only? */
bool serve_is_loopback(const char *host);

/* Loads the engine and serves until a signal ends it. Returns the exit code: 0 after a drain, 1 when it cannot start, which is said in one line of level "error". */
int serve_run(const serve_options *o);

/* Would serve_run find its keys, its certificate, its address and its cache folder as it needs them? Opens no port and changes nothing. `note`: what is no error but
 * ought to be known, else "". Errors: IM_ERR_ARGUMENT, IM_ERR_IO, IM_ERR_FORMAT, in the words that serve_run would use. */
im_status serve_check(const serve_options *o, char note[SERVE_NOTE], im_error *err);

#endif
