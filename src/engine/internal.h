/* SPDX-License-Identifier: Apache-2.0
 *
 * The engine's own state. One thread (engine_main) drives steps; everybody else only touches the queue and the flags under `lock`.
 *
 * Invariants
 *  1. A request belongs to the submitter until it is queued, to the engine's thread until it is `finished`, to the submitter after that.
 *  2. What a callback or im_request_wait sees of a result was written before `finished` was set under the lock; it is freed after `released`.
 *  3. In a step the rows of one request stand together, in rising position order.
 *  4. A request keeps its engine's lock alive (im_engine.users), so that it may be waited for and freed after the engine was closed.
 *  5. While anything is queued or runs the engine's thread does not sleep, unless all that runs waits for the disk; it looks at every `cancelled` between two steps.
 *  6. A request that is `loading` has lent its sequence to the disk's thread: it is not scheduled and not ended before that has given it back.
 */
#ifndef IRONMULE_ENGINE_INTERNAL_H
#define IRONMULE_ENGINE_INTERNAL_H

#include "base/mem.h"
#include "engine/kv.h"
#include "engine/pace.h"
#include "engine/prefix.h"
#include "engine/sampler.h"
#include "engine/tier.h"
#include "model/model.h"

#include <ironmule/ironmule.h>
#include <pthread.h>
#include <stdatomic.h>

/* Rows of one request that may want logits in a step while a text is scored; it bounds the memory for logits. */
#define IM__SCORE_ROWS 16

struct im_model {
    atomic_int users;
    im__source *source;
    im__tokenizer *tokenizer;
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
    size_t again;   /* leading positions that were computed before, on a device that has failed */
    size_t pages;   /* that it may come to hold: what it is admitted by */

    /* the prefix cache */
    im__page_name *name; /* of the full pages of ids; NULL: neither uses nor feeds the cache */
    size_t names;
    size_t cached;      /* prompt tokens found in the cache */
    im_cache_miss miss; /* why not more */
    size_t branch;      /* positions known to the cache when the request began, though it could not take them all */
    bool looked;
    im__tier_load load; /* pages of the prompt that come from the disk */
    bool loading, load_tried;

    im_sampling sampling;
    im_logit_bias *bias; /* what sampling.bias points to */
    bool ignore_eos, want_logits, no_hash, want_logprobs, no_cache;
    uint32_t top_logprobs;
    uint64_t client;
    char **stop; /* NULL-terminated, or NULL */
    int32_t *forced;
    size_t forced_len;
    uint32_t max_tokens;
    bool (*on_token)(void *user, const im_token_event *event);
    void (*on_prompt)(void *user, size_t done, size_t total);
    void (*on_end)(void *user);
    void *user;

    im_request **companion; /* [companions] neighbours made for a proof, owned */
    size_t companions;
    bool is_companion; /* counts in no statistics */

    im__decoder decoder;
    im__buf text;
    size_t emitted; /* bytes of text that the callback has seen */
    struct XXH3_state_s *hash;

    /* scoring */
    float *logprob, *top1_logprob;
    int32_t *top1;
    bool (*on_score)(void *user, size_t done, size_t total);

    double submitted, started, prompt_done, first, last;
    double deadline; /* 0: none */
    im_stop_reason stop_reason;
    atomic_bool cancelled;
    im_status status;
    im_error error;
    bool finished,
        released; /* under the engine's lock: the result stands; the engine does not touch the request any more (on_end has returned) */
};

/* Clients take turns: the next of the waiting requests is the oldest one of a client that has had least. Clients share entries when their numbers collide, which
 * is only less fair. */
#define IM__CLIENTS 256

typedef struct im__turns {
    uint64_t now, next[IM__CLIENTS]; /* turn of the last request that was started; first turn that a client may have */
} im__turns;

/* Counts of im_engine_stats; any thread reads them. */
typedef struct im__counters {
    atomic_uint_least64_t submitted, finished, cancelled, timed_out, failed;
    atomic_uint_least64_t prompt_tokens, cached_tokens, generated_tokens, steps;
    _Atomic double step_began, longest_step; /* milliseconds; 0: no step is running */
    atomic_uint_least64_t hits, misses[IM_MISS_KINDS];
    atomic_uint_least64_t pages_held, pages_kept; /* of the full pool: by requests, by the cache alone */
    atomic_uint device_failures, device_fallbacks;
} im__counters;

/* What an engine needs to begin again on the processor. */
typedef struct im__fallback {
    bool allowed, tried;
    im_engine_options given; /* by the caller; strings are copies */
} im__fallback;

struct im_engine {
    atomic_int users; /* the opener and every request */
    im_model *model;
    /* The backend, the tier, the sizes of caches and the info change when the processor takes over: others than the engine's thread look under the lock. */
    im__backend *backend;
    im__fallback fallback;
    im__kv_sizes sizes;
    im__kv kv;
    im__prefix *prefix;                 /* NULL: no cache */
    im__tier *tier;                     /* NULL: none on disk */
    unsigned char page_fingerprint[16]; /* of the tier, once it was there */
    bool has_page_fingerprint;
    im__pace pace;
    double chain_ms;           /* what tokens that follow each other without a look may take together: IM__CHAIN_MS */
    im_engine_options options; /* with every default filled in */
    im_engine_info info;
    char *kernels[2]; /* at first, and after the processor has taken over */
    char *note;       /* why the device is not the one that comes first; NULL: it is */

