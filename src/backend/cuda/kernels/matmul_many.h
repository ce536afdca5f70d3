/* SPDX-License-Identifier: Apache-2.0
 *
 * Products of many rows (five and more): what the host needs to launch the kernels of matmul_many.cu. Kernels are named im_matmul_many_<form>_<shape>, form as in
 * im__cuda_form in small letters (im_matmul_many_4_half_32), shape one of IM__MANY_SHAPES; float weights have one shape: im_matmul_many_f16.
 *
 *     im__many_launch l = im__many_launch_of(form, shape);
 *     grid.x = sum over products of im__many_blocks(&l, n_out), in the order of first_block;
 *     grid.y = im__many_row_blocks(&l, most rows, whether a product is wide);
 *     block = l.threads, dynamic shared memory = l.shared (above 48 KiB: raise the kernel's limit once).
 *
 * A grid made for more rows than a step has is right, too: blocks without rows return.
 */
#ifndef IRONMULE_BACKEND_CUDA_KERNELS_MATMUL_MANY_H
#define IRONMULE_BACKEND_CUDA_KERNELS_MATMUL_MANY_H

#include "backend/cuda/abi.h"

#ifdef __CUDACC__
#define IM__MANY_FN static __host__ __device__ constexpr
#elif defined(__cplusplus)
#define IM__MANY_FN static constexpr
#else
#include <stdbool.h>
#define IM__MANY_FN static inline
#endif

/* name, 16-output tiles a warp, 8-row tiles a warp, warps side by side over outputs, over rows, over chunks of 256 of the inner dimension, stages of the pipeline.
 * A block's tile is 16 x the first x the third outputs by 8 x the second x the fourth rows, of which half are the rests where the product is wide. */
#define IM__MANY_SHAPES(X)                                                                                                         \
    X(16s, 2, 2, 1, 1, 2, 2, 2)                                                                                                    \
    X(16, 2, 2, 1, 1, 4, 3, 1)                                                                                                     \
    X(16e, 2, 2, 1, 1, 8, 2, 1)                                                                                                    \
    X(64, 2, 4, 2, 2, 2, 2, 1)                                                                                                     \
    X(128, 2, 8, 4, 2, 1, 2, 1)

/* X(text, name, ...) for each shape: what IM__MANY_FORMS needs. */
#define IM__MANY_EACH_SHAPE(X, text) X(text, 16s) X(text, 16) X(text, 16e) X(text, 64) X(text, 128)

#define IM__MANY_FORMS(X)                                                                                                          \
    X(4_half, IM__CUDA_4_HALF)                                                                                                     \
    X(4_half_min, IM__CUDA_4_HALF_MIN)                                                                                             \
    X(5_half, IM__CUDA_5_HALF)                                                                                                     \
    X(5_half_min, IM__CUDA_5_HALF_MIN)                                                                                             \
    X(8_half, IM__CUDA_8_HALF)                                                                                                     \
    X(4_super_min_16, IM__CUDA_4_SUPER_MIN_16)                                                                                     \
    X(4_super_16, IM__CUDA_4_SUPER_16)                                                                                             \
    X(4_super_min, IM__CUDA_4_SUPER_MIN)                                                                                           \
    X(5_super_min, IM__CUDA_5_SUPER_MIN)                                                                                           \
    X(6_super_16, IM__CUDA_6_SUPER_16)                                                                                             \
    X(8_super, IM__CUDA_8_SUPER)                                                                                                   \
    X(8_float, IM__CUDA_8_FLOAT)                                                                                                   \
    X(4_bf16_min, IM__CUDA_4_BF16_MIN)                                                                                             \
    X(8_bf16_min, IM__CUDA_8_BF16_MIN)
#define IM__MANY_FLOAT_FORMS(X) X(f32, IM__CUDA_F32) X(f16, IM__CUDA_F16) X(bf16, IM__CUDA_BF16)

typedef enum im__many_shape {
#define X(name, ...) IM__MANY_##name,
    IM__MANY_SHAPES(X)
#undef X
        IM__MANY_SHAPE_COUNT
} im__many_shape;

typedef struct im__many_sizes {
    uint32_t out_tiles, row_tiles, out_warps, row_warps, chunk_warps, stages, blocks;
} im__many_sizes;

IM__MANY_FN im__many_sizes im__many_sizes_of(im__many_shape s)
{
    const im__many_sizes all[] = {
#define X(name, ...) {__VA_ARGS__},
        IM__MANY_SHAPES(X)
#undef X
    };
    return all[s];
}

