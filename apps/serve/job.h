/* SPDX-License-Identifier: Apache-2.0
 *
 * One POST that a worker prepares and, when it asks for text, the engine answers: one HTTP answer from one or several requests to the engine (choices).
 *
 *     job_start          on the loop: takes the body from the connection, gives the job to a worker
 *     job_prepare        on a worker: reads the body, renders, encodes, submits (prepare.c) or writes the whole reply itself (text_routes.c)
 *     letters            prepared, token, end: back on the loop, which writes the answer (answer.c) or the stream (stream.c)
 *
 * A job outlives its connection: when the client leaves, its requests are cancelled, and it goes when the engine has let go of the last of them.
 */
#ifndef IRONMULE_SERVE_JOB_H
#define IRONMULE_SERVE_JOB_H

#include "conn.h"
#include "fields.h"

typedef enum job_kind { JOB_CHAT, JOB_COMPLETION, JOB_TOKENIZE, JOB_DETOKENIZE, JOB_TEMPLATE } job_kind;

/* What the engine's thread sends for each token. */
typedef struct token_letter {
    letter letter;
    struct choice *choice;
    int32_t id;
    float logprob;
    uint32_t top_count, text_len;
    im_top_token top[FIELDS_MAX_TOP];
    char text[]; /* text_len bytes */
} token_letter;

/* One answer of the engine. From submission to its end letter the engine's thread reads `job` and `letter`. */
typedef struct choice {
    letter end;
    struct job *job;
    uint32_t index, prompt; /* prompt: which one of the job's */
    im_request *request;
    bool ended;
    im_status status;
    im_error error;
    im_result result;
    json_t *entries; /* log-probabilities that were not sent yet; NULL: none wanted */
    letter *tokens,
        **tokens_last; /* token letters whose log-probabilities are worked out with the answer, when it is not streamed */
    size_t taken;      /* bytes of the entries that were sent, as the tokens have them */
    size_t letters;    /* characters of the same, for text_offset */
    size_t sent;       /* bytes of text that were sent */
    bool opened;       /* streams: the first chunk was sent */
} choice;

struct job {
    task task;       /* in a worker's queue */
    letter prepared; /* then on its way back */
    server *s;
    conn *conn; /* loop only; NULL: the client left */
    job *next, *before;
    job_kind kind;
    char id[48]; /* "chatcmpl-..." */
    time_t created;
    char *body;
    size_t body_len;
    uint64_t client;
    double arrived;        /* ms */
    atomic_bool cancelled; /* any thread */
    atomic_bool starved;   /* set by the engine's thread: no memory for a token */
    problem problem;       /* of the preparation */
    char *reply;           /* a whole JSON answer of the worker; NULL */
    fields f;
    int32_t **prompts; /* [f.prompt_count] ids, with their counts; until they are submitted */
    size_t *prompt_lens;
    choice *choices;
    size_t choice_count, submitted; /* submitted: those that will send an end letter */
    /* loop only */
    bool is_prepared, begun;
    bool composing; /* a worker writes the reply */
    size_t ended;
    double first_token;          /* ms from arrival; 0: none yet */
    letter *early, **early_last; /* letters that came before `prepared` */
};

void job_start(conn *c, job_kind kind);

/* The client left, or the server does not want to wait: cancels. The connection forgets the job. */
void job_abandon(job *j);

/* At the end of a drain: cancels the requests; the client is told. */
void job_cancel(job *j);

/* A stream has been silent for long: proxies and clients are told that something is still coming. */
void job_remind(job *j);

/* ---- on a worker (prepare.c, text_routes.c) ---- */

void job_prepare(task *t);
void job_tokenize(job *j);
void job_detokenize(job *j);
void job_template(job *j);
/* The body as an object with a checked model, into j->f.doc. */
bool job_read_body(job *j);
const fields_rules *job_rules(job *j, fields_rules *rules, const char *names[SERVE_MAX_NAMES + 3]);
/* A problem from an error of the library. */
bool job_failed(job *j, const im_error *err);

/* Sets the callbacks of a choice's request. */
void job_hooks(job *j, choice *c, im_request_options *o);

/* ---- on the loop: how answers look (answer.c, stream.c) ---- */

/* Status, type and code of an HTTP error for an error of the library. */
int status_of(im_status status, const char **code);

/* "stop", "length". */
const char *finish_reason(im_stop_reason reason);
json_t *usage_object(const job *j);
/* The "ironmule" object, or NULL when nothing asks for it. */
json_t *extras_object(const job *j);
/* Lets go of c->tokens. */
void choice_free_tokens(choice *c);
/* Notes a token's log-probabilities (logprobs.c). */
void logprobs_add(const job *j, choice *c, const token_letter *t);
/* What the API shows as the logprobs of the text that was sent since the last call; null when none are wanted. `ended`: the choice has ended, c->result counts. */
json_t *logprobs_take(const job *j, choice *c, bool ended);

/* A text that may hold bytes that are no UTF-8: each of them becomes U+FFFD. */
json_t *text_of_bytes(const char *bytes, size_t n);

void answer_compose(job *j); /* the whole answer, into j->reply; on the loop or on a worker */
void answer_write(job *j);   /* sends j->reply */

void stream_begin(job *j); /* the head, if it was not sent yet */
void stream_token(job *j, choice *c, const token_letter *t);
void stream_choice_end(job *j, choice *c);
void stream_finish(job *j, const choice *wrong); /* wrong: the choice that failed; NULL: none */

#endif
