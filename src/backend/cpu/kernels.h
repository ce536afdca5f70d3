/* SPDX-License-Identifier: Apache-2.0
 *
 * The fast kernels of this CPU, as a list that the planner chooses from and the harness walks: a kernel that is in the list is a kernel under test.
 */
#ifndef IRONMULE_BACKEND_CPU_KERNELS_H
#define IRONMULE_BACKEND_CPU_KERNELS_H

#include "ops/ops.h"

/* Instruction-set levels, lowest first. "Up to a level" means those of the ones below it that the machine has: AVX-VNNI may be missing where AVX-512 is
 * there. `c` is everywhere. */
typedef enum im__cpu_level {
    IM__CPU_C = 0,
    IM__CPU_AVX2,    /* AVX2, FMA, F16C */
    IM__CPU_AVXVNNI, /* the same with AVX-VNNI */
    IM__CPU_AVX512,  /* AVX-512 F BW VL DQ and VNNI */
    IM__CPU_AMX,     /* the same with AMX tiles of int8, for types and rows that they serve better */
    IM__CPU_NEON,    /* ASIMD with dotprod and half-precision conversion */
    IM__CPU_I8MM,    /* the same with int8 matrix multiply */
    IM__CPU_LEVELS
} im__cpu_level;

const char *im__cpu_level_name(im__cpu_level level);
bool im__cpu_level_parse(const char *name, im__cpu_level *out);
/* This machine can run it and this build contains it. Where the machine has AMX, Linux is asked to let this process use tiles; from then on it refuses
 * alternate signal stacks smaller than getauxval(AT_MINSIGSTKSZ). */
bool im__cpu_has(im__cpu_level level);
im__cpu_level im__cpu_best(void);

/* One way to multiply by weights of one type. `pack` re-orders matrix rows into the layout that `run` reads. */
typedef struct im__matmul_kernel {
    const char *name; /* "matmul_q4_0_avx2" */
    uint32_t dtype;
    im__cpu_level level;
    size_t (*packed_bytes)(size_t n_out, size_t n_in);                                 /* 0: cannot serve this shape */
    void (*pack)(const im__weight *w, void *packed, size_t out_begin, size_t out_end); /* out_begin a multiple of 16; any threads */
    im__matmul_fn *run;
} im__matmul_kernel;

/* All kernels of this build, NULL-terminated; levels that the machine lacks included (they must not be run). */
const im__matmul_kernel *const *im__matmul_kernels(void);

/* The best kernel for (dtype, shape) at or below `level` that this machine can run; NULL: only plain C. */
const im__matmul_kernel *im__matmul_pick(uint32_t dtype, size_t n_out, size_t n_in, im__cpu_level level);

/* Overwrites entries of `ops` (filled by im__ops_c) with the kernels of levels up to `level`, which must be one that im__cpu_has agrees to. */
void im__ops_cpu(im__ops *ops, im__cpu_level level);

#endif