/* Float weights: a block of 256 threads takes 64 outputs of 64 rows. */
enum { IM__MANY_FLOAT_OUT = 64, IM__MANY_FLOAT_ROWS = 64, IM__MANY_FLOAT_THREADS = 256 };

IM__MANY_FN bool im__many_is_float(uint32_t form) { return form >= IM__CUDA_F32; }

/* Bits of a code, and of what follows them in a unit of `groups` groups of 32 (see abi.h). */
IM__MANY_FN uint32_t im__many_bits(uint32_t form)
{
    return form == IM__CUDA_5_HALF || form == IM__CUDA_5_HALF_MIN || form == IM__CUDA_5_SUPER_MIN                           ? 5
           : form == IM__CUDA_6_SUPER_16                                                                                    ? 6
           : form == IM__CUDA_8_HALF || form == IM__CUDA_8_SUPER || form == IM__CUDA_8_FLOAT || form == IM__CUDA_8_BF16_MIN ? 8
                                                                                                                            : 4;
}

IM__MANY_FN bool im__many_by_16(uint32_t form)
{
    return form == IM__CUDA_4_SUPER_MIN_16 || form == IM__CUDA_4_SUPER_16 || form == IM__CUDA_6_SUPER_16;
}

IM__MANY_FN bool im__many_is_super(uint32_t form) { return form >= IM__CUDA_4_SUPER_MIN_16 && form <= IM__CUDA_8_SUPER; }

IM__MANY_FN bool im__many_is_bf16_min(uint32_t form) { return form == IM__CUDA_4_BF16_MIN || form == IM__CUDA_8_BF16_MIN; }

IM__MANY_FN bool im__many_has_min(uint32_t form)
{
    return im__many_is_bf16_min(form) || form == IM__CUDA_4_HALF_MIN || form == IM__CUDA_5_HALF_MIN ||
           form == IM__CUDA_4_SUPER_MIN_16 || form == IM__CUDA_4_SUPER_MIN || form == IM__CUDA_5_SUPER_MIN;
}

IM__MANY_FN uint32_t im__many_code_bytes(uint32_t form, uint32_t groups) { return groups * 128 * im__many_bits(form); }

IM__MANY_FN uint32_t im__many_unit_bytes(uint32_t form, uint32_t groups)
{
    const uint32_t each = im__many_has_min(form) ? 2 : 1; /* a scale, or a scale and a minimum */
    const uint32_t of_unit = im__many_is_super(form) ? 64 * each : 0;
    const uint32_t of_group =
        im__many_is_super(form) ? 32 * each * (im__many_by_16(form) ? 2 : 1) : (form == IM__CUDA_8_FLOAT ? 128 : 64 * each);
    return im__many_code_bytes(form, groups) + of_unit + groups * of_group;
}

IM__MANY_FN uint32_t im__many_tile_outputs(im__many_shape s)
{
    return 16 * im__many_sizes_of(s).out_tiles * im__many_sizes_of(s).out_warps;
}

IM__MANY_FN uint32_t im__many_tile_rows(im__many_shape s)
{
    return 8 * im__many_sizes_of(s).row_tiles * im__many_sizes_of(s).row_warps;
}

IM__MANY_FN uint32_t im__many_threads(im__many_shape s)
{
    const im__many_sizes z = im__many_sizes_of(s);
    return 32 * z.out_warps * z.row_warps * z.chunk_warps;
}

/* Shared memory of one chunk: the integers of its rows, their scales and sums ([group][row], padded by 4), the weights. */
IM__MANY_FN uint32_t im__many_scale_bytes(im__many_shape s) { return 8 * 4 * (im__many_tile_rows(s) + 4); }
IM__MANY_FN uint32_t im__many_act_bytes(uint32_t form, im__many_shape s)
{
    return IM__CUDA_UNIT * im__many_tile_rows(s) + im__many_scale_bytes(s) * (im__many_has_min(form) ? 2 : 1);
}
IM__MANY_FN uint32_t im__many_chunk_bytes(uint32_t form, im__many_shape s)
{
    return (im__many_act_bytes(form, s) + im__many_tile_outputs(s) / 32 * im__many_unit_bytes(form, 8) + 127) / 128 * 128;
}

/* ---- warp groups (matmul_many_90.cu, compute capability 9.0) -----------------------------------------------------------------------
 *
 * name, 8-row tiles, groups of four warps side by side over outputs (64 each), over chunks. One more group fetches. */
