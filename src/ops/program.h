/* SPDX-License-Identifier: Apache-2.0
 *
 * A model as data: a short list of typed operations on named weights and values. A model family turns metadata into such a list
 * (src/model); a backend runs it (src/backend). The list in order, one row at a time, with the plain C functions of ops.h, is the meaning of the model.
 *
 * A value is one row of float32 for each row of a step. Operations run in list order; each reads and writes whole values.
 * From the SELECT operation on only the rows that want logits take part ("head skip").
 */
#ifndef IRONMULE_OPS_PROGRAM_H
#define IRONMULE_OPS_PROGRAM_H

#include "base/error.h"
#include "base/mem.h"
#include "ops/ops.h"

#define IM__NONE (-1)
#define IM__NAME_MAX 64

typedef enum im__op_kind {
    IM__OP_EMBED,     /* dst = row `token` of weight, times `by` */
    IM__OP_NORM,      /* dst = RMS norm of src in groups of `n`, times vector, eps `by` */
    IM__OP_MATMUL,    /* dst = src x weight^T (+ vector); wide: src with 16 bits, see ops.h */
    IM__OP_ROPE,      /* dst turned in place: heads of head_dim, table `rope` */
    IM__OP_KV_STORE,  /* cache of `layer` at the row's position = src (keys), src2 (values) */
    IM__OP_ATTENTION, /* dst = attention of src (queries) over the cache of `layer`, scale `by`, cap `cap` */
    IM__OP_GLU,       /* dst = f(src) * src2 */
    IM__OP_ADD,       /* dst = dst + src */
    IM__OP_SCALE,     /* dst = src * by */
    IM__OP_SOFTCAP,   /* dst = softcap(dst, by) */
    IM__OP_SELECT     /* only rows that want logits from here on; src and src2 (or IM__NONE) are the values still needed */
} im__op_kind;

typedef struct im__op {
    im__op_kind kind;
    int dst, src, src2; /* values */
    int weight;         /* matrix, or IM__NONE */
    int vector;         /* norm weight or bias, or IM__NONE */
    int layer, rope;
    uint32_t n, heads, head_dim;
    im__glu glu;
    bool wide; /* of a product with quantised weights */
    float by, cap;
} im__op;

typedef struct im__value {
    char name[IM__NAME_MAX];
    uint32_t width; /* floats a row */
} im__value;

typedef struct im__matrix {
    char name[IM__NAME_MAX];
    im__weight w; /* data borrowed from the model file */
} im__matrix;

typedef struct im__vector {
    char name[IM__NAME_MAX];
    uint32_t n;
    float *data; /* owned by the program, widened */
} im__vector;

/* Rotation frequencies: pair i of a head turns by position * frequency[i]. */
typedef struct im__rope {
    uint32_t rot_dim;
    bool adjacent;
    double *frequency; /* [rot_dim / 2], owned by the program */
} im__rope;

/* What one layer keeps in the KV cache. */
typedef struct im__kv_layer {
    uint32_t kv_heads, head_dim;
    uint32_t window; /* newest positions that a row sees, its own included; 0: all */
    im__kv_type type;
} im__kv_layer;

typedef struct im__program {
    char arch[IM__NAME_MAX];
    uint32_t vocab, context; /* context the model was made for */
    im__op *op;
    size_t op_count;
    im__value *value;
    size_t value_count;
    im__matrix *matrix;
    size_t matrix_count;
    im__vector *vector;
    size_t vector_count;
    im__rope *rope;
    size_t rope_count;
    im__kv_layer *kv;
    size_t kv_count;
    int logits; /* the value that holds the logits at the end */
} im__program;

/* Builders used by the model families: append and return the index, or IM__NONE when memory ran out (the caller checks once at the end). */
int im__program_op(im__program *p, im__op op);
int im__program_value(im__program *p, const char *name, uint32_t width);
int im__program_matrix(im__program *p, const char *name, const im__weight *w);
int im__program_vector(im__program *p, const char *name, float *data, uint32_t n); /* takes ownership of data, also on failure */
int im__program_rope(im__program *p, double *frequency, uint32_t rot_dim, bool adjacent); /* likewise */
int im__program_kv(im__program *p, im__kv_layer layer);
void im__program_clear(im__program *p); /* frees everything that the program owns; p itself is the caller's */

/* Checks that every index, width and order holds (a value is written before it is read, shapes fit): a broken family is an IM_ERR_INTERNAL at load, not a
 * wrong answer. */
im_status im__program_check(const im__program *p, im_error *err);

/* The list as text, one operation a line. Its digest (64 bits) is part of a model's identity. */
void im__program_print(const im__program *p, im__buf *out);
uint64_t im__program_digest(const im__program *p);

#endif
