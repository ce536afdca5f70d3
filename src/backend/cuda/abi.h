/* SPDX-License-Identifier: Apache-2.0
 *
 * What the host and the kernels say to each other: one text for both compilers (C11, and CUDA C++ in kernels/). Pointers are device addresses, 64 bits on either
 * side; the host never follows one. The structs hold nothing whose size depends on the compiler.
 *
 * Values are float32 rows [row][width] in device memory, as the program names them. `rows` means the rows of the step or, after SELECT, those that want
 * logits; the number of either stands in the step's header, so that a graph of launches serves any step that fits its grid.
 */
#ifndef IRONMULE_BACKEND_CUDA_ABI_H
#define IRONMULE_BACKEND_CUDA_ABI_H

#include <stdint.h>

#ifdef __cplusplus
#define IM__DEV(type) type *
#else
#define IM__DEV(type) uint64_t /* a CUdeviceptr */
#endif

/* ---- weights -----------------------------------------------------------------------------------------------------------------
 *
 * 32 rows of a matrix (outputs) are a tile, 256 elements of them a unit, because one output's 256 elements are one chain of the contract: a thread owns an
 * output, and units are what a GPU spreads over its warps. The bytes of a unit:
 *
 *     codes    4 bits   [group of 32][output][16 B]     byte i: element i in the low nibble, element 16 + i in the high one
 *              5 bits   as 4 bits, then [group of 32][output][4 B]: bit k of byte i is the top bit of element 4k + i
 *              6 bits   as 4 bits, then [group of 32][output][2 words of 4 B]: bits 2k, 2k + 1 of byte i of word h are the top bits of element 4 (4h + k) + i
 *              8 bits   [group of 32][half][output][16 B]: signed bytes, elements 16 half .. 16 half + 15
 *     scales   HALF       [group][output] half s
 *              HALF_MIN   [group][output] {half s, half m}
 *              FLOAT      [group][output] float s
 *              BF16_MIN   [group][output] {bfloat16 s, bfloat16 bias}   m = bias; of 8 bits, whose bytes are code - 128, fma(128, s, bias)
 *              SUPER      [output] half d; [group][output] int8 k                       s = d k
 *              SUPER_MIN  [output] {half d, half -dmin}; [group][output] {uint8 k, uint8 l}   s = d k, m = -dmin l
 *
 * Values are s (code - offset) + m. Thirty-two lanes that read their 16 bytes of one group read 512 bytes in one go; a lane of a tensor-core fragment reads
 * word `lane % 4` of output `lane / 4`, 128 bytes in one go, and finds both its halves of the group in it.
 * A matrix is [tile][unit]; all units have `unit_bytes` but the last of each tile, which is shorter when 256 does not divide the row. Unit sizes are multiples of 16.
 * Float weights: a unit is [16 bytes' worth of elements][output][16 B] in their own type. Outputs beyond n_out are zeros.
 */
enum { IM__CUDA_TILE = 32, IM__CUDA_UNIT = 256 };

typedef enum im__cuda_form {
    IM__CUDA_4_HALF,         /* Q4_0, offset 8 */
    IM__CUDA_4_HALF_MIN,     /* Q4_1 */
    IM__CUDA_5_HALF,         /* Q5_0, offset 16 */
    IM__CUDA_5_HALF_MIN,     /* Q5_1 */
    IM__CUDA_8_HALF,         /* Q8_0, IQ4_NL */
    IM__CUDA_4_SUPER_MIN_16, /* Q2_K: groups of 16 */
    IM__CUDA_4_SUPER_16,     /* Q3_K, offset 4: groups of 16 */
    IM__CUDA_4_SUPER_MIN,    /* Q4_K */
    IM__CUDA_5_SUPER_MIN,    /* Q5_K */
    IM__CUDA_6_SUPER_16,     /* Q6_K, offset 32: groups of 16 */
    IM__CUDA_8_SUPER,        /* IQ4_XS */
    IM__CUDA_8_FLOAT,        /* MXFP4 */
    IM__CUDA_4_BF16_MIN,     /* AFFINE2, AFFINE3, AFFINE4 */
    IM__CUDA_8_BF16_MIN,     /* AFFINE8 */
    IM__CUDA_F32,
    IM__CUDA_F16,
    IM__CUDA_BF16,
    IM__CUDA_FORMS
} im__cuda_form;

typedef struct im__cuda_matrix {
    IM__DEV(const uint8_t) data;
    uint32_t form; /* im__cuda_form */
    uint32_t n_in, n_out;
    uint32_t unit_bytes, tile_bytes;
    uint32_t pad;
} im__cuda_matrix;

/* ---- quantised rows (contract, section 2) ------------------------------------------------------------------------------------- */

/* Of 32 activations: their scale and the sums of the first and the last 16 integers. */
typedef struct im__cuda_group {
    float d;
    int16_t sum[2];
} im__cuda_group;

/* Rows of n elements. Row `rest_rows` + r holds what the quantisation of row r lost, for wide products; rest_rows = max_rows of the plan. */
typedef struct im__cuda_act {
    IM__DEV(int8_t) q;             /* [rows][n], 16-byte aligned */
    IM__DEV(im__cuda_group) group; /* [rows][n / 32] */
    uint32_t n, rest_rows;
} im__cuda_act;

/* ---- the step ------------------------------------------------------------------------------------------------------------------ */

enum { IM__CUDA_POOLS = 2 }; /* as IM__POOLS */

/* One row of a step. */
typedef struct im__cuda_row {
    int32_t token, position;
    uint32_t table[IM__CUDA_POOLS]; /* where its sequence's page table begins in im__cuda_step.pages */
} im__cuda_row;

