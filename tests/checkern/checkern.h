/* SPDX-License-Identifier: Apache-2.0
 *
 * The harness that judges kernels: each one is run on the cases of its family and compared, bit for bit, with the plain C function.
 *
 * A family is a function that declares its cases once; checking, timing and digesting all walk the same ones:
 *
 *     for (n ...) {
 *         if (!ck_case(t, (ck_work){0}, "n=%zu", n)) continue;      frees the last case's memory, seeds t->rng from seed and label
 *         job.x = ck_in(t, "x", n * sizeof(float), sizeof(float));  guarded; read-only while the functions run
 *         job.y = ck_out(t, "y", CK_F32, n, n, sizeof(float));      guarded; poisoned before each run, compared after
 *         ck_run(t, call, &job);                                    reference, then the kernel, then the comparison
 *     }
 *
 * Kernels are found by themselves (ck_subjects.c), each runs in a process of its own (ck_isolate.c).
 */
#ifndef CHECKERN_H
#define CHECKERN_H

#include "backend/cpu/kernels.h"
#include "ck_memory.h"
#include "ck_values.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct ck_test ck_test;

typedef struct ck_family {
    char name[24];
    void (*cases)(ck_test *t);
    uint32_t dtype; /* of the weights; matmul families only */
} ck_family;

/* What is under test: one function. The reference is a subject too. */
typedef struct ck_subject {
    const ck_family *family;
    char name[48];
    im__cpu_level level;
    bool is_reference;
    const im__matmul_kernel *kernel; /* matmul families; NULL: im__matmul_c */
    im__ops ops;                     /* plain C but for the entry under test */
} ck_subject;

/* Size of a case that is worth timing; all zero: it is only checked. */
typedef struct ck_work {
    double bytes; /* that must be moved at least */
    double ops;   /* a multiply-add counts two */
} ck_work;

typedef struct ck_timing {
    char label[96];
    ck_work work;
    double ns, spread, reference_ns; /* medians of one call; spread: half the distance of the quartiles, relative */
} ck_timing;

#define CK_TIMINGS 16

/* Lives in memory shared with the child that runs the subject. */
typedef struct ck_result {
    size_t cases, failed, declined; /* declined: shapes that the kernel says it cannot serve */
    char label[96];                 /* the case that is running */
    char first[512];                /* the first failure, in words */
    bool finished;
    uint64_t digest;
    size_t timings;
    ck_timing timing[CK_TIMINGS];
} ck_result;

typedef enum ck_mode { CK_CHECK, CK_BENCH, CK_DIGEST } ck_mode;

struct ck_test {
    ck_mode mode;
    uint64_t seed;
    const ck_family *family;
    const ck_subject *subject, *reference;
    ck_rng rng;
    ck_arena arena;
    ck_work work;
    ck_result *result;
};

typedef void ck_call(const void *job, const ck_subject *s);

bool ck_case(ck_test *t, ck_work work, const char *format, ...) __attribute__((format(printf, 3, 4)));
void ck_run(ck_test *t, ck_call *call, const void *job);
void ck_fail(ck_test *t, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Times ck_run's job (ck_bench.c). */
void ck_bench(ck_test *t, ck_call *call, const void *job);

/* ---- families -------------------------------------------------------------------------------------------------------------- */

void ck_matmul(ck_test *t);
void ck_quantise(ck_test *t);
void ck_rms_norm(ck_test *t);
void ck_rope(ck_test *t);
void ck_kv_store(ck_test *t);
void ck_attention(ck_test *t);
void ck_glu(ck_test *t);
void ck_add(ck_test *t);
void ck_scale(ck_test *t);
void ck_softcap(ck_test *t);
void ck_argmax(ck_test *t);
void ck_num_exp(ck_test *t); /* these have no kernels: they are there for the digest */
void ck_num_rope_angle(ck_test *t);
void ck_num_dequantise(ck_test *t);
void ck_num_dequantise_affine(ck_test *t);
void ck_num_quantise_rest(ck_test *t);

const ck_family *ck_families(size_t *count);
const ck_family *ck_family_find(const char *name); /* NULL: no such family */

/* ---- subjects --------------------------------------------------------------------------------------------------------------- */

#define CK_SUBJECTS 256

/* Every kernel of this build, those of levels that this machine lacks included. */
size_t ck_subjects_find(ck_subject *out);
ck_subject ck_reference(const ck_family *family);
bool ck_level_of_this_architecture(im__cpu_level level);

/* Prints the kernels by level; returns how many hot weight types lack a kernel at a level. */
size_t ck_list(const ck_subject *subjects, size_t count);

/* ---- running ----------------------------------------------------------------------------------------------------------------- */

/* Runs all cases of the subject's family in a child process; a crash or a hang of the child is a failed case. */
void ck_isolate(const ck_subject *s, ck_mode mode, uint64_t seed, ck_result *out);

/* Runs the planted broken kernels; returns how many were not caught. */
size_t ck_selftest(uint64_t seed);

#endif
