/* SPDX-License-Identifier: Apache-2.0
 *
 * The parts of `ironmule verify`: prompts, the ways in which they are computed, one run of them, reports.
 */
#ifndef IRONMULE_CLI_VERIFY_H
#define IRONMULE_CLI_VERIFY_H

#include "common.h"

enum { EXIT_DIFFERENT = 3 };
enum { VERIFY_MOST_SEQUENCES = 8, VERIFY_MOST_PROMPTS = 20 };

/* ---- prompts (verify_prompts.c) ---- */

/* A prompt with what the reference gave for it. */
typedef struct verify_prompt {
    char name[32]; /* letters, digits, dashes */
    int32_t *ids;
    size_t n;
    uint32_t tokens; /* that are generated */
    uint64_t hash;
    int32_t *answer; /* [tokens] */
    float *logits;   /* [tokens][vocabulary] */
} verify_prompt;

typedef struct verify_prompts {
    verify_prompt item[VERIFY_MOST_PROMPTS];
    size_t count;
    size_t shortest;  /* ids of the shortest one */
    size_t usual;     /* ids of the longest one that all ways compute; the one behind a sliding window may be longer */
    uint32_t context; /* positions that the longest one needs */
    uint32_t vocabulary;
} verify_prompts;

/* The texts (NULL-terminated), or without any those that every model can compute, made of its vocabulary. false after a message, and when memory is short. Free in
 * either case. */
bool verify_prompts_make(verify_prompts *p, const im_model *model, const char *const *texts, uint32_t tokens, bool full);
void verify_prompts_free(verify_prompts *p);

/* ---- arms (verify_arms.c) ---- */

/* One way to compute a prompt. Those with the same device, level, threads and chunk share an engine and stand together. */
typedef struct verify_arm {
    char device[16];   /* "cpu", "cuda:0" */
    const char *level; /* static; of a GPU "-" */
    int threads;
    uint32_t chunk; /* 0: the default */
    int batch;      /* sequences in its steps */
    bool beside;    /* they are requests with the same prompts, which count; else random ones of im_request_options.neighbours */
    bool warm;      /* what the prefix cache has of it is used */
    bool
        tokens_only; /* nobody looks at the logits, as in a plain `generate`: a backend may choose tokens without handing logits out */
    size_t most;     /* longest prompt that it computes, in ids */
} verify_arm;

typedef struct verify_arms {
    verify_arm *item; /* [count], the reference first */
    size_t count;
} verify_arms;

typedef struct verify_plan {
    bool full;
    int threads;        /* "all" of them */
    const char *device; /* NULL: all there are; "cpu"; "cuda:N": this one beside the processor */
    uint64_t parameters;
} verify_plan;

/* false when memory is short. Free in either case. */
bool verify_arms_make(verify_arms *arms, const verify_plan *plan, const verify_prompts *prompts);
void verify_arms_free(verify_arms *arms);
bool verify_arms_share_engine(const verify_arm *a, const verify_arm *b);
/* "cpu avx2, 2 threads, chunk 7, 5 beside, warm" */
void verify_arm_print(const verify_arm *arm, char *out, size_t size);

/* ---- runs (verify_run.c) ---- */

/* Where the logits of a run first differ from those of the reference. */
typedef struct verify_difference {
    bool found;
    bool ids;           /* the chosen ids differ, though no logit does: got and want are ids */
    uint32_t step, row; /* generated token, id of the vocabulary */
    uint32_t got, want; /* bits, or ids */
} verify_difference;

/* What a prompt gave in one arm; the worst of them where it ran several times in it. */
typedef struct verify_outcome {
    bool ran, same;
    uint64_t hash; /* 0 when only tokens are compared */
    double tokens_per_s;
    size_t cached;
    verify_difference difference;
} verify_outcome;

/* Computes the prompts as the arm says and compares with the reference, or makes it (is_reference). outcome: [prompts->count]. Returns EXIT_DONE, also when something
 * differs; else the exit code, after a message. */
int verify_run(im_engine *e, const verify_arm *arm, verify_prompts *prompts, bool is_reference, verify_outcome *outcome);

/* ---- reports (verify_report.c, verify_compare.c) ---- */

/* Identity of what computes, and lists for what is to come. */
json_t *verify_report_begin(const im_model *model, bool full);
/* Adds an arm with its outcomes, and its rows to the table on stdout when `table`. */
void verify_report_arm(json_t *report, const verify_arm *arm, const im_engine *e, const verify_prompts *prompts,
                       const verify_outcome *outcome, bool table);
/* The reference is there now. */
void verify_report_prompts(json_t *report, const verify_prompts *prompts);
/* A device that does not take part: no engine could be opened on it. */
void verify_report_left_out(json_t *report, const char *device);
void verify_report_table_head(void);

/* Holds two reports against each other, which may come from two machines; returns the exit code. */
int verify_compare(const char *a, const char *b);

#endif