/* Neighbouring rows of one sequence that attention takes together. Each row of a step is in one tile or is a single (kernels/attention.h says from how many rows
 * on a tile pays). */
typedef struct im__cuda_tile {
    uint32_t begin, end;
} im__cuda_tile;

/* The header of what is sent for each step, in one copy; it lies in device memory at an address that does not change, and so do the arrays behind the
 * pointers (their capacity is the plan's). */
typedef struct im__cuda_step {
    uint32_t rows, selected;            /* rows of the step; rows that want logits */
    uint32_t tiles, selected_tiles;     /* of attention, before and after SELECT */
    uint32_t singles, selected_singles; /* rows that attention takes one by one: those in no tile */
    uint32_t most_keys;                 /* largest position + 1 */
    uint32_t pad;
    IM__DEV(const im__cuda_row) row;            /* [rows] */
    IM__DEV(const uint32_t) source;             /* [selected] place of a selected row among the rows */
    IM__DEV(const im__cuda_tile) tile;          /* [tiles] of rows */
    IM__DEV(const im__cuda_tile) selected_tile; /* [selected_tiles] of selected rows */
    IM__DEV(const uint32_t) single;             /* [singles] rows, ascending */
    IM__DEV(const uint32_t) selected_single;    /* [selected_singles] selected rows, ascending */
    IM__DEV(const int32_t)
    pages; /* page tables, one after the other: entry p of a table is the page of positions 64p .. 64p + 63, or -1 */
} im__cuda_step;

/* ---- operations on single rows ---------------------------------------------------------------------------------------------------- */

typedef enum im__cuda_action_kind {
    IM__CUDA_EMBED,    /* dst = row `token` of matrix, times by */
    IM__CUDA_NORM,     /* dst = norm of src in groups of n, times vector, eps by */
    IM__CUDA_ROPE,     /* dst turned in place; cosine, sine [row of the step][rot_dim / 2] */
    IM__CUDA_KV_STORE, /* src (keys) and src2 (values) into the cache */
    IM__CUDA_GLU_SILU, /* dst = silu(src) * src2 */
    IM__CUDA_GLU_GELU,
    IM__CUDA_ADD,       /* dst = dst + src */
    IM__CUDA_SCALE,     /* dst = src * by */
    IM__CUDA_SOFTCAP,   /* dst = softcap(dst, by) */
    IM__CUDA_QUANTISE,  /* act = quantised src; wide: and its rest */
    IM__CUDA_ROPE_TABLE /* cosine, sine of the row's position: rot_dim / 2 angles position * frequency[i] */
} im__cuda_action_kind;

/* One layer's keys and values in a pool. Of page `p`: keys of KV head h at pool + p * page_stride + k_offset + h * head_dim * 64 as [head_dim][64] (transposed),
 * values at ... + v_offset + h * head_dim * 64 as [64][head_dim]; strides and offsets in elements. */
typedef struct im__cuda_kv {
    IM__DEV(void) pool;
    uint64_t page_stride, k_offset, v_offset;
    uint32_t which;  /* pool: which table of a row */
    uint32_t is_f32; /* else binary16, clamped; clamped values are counted */
    uint32_t kv_heads, head_dim;
    IM__DEV(unsigned long long) clamped;
} im__cuda_kv;

typedef struct im__cuda_action {
    uint32_t kind;
    uint32_t width; /* of dst (of src for QUANTISE) */
    uint32_t n, heads, head_dim, rot_dim, adjacent, wide;
    float by;
    uint32_t pad;
    IM__DEV(float) dst;
    IM__DEV(const float) src;
    IM__DEV(const float) src2;
    IM__DEV(const float) vector;
    IM__DEV(float) cosine;
    IM__DEV(float) sine;
    IM__DEV(const double) frequency;
    im__cuda_matrix matrix;
    im__cuda_act act;
    im__cuda_kv kv;
} im__cuda_action;

/* ---- products -------------------------------------------------------------------------------------------------------------------- */

/* y[r][o] = dot(row r, weight row o) (+ bias[o]); wide: dot(row r) + dot(rest of row r) (+ bias). Quantised weights read act, float weights x. */
typedef struct im__cuda_product {
    im__cuda_matrix w;
    im__cuda_act act;
    IM__DEV(const float) x;    /* [rows][n_in] */
    IM__DEV(const float) bias; /* or 0 */
    IM__DEV(float) y;          /* [rows][n_out] */
    uint32_t wide, pad;
} im__cuda_product;

/* Products of one launch: all of one form; they share rows and do not read each other. Blocks first_block[i] .. first_block[i + 1] - 1 of the grid's x belong
 * to product i. */
enum { IM__CUDA_MOST_PRODUCTS = 4 };
typedef struct im__cuda_products {
    im__cuda_product product[IM__CUDA_MOST_PRODUCTS];
    uint32_t first_block[IM__CUDA_MOST_PRODUCTS + 1];
    uint32_t count;
    uint32_t selected; /* rows: of the step (0), or those that want logits (1) */
    uint32_t pad;
    IM__DEV(const im__cuda_step) step;
} im__cuda_products;

/* ---- attention ---------------------------------------------------------------------------------------------------------------------- */

typedef struct im__cuda_attention {
    im__cuda_kv kv;
    uint32_t heads, window, selected;
    uint32_t every; /* im_attention_few: every row, not only the singles (what im_attention_many cannot do) */
    float scale, softcap;
    IM__DEV(const float) q; /* [rows][heads * head_dim] */
    IM__DEV(float) out;     /* [rows][heads * head_dim] */
    IM__DEV(float) partial; /* scratch of im_attention_few, all zeros before its first launch; see kernels/attention.h */
    uint64_t partial_floats;
    IM__DEV(const im__cuda_step) step;
} im__cuda_attention;

#endif
