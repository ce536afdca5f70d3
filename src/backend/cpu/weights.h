/* SPDX-License-Identifier: Apache-2.0
 *
 * The matrices of a program as the CPU keeps them: each with the kernel that serves it, re-ordered once into that kernel's layout. The file's pages are
 * given back while the copy is made, so memory holds the weights once. Without a kernel (level c) the file's own bytes are used.
 */
#ifndef IRONMULE_BACKEND_CPU_WEIGHTS_H
#define IRONMULE_BACKEND_CPU_WEIGHTS_H

#include "backend/cpu/kernels.h"
#include "backend/cpu/team.h"
#include "num/dtype.h"
#include "ops/program.h"

typedef struct im__weights {
    const im__program *p;
    const im__matmul_kernel **kernel; /* [matrix_count] NULL: plain C */
    im__weight *matrix;               /* [matrix_count] */
    void *block;                      /* all packed matrices */
    size_t block_bytes;
    void (*progress)(void *user, double fraction); /* of packing, on the thread that called im__weights_pack; NULL: none */
    void *progress_user;
    uint32_t *first_unit; /* [matrix_count + 1] while packing */
    atomic_size_t packed; /* bytes done */
    im__buf rejected;     /* names of kernels that did not pass their self-check */
} im__weights;

/* Bytes that packing takes, with the choice of kernels; nothing is taken yet. *out needs im__weights_clear. */
im_status im__weights_choose(im__weights *out, const im__program *p, im__cpu_level level, im_error *err);
/* Takes the memory and packs, in parallel. */
im_status im__weights_pack(im__weights *w, im__team *team, im_error *err);
void im__weights_clear(im__weights *w);

/* Bytes that stay in use: packed matrices, and the file's bytes of those that are not packed. */
size_t im__weights_bytes(const im__weights *w);
/* Appends " Q4_1 matmul_q4_1_avx512, Q8_0 ...". */
void im__weights_describe(const im__weights *w, im__buf *out);

#endif
