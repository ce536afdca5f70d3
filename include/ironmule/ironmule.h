/* SPDX-License-Identifier: Apache-2.0
 *
 * IronMule: runs language models on the machine it is on. This header is the only door; everything else is private.
 *
 * Three lines to a generated text:
 *
 *     im_engine *engine;
 *     if (im_engine_open(&engine, "model.gguf", NULL, &error) != IM_OK) { ... error.message ... }
 *     im_answer(engine, "Why is the sky blue?", 64, &text, &error);
 *
 * The promise: for one model file and one sequence of tokens the bits of every logit are fixed (docs/numerics.md). They do not depend on threads, chunk size,
 * kernel level, or on which other requests share a step. im_result.logits_hash shows it.
 *
 * Conventions
 *   Errors     every call that can fail returns an im_status and takes an im_error (NULL allowed); see status.h. Outputs are written on success only.
 *   Ownership  said at each call. What the library hands out is freed by the matching im_..._free/close; all of them accept NULL.
 *   Threads    a model is immutable and may be used from any thread. An engine has one thread of its own that computes; all im_engine_ and im_request_ calls may
 *              come from any thread and never wait for a computation, except those that say so (wait, answer, score, close, free). Its threads take no signals;
 *              after a fork only the parent may use the engine. Closing or freeing something while another thread uses it is the caller's mistake.
 *   Text       is UTF-8. Lengths are bytes. Token ids are int32_t, 0 .. vocabulary - 1. Times are milliseconds (double). Logits are binary32.
 *   Options    structs begin with `size`. im_..._options_defaults(&o) sets it and every default; it passes the caller's size of the struct on, so that a struct
 *              may grow without breaking programs that were built before.
 */
#ifndef IRONMULE_IRONMULE_H
#define IRONMULE_IRONMULE_H

#include <ironmule/status.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define IM_API __attribute__((visibility("default")))
#else
#define IM_API
#endif

/* ---- version ------------------------------------------------------------------------------------------------------------------- */

#define IM_VERSION_MAJOR 0
#define IM_VERSION_MINOR 1
#define IM_VERSION_PATCH 0

/* "0.1.0" of the library that is linked, which may differ from the header's. */
IM_API const char *im_version(void);
/* Version of the numeric contract: results of two builds with the same number have the same bits. */
IM_API int im_numerics_version(void);
/* Stable name of a status: "format", "context" ... */
IM_API const char *im_status_name(im_status status);
/* Kernel levels of this machine, best last ("c", "avx2", "avxvnni", "avx512", "amx" are those of x86-64); NULL-terminated, static. */
IM_API const char *const *im_cpu_levels(void);
/* What this process may use: physical cores (affinity and control-group quota counted), bytes of memory available now (0: unknown). */
typedef struct im_machine_info {
    int cores;
    uint64_t memory_available;
} im_machine_info;
IM_API void im_machine_get_info(im_machine_info *info);
/* What the memory and the integer units of this machine give at most, measured with `threads` threads in about a second: bytes read a second from memory that no
 * cache holds, and multiplications and additions of 8-bit numbers a second with the instructions of `level` (NULL: the best; 0 for plain C). */
typedef struct im_machine_limits {
    double read_bytes_per_s, int8_ops_per_s;
} im_machine_limits;
IM_API im_status im_machine_measure(int threads, const char *level, im_machine_limits *limits, im_error *err);

/* Computes a small case with every kernel of a level and compares the bits with the plain C functions: a few milliseconds. *checked (may be NULL): how many were
 * compared. Errors: IM_ERR_INTERNAL naming the first kernel that is wrong on this machine; IM_ERR_UNSUPPORTED when the machine lacks the level. */
IM_API im_status im_cpu_self_check(const char *level, size_t *checked, im_error *err);

/* GPUs that im_engine_options.device may name as "cuda:0" ... IM_ERR_UNSUPPORTED says why there is none: no driver, no device, or a build without kernels. Starts the
 * driver: some hundred milliseconds. */
