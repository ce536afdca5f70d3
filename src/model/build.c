/* SPDX-License-Identifier: Apache-2.0 */
#include "model/build.h"

#include "num/group.h"
#include "num/real.h"

#include <stdio.h>
#include <string.h>

static void fail(im__build *b, im_status status, const char *format, ...) IM__PRINTF(3, 4);
static void fail(im__build *b, im_status status, const char *format, ...)
{
    va_list args;
    if (b->status != IM_OK) return;
    va_start(args, format);
    b->status = im__failv(b->err, status, format, args);
    va_end(args);
}

/* An index that a program builder gave, or the error that it could not. */
static int kept(im__build *b, int index)
{
    if (index == IM__NONE) fail(b, IM_ERR_MEMORY, "out of memory while building the program");
    return index;
}

im_status im__build_begin(im__build *b, im__program *p, const im__source *s, const im__params *params, im_error *err)
{
    *b = (im__build){.p = p, .s = s, .params = params, .err = err, .layer = -1};
    b->used = im__calloc(s->tensor_count, sizeof *b->used);
    if (b->used == NULL) fail(b, IM_ERR_MEMORY, "out of memory");
    snprintf(p->arch, sizeof p->arch, "%s", params->arch);
    p->context = params->context;
    uint32_t ff = 0, kv = 0, heads = params->heads * params->head_dim;
    for (uint32_t i = 0; i < params->layers; i++) {
        if (params->ff[i] > ff) ff = params->ff[i];
        if (params->kv_heads[i] > kv) kv = params->kv_heads[i];
        if (params->ff[i] != params->ff[0] || params->kv_heads[i] != params->kv_heads[0])
            fail(b, IM_ERR_UNSUPPORTED, "%s: layers of different widths", s->path);
    }
    b->x = kept(b, im__program_value(p, "x", params->embd));
    b->h = kept(b, im__program_value(p, "h", params->embd));
    b->q = kept(b, im__program_value(p, "q", heads));
    b->k = kept(b, im__program_value(p, "k", kv * params->head_dim));
    b->v = kept(b, im__program_value(p, "v", kv * params->head_dim));
    b->att = kept(b, im__program_value(p, "att", heads));
    b->gate = kept(b, im__program_value(p, "gate", ff));
    b->up = kept(b, im__program_value(p, "up", ff));
    return b->status;
}

/* A model whose products all have float weights keeps keys and values in binary32, so that nothing in it is rounded to fewer bits; beside quantised
 * weights binary16 does not show (docs/numerics.md, section 4). */
static im__kv_type cache_type(const im__program *p)
{
    for (size_t i = 0; i < p->op_count; i++)
        if (p->op[i].kind == IM__OP_MATMUL && !im__dtype_is_float(p->matrix[p->op[i].weight].w.dtype)) return IM__KV_F16;
    return IM__KV_F32;
}

im_status im__build_end(im__build *b)
{
    char room[128];
    for (size_t i = 0; i < b->s->tensor_count && b->status == IM_OK; i++)
        if (!b->used[i])
            fail(b, IM_ERR_UNSUPPORTED, "%s: tensor %s has no place in architecture %s", b->s->tensor[i].path,
                 b->s->kind->label(b->s, b->s->tensor[i].name, room), b->params->arch);
    im__free(b->used);
    b->used = NULL;
    for (size_t i = 0; b->status == IM_OK && i < b->p->kv_count; i++) b->p->kv[i].type = cache_type(b->p);
    if (b->status == IM_OK) b->status = im__program_check(b->p, b->err);
    return b->status;
}

static void tensor_name(const im__build *b, const char *stem, const char *kind, char out[IM__NAME_MAX])
{
    if (b->layer >= 0)
        snprintf(out, IM__NAME_MAX, "blk.%d.%s.%s", b->layer, stem, kind);
    else
        snprintf(out, IM__NAME_MAX, "%s.%s", stem, kind);
}

bool im__b_has(const im__build *b, const char *stem, const char *kind)
{
    char name[IM__NAME_MAX];
    tensor_name(b, stem, kind, name);
    return im__source_find(b->s, name) != NULL;
}

