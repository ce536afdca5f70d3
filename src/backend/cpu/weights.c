/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/weights.h"

#include "backend/cpu/admit.h"
#include "base/thread.h"
#include "num/dtype.h"

#include <string.h>

#define ALIGN 64
/* A unit of packing reads about this much of the file. */
#define UNIT_BYTES ((size_t)1 << 19)

/* Only matrices that a product reads are packed; an embedding that is only looked up stays in the file. */
static bool multiplied(const im__program *p, size_t matrix)
{
    for (size_t i = 0; i < p->op_count; i++)
        if (p->op[i].kind == IM__OP_MATMUL && (size_t)p->op[i].weight == matrix) return true;
    return false;
}

static void note_rejected(im__weights *out, const im__matmul_kernel *k)
{
    if (out->rejected.data != NULL && strstr(out->rejected.data, k->name) != NULL) return;
    im__buf_printf(&out->rejected, "%s%s", out->rejected.len == 0 ? "" : ", ", k->name);
}

/* The best kernel that passes its self-check, or NULL. */
static im_status admit(im__weights *out, const im__weight *w, im__cpu_level level, const im__matmul_kernel **kernel, im_error *err)
{
    bool good = false;
    while (level > IM__CPU_C) {
        const im__matmul_kernel *k = im__matmul_pick(w->dtype, w->n_out, w->n_in, level);
        if (k == NULL) break;
        IM__TRY(im__admit_matmul(k, &good, err));
        if (good) {
            *kernel = k;
            return IM_OK;
        }
        note_rejected(out, k);
        level = (im__cpu_level)(k->level - 1);
    }
    return IM_OK;
}

static im_status choose_one(im__weights *out, size_t i, im__cpu_level level, im_error *err)
{
    im__weight *w = &out->matrix[i];
    *w = out->p->matrix[i].w;
    if (!multiplied(out->p, i)) return IM_OK;
    IM__TRY(admit(out, w, level, &out->kernel[i], err));
    if (out->kernel[i] == NULL) return IM_OK;
    size_t packed = out->kernel[i]->packed_bytes(w->n_out, w->n_in);
    if (!im__add(packed, ALIGN - 1, &packed) || !im__add(out->block_bytes, packed & ~(size_t)(ALIGN - 1), &out->block_bytes))
        return im__fail(err, IM_ERR_MEMORY, "the weights exceed the address space");
    w->packed_bytes = packed & ~(size_t)(ALIGN - 1);
    return IM_OK;
}

im_status im__weights_choose(im__weights *out, const im__program *p, im__cpu_level level, im_error *err)
{
    *out = (im__weights){.p = p,
                         .kernel = im__calloc(p->matrix_count, sizeof(const im__matmul_kernel *)),
                         .matrix = im__calloc(p->matrix_count, sizeof(im__weight))};
    im_status status = out->kernel == NULL || out->matrix == NULL ? im__fail(err, IM_ERR_MEMORY, "out of memory") : IM_OK;
    for (size_t i = 0; i < p->matrix_count && status == IM_OK; i++) status = choose_one(out, i, level, err);
    if (status != IM_OK) im__weights_clear(out);
    return status;
}

static size_t unit_rows(const im__weight *w)
{
    size_t rows = UNIT_BYTES / (w->row_bytes + 1);
    return rows < 16 ? 16 : rows & ~(size_t)15;
}

/* The matrix that a unit belongs to. */
static size_t matrix_of(const im__weights *all, size_t unit)
{
    size_t low = 0, high = all->p->matrix_count; /* first_unit[low] <= unit < first_unit[high] */
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (all->first_unit[middle] <= unit)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* Units are blocks of rows of all matrices, one behind the other. */
static void pack_unit(void *ctx, size_t phase, size_t unit, int thread)
{
    (void)phase;
    im__weights *all = ctx;
    size_t i = matrix_of(all, unit);
    const im__weight *w = &all->matrix[i];
    size_t rows = unit_rows(w), begin = (unit - all->first_unit[i]) * rows, end = begin + rows < w->n_out ? begin + rows : w->n_out;
    all->kernel[i]->pack(w, w->packed, begin, end);
    im__weight_release(w, begin, end);
    size_t bytes = w->packed_bytes / w->n_out * (end - begin);
    size_t done = atomic_fetch_add_explicit(&all->packed, bytes, memory_order_relaxed) + bytes;
    if (thread != 0 || all->progress == NULL) return;
    all->progress(all->progress_user, (double)done / (double)all->block_bytes);
    im__float_reset();
}

/* Gives every packed matrix its place and its units; returns the number of units. */
static size_t place(im__weights *all)
{
    size_t offset = 0, units = 0;
    for (size_t i = 0; i < all->p->matrix_count; i++) {
        im__weight *w = &all->matrix[i];
        all->first_unit[i] = (uint32_t)units;
        if (all->kernel[i] == NULL) continue;
        w->packed = (char *)all->block + offset;
        offset += w->packed_bytes;
        units += (w->n_out + unit_rows(w) - 1) / unit_rows(w);
    }
    all->first_unit[all->p->matrix_count] = (uint32_t)units;
    return units;
}

im_status im__weights_pack(im__weights *all, im__team *team, im_error *err)
{
    all->first_unit = im__calloc(all->p->matrix_count + 1, sizeof *all->first_unit);
    all->block = im__aligned_alloc(all->block_bytes);
    if (all->first_unit == NULL || all->block == NULL)
        return im__fail(err, IM_ERR_MEMORY, "%zu MiB for the weights are not to be had", all->block_bytes >> 20);
    size_t units = place(all);
    if (units > UINT32_MAX) return im__fail(err, IM_ERR_MEMORY, "the weights are too many to pack");
    im__team_run(team, 1, &(uint32_t){(uint32_t)units}, pack_unit, all, NULL);
    if (all->progress != NULL) all->progress(all->progress_user, 1);
    return IM_OK;
}

void im__weights_clear(im__weights *w)
{
    im__aligned_free(w->block, w->block_bytes);
    im__free(w->kernel);
    im__free(w->matrix);
    im__free(w->first_unit);
    im__buf_free(&w->rejected);
    *w = (im__weights){0};
}

size_t im__weights_bytes(const im__weights *w)
{
    size_t bytes = w->block_bytes;
    for (size_t i = 0; i < w->p->matrix_count; i++)
        if (w->kernel[i] == NULL) bytes += w->matrix[i].n_out * w->matrix[i].row_bytes;
    return bytes;
}

void im__weights_describe(const im__weights *w, im__buf *out)
{
    bool seen[IM__DTYPE_END] = {false};
    int listed = 0;
    for (size_t i = 0; i < w->p->matrix_count; i++) {
        uint32_t dtype = w->matrix[i].dtype;
        if (seen[dtype] || !multiplied(w->p, i)) continue;
        seen[dtype] = true;
        im__buf_printf(out, "%s %s %s", listed++ == 0 ? "" : ",", im__dtype_get(dtype)->name,
                       w->kernel[i] == NULL ? "plain C" : w->kernel[i]->name);
    }
}