IM_API im_status im_gpu_count(int *count, im_error *err);
typedef struct im_gpu_info {
    char name[96];
    int capability;      /* 90: compute capability 9.0 */
    int driver;          /* version of CUDA that the driver speaks: 13000 is 13.0 */
    uint32_t processors; /* multiprocessors */
    uint64_t memory_bytes;
    double read_bytes_per_s; /* of its memory, by its clocks */
} im_gpu_info;
IM_API im_status im_gpu_get_info(int n, im_gpu_info *info, im_error *err);
/* "75 90": compute capabilities that this build has kernels for; "" without any. Static. */
IM_API const char *im_gpu_architectures(void);
/* Computes a small model on GPU n and compares the bits with the plain C functions: about a second. *checked (may be NULL): numbers compared. Errors: IM_ERR_INTERNAL when one
 * is wrong. A driver may end the process: do it in a child. */
IM_API im_status im_gpu_self_check(int n, size_t *checked, im_error *err);

/* ---- model ------------------------------------------------------------------------------------------------------------------------ */

/* A model file, mapped and checked, with its tokenizer, chat template and program. Cheap: no weight is read. */
typedef struct im_model im_model;

typedef struct im_model_options {
    size_t size;
    const char *pre_tokenizer; /* force this pre-tokeniser pattern; NULL: the file's */
    bool vocabulary_only;      /* no weights needed: skip the checks of tensors and architecture */
} im_model_options;
IM_API void im_model_options_init(im_model_options *o, size_t size);
#define im_model_options_defaults(o) im_model_options_init((o), sizeof *(o))

/* `path`: a GGUF file, any shard of a split one, or a folder with one. Options NULL: defaults. *out is the caller's (im_model_close). */
IM_API im_status im_model_open(im_model **out, const char *path, const im_model_options *options, im_error *err);
/* Closing while an engine still uses the model is allowed: it goes when the last user goes. */
IM_API void im_model_close(im_model *model);

typedef struct im_model_info {
    const char *path; /* as opened */
    const char *name; /* general.name, or the file's name */
    const char *architecture;
    const char *quantisation; /* the type that holds most weights: "Q4_1" */
    const char *licence;      /* general.license, or "" */
    uint64_t parameters;      /* elements of all tensors */
    uint64_t
        products; /* multiplications of weights and inputs that one prompt token takes (the output head, only for the last one, not counted) */
    uint64_t file_bytes;                             /* of all shards */
    uint32_t vocabulary, layers, embedding, context; /* context: positions that the model was made for */
    uint64_t program_digest;                         /* identity of the list of operations */
    bool has_chat_template;
    int32_t bos, eos; /* -1: none */
} im_model_info;
/* Strings live as long as the model. */
IM_API void im_model_get_info(const im_model *model, im_model_info *info);
/* Identity of the list of operations and of the weights, as "im-" and 16 hexadecimal digits with a terminator. Of each tensor its name, type, shape and some of its bytes count, so that
 * models trained apart differ, and reading takes milliseconds. The same on every machine and build. */
IM_API im_status im_model_fingerprint(const im_model *model, char out[20], im_error *err);
/* The list of operations as text; *text is the caller's (im_free). */
IM_API im_status im_model_program(const im_model *model, char **text, im_error *err);

/* ---- text ---------------------------------------------------------------------------------------------------------------------------- */

typedef enum im_encode_flags {
    IM_ENCODE_DEFAULT = 0, /* control tokens written in the text are parsed; BOS when the model wants one */
    IM_ENCODE_NO_BOS = 1,
    IM_ENCODE_PLAIN = 2 /* control tokens written in the text are plain text */
} im_encode_flags;

/* *ids: *count token ids, the caller's (im_free). */
IM_API im_status im_model_encode(const im_model *model, const char *text, size_t n, unsigned flags, int32_t **ids, size_t *count,
                                 im_error *err);