#define IM__MANY_90_SHAPES(X)                                                                                                      \
    X(g16, 2, 1, 4)                                                                                                                \
    X(g32, 4, 1, 4)                                                                                                                \
    X(g64, 8, 1, 3)                                                                                                                \
    X(g128, 16, 2, 1)
#define IM__MANY_90_EACH_SHAPE(X, text) X(text, g16) X(text, g32) X(text, g64) X(text, g128)

/* Numbers go on from those of im__many_shape. */
typedef enum im__many_90_shape {
    IM__MANY_90_BEFORE = IM__MANY_SHAPE_COUNT - 1,
#define X(name, ...) IM__MANY_##name,
    IM__MANY_90_SHAPES(X)
#undef X
        IM__MANY_ALL_SHAPES
} im__many_90_shape;

typedef struct im__many_90_sizes {
    uint32_t row_tiles, out_groups, chunk_groups;
} im__many_90_sizes;

IM__MANY_FN im__many_90_sizes im__many_90_sizes_of(int s)
{
    const im__many_90_sizes all[] = {
#define X(name, ...) {__VA_ARGS__},
        IM__MANY_90_SHAPES(X)
#undef X
    };
    return all[s - IM__MANY_SHAPE_COUNT];
}

IM__MANY_FN uint32_t im__many_90_rows(int s) { return 8 * im__many_90_sizes_of(s).row_tiles; }
IM__MANY_FN uint32_t im__many_90_outputs(int s) { return 64 * im__many_90_sizes_of(s).out_groups; }
IM__MANY_FN uint32_t im__many_90_threads(int s)
{
    return 128 * (im__many_90_sizes_of(s).out_groups * im__many_90_sizes_of(s).chunk_groups + 1);
}

/* Of a chunk: integers, scales, sums (as floats; of groups of 32 or 16), weights; in multiples of 1,024. */
IM__MANY_FN uint32_t im__many_90_weights_at(uint32_t form, int s)
{
    const uint32_t sums = !im__many_has_min(form) ? 0 : im__many_by_16(form) ? 2 : 1;
    return IM__CUDA_UNIT * im__many_90_rows(s) + 8 * 4 * im__many_90_rows(s) * (1 + sums);
}
IM__MANY_FN uint32_t im__many_90_slot_bytes(uint32_t form, int s)
{
    return (im__many_90_weights_at(form, s) + im__many_90_outputs(s) / 32 * im__many_unit_bytes(form, 8) + 1023) / 1024 * 1024;
}

/* Totals of a block whose groups take turns, and barriers, for which 1,024 bytes are enough. */
IM__MANY_FN uint32_t im__many_90_total_bytes(int s)
{
    return im__many_90_sizes_of(s).chunk_groups == 1 ? 0 : im__many_90_outputs(s) * im__many_90_rows(s) * 4;
}
enum { IM__MANY_90_SHARED = 227 * 1024, IM__MANY_90_MOST_SLOTS = 16 };
IM__MANY_FN uint32_t im__many_90_slots(uint32_t form, int s)
{
    const uint32_t slots = (IM__MANY_90_SHARED - 2048 - im__many_90_total_bytes(s)) / im__many_90_slot_bytes(form, s);
    return slots < IM__MANY_90_MOST_SLOTS ? slots : (uint32_t)IM__MANY_90_MOST_SLOTS;
}
/* 1,024 more, because dynamic shared memory is not promised to begin at a multiple. */
IM__MANY_FN uint32_t im__many_90_shared(uint32_t form, int s)
{
    return 2048 + im__many_90_total_bytes(s) + im__many_90_slots(form, s) * im__many_90_slot_bytes(form, s);
}
/* Where chunk sums meet. */
IM__MANY_FN uint32_t im__many_meeting_bytes(im__many_shape s)
{
    const im__many_sizes z = im__many_sizes_of(s);
    return z.chunk_warps == 1 ? 0 : z.chunk_warps * im__many_tile_outputs(s) * im__many_tile_rows(s) * 4;
}

IM__MANY_FN uint32_t im__many_shared(uint32_t form, im__many_shape s)
{
    const im__many_sizes z = im__many_sizes_of(s);
    return z.stages * z.chunk_warps * im__many_chunk_bytes(form, s) + im__many_meeting_bytes(s);
}

/* ---- every shape: what a launch needs ---------------------------------------------------------------------------------------------------- */