static void missing(im__build *b, const char *name)
{
    char room[128];
    fail(b, IM_ERR_FORMAT, "%s: tensor %s is missing", b->s->path, b->s->kind->label(b->s, name, room));
}

void im__b_require(im__build *b, const char *stem, const char *kind)
{
    char name[IM__NAME_MAX];
    tensor_name(b, stem, kind, name);
    if (!im__b_has(b, stem, kind)) missing(b, name);
}

/* The tensor, present, of the shape [n_out][n_in] (n_out 1: a vector) and of a type that runs; else NULL and the builder has failed. */
static const im__tensor *tensor(im__build *b, const char *name, uint64_t n_in, uint64_t n_out)
{
    const im__tensor *t = im__source_find(b->s, name);
    if (b->status != IM_OK) return NULL;
    if (t == NULL) {
        missing(b, name);
        return NULL;
    }
    char room[128];
    const char *path = t->path, *label = b->s->kind->label(b->s, name, room);
    const im__dtype_info *type = im__dtype_get(t->dtype);
    b->used[t - b->s->tensor] = true;
    if (t->dim[0] != n_in || t->dim[1] != n_out || t->dim[2] != 1 || t->dim[3] != 1)
        fail(b, IM_ERR_FORMAT, "%s: tensor %s is %llu x %llu, but %llu x %llu is needed", path, label,
             (unsigned long long)t->dim[0], (unsigned long long)t->dim[1], (unsigned long long)n_in, (unsigned long long)n_out);
    else if (!type->runs)
        fail(b, IM_ERR_UNSUPPORTED, "%s: tensor %s has type %s, which this build does not compute with", path, label, type->name);
    return b->status == IM_OK ? t : NULL;
}

static int matrix(im__build *b, const char *name, uint64_t n_in, uint64_t n_out)
{
    const im__tensor *t = tensor(b, name, n_in, n_out);
    if (t == NULL) return IM__NONE;
    for (size_t i = 0; i < b->p->matrix_count; i++) /* the embedding may serve twice */
        if (strcmp(b->p->matrix[i].name, name) == 0) return (int)i;
    im__weight w = {.dtype = t->dtype,
                    .n_in = (size_t)n_in,
                    .n_out = (size_t)n_out,
                    .data = t->data,
                    .row_bytes = (size_t)(t->bytes / n_out),
                    .split = t->split,
                    .halves = t->halves};
    return kept(b, im__program_matrix(b->p, name, &w));
}

/* Element 2i + j of a head of `halves` is stored as its element i + j halves / 2. */
static void widen_vector(const im__tensor *t, float *data, uint32_t n)
{
    const size_t size = t->bytes / n;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t at = t->halves == 0 ? 0 : i % t->halves, from = i - at + at / 2 + at % 2 * (t->halves / 2); /* at 0: i */
        im__dequantise_row(t->dtype, t->data + from * size, &data[i], 1);
        if (t->plus != 0) data[i] = data[i] + t->plus;
    }
}

static int vector(im__build *b, const char *name, uint32_t n)
{
    char room[128];
    const im__tensor *t = tensor(b, name, n, 1);
    if (t == NULL) return IM__NONE;
    if (!im__dtype_is_float(t->dtype)) {
        fail(b, IM_ERR_FORMAT, "%s: tensor %s has type %s; a vector must be F32, F16 or BF16", t->path,
             b->s->kind->label(b->s, name, room), im__dtype_get(t->dtype)->name);
        return IM__NONE;
    }
    float *data = im__calloc(n, sizeof *data);
    if (data != NULL) widen_vector(t, data, n);
    return kept(b, data == NULL ? IM__NONE : im__program_vector(b->p, name, data, n));
}

static void op(im__build *b, im__op o)
{
    if (b->status == IM_OK) kept(b, im__program_op(b->p, o));
}

