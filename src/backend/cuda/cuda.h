/* SPDX-License-Identifier: Apache-2.0
 *
 * The CUDA backend's own state, shared by
 *
 *     cuda.c          opening, memory, pages
 *     cuda_weights.c  matrices into device memory
 *     cuda_stage.c    the lowered program as launches: which kernels, with which parameters
 *     cuda_run.c      steps: what is sent, launched, replayed, read back
 *
 * All launches of a step are made of stages that are settled when the backend is opened; a step only says how many rows take part.
 */
#ifndef IRONMULE_CUDA_CUDA_H
#define IRONMULE_CUDA_CUDA_H

#include "backend/backend.h"
#include "backend/cuda/abi.h"
#include "backend/cuda/driver.h"
#include "backend/cuda/kernels/attention.h"
#include "backend/cuda/kernels/matmul_few.h"
#include "backend/cuda/kernels/matmul_many.h"
#include "backend/cuda/layout.h"
#include "backend/lower.h"
#include "base/mem.h"

#include <pthread.h>
#include <stdatomic.h>

enum { IM__CUDA_ATTENTION_WAYS = 3, IM__CUDA_GRAPHS = 64 };

/* A kernel with what a launch needs besides its grid; of im_matmul_few the most that any launch needs. */
typedef struct im__cuda_kernel {
    im__cuda_function function; /* NULL: not wanted */
    uint32_t threads, shared;
} im__cuda_kernel;

/* Products of one launch. */
typedef struct im__cuda_matmul_stage {
    im__cuda_products products; /* first_block is settled at each launch */
    uint32_t form;
    bool wide;
} im__cuda_matmul_stage;

typedef struct im__cuda_attention_stage {
    im__cuda_attention a;
    im__cuda_kernel few[IM__ATTENTION_FEW_HEADS];  /* [heads that a block takes - 1] */
    im__cuda_kernel many[IM__CUDA_ATTENTION_WAYS]; /* by falling number of queries; none: `few` takes every row */
    uint32_t queries[IM__CUDA_ATTENTION_WAYS];
    int staged;
} im__cuda_attention_stage;

typedef struct im__cuda_stage {
    im__phase_kind kind;
    bool selected;
    union {
        struct {
            im__cuda_ptr list;
            const im__cuda_action *same; /* on the host */
            uint32_t count;
        } rows;
        im__cuda_matmul_stage matmul;
        im__cuda_attention_stage attention;
        struct {
            im__cuda_ptr value;
            uint32_t width;
        } select;
    };
} im__cuda_stage;

/* How many of what a step has: two steps of one shape are the same launches. */
typedef struct im__cuda_shape {
    uint32_t rows, selected, tiles, selected_tiles, singles, selected_singles, choose;
    uint32_t keys; /* of any row, at most */
} im__cuda_shape;

typedef struct im__cuda_replay {
    im__cuda_shape shape;
    im__cuda_exec exec; /* NULL: launched one by one */
    bool tried;         /* to capture it */
    uint64_t used;      /* when last; 0: never */
} im__cuda_replay;

/* What a step sends back whatever it is for, followed by the chosen tokens. */
typedef struct im__cuda_answer {
    uint64_t clamped;
    int32_t choice[];
} im__cuda_answer;

typedef struct im__cuda {
    im__backend base;
    const im__program *p;
    im__backend_options options;
    const im__cuda_driver *d;
    im__cuda_device_info device;
    im__cuda_context context;
    bool context_held;
    im__cuda_stream stream, page_stream;
    pthread_mutex_t page_lock; /* of page_stream */
    im__cuda_module *module;
    size_t modules;
    im__lowered lowered;
    im__buf description;

    /* device memory */
    im__cuda_ptr weights, pool[IM__POOLS], work;
    size_t weights_bytes, pool_bytes[IM__POOLS], all_pools_bytes, page_bytes[IM__POOLS], work_bytes;
    size_t *layer_offset;    /* [kv_count] of the layer's keys in a page of its pool, in bytes */
    im__cuda_layout *layout; /* [matrix_count] */
    im__cuda_matrix *matrix; /* [matrix_count] */
    im__cuda_ptr *vector;    /* [vector_count] */
    im__cuda_ptr *frequency; /* [rope_count] */

    /* pieces of `work` */
    im__cuda_ptr *value;         /* [value_count] rows of floats */
    im__cuda_act *act;           /* [value_count] where quantised */
    im__cuda_ptr *cosine, *sine; /* [rope_count] */
    im__cuda_ptr partial, step, answer, actions;
    size_t partial_floats, step_bytes, answer_bytes, action_capacity;

    im__cuda_stage *stage;
    size_t stages;
    im__cuda_action *action; /* of all stages */
    im__cuda_kernel rows_kernel, select_kernel, argmax_kernel;
    im__cuda_kernel few[IM__CUDA_FORMS], many[IM__CUDA_FORMS][IM__MANY_ALL_SHAPES];
    uint32_t tile_rows; /* rows of a tile of attention; 0: no layer takes tiles */

    struct im__cuda_decoder *decoder; /* of single rows; NULL: stages do them as well */

    /* host memory that copies may use while the processor goes on */
    char *step_host;
    im__cuda_answer *answer_host;
    im__cuda_replay replay[IM__CUDA_GRAPHS];
    uint64_t steps;

    atomic_uint_fast64_t clamped;
    atomic_bool failed; /* the device: no step works any more */
} im__cuda;

/* A driver call that must succeed, and what it is for. */
#define IM__CUDA_TRY(c, call, what) IM__TRY(im__cuda_try((c)->d, (c)->d->call, (what), err))

/* cuda_weights.c */
/* Layouts of all matrices and vectors, and bytes in all. IM_ERR_UNSUPPORTED naming the tensor that does not fit. */
im_status im__cuda_weights_plan(im__cuda *c, im_error *err);
/* Packs and copies; c->weights is there, and the context current. */
im_status im__cuda_weights_send(im__cuda *c, im_error *err);

/* cuda_stage.c */
im__few_device im__cuda_few_device(const im__cuda *c);
/* Blocks of im_attention_few that takes `each` heads a block, for heads of `head_dim`. */
uint32_t im__cuda_few_blocks(const im__cuda *c, uint32_t head_dim, uint32_t each, int staged);
/* Floats of attention's scratch, and rows of a tile. */
void im__cuda_count_attention(im__cuda *c);
size_t im__cuda_count_actions(const im__cuda *c);
/* Finds the kernels, makes the stages, sends the lists of actions. All memory is there. */
im_status im__cuda_stages_make(im__cuda *c, im_error *err);

/* cuda_run.c */
size_t im__cuda_step_bytes(const im__cuda *c);
im_status im__cuda_run(im__backend *b, const im__step *step, im_error *err);
void im__cuda_graphs_clear(im__cuda *c);

#endif
