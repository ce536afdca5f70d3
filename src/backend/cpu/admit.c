/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/admit.h"

#include "backend/cpu/self_check.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

enum { UNKNOWN, GOOD, WRONG, MOST_KERNELS = 512 };

/* Two threads may check the same kernel at the same time and come to the same verdict. */
static atomic_uchar matmul_verdict[MOST_KERNELS]; /* in the order of im__matmul_kernels */
static struct {
    atomic_uchar verdict;
    const char *_Atomic wrong;
} ops_verdict[IM__CPU_LEVELS];

static const char *_Atomic planted;

static bool is_planted(const char *name)
{
    const char *p = atomic_load(&planted);
    return p != NULL && strcmp(p, name) == 0;
}

static void flip(float *x)
{
    uint32_t bits;
    memcpy(&bits, x, sizeof bits);
    bits ^= 1;
    memcpy(x, &bits, sizeof bits);
}

static void wrong_matmul(const im__weight *w, const im__matmul_in *in, const float *bias, float *y, size_t y_stride,
                         size_t out_begin, size_t out_end)
{
    im__matmul_c(w, in, bias, y, y_stride, out_begin, out_end);
    flip(y + (in->rows - 1) * y_stride + out_end - 1);
}

static void wrong_add(float *y, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) y[i] = y[i] + x[i];
    flip(y + n - 1);
}

void im__admit_plant(const char *name)
{
    atomic_store(&planted, name);
    for (size_t i = 0; i < MOST_KERNELS; i++) atomic_store(&matmul_verdict[i], UNKNOWN);
    for (int level = 0; level < IM__CPU_LEVELS; level++) atomic_store(&ops_verdict[level].verdict, UNKNOWN);
}

/* Where the verdict of a kernel is kept; NULL for one that is not in the list. */
static atomic_uchar *verdict_of(const im__matmul_kernel *k)
{
    const im__matmul_kernel *const *list = im__matmul_kernels();
    for (size_t i = 0; list[i] != NULL && i < MOST_KERNELS; i++)
        if (list[i] == k) return &matmul_verdict[i];
    return NULL;
}

im_status im__admit_matmul(const im__matmul_kernel *k, bool *good, im_error *err)
{
    atomic_uchar *kept = verdict_of(k);
    unsigned char verdict = kept == NULL ? UNKNOWN : atomic_load(kept);
    *good = verdict == GOOD;
    if (verdict != UNKNOWN) return IM_OK;
    im__matmul_kernel judged = *k;
    if (is_planted(k->name)) judged.run = wrong_matmul;
    IM__TRY(im__matmul_self_check(&judged, good, err));
    if (kept != NULL) atomic_store(kept, *good ? GOOD : WRONG);
    return IM_OK;
}

static im_status judge_ops(im__ops *ops, im__cpu_level level, const char **wrong, im_error *err)
{
    char name[32];
    *wrong = atomic_load(&ops_verdict[level].wrong);
    if (atomic_load(&ops_verdict[level].verdict) != UNKNOWN) return IM_OK;
    snprintf(name, sizeof name, "ops_%s", im__cpu_level_name(level));
    im__ops judged = *ops;
    if (is_planted(name)) judged.add = wrong_add;
    IM__TRY(im__ops_self_check(&judged, wrong, err));
    atomic_store(&ops_verdict[level].wrong, *wrong);
    atomic_store(&ops_verdict[level].verdict, *wrong == NULL ? GOOD : WRONG);
    return IM_OK;
}

im_status im__admit_ops(im__ops *ops, im__cpu_level level, const char **wrong, im_error *err)
{
    *wrong = NULL;
    im__ops_c(ops);
    for (int l = (int)level; l > IM__CPU_C; l--) {
        const char *name;
        if (!im__cpu_has((im__cpu_level)l)) continue;
        im__ops_c(ops);
        im__ops_cpu(ops, (im__cpu_level)l);
        IM__TRY(judge_ops(ops, (im__cpu_level)l, &name, err));
        if (name == NULL) return IM_OK;
        *wrong = name;
        im__ops_c(ops);
    }
    return IM_OK;
}
