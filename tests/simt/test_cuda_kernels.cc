/* SPDX-License-Identifier: Apache-2.0
 *
 * The cases of tests/checkern_cuda on the emulator: kernels of rows, products of few rows, selection and choice.
 */
#include "simt.h"

#include "backend/cuda/abi.h"

extern "C" {
#include "gk.h"
}

#include <stdio.h>

/* ---- the kernels ---- */

extern "C" {
void im_rows(const im__cuda_action *list, uint32_t count, const im__cuda_step *step, uint32_t selected);
void im_select(const float *src, float *dst, uint32_t width, const im__cuda_step *step);
void im_argmax(const float *logits, uint32_t vocab, uint32_t rows, int32_t *out);
#define FORMS(X)                                                                                                                   \
    X(4_half)                                                                                                                      \
    X(4_half_min)                                                                                                                  \
    X(5_half)                                                                                                                      \
    X(5_half_min) X(8_half) X(4_super_min_16) X(4_super_16) X(4_super_min) X(5_super_min) X(6_super_16) X(8_super) X(8_float)      \
        X(4_bf16_min) X(8_bf16_min) X(f32) X(f16) X(bf16)
#define DECLARE(form) void im_matmul_few_##form(im__cuda_products p);
FORMS(DECLARE)
}

typedef struct kernel {
    const char *name;
    void (*call)(void **params);
} kernel;

static const kernel kernels[] = {
    {"im_rows",
     [](void **p) {
         im_rows(*(const im__cuda_action **)p[0], *(uint32_t *)p[1], *(const im__cuda_step **)p[2], *(uint32_t *)p[3]);
     }},
    {"im_select",
     [](void **p) { im_select(*(const float **)p[0], *(float **)p[1], *(uint32_t *)p[2], *(const im__cuda_step **)p[3]); }},
    {"im_argmax", [](void **p) { im_argmax(*(const float **)p[0], *(uint32_t *)p[1], *(uint32_t *)p[2], *(int32_t **)p[3]); }},
#define ENTRY(form) {"im_matmul_few_" #form, [](void **p) { im_matmul_few_##form(*(const im__cuda_products *)p[0]); }},
    FORMS(ENTRY)};

/* ---- the machine ---- */

static bool take(gk_machine *, size_t bytes, uint64_t *at)
{
    *at = (uint64_t)(uintptr_t)aligned_alloc(256, (bytes + 255) / 256 * 256);
    return *at != 0;
}

static void give(gk_machine *, uint64_t at) { free((void *)(uintptr_t)at); }

static bool copy_in(gk_machine *, uint64_t to, const void *from, size_t bytes)
{
    memcpy((void *)(uintptr_t)to, from, bytes);
    return true;
}

static bool copy_out(gk_machine *, void *to, uint64_t from, size_t bytes)
{
    memcpy(to, (const void *)(uintptr_t)from, bytes);
    return true;
}

/* Each run of a case in another order. */
static bool run(gk_machine *m, const char *name, const gk_launch *l)
{
    for (const kernel &k : kernels) {
        if (strcmp(k.name, name) != 0) continue;
        simt_order = (simt_order + 1) % GK_RUNS;
        simt_launch(dim3(l->grid[0], l->grid[1]), dim3(l->threads), l->shared, [&] { k.call(l->params); });
        return true;
    }
    snprintf(m->said, sizeof m->said, "there is no such kernel");
    return false;
}

int main(int argc, char **argv)
{
    gk_machine m = {};
    m.name = "emulator";
    m.processors = 4;
    m.emulated = true;
    m.take = take, m.give = give, m.in = copy_in, m.out = copy_out, m.run = run;
    gk_test t = {};
    t.machine = &m;
    t.seed = 1;
    t.ok = true;
    t.only = argc > 1 ? argv[1] : NULL;
    gk_rows(&t);
    gk_matmul_few(&t);
    gk_select(&t);
    gk_argmax(&t);
    gk_end(&t);
    printf("%zu cases, %zu failed\n", t.cases, t.failed);
    return t.failed != 0 || t.cases == 0;
}