/* The text of ids as one string, control tokens left out; incomplete characters become U+FFFD. *text is the caller's; *n (may be NULL) its length. */
IM_API im_status im_model_decode(const im_model *model, const int32_t *ids, size_t count, char **text, size_t *n, im_error *err);
/* One token as stored in the file ("Ġthe"). Valid as long as the model; not terminated. false: id outside the vocabulary. */
IM_API bool im_model_piece(const im_model *model, int32_t id, const char **piece, size_t *n);
/* The exact bytes that one token adds to a text (may be half a character); same lifetime rule through *bytes (im_free). */
IM_API im_status im_model_token_bytes(const im_model *model, int32_t id, char **bytes, size_t *n, im_error *err);
IM_API bool im_model_is_end(const im_model *model, int32_t id);

typedef struct im_chat_options {
    size_t size;
    const char *tools;         /* JSON array of tool definitions, or NULL */
    const char *variables;     /* JSON object of further template variables, or NULL */
    const char *chat_template; /* a template to use in place of the model's, or NULL */
    bool no_generation_prompt;
    bool parse_special; /* control tokens typed in message content become tokens (Hugging Face's default); off: plain text */
} im_chat_options;
IM_API void im_chat_options_init(im_chat_options *o, size_t size);
#define im_chat_options_defaults(o) im_chat_options_init((o), sizeof *(o))

/* Renders a conversation (JSON array of {"role", "content", ...}) through the model's chat template and encodes it. text (with its length) and ids may each be
 * NULL when not wanted; what is handed out is the caller's (im_free). A trailing assistant message is continued. Errors: IM_ERR_TEMPLATE with the template's own
 * sentence; IM_ERR_UNSUPPORTED when the model has no template. */
IM_API im_status im_model_chat(const im_model *model, const char *messages, const im_chat_options *options, char **text,
                               size_t *text_len, int32_t **ids, size_t *count, im_error *err);

/* ---- engine --------------------------------------------------------------------------------------------------------------------------- */

typedef struct im_engine im_engine;

typedef enum im_log_level { IM_LOG_DEBUG, IM_LOG_INFO, IM_LOG_WARNING } im_log_level;

typedef struct im_engine_options {
    size_t size;
    int threads;      /* 0: one for each physical core available to this process */
    uint32_t context; /* positions a sequence may have; 0: the model's own, at most 4096 */
    uint32_t
        chunk; /* prompt rows computed in one step; 0: 256, on a GPU 2048 or, of a wide model, less. The bits do not depend on it */
    uint32_t max_sequences; /* requests computed at the same time; 0: 1 */
    const char *cpu_level;  /* "c", "avx2", ...: use kernels up to this level; NULL: the best */
    /* "cpu"; "cuda" or "cuda:N", which fails when that device cannot serve; "auto" or NULL: CUDA when a device is there and the model fits, else the processor, and
     * im_engine_info.note says why. The bits are the same. */
    const char *device;
    /* Load progress, called on the loading thread with 0 .. 1; NULL: none. */
    void (*progress)(void *user, double fraction);
    void *progress_user;
    /* KV positions that all running requests may hold together; a request is started when its prompt and max_tokens fit, else it waits. 0: max_sequences x context. */
    uint64_t kv_tokens;
    /* Prefix cache: bytes of memory for KV pages of finished requests, which later ones with the same beginning share in place of computing them; least recently used
     * goes first. 0: none. On or off, the bits are the same. */
    uint64_t cache_ram;
    /* Second tier of the cache: a folder of private files that survives this process, used by one engine at a time; at most cache_disk bytes. NULL: none. Files of
     * another model, build or numerics version, or damaged ones, are never used. */
    const char *cache_dir;
    uint64_t cache_disk;
    /* While some request waits for its next token, prompt rows join a step only as far as it is expected to take no longer than this. 0: no limit but `chunk`. */
    double max_step_ms;
    uint32_t max_queue; /* requests that may wait; further ones are refused with IM_ERR_BUSY. 0: no limit */
    /* One line about what the engine does (why a prefix was not found, a cache file that was dropped), without any text of a prompt or an answer. May be called from any
     * thread of the engine; must not call back into it. NULL: none. */
    void (*log)(void *user, im_log_level level, const char *line);
    void *log_user;
    /* "cpu": where CUDA cannot serve, the processor does, also when the device fails later: requests begin again from the tokens that they have, with the same bits.
     * NULL: requests that meet a failed device end with IM_ERR_DEVICE, and so do all that follow. */
    const char *device_fallback;
    /* On a GPU with cache_ram, which is memory of the device then: bytes of the host's memory, taken as they are needed, in which the pages of finished requests stay as
     * well, so that they come back, bit for bit, when the device had to make room. 0: none. On the processor it has no meaning. */
    uint64_t cache_host;
} im_engine_options;
IM_API void im_engine_options_init(im_engine_options *o, size_t size);
#define im_engine_options_defaults(o) im_engine_options_init((o), sizeof *(o))

