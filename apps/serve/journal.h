/* SPDX-License-Identifier: Apache-2.0
 *
 * The log: one line for each thing that happened, as text or as JSON, on standard error. No line ever holds text of a prompt or an answer. Any thread may write; a
 * line that the reader of standard error has no room for is dropped and counted, since nobody here may wait for a log.
 */
#ifndef IRONMULE_SERVE_JOURNAL_H
#define IRONMULE_SERVE_JOURNAL_H

#include <ironmule/ironmule.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

typedef struct journal {
    bool json, debug;
    atomic_ulong dropped;
} journal;

void journal_say(journal *j, im_log_level level, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Why the program ends, at a level above those of the library: "error". */
void journal_fatal(journal *j, const char *what, const char *why);

/* What is told of a request when it has been answered. */
typedef struct journal_request {
    const char *id, *peer, *method, *path;
    const char *reason; /* code of a refusal, or how the client left; NULL */
    const char *finish; /* of the first choice; NULL */
    int status;
    bool generated; /* the numbers below mean something */
    double ms, queue_ms, first_token_ms;
    size_t prompt_tokens, cached_tokens, completion_tokens;
} journal_request;
void journal_answered(journal *j, const journal_request *r);

#endif
