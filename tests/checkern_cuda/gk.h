/* SPDX-License-Identifier: Apache-2.0
 *
 * The harness that judges CUDA kernels: each case builds its memory, runs a kernel several times and compares all of that memory, bit for bit, with what the plain
 * C functions make of it. The same cases run on a device (gk_main.c, gk_device.c) and on the emulator (tests/simt/test_cuda_kernels.cc).
 *
 *     if (gk_case(t, "n=%u", n)) {
 *         params.x = gk_in(t, "x", x, bytes);
 *         params.y = gk_out(t, "y", GK_F32, want, bytes);     poisoned before each run
 *         gk_run(t, "im_kernel", &(gk_launch){...});
 *     }
 */
#ifndef GK_H
#define GK_H

#include "../checkern/ck_values.h"
#include "backend/cuda/abi.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct gk_launch {
    unsigned grid[2], threads, shared;
    void **params;
} gk_launch;

/* Where kernels run. All return false when the machine says no; `said` holds why. */
typedef struct gk_machine gk_machine;
struct gk_machine {
    const char *name;
    uint32_t processors;
    bool emulated; /* small shapes only, and nothing to time */
    char said[256];
    bool (*take)(gk_machine *m, size_t bytes, uint64_t *at);
    void (*give)(gk_machine *m, uint64_t at);
    bool (*in)(gk_machine *m, uint64_t to, const void *from, size_t bytes);
    bool (*out)(gk_machine *m, void *to, uint64_t from, size_t bytes);
    bool (*run)(gk_machine *m, const char *kernel, const gk_launch *l);
    /* Runs the launches one behind the other as dependent launches, `times` times; *us: median of one round. */
    bool (*time)(gk_machine *m, const char *kernel, const gk_launch *l, size_t launches, size_t times, double *us);
};

typedef enum gk_kind { GK_F32, GK_F16, GK_GROUP, GK_BYTES } gk_kind; /* all NaN are equal; GK_GROUP: im__cuda_group */

enum { GK_BLOCKS = 48, GK_BAND = 256, GK_RUNS = 3 };

typedef struct gk_block {
    const char *name;
    gk_kind kind;
    size_t bytes;
    unsigned char *before, *want; /* with a band on either side */
    uint64_t at;                  /* of the first band */
} gk_block;

typedef struct gk_test {
    gk_machine *machine;
    const char *only; /* run cases whose label contains it; NULL: all */
    uint64_t seed;
    ck_rng rng;
    size_t cases, failed;
    bool ok; /* of the running case */
    char label[160];
    gk_block block[GK_BLOCKS];
    size_t blocks;
    void *scratch[64]; /* host memory of the case */
    size_t scratches;
} gk_test;

/* Ends the case before, starts this one; false when it is not asked for. */
bool gk_case(gk_test *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
void gk_end(gk_test *t); /* of the last case */
void gk_fail(gk_test *t, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Zeroed host memory until the case ends. */
void *gk_memory(gk_test *t, size_t bytes);
float *gk_floats(gk_test *t, ck_flavour f, size_t n);

/* Addresses on the machine. In: must not change. Out: must be `want` afterwards. */
uint64_t gk_in(gk_test *t, const char *name, const void *data, size_t bytes);
uint64_t gk_out(gk_test *t, const char *name, gk_kind kind, const void *want, size_t bytes);
uint64_t gk_inout(gk_test *t, const char *name, gk_kind kind, const void *before, const void *want, size_t bytes);

void gk_run(gk_test *t, const char *kernel, const gk_launch *l);

/* Families; each runs its cases. */
void gk_rows(gk_test *t);
void gk_matmul_few(gk_test *t);
void gk_select(gk_test *t);
void gk_argmax(gk_test *t);

/* Timing of matmul_few on shapes of real models. */
void gk_time_matmul_few(gk_machine *m);
void gk_time_rows(gk_machine *m);

/* A step of these rows (tokens, positions; page tables, one of `pages` entries for each row and pool); selected: those rows. */
typedef struct gk_step {
    uint32_t rows, selected, table; /* entries of a page table */
    int32_t *token, *position;
    uint32_t *source;
    int32_t *pages; /* [rows][IM__CUDA_POOLS][table] */
} gk_step;
uint64_t gk_step_in(gk_test *t, const gk_step *s);

#endif