/* Bytes that an engine would take, without taking them. */
typedef struct im_memory_plan {
    uint64_t weights, kv, workspace;
    uint64_t kv_bytes_per_token; /* of layers that see everything */
    uint64_t available;          /* memory that this machine, or its GPU, has free now */
    uint64_t host;               /* on a GPU: of the host's memory at most, cache_host among it; the others are the GPU's */
    const char *device;          /* that it is for: "cpu", "cuda" */
} im_memory_plan;
IM_API im_status im_engine_plan(const im_model *model, const im_engine_options *options, im_memory_plan *plan, im_error *err);

/* Opens a model file and an engine on it; reads and re-orders the weights, takes all memory, starts the threads. Options NULL: defaults.
 * Waits until ready. */
IM_API im_status im_engine_open(im_engine **out, const char *path, const im_engine_options *options, im_error *err);
/* The same on a model that is open already (shared, not owned). */
IM_API im_status im_engine_open_model(im_engine **out, im_model *model, const im_engine_options *options, im_error *err);
/* Cancels what runs or is queued, waits for its threads, frees everything but those requests: their results stay, and they are freed by their owners. */
IM_API void im_engine_close(im_engine *engine);
IM_API im_model *im_engine_model(const im_engine *engine); /* borrowed */

typedef struct im_engine_info {
    const char *device;    /* "cpu", "cuda" */
    const char *cpu_level; /* in use; "cuda" on such a device */
    const char *kernels;   /* one line: which kernel serves which weight type */
    int threads;
    uint32_t context, chunk, max_sequences;
    im_memory_plan memory;
    double load_ms;   /* opening the model and the engine */
    uint64_t clamped; /* cache values that exceeded binary16 and were clamped */
    const char
        *fingerprint; /* identity of what computes: model, build, numerics version and plan, as "im-" and 16 hexadecimal digits */
    const char *note; /* on the processor, though a GPU comes first: why; else "" */
} im_engine_info;
/* Strings live as long as the engine, also those from before a fall to the processor. */
IM_API void im_engine_get_info(const im_engine *engine, im_engine_info *info);

/* Why a request found less of its prompt in the cache than it might have. */
typedef enum im_cache_miss {
    IM_MISS_OFF,      /* there is no cache, or the request did not want it */
    IM_MISS_SHORT,    /* the prompt does not fill a page, and nothing of it was found */
    IM_MISS_NEW,      /* nothing seen before begins like it */
    IM_MISS_DIVERGED, /* the beginning was found, the rest is another text */
    IM_MISS_EVICTED,  /* it was there, and had to make room */
    IM_MISS_WINDOW,   /* the pages of the sliding window at that point are gone */
    IM_MISS_KINDS
} im_cache_miss;
IM_API const char *im_cache_miss_name(im_cache_miss miss); /* "off", "short", ... */

