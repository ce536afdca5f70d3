/* SPDX-License-Identifier: Apache-2.0
 *
 * The operations of a step: what they mean (the comment and the plain C function, docs/numerics.md is the text behind both) and the
 * table through which they are called. im__ops_c fills the table with the plain C functions: the reference, always there. A backend overwrites entries with
 * kernels that return the same bits.
 *
 * Conventions: rows are steps' rows, `stride` counts floats from one row to the next; n is the width of a row. Pointers never alias unless said.
 * Functions never allocate, fail or log. They are pure: any number of threads may run them on disjoint outputs.
 */
#ifndef IRONMULE_OPS_OPS_H
#define IRONMULE_OPS_OPS_H

#include "num/split.h"

/* ---- rows quantised to 8 bits (section 2) --------------------------------------------------------------------------------- */

#define IM__ACT_GROUP 32

/* `rows` rows of n elements (n a multiple of 32). The memory belongs to whoever planned it; see im__act_bytes. */
typedef struct im__act {
    size_t n;
    int8_t *q;    /* [rows][n] */
    float *d;     /* [rows][n / 32]  scale of each group */
    int16_t *sum; /* [rows][n / 16]  sums of 16 q each: a group of 32 has two */
} im__act;

/* A wide product gives its inputs 16 bits in place of 8: the row is quantised, what that lost is quantised again, and the result is the sum of two ordinary
 * products,
 *
 *     y = dot(Q(x)) + dot(Q(x - d q))  (+ bias)
 *
 * so every kernel serves it, with two rows for one. */

/* rest[i] = x[i] - d q[i] of row `row`: the product rounded, then the difference. */
void im__quantise_rest(const im__act *act, size_t row, const float *x, float *rest);

/* ---- weights --------------------------------------------------------------------------------------------------------------- */

/* A matrix of n_out rows of n_in elements, as stored in the model file and, where a kernel wants it, re-packed. What reads the stored form goes through
 * im__weight_row and im__weight_blocks. */
typedef struct im__weight {
    uint32_t dtype;
    size_t n_in, n_out;
    const void *data; /* n_out rows of row_bytes; NULL once only `packed` is kept */
    size_t row_bytes;
    im__split split; /* its codes are the rows; else split.scale is NULL */
    /* Rows come in heads of this many, and row 2i + j of a head is stored as its row i + j halves / 2. 0: as they are. */
    uint32_t halves;
    void *packed; /* in the layout of the kernel chosen for it; NULL: none */
    size_t packed_bytes;
} im__weight;

/* Inputs of a product: quantised rows for quantised weights, float rows for float weights. The other is NULL. */
typedef struct im__matmul_in {
    const im__act *act;
    const float *x; /* [rows][x_stride] */
    size_t x_stride;
    size_t rows;
} im__matmul_in;

/* y[r * y_stride + o] = dot(row r, weight row o) (+ bias[o] when bias is not NULL: one float addition at the end) for all r and
 * out_begin <= o < out_end; out_begin is a multiple of 16, out_end too unless it is n_out. */
typedef void im__matmul_fn(const im__weight *w, const im__matmul_in *in, const float *bias, float *y, size_t y_stride,
                           size_t out_begin, size_t out_end);

/* ---- attention (section 4) --------------------------------------------------------------------------------------------------- */

#define IM__PAGE 64           /* positions in a KV page and in an attention block */
#define IM__SPAN 1024         /* keys in a span of the merge */
#define IM__ATTENTION_TILE 64 /* queries (rows times heads) that a kernel may take through a block together */

/* What keys and values are stored as. */
typedef enum im__kv_type {
    IM__KV_F16, /* rounded to binary16 and clamped to its finite range */
    IM__KV_F32, /* as they are */
    IM__KV_TYPES
} im__kv_type;

static inline size_t im__kv_type_size(im__kv_type type) { return type == IM__KV_F32 ? sizeof(float) : sizeof(uint16_t); }

/* One sequence's cache of one layer, in pages. Page p holds positions 64p .. 64p + 63. For each KV head h:
 * keys   at page(p) + k_offset + h * head_dim * 64, stored [head_dim][64] (transposed: lanes run across keys),
 * values at page(p) + v_offset + h * head_dim * 64, stored [64][head_dim].
 * page(p) = base + table[p] * page_stride. A negative table entry is a page that no visible key lies in. */