typedef struct im__many_launch {
    uint32_t threads, shared; /* of a block */
    uint32_t outputs, rows;   /* of a block's tile; half the rows of a wide product */
    const char *name;         /* "" of float weights */
} im__many_launch;

static inline im__many_launch im__many_launch_of(uint32_t form, int s)
{
    static const char *const names[] = {
#define X(name, ...) #name,
        IM__MANY_SHAPES(X) IM__MANY_90_SHAPES(X)
#undef X
    };
    im__many_launch l = {IM__MANY_FLOAT_THREADS, 0, IM__MANY_FLOAT_OUT, IM__MANY_FLOAT_ROWS, ""};
    if (im__many_is_float(form)) return l;
    l.name = names[s];
    if (s < IM__MANY_SHAPE_COUNT) {
        l.threads = im__many_threads((im__many_shape)s);
        l.shared = im__many_shared(form, (im__many_shape)s);
        l.outputs = im__many_tile_outputs((im__many_shape)s);
        l.rows = im__many_tile_rows((im__many_shape)s);
    } else {
        l.threads = im__many_90_threads(s);
        l.shared = im__many_90_shared(form, s);
        l.outputs = im__many_90_outputs(s);
        l.rows = im__many_90_rows(s);
    }
    return l;
}

static inline uint32_t im__many_blocks(const im__many_launch *l, uint32_t n_out) { return (n_out + l->outputs - 1) / l->outputs; }

/* Of float weights no product is wide. */
static inline uint32_t im__many_row_blocks(const im__many_launch *l, uint32_t rows, bool wide)
{
    const uint32_t tile = wide ? l->rows / 2 : l->rows;
    return (rows + tile - 1) / tile;
}

/* ---- which shape ----------------------------------------------------------------------------------------------------------------------- */

/* What a chunk of every warp takes in a block, in nanoseconds on an H200 with Q4_0; how many blocks a multiprocessor holds, and what each takes then. Other forms
 * and chips keep the order. */
typedef struct im__many_pace {
    uint32_t round, resident, shared_round;
} im__many_pace;

/* Estimated nanoseconds of a launch: every multiprocessor takes equally many blocks. p: products with w and wide filled in. */
static inline uint64_t im__many_cost(int s, const im__cuda_products *p, uint32_t rows, uint32_t processors)
{
    static const im__many_pace paces[IM__MANY_ALL_SHAPES] = {{1850, 5, 700},  {2500, 1, 2500}, {3400, 1, 3400},
                                                             {4100, 1, 4100}, {6000, 1, 6000}, {2380, 1, 2380},
                                                             {3170, 1, 3170}, {3900, 1, 3900}, {3780, 1, 3780}};
    const im__many_launch l = im__many_launch_of(p->product[0].w.form, s);
    const uint32_t side =
        s < IM__MANY_SHAPE_COUNT ? im__many_sizes_of((im__many_shape)s).chunk_warps : im__many_90_sizes_of(s).chunk_groups;
    const im__many_pace pace = paces[s];
    uint64_t blocks = 0, rounds = 0;
    for (uint32_t i = 0; i < p->count; i++) {
        const uint32_t chunks = (p->product[i].w.n_in + IM__CUDA_UNIT - 1) / IM__CUDA_UNIT;
        blocks += (uint64_t)im__many_blocks(&l, p->product[i].w.n_out) * im__many_row_blocks(&l, rows, p->product[i].wide != 0);
        rounds = (chunks + side - 1) / side > rounds ? (chunks + side - 1) / side : rounds;
    }
    const uint64_t load = (blocks + processors - 1) / processors, waves = (load + pace.resident - 1) / pace.resident;
    const uint64_t alone = waves * pace.round, full = load * pace.shared_round;
    return 500 * waves + rounds * (alone > full ? alone : full);
}

/* The shape that should be fastest among those that are usable (a kernel of that form is loaded and its shared memory is granted). -1: none. Float weights have
 * one shape, 0. */
static inline int im__many_choose(const bool usable[IM__MANY_ALL_SHAPES], const im__cuda_products *p, uint32_t rows,
                                  uint32_t processors)
{
    int best = -1;
    uint64_t least = 0;
    for (int s = 0; s < IM__MANY_ALL_SHAPES; s++) {
        if (!usable[s]) continue;
        const uint64_t cost = im__many_is_float(p->product[0].w.form) ? 1 : im__many_cost(s, p, rows, processors);
        if (best >= 0 && cost >= least) continue;
        best = s;
        least = cost;
    }
    return best;
}

#endif