/* Counts since the engine was opened, and its present state. Never waits for a computation. */
typedef struct im_engine_stats {
    uint64_t submitted, finished, cancelled, timed_out, failed;     /* requests; neighbours of proofs not counted */
    uint64_t prompt_tokens, cached_tokens, generated_tokens, steps; /* cached: those of prompt_tokens that were not computed */
    uint64_t cache_hits, cache_misses[IM_MISS_KINDS];
    uint64_t disk_hits, disk_writes, disk_dropped, disk_bytes; /* pages, and bytes now in the folder */
    uint32_t queued, running;
    uint64_t kv_pages, kv_pages_running, kv_pages_cached; /* of 64 positions; all, held by running requests, kept for later ones */
    double step_ms;                                       /* how long the present step has been running; 0: none is */
    double longest_step_ms;
    uint32_t device_failures, device_fallbacks;  /* 1: the GPU has failed; 1: and the processor has taken over */
    uint64_t host_hits, host_writes, host_bytes; /* of cache_host: pages that came back, pages copied, bytes held */
} im_engine_stats;
IM_API void im_engine_get_stats(im_engine *engine, im_engine_stats *stats);

/* ---- requests -------------------------------------------------------------------------------------------------------------------------- */

typedef enum im_stop_reason {
    IM_STOP_NONE = 0,   /* not finished */
    IM_STOP_EOS = 1,    /* an end token */
    IM_STOP_LENGTH = 2, /* max_tokens, or the context is full */
    IM_STOP_STRING = 3  /* one of the stop strings */
} im_stop_reason;

typedef struct im_logit_bias {
    int32_t id;
    float bias; /* added to the logit, -100 .. 100; -100 excludes the token */
} im_logit_bias;

/* Order of the sampler: repetition penalty, frequency and presence penalties, bias, temperature, then top_k, top_p, min_p on the sorted probabilities, then one draw
 * (Philox 4x32-10, key = seed, counter = token index). temperature 0 is greedy: the lowest id among the largest logits. What logits_hash, want_logits and logprobs show are the
 * model's own logits, before all of that. */
typedef struct im_sampling {
    float temperature; /* 0: greedy */
    int32_t top_k;     /* 0: off */
    float top_p;       /* 1: off */
    float min_p;       /* 0: off */
    uint64_t seed;
    /* Penalties count tokens: repetition those of prompt and answer (a positive logit is divided by it, a negative one multiplied; 1 or 0: off), the other two those of
     * the answer (count x frequency + presence is subtracted, each -2 .. 2; 0: off). */
    float repetition_penalty, frequency_penalty, presence_penalty;
    const im_logit_bias *bias; /* copied; NULL: none */
    size_t bias_count;
} im_sampling;

typedef struct im_top_token {
    int32_t id;
    float logprob; /* natural logarithm */
} im_top_token;

/* One step of a generation, as the callback sees it. Pointers are valid during the call only. */
typedef struct im_token_event {
    int32_t id;
    uint32_t index;   /* 0 for the first generated token */
    const char *text; /* whole characters that became ready with this token, end tokens and stop strings left out; may be "" */
    size_t text_len;
    const float *logits; /* [vocabulary] that chose this token; NULL unless want_logits */
    size_t vocabulary;
    float logprob;           /* of this token; 0 unless want_logprobs */
    const im_top_token *top; /* [top_count] the most likely tokens, falling; as many as top_logprobs asks for */
    size_t top_count;
} im_token_event;

