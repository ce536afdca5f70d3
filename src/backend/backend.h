/* SPDX-License-Identifier: Apache-2.0
 *
 * What a backend does: it takes a program with its weights once, and then runs steps. A step is a list of rows; prefill chunks, decode rows of many requests and
 * drafts are the same thing. One thread drives a backend.
 */
#ifndef IRONMULE_BACKEND_BACKEND_H
#define IRONMULE_BACKEND_BACKEND_H

#include "ops/program.h"

#include <stdatomic.h>

/* KV pools: layers that see everything, and layers with a sliding window, which need fewer pages. A page of a pool holds 64 positions of all its layers. */
typedef enum im__pool_kind { IM__POOL_FULL, IM__POOL_WINDOW, IM__POOLS } im__pool_kind;

/* One sequence's page tables: entry p is the physical page of positions 64p .. 64p + 63, or -1 (not there, or out of every window). */
typedef struct im__seq_tables {
    const int32_t *pages[IM__POOLS];
} im__seq_tables;

typedef struct im__row {
    int32_t token;
    int32_t position;
    uint32_t seq; /* index into the step's tables */
    bool wants_logits;
} im__row;

/* Rows of one sequence stand together in rising position order. */
typedef struct im__step {
    const im__row *row;
    size_t rows;
    const im__seq_tables *seq;
    size_t seqs;
    float *logits; /* [rows that want them, in row order][vocab] */
    int32_t
        *choice; /* of each of these rows, what argmax says of its logits; written by a backend that chooses. NULL: not wanted */
    bool choice_only; /* a backend that chooses may leave `logits` as they are */
    /* Of a step with one row that wants its choice only: greedy rows that may follow it at once, each with the token before it, at the positions behind it. The tables
     * have their pages, `choice` has room for theirs. A backend takes as many as it likes and says so. */
    uint32_t chain;
    uint32_t *chained;         /* rows beyond the first that were computed; NULL: none are wanted. The caller sets it to 0 */
    const atomic_bool *cancel; /* NULL, or checked between operations: the step may stop early and say IM_ERR_CANCELLED */
} im__step;

typedef struct im__backend_options {
    int threads;                                   /* at least 1 */
    const char *cpu_level;                         /* NULL: the best one */
    size_t max_rows;                               /* rows in a step */
    size_t max_logit_rows;                         /* rows that may want logits in a step */
    size_t pages[IM__POOLS];                       /* pages in each pool */
    void (*progress)(void *user, double fraction); /* of loading, on the calling thread; NULL: none */
    void *progress_user;
    void (*note)(void *user, const char *line); /* what loading took, on the calling thread; NULL: none */
    void *note_user;
    /* Of backends that take memory for what a step is told: */
    size_t context;   /* positions that a sequence may have; 0: the program's */
    size_t sequences; /* in a step; 0: max_rows */
    int device;       /* of several, as the driver counts */
} im__backend_options;

/* Bytes that a backend takes, known before it takes them. */
typedef struct im__memory_plan {
    size_t weights, kv, workspace;
    size_t available; /* that the device has; 0: unknown */
} im__memory_plan;

typedef struct im__backend im__backend;
struct im__backend {
    const char *name; /* "cpu", "cuda" */
    bool chooses;     /* see im__step.choice */
    im_status (*run)(im__backend *b, const im__step *step, im_error *err);
    void (*close)(im__backend *b);
    int32_t (*argmax)(const float *logits, size_t n); /* lowest id among the largest; -1 when one is NaN */
    uint64_t (*clamped)(const im__backend *b);        /* cache values clamped to the range of their type so far */
    const char *(*describe)(const im__backend *b);    /* level and kernels in use, one line */
    /* Copies a page out of its pool, or into it (im__kv_page_bytes). From any thread, while nobody else writes that page. false: the device has failed and the copy is
     * worth nothing; no later step works either. */
    bool (*page_read)(const im__backend *b, im__pool_kind pool, int32_t page, void *bytes);
    bool (*page_write)(im__backend *b, im__pool_kind pool, int32_t page, const void *bytes);
    /* Copies a page of a pool to another one, between two steps. A pool without memory has pages of no bytes. */
    void (*page_copy)(im__backend *b, im__pool_kind pool, int32_t from, int32_t to);
    /* Makes sure that a page which was never in use has its memory, between two steps. NULL: all pages always have. */
    void (*page_touch)(im__backend *b, im__pool_kind pool, int32_t page);
};

im_status im__backend_cpu_plan(const im__program *p, const im__backend_options *o, im__memory_plan *plan, im_error *err);

/* Packs the weights, takes all memory, starts the threads. The program outlives the backend. */
im_status im__backend_cpu_open(im__backend **out, const im__program *p, const im__backend_options *o, im_error *err);

/* The same on a CUDA device (o->device). Without one, or without kernels for the program, IM_ERR_UNSUPPORTED says why; IM_ERR_MEMORY when it does not fit, before
 * anything is taken. A driver that fails later is IM_ERR_DEVICE, from that step on. */
im_status im__backend_cuda_plan(const im__program *p, const im__backend_options *o, im__memory_plan *plan, im_error *err);
im_status im__backend_cuda_open(im__backend **out, const im__program *p, const im__backend_options *o, im_error *err);

/* Bytes of one page of a pool for this program. */
size_t im__kv_page_bytes(const im__program *p, im__pool_kind pool);
im__pool_kind im__kv_layer_pool(const im__program *p, size_t layer);
/* Where each layer begins in a page of its pool, in bytes: offset[kv_count]. */
void im__kv_place_layers(const im__program *p, size_t *offset);
/* Bytes of each pool of so many pages, and of all. */
im_status im__kv_count_pools(const im__program *p, const size_t pages[IM__POOLS], size_t bytes[IM__POOLS], size_t *all,
                             im_error *err);

#endif