    pthread_t thread;
    bool thread_started;
    pthread_mutex_t lock;
    pthread_cond_t wake;     /* for the engine's thread */
    pthread_cond_t finished; /* for those who wait for requests */
    im_request *queue;       /* submitted, oldest first */
    size_t queue_length;
    im__turns turns;
    im_request *running; /* owned by the engine's thread; read by others only under the lock */
    size_t running_count;
    size_t pages_promised; /* to the running ones */
    bool stalled;          /* all that run wait for the disk */
    bool look_again;       /* something has happened meanwhile */
    bool closing;
    atomic_bool abandon; /* closing: the present step need not be finished */

    /* one step */
    im__row *row;
    im__seq_tables *tables;
    im_request **member;
    float *logits;
    int32_t *choice; /* of each row with logits, by a backend that chooses */
    size_t logits_bytes, max_rows, max_logit_rows;
    im__candidate *candidates; /* [vocabulary] */
    float *edited;             /* [vocabulary] logits with penalties and bias */
    uint32_t *mark;            /* [vocabulary] zero between two tokens */
    im__counters counters;
    char fingerprint[2][20]; /* as kernels */
};

/* library.c: a struct of options with `size` bytes from one of `own`, or the reverse; what only one of them has is 0. Sets the size in front. */
void im__options_copy(void *out, size_t size, const void *from, size_t own);

/* engine.c: one user fewer; the last one frees what im_engine_close left. */
void im__engine_release(im_engine *e);

/* Makes everything that depends on the device anew, on the processor; no sequence is open. An error leaves all as it was. On the engine's thread. */
im_status im__engine_move_to_cpu(im_engine *e, const char *note, im_error *err);
/* An engine does without a folder that cannot be used. */
im_status im__engine_open_tier(im_engine *e, const im_engine_options *o, im_error *err);

/* fallback.c: the device has failed. true: the processor has taken over, and the running requests begin again from their tokens. */
bool im__engine_fall_back(im_engine *e, const im_error *why);

/* engine_thread.c: argument is the engine. */
void *im__engine_main(void *engine);

/* queue.c: under the lock. */
void im__request_append(im_request **list, im_request *r); /* at the end */
void im__queue_add(im_engine *e, im_request *r);
/* Moves waiting requests to the running ones while there is room. */
void im__queue_admit(im_engine *e);
/* Takes the requests out of the queue that are over before they began (cancelled, past their deadline), or all. Returns them as a list. */
im_request *im__queue_take_over(im_engine *e, bool all);
/* Requests that wait although the engine will look at its queue: those that find no room. */
size_t im__queue_waiting(const im_engine *e);

/* A chain of tokens takes no longer: whoever comes meanwhile, cancels or reads along hardly notices. */
#define IM__CHAIN_MS 5.0

/* scheduler.c: settles in_step of every running request. */
void im__schedule(im_engine *e);
/* After that: tokens that the step may choose one after the other, beyond its first, before anybody looks at them (im__step.chain). */
uint32_t im__schedule_chain(im_engine *e);
/* Hands the counts of pages to im_engine_get_stats. */
void im__count_pages(im_engine *e);

/* reuse.c: what a request takes from the prefix cache and gives to it. Each call does nothing for a request that keeps out of it. */
void im__reuse_take(im_request *r);                            /* before it is scheduled */
void im__reuse_collect(im_engine *e);                          /* what the disk has done; at the beginning of each round */
bool im__reuse_waits(const im_engine *e, const im_request *r); /* is another request computing the next page of its prompt? */
void im__reuse_give(im_request *r);                            /* after its rows were computed, before they count */
void im__reuse_end_of_prompt(im_request *r);                   /* its prompt is done */
void im__reuse_leave(im_request *r);                           /* it ends, its pages are still there */

/* generate.c, called on the engine's thread */
/* One generated token. What ends the request is left in its status and stop_reason. choice: what argmax says of the logits, which are not looked at unless the request
 * needs them; NULL: not known. */
void im__request_take_logits(im_request *r, const float *logits, const int32_t *choice);
/* Whether it looks at logits, or only at the largest. */
bool im__request_needs_logits(const im_request *r);
/* Ends the request with an error that names the model and the position. */
void im__request_not_finite(im_request *r, size_t position);

/* request.c, called on the engine's thread */
/* IM_OK, or why the request is over although nothing has ended it: cancelled, or past its deadline. */
im_status im__request_over(const im_request *r, double now, im_error *err);
/* Cancels its companions and hands the request back to its submitter, who may free it at once. */
void im__request_end(im_request *r, im_status status, const im_error *error);

/* request.c, called by the submitter */
im_status im__request_new(im_engine *e, const im_request_options *o, im_request **out, im_error *err);
void im__request_destroy(im_request *r); /* of a request that is not queued, or finished */
im_status im__request_queue(im_request *r, im_error *err);
/* Pages for all positions that it may come to hold. IM_ERR_MEMORY when the engine has not as many. */
im_status im__request_count_pages(im_request *r, im_error *err);
im_status im__request_check_ids(const im_engine *e, const char *what, const int32_t *ids, size_t n, im_error *err);

/* stats.c: one line for the program that asked for it. */
void im__log(const im_engine *e, im_log_level level, const char *format, ...) IM__PRINTF(3, 4);

/* fingerprint.c: identity of what computes, "im-" and 16 hexadecimal digits. Weights are sampled: some bytes of each tensor. */
im_status im__fingerprint(const im_engine *e, char out[20], im_error *err);

/* The same for what fixes the bits of a KV page: all weights are read. */
im_status im__fingerprint_pages(const im_engine *e, unsigned char out[16], im_error *err);

/* score.c: logits of `rows` positions of the text, beginning with position `first`. */
void im__score_take_logits(im_request *r, const float *logits, size_t first, size_t rows);

#endif