typedef struct im__kv_view {
    im__kv_type type;
    void *base;                             /* uint16_t or float */
    size_t page_stride, k_offset, v_offset; /* in elements of that type */
    const int32_t *table;
} im__kv_view;

typedef struct im__attention {
    im__kv_view kv;
    uint32_t heads, kv_heads, head_dim; /* heads is a multiple of kv_heads; head_dim a multiple of 2, at most 512 */
    uint32_t window;                    /* a row sees this many newest positions, its own included; 0: all */
    float scale;                        /* q is multiplied by this before the dot */
    float softcap;                      /* 0: none */
    const float *q;                     /* [rows][q_stride], heads * head_dim used */
    size_t q_stride;
    float *out; /* [rows][out_stride], heads * head_dim written */
    size_t out_stride;
    const int32_t *position; /* [rows] all rows belong to this sequence; their keys and values are stored already */
} im__attention;

/* ---- the table ---------------------------------------------------------------------------------------------------------------- */

typedef enum im__glu { IM__GLU_SILU, IM__GLU_GELU } im__glu;

typedef struct im__ops {
    /* Quantises x[0..n) into row `row` of act. */
    void (*quantise)(const im__act *act, size_t row, const float *x);

    /* RMS norm of `count` consecutive groups of n each: y = (x * r) * w, r = 1 / sqrt(sum / n + eps). y may be x. */
    void (*rms_norm)(float *y, const float *x, const float *w, size_t n, size_t count, float eps);

    /* Rotates `heads` heads of head_dim in place; cosine, sine: [rot_dim / 2]. Only the first rot_dim of each head turn. adjacent: pairs (2i, 2i + 1), else
     * (i, i + rot_dim / 2). */
    void (*rope)(float *x, size_t heads, size_t head_dim, size_t rot_dim, const float *cosine, const float *sine, bool adjacent);

    /* Stores one row's keys and values ([kv_heads * head_dim] each) at `position` in the cache's type; returns how many values were
     * clamped. NaN is stored as NaN. */
    size_t (*kv_store)(const im__kv_view *kv, size_t kv_heads, size_t head_dim, int32_t position, const float *k, const float *v);

    /* Rows row_begin <= r < row_end, KV heads kv_begin <= h < kv_end with all query heads that share them. scratch: im__attention_scratch floats. */
    void (*attention)(const im__attention *a, size_t row_begin, size_t row_end, size_t kv_begin, size_t kv_end, float *scratch);

    /* y[i] = f(gate[i]) * up[i]; y may be gate. */
    void (*glu)(float *y, const float *gate, const float *up, size_t n, im__glu kind);

    void (*add)(float *y, const float *x, size_t n);             /* y[i] = y[i] + x[i] */
    void (*scale)(float *y, const float *x, size_t n, float by); /* y[i] = x[i] * by; y may be x */
    void (*softcap)(float *y, size_t n, float cap);

    /* Lowest index among the largest values; -1 when one is NaN. */
    int32_t (*argmax)(const float *x, size_t n);
} im__ops;

/* Floats of scratch that one call of `attention` may need for a tile of rows (any kernel). */
size_t im__attention_scratch(uint32_t heads, uint32_t kv_heads, uint32_t head_dim);

/* Sizes for im__act: bytes of the three arrays for `rows` rows of n, each 64-byte aligned, and carving them out of one block. */
size_t im__act_bytes(size_t rows, size_t n);
im__act im__act_carve(void *block, size_t rows, size_t n);

/* Where row `out` is stored: its elements, blocks or codes. */
const uint8_t *im__weight_row(const im__weight *w, size_t out);

/* Blocks first .. first + count - 1 of row `out`, of at most IM__JOINED elements: where they are stored, or put together in `room`. */
const uint8_t *im__weight_blocks(const im__weight *w, size_t out, size_t first, size_t count, uint8_t room[IM__JOINED_BYTES]);

/* The system may take back what it holds of the file's rows begin .. end - 1; they can still be read. */
void im__weight_release(const im__weight *w, size_t begin, size_t end);

/* Embedding: dst[0..n_in) = row `index` of the table by the format's exact formula, then times `scale` (1: no product). */
void im__embed_row(const im__weight *w, size_t index, float scale, float *dst);

/* The reference product, for every type that runs. */
im__matmul_fn im__matmul_c;

/* Fills every entry with the plain C function. */
void im__ops_c(im__ops *ops);

#endif
