/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/weights.h"

#include "backend/cpu/self_check.h"
#include "base/file_map.h"
#include "num/dtype.h"

#include <string.h>

#define ALIGN 64
/* A unit of packing reads about this much of the file. */
#define UNIT_BYTES ((size_t)1 << 20)

/* Only matrices that a product reads are packed; an embedding that is only looked up stays in the file. */
static bool multiplied(const im__program *p, size_t matrix)
{
    for (size_t i = 0; i < p->op_count; i++)
        if (p->op[i].kind == IM__OP_MATMUL && (size_t)p->op[i].weight == matrix) return true;
    return false;
}

/* The best kernel that passes its self-check, or NULL. Matrices of one type mostly share a kernel, so the last verdict is kept. */
static const im__matmul_kernel *admit(im__weights *out, const im__weight *w, im__cpu_level level)
{
    while (level > IM__CPU_C) {
        const im__matmul_kernel *k = im__matmul_pick(w->dtype, w->n_out, w->n_in, level);
        if (k == NULL) return NULL;
        if (out->admitted[w->dtype] == k || im__matmul_self_check(k)) return out->admitted[w->dtype] = k;
        im__buf_printf(&out->rejected, "%s%s", out->rejected.len == 0 ? "" : ", ", k->name);
        level = (im__cpu_level)(k->level - 1);
    }
    return NULL;
}

static im_status choose_one(im__weights *out, size_t i, im__cpu_level level, im_error *err)
{
    im__weight *w = &out->matrix[i];
    *w = out->p->matrix[i].w;
    if (!multiplied(out->p, i)) return IM_OK;
    const im__matmul_kernel *k = admit(out, w, level);
    out->kernel[i] = k;
    if (k == NULL) return IM_OK;
    w->packed_bytes = (k->packed_bytes(w->n_out, w->n_in) + ALIGN - 1) & ~(size_t)(ALIGN - 1);
    if (!im__add(out->block_bytes, w->packed_bytes, &out->block_bytes))
        return im__fail(err, IM_ERR_MEMORY, "the weights exceed the address space");
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

/* One phase a matrix: units are blocks of its rows. */
static void pack_unit(void *ctx, size_t phase, size_t unit, int thread)
{
    im__weights *all = ctx;
    const im__weight *w = &all->matrix[phase];
    size_t rows = unit_rows(w), begin = unit * rows, end = begin + rows < w->n_out ? begin + rows : w->n_out;
    all->kernel[phase]->pack(w, w->packed, begin, end);
    im__file_release((const char *)w->data + begin * w->row_bytes, (end - begin) * w->row_bytes);
    size_t done = atomic_fetch_add_explicit(&all->packed, (end - begin) * w->packed_bytes / w->n_out, memory_order_relaxed);
    if (thread == 0 && all->progress != NULL) all->progress(all->progress_user, (double)done / (double)all->block_bytes);
}

im_status im__weights_pack(im__weights *all, im__team *team, im_error *err)
{
    size_t count = all->p->matrix_count, offset = 0;
    uint32_t *units = im__calloc(count, sizeof *units);
    all->block = im__aligned_alloc(all->block_bytes);
    if (units == NULL || all->block == NULL) {
        im__free(units);
        return im__fail(err, IM_ERR_MEMORY, "%zu MiB for the weights are not to be had", all->block_bytes >> 20);
    }
    for (size_t i = 0; i < count; i++) {
        im__weight *w = &all->matrix[i];
        if (all->kernel[i] == NULL) continue;
        w->packed = (char *)all->block + offset;
        offset += w->packed_bytes;
        units[i] = (uint32_t)((w->n_out + unit_rows(w) - 1) / unit_rows(w));
    }
    im__team_run(team, count, units, pack_unit, all, NULL);
    im__free(units);
    return IM_OK;
}

void im__weights_clear(im__weights *w)
{
    im__aligned_free(w->block, w->block_bytes);
    im__free(w->kernel);
    im__free(w->matrix);
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