typedef struct im_request_options {
    size_t size;
    const int32_t *prompt; /* ids, copied; at least one */
    size_t prompt_len;
    uint32_t max_tokens; /* at least 1; the answer also ends when the context is full */
    im_sampling sampling;
    bool ignore_eos;
    const char *const *stop; /* NULL-terminated list of strings that end the answer, none empty, or NULL; copied */
    const int32_t *forced;   /* teacher forcing: these ids are taken in place of the chosen ones, or NULL; copied */
    size_t forced_len;
    bool want_logits;
    bool no_hash; /* leave logits_hash out (0): saves a pass over the logits of each token */
    /* Called on the engine's thread after each token; returning false ends the request as cancelled. Must not call back into the engine except im_request_cancel. */
    bool (*on_token)(void *user, const im_token_event *event);
    /* Called on the engine's thread while a long prompt is read: `done` of `total` prompt tokens; NULL: none. */
    void (*on_prompt)(void *user, size_t done, size_t total);
    void *user;
    int neighbours; /* for proofs: so many other random sequences share the steps of this request (max_sequences must allow them) */
    bool want_logprobs;
    uint32_t top_logprobs; /* with want_logprobs: 0 .. 20 */
    bool no_cache;         /* neither use nor feed the prefix cache */
    double deadline_ms;    /* from submission; the request then ends with IM_ERR_TIMEOUT, keeping what it has. 0: none */
    uint64_t client;       /* whose request it is: waiting requests of different clients take turns */
    /* Called on the engine's thread when the request is finished, also when it failed or was cancelled. The last the engine does with it: other threads' im_request_wait
     * and im_request_free return as soon as it has returned, which therefore must not wait for them; its own im_request_wait returns at once. */
    void (*on_end)(void *user);
} im_request_options;
IM_API void im_request_options_init(im_request_options *o, size_t size);
#define im_request_options_defaults(o) im_request_options_init((o), sizeof *(o))

typedef struct im_result {
    const int32_t *ids; /* generated ids, an end token included */
    size_t count;
    const char *text; /* terminated; end tokens and stop strings left out */
    size_t text_len;
    im_stop_reason stop_reason;
    uint64_t logits_hash; /* XXH3 (64 bits) over the little-endian bits of the logits of all generated tokens, in order */
    size_t prompt_tokens, cached_tokens; /* cached: those of the prompt whose keys and values were found in the cache */
    double queue_ms, prompt_ms, first_token_ms,
        generate_ms; /* prompt_ms: reading the prompt; first_token_ms: submit to first token; generate_ms: first to last token */
} im_result;

typedef struct im_request im_request;

/* Queues a request and returns at once. *out is the caller's (im_request_free). Errors: IM_ERR_CONTEXT with both numbers when the prompt leaves no room for a token; IM_ERR_BUSY when the queue is
 * full; IM_ERR_MEMORY when prompt and max_tokens can never fit into kv_tokens. */
IM_API im_status im_request_submit(im_engine *engine, const im_request_options *options, im_request **out, im_error *err);
/* Waits for the end. Returns how it ended: IM_OK, IM_ERR_CANCELLED, IM_ERR_NUMERIC ... *result (may be NULL) is filled in in either case with what was generated so far and
 * lives as long as the request. */
IM_API im_status im_request_wait(im_request *request, im_result *result, im_error *err);
/* Takes effect within one step of the engine, also while the request is still queued; alone in its step, within one operation. The callbacks are not called
 * any more once the step is over. May be called from a signal handler. */
IM_API void im_request_cancel(im_request *request);
/* Cancels if still running, waits until the engine let go of it, frees. */
IM_API void im_request_free(im_request *request);

/* One question, one answer: the model's chat template when it has one, else the text as it is; greedy. *text is the caller's (im_free). Waits. */
IM_API im_status im_answer(im_engine *engine, const char *question, uint32_t max_tokens, char **text, im_error *err);

/* Natural-log probability of each token after the first, given those before: logprob[count - 1]. top1 (may be NULL) [count - 1]: the most likely id there, and top1_logprob
 * (may be NULL) its log-probability. Waits. `count` may not exceed the context. progress as in im_request_options.on_prompt; returning false cancels. */
IM_API im_status im_engine_score(im_engine *engine, const int32_t *ids, size_t count, float *logprob, int32_t *top1,
                                 float *top1_logprob, bool (*progress)(void *user, size_t done, size_t total), void *user,
                                 im_error *err);

/* Frees what a call handed out and said so. */
IM_API void im_free(void *p);

#ifdef __cplusplus
}
#endif
#endif
