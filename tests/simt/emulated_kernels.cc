/* SPDX-License-Identifier: Apache-2.0 */
#include "simt.h"

#include "backend/cuda/abi.h"
#include "backend/cuda/kernels/matmul_many.h"
#include "emulated_kernels.h"

extern "C" {
void im_rows(const im__cuda_action *list, uint32_t count, const im__cuda_step *step, uint32_t selected);
void im_select(const float *src, float *dst, uint32_t width, const im__cuda_step *step);
void im_argmax(const float *logits, uint32_t vocab, uint32_t rows, int32_t *out);
}

/* Runs call(...) on every thread of the launch. */
template <class F> static void on_all(const im__cuda_launch *l, F call)
{
    simt_launch(dim3(l->grid[0], l->grid[1], l->grid[2]), dim3(l->block[0], l->block[1], l->block[2]), l->shared, call);
}

static void run_rows(const im__cuda_launch *l, void **p)
{
    auto list = *(const im__cuda_action **)p[0];
    auto step = *(const im__cuda_step **)p[2];
    uint32_t count = *(uint32_t *)p[1], selected = *(uint32_t *)p[3];
    on_all(l, [=] { im_rows(list, count, step, selected); });
}

static void run_select(const im__cuda_launch *l, void **p)
{
    auto src = *(const float **)p[0];
    auto dst = *(float **)p[1];
    auto step = *(const im__cuda_step **)p[3];
    uint32_t width = *(uint32_t *)p[2];
    on_all(l, [=] { im_select(src, dst, width, step); });
}

static void run_argmax(const im__cuda_launch *l, void **p)
{
    auto logits = *(const float **)p[0];
    auto out = *(int32_t **)p[3];
    uint32_t vocab = *(uint32_t *)p[1], rows = *(uint32_t *)p[2];
    on_all(l, [=] { im_argmax(logits, vocab, rows, out); });
}

/* A kernel with one struct. */
template <class T, void (*KERNEL)(T)> static void run_one(const im__cuda_launch *l, void **p)
{
    const T a = *(const T *)p[0];
    on_all(l, [&a] { KERNEL(a); });
}

#define PRODUCTS(name) extern "C" void name(const im__cuda_products p);
#define ATTENTION(name) extern "C" void name(const im__cuda_attention a);
#define SHAPE(form, shape) PRODUCTS(im_matmul_many_##form##_##shape)
#define FORM(form, number) PRODUCTS(im_matmul_few_##form) IM__MANY_EACH_SHAPE(SHAPE, form)
#define FLOATS(form, number) PRODUCTS(im_matmul_few_##form) PRODUCTS(im_matmul_many_##form)
#define FEW(how, heads) ATTENTION(im_attention_few_##how##_##heads)
#define MANY(head, queries) ATTENTION(im_attention_many_##head##_##queries)
IM__MANY_FORMS(FORM)
IM__MANY_FLOAT_FORMS(FLOATS)
#include "backend/cuda/kernels/attention_kernels.inc"
#undef PRODUCTS
#undef ATTENTION

#define PRODUCTS(name) {#name, run_one<const im__cuda_products, name>, {sizeof(im__cuda_products)}},
#define ATTENTION(name) {#name, run_one<const im__cuda_attention, name>, {sizeof(im__cuda_attention)}},
static const fake_kernel list[] = {{"im_rows", run_rows, {8, 4, 8, 4}},
                                   {"im_select", run_select, {8, 8, 4, 8}},
                                   {"im_argmax", run_argmax, {8, 4, 4, 8}},
                                   IM__MANY_FORMS(FORM) IM__MANY_FLOAT_FORMS(FLOATS)
#include "backend/cuda/kernels/attention_kernels.inc"
};

const fake_kernel *emulated_kernels(size_t *count)
{
    *count = sizeof list / sizeof *list;
    return list;
}