/* An operation without anything: families fill in what they need. */
static im__op plain(im__op_kind kind, int dst, int src)
{
    return (im__op){.kind = kind,
                    .dst = dst,
                    .src = src,
                    .src2 = IM__NONE,
                    .weight = IM__NONE,
                    .vector = IM__NONE,
                    .layer = IM__NONE,
                    .rope = IM__NONE};
}

/* The tensor rope_freqs.weight divides the frequency of each pair (Llama 3's scaling of long contexts). */
static bool apply_divisors(im__build *b, double *frequency, uint32_t pairs)
{
    const char *name = "rope_freqs.weight";
    const im__tensor *t = tensor(b, name, pairs, 1);
    if (t == NULL) return false;
    float *divisor = im__calloc(pairs, sizeof *divisor);
    if (divisor == NULL) {
        fail(b, IM_ERR_MEMORY, "out of memory");
        return false;
    }
    im__dequantise_row(t->dtype, t->data, divisor, pairs);
    for (uint32_t i = 0; i < pairs; i++) {
        if (!(divisor[i] > 0 && divisor[i] < 1e9f))
            fail(b, IM_ERR_FORMAT, "%s: tensor %s holds %g", b->s->path, name, (double)divisor[i]);
        frequency[i] /= (double)divisor[i];
    }
    im__free(divisor);
    return b->status == IM_OK;
}

/* Angles are exact to the contract for frequencies up to 2 (num/real.h). */
static bool frequencies_fit(im__build *b, const double *frequency, uint32_t pairs)
{
    for (uint32_t i = 0; i < pairs; i++)
        if (!(frequency[i] <= 2))
            fail(b, IM_ERR_FORMAT,
                 "%s: the rotation of pair %u is %g a position; at most 2 is possible (rope scaling, rope_freqs.weight)",
                 b->s->path, i, frequency[i]);
    return b->status == IM_OK;
}

int im__b_rope_table(im__build *b, double base, double factor, bool adjacent, bool use_divisors)
{
    uint32_t pairs = b->params->rot_dim / 2;
    if (b->status != IM_OK) return IM__NONE;
    double *frequency = im__calloc(pairs, sizeof *frequency);
    if (frequency == NULL) return kept(b, IM__NONE);
    for (uint32_t i = 0; i < pairs; i++) frequency[i] = im__rope_frequency(base, i, b->params->rot_dim) / factor;
    bool good = !use_divisors || im__source_find(b->s, "rope_freqs.weight") == NULL || apply_divisors(b, frequency, pairs);
    if (!good || !frequencies_fit(b, frequency, pairs)) {
        im__free(frequency);
        return IM__NONE;
    }
    return kept(b, im__program_rope(b->p, frequency, b->params->rot_dim, adjacent));
}

void im__b_embed(im__build *b, float by)
{
    const im__tensor *t = im__source_find(b->s, "token_embd.weight");
    uint64_t vocab = t == NULL ? 0 : t->dim[1];
    if (vocab > INT32_MAX) fail(b, IM_ERR_FORMAT, "%s: an embedding of %llu rows", b->s->path, (unsigned long long)vocab);
    im__op o = plain(IM__OP_EMBED, b->x, IM__NONE);
    o.weight = matrix(b, "token_embd.weight", b->params->embd, vocab);
    o.by = by;
    b->p->vocab = (uint32_t)vocab;
    op(b, o);
}

void im__b_norm(im__build *b, int dst, int src, const char *stem, uint32_t n)
{
    char name[IM__NAME_MAX];
    tensor_name(b, stem, "weight", name);
    im__op o = plain(IM__OP_NORM, dst, src);
    o.vector = vector(b, name, n);
    o.n = n;
    o.by = b->params->eps;
    op(b, o);
}

/* Products whose inputs get 16 bits (docs/numerics.md, section 2): keys, values and the logits. They are a small part of a prompt's work, cost nothing where
 * memory is the limit, and halve what 8-bit inputs lose. */
static bool wide(const char *stem)
{
    return strcmp(stem, "attn_k") == 0 || strcmp(stem, "attn_v") == 0 || strcmp(stem, "output") == 0;
}

