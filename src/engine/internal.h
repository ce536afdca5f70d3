/* SPDX-License-Identifier: Apache-2.0
 *
 * The engine's own state. One thread (engine_main) drives steps; everybody else only touches the queue and the flags under `lock`.
 *
 * Invariants
 *  1. A request belongs to the submitter until it is queued, to the engine's thread until it is `finished`, to the submitter after that.
 *  2. What a callback or im_request_wait sees of a result was written before `finished` was set under the lock.
 *  3. In a step the rows of one request stand together, in rising position order.
 *  4. A request keeps its engine's lock alive (im_engine.users), so that it may be waited for and freed after the engine was closed.
 *  5. While anything is queued or runs the engine's thread does not sleep; it looks at every `cancelled` between two steps.
 */
#ifndef IRONMULE_ENGINE_INTERNAL_H
#define IRONMULE_ENGINE_INTERNAL_H

#include "base/mem.h"
#include "engine/kv.h"
#include "engine/sampler.h"
#include "model/model.h"

#include <ironmule/ironmule.h>
#include <pthread.h>
#include <stdatomic.h>

/* Rows of one request that may want logits in a step while a text is scored; it bounds the memory for logits. */
#define IM__SCORE_ROWS 16

struct im_model {
    atomic_int users;
    im__gguf *file;
    im__tokenizer *tokenizer;
    im__vocab_arrays arrays;
    im__template *chat; /* NULL: none, or it could not be compiled: see chat_error */
    im_error chat_error;
    im__program program;
    bool has_program;
    im_model_info info;
    char *strings;  /* what info points to */
    double open_ms; /* what opening took */
};

typedef enum im__request_kind { IM__REQUEST_GENERATE, IM__REQUEST_SCORE } im__request_kind;

struct im_request {
    im_engine *engine;
    im__request_kind kind;
    im_request *next; /* in the queue, or in the list of running ones */

    int32_t *ids; /* prompt, then generated */
    size_t prompt, known, capacity;
    im__kv_seq seq;
    bool seq_open;
    size_t in_step; /* rows of this request in the present step */

    im_sampling sampling;
    bool ignore_eos, want_logits, no_hash;
    char **stop; /* NULL-terminated, or NULL */
    int32_t *forced;
    size_t forced_len;
    uint32_t max_tokens;
    bool (*on_token)(void *user, const im_token_event *event);
    void (*on_prompt)(void *user, size_t done, size_t total);
    void *user;

    im_request **companion; /* [companions] neighbours made for a proof, owned */
    size_t companions;

    im__decoder decoder;
    im__buf text;
    size_t emitted; /* bytes of text that the callback has seen */
    struct XXH3_state_s *hash;

    /* scoring */
    float *logprob, *top1_logprob;
    int32_t *top1;
    bool (*on_score)(void *user, size_t done, size_t total);

    double submitted, started, prompt_done, first, last;
    im_stop_reason stop_reason;
    atomic_bool cancelled;
    im_status status;
    im_error error;
    bool finished; /* under the engine's lock */
};

struct im_engine {
    atomic_int users; /* the opener and every request */
    im_model *model;
    im__backend *backend;
    im__kv kv;
    im_engine_options options; /* with every default filled in */
    im_engine_info info;
    char *kernels;

    pthread_t thread;
    bool thread_started;
    pthread_mutex_t lock;
    pthread_cond_t wake;     /* for the engine's thread */
    pthread_cond_t finished; /* for those who wait for requests */
    im_request *queue;       /* submitted, oldest first */
    im_request *running;     /* owned by the engine's thread; read by others only under the lock */
    size_t running_count;
    bool closing;
    atomic_bool abandon; /* closing: the present step need not be finished */

    /* one step */
    im__row *row;
    im__seq_tables *tables;
    im_request **member;
    float *logits;
    size_t logits_bytes, max_rows, max_logit_rows;
    im__candidate *candidates; /* [vocabulary] */
};

/* library.c: a struct of options with `size` bytes from one of `own`, or the reverse; what only one of them has is 0. Sets the size in front. */
void im__options_copy(void *out, size_t size, const void *from, size_t own);

/* engine.c: one user fewer; the last one frees what im_engine_close left. */
void im__engine_release(im_engine *e);

/* engine_thread.c: argument is the engine. */
void *im__engine_main(void *engine);
/* At the end of a list; under the lock. */
void im__request_append(im_request **list, im_request *r);

/* request.c, called on the engine's thread */
/* One generated token. What ends the request is left in its status and stop_reason. */
void im__request_take_logits(im_request *r, const float *logits);
/* Ends the request with an error that names the model and the position. */
void im__request_not_finite(im_request *r, size_t position);
/* Cancels its companions and hands the request back to its submitter, who may free it at once. */
void im__request_end(im_request *r, im_status status, const im_error *error);

/* request.c, called by the submitter */
im_status im__request_new(im_engine *e, const im_request_options *o, im_request **out, im_error *err);
void im__request_destroy(im_request *r); /* of a request that is not queued, or finished */
im_status im__request_queue(im_request *r, im_error *err);
im_status im__request_check_ids(const im_engine *e, const char *what, const int32_t *ids, size_t n, im_error *err);

/* score.c: logits of `rows` positions of the text, beginning with position `first`. */
void im__score_take_logits(im_request *r, const float *logits, size_t first, size_t rows);

#endif