void im__b_linear(im__build *b, int dst, int src, const char *stem)
{
    char name[IM__NAME_MAX];
    if (b->status != IM_OK) return;
    uint32_t n_in = b->p->value[src].width, n_out = b->p->value[dst].width;
    im__op o = plain(IM__OP_MATMUL, dst, src);
    o.wide = wide(stem);
    tensor_name(b, stem, "weight", name);
    o.weight = matrix(b, name, n_in, n_out);
    if (im__b_has(b, stem, "bias")) {
        tensor_name(b, stem, "bias", name);
        o.vector = vector(b, name, n_out);
    }
    op(b, o);
}

void im__b_add(im__build *b, int dst, int src) { op(b, plain(IM__OP_ADD, dst, src)); }

static void rope(im__build *b, int value, uint32_t heads, int table)
{
    im__op o = plain(IM__OP_ROPE, value, IM__NONE);
    o.heads = heads;
    o.head_dim = b->params->head_dim;
    o.rope = table;
    op(b, o);
}

static void cached_attention(im__build *b, const im__attention_params *a)
{
    im__kv_layer kv = {.kv_heads = b->params->kv_heads[b->layer], .head_dim = b->params->head_dim, .window = a->window};
    im__op store = plain(IM__OP_KV_STORE, IM__NONE, b->k), attend = plain(IM__OP_ATTENTION, b->att, b->q);
    store.src2 = b->v;
    store.layer = attend.layer = kept(b, im__program_kv(b->p, kv));
    store.head_dim = attend.head_dim = b->params->head_dim;
    attend.heads = b->params->heads;
    attend.by = a->scale;
    attend.cap = a->cap;
    op(b, store);
    if (b->layer == (int)b->params->layers - 1) { /* only the cache needs the other rows from here on */
        im__op select = plain(IM__OP_SELECT, IM__NONE, b->x);
        select.src2 = b->q;
        op(b, select);
    }
    op(b, attend);
}

void im__b_attention_block(im__build *b, const im__attention_params *a)
{
    const im__params *m = b->params;
    im__b_linear(b, b->q, b->h, "attn_q");
    im__b_linear(b, b->k, b->h, "attn_k");
    im__b_linear(b, b->v, b->h, "attn_v");
    if (im__b_has(b, "attn_q_norm", "weight")) im__b_norm(b, b->q, b->q, "attn_q_norm", m->head_dim);
    if (im__b_has(b, "attn_k_norm", "weight")) im__b_norm(b, b->k, b->k, "attn_k_norm", m->head_dim);
    rope(b, b->q, m->heads, a->rope);
    rope(b, b->k, m->kv_heads[b->layer], a->rope);
    cached_attention(b, a);
    im__b_linear(b, b->h, b->att, "attn_output");
}

void im__b_feed_forward(im__build *b, im__glu glu)
{
    im__op o = plain(IM__OP_GLU, b->gate, b->gate);
    o.src2 = b->up;
    o.glu = glu;
    im__b_linear(b, b->gate, b->h, "ffn_gate");
    im__b_linear(b, b->up, b->h, "ffn_up");
    op(b, o);
    im__b_linear(b, b->h, b->gate, "ffn_down");
}

void im__b_head(im__build *b, float cap)
{
    b->layer = -1;
    b->logits = kept(b, im__program_value(b->p, "logits", b->p->vocab));
    im__b_norm(b, b->h, b->x, "output_norm", b->params->embd);
    if (im__b_has(b, "output", "weight")) {
        im__b_linear(b, b->logits, b->h, "output");
    } else {
        im__op o = plain(IM__OP_MATMUL, b->logits, b->h);
        o.wide = wide("output");
        o.weight = matrix(b, "token_embd.weight", b->params->embd, b->p->vocab);
        op(b, o);
    }
    if (cap > 0) {
        im__op o = plain(IM__OP_SOFTCAP, b->logits, IM__NONE);
        o.by = cap;
        op(b, o);
    }
    b->p->logits = b->logits;
}
