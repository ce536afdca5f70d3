/* SPDX-License-Identifier: Apache-2.0
 *
 * Recognises the programs that the persistent decoder serves: the operations of a Gemma 3 in their order, and nothing else.
 */
#include "backend/cuda/decode_plan.h"

#include "base/mem.h"
#include "num/dtype.h"

#define DECODER(name, ...) {"im_decode_" #name, __VA_ARGS__},

static const im__decode_shape built[] = {
#include "backend/cuda/kernels/decode_shapes.inc"
};

const im__decode_shape *im__decode_shapes(size_t *count)
{
    *count = sizeof built / sizeof *built;
    return built;
}

/* ---- reading the list of operations ------------------------------------------------------------------------------------------------------ */

typedef struct reader {
    const im__program *p;
    im__decode_model *m;
    size_t at;
    const char *why; /* the first thing that does not fit */
    int x, h;        /* values: the residual, and what norms and products of it write */
} reader;

static void refuse(reader *r, const char *why)
{
    if (r->why == NULL) r->why = why;
}

static void require(reader *r, bool fits, const char *why)
{
    if (!fits) refuse(r, why);
}

/* The next operation, which must be of this kind. */
static const im__op *next(reader *r, im__op_kind kind, const char *why)
{
    static const im__op nothing = {.dst = IM__NONE, .src = IM__NONE, .src2 = IM__NONE, .weight = 0, .vector = 0};
    if (r->why == NULL && r->at < r->p->op_count && r->p->op[r->at].kind == kind) return &r->p->op[r->at++];
    refuse(r, why);
    return &nothing;
}

static int form_of(const im__program *p, int matrix)
{
    switch (p->matrix[matrix].w.dtype) {
    case IM__Q4_0: return IM__CUDA_4_HALF;
    case IM__Q5_0: return IM__CUDA_5_HALF;
    case IM__Q8_0: return IM__CUDA_8_HALF;
    case IM__Q4_K: return IM__CUDA_4_SUPER_MIN;
    case IM__Q6_K: return IM__CUDA_6_SUPER_16;
    default: return -1;
    }
}

static int product(reader *r, int dst, int src, bool wide)
{
    const im__op *op = next(r, IM__OP_MATMUL, "its layers are not those of Gemma 3");
    if (r->why != NULL) return 0;
    require(r, op->src == src && (dst == IM__NONE || op->dst == dst) && op->wide == wide, "its layers are not those of Gemma 3");
    require(r, op->vector == IM__NONE, "its products have biases");
    require(r, form_of(r->p, op->weight) >= 0, "its weights are of a type without a kernel");
    return op->weight;
}

static int norm(reader *r, int dst, int src, uint32_t n)
{
    const im__op *op = next(r, IM__OP_NORM, "its layers are not those of Gemma 3");
    require(r, op->dst == dst && op->src == src && op->n == n, "its norms are not those of Gemma 3");
    require(r, r->m->eps == 0 || op->by == r->m->eps, "its norms differ in eps");
    r->m->eps = op->by;
    return op->vector;
}

static void add(reader *r)
{
    const im__op *op = next(r, IM__OP_ADD, "its layers are not those of Gemma 3");
    require(r, op->dst == r->x && op->src == r->h, "its layers are not those of Gemma 3");
}

static uint32_t table(reader *r, int rope)
{
    const im__rope *t = &r->p->rope[rope];
    require(r, t->rot_dim == IM__DECODE_HEAD_DIM && !t->adjacent, "its heads are not turned as Gemma 3 turns them");
    for (uint32_t k = 0; k < 2; k++) {
        if (r->m->rope[k] == IM__NONE) r->m->rope[k] = rope;
        if (r->m->rope[k] == rope) return k;
    }
    refuse(r, "it has more than two tables of rotations");
    return 0;
}

static int dst_of_next(const reader *r) { return r->why == NULL && r->at < r->p->op_count ? r->p->op[r->at].dst : IM__NONE; }

static void attention(reader *r, im__decode_layer_parts *l, bool last)
{
    int q = dst_of_next(r);
    l->q = product(r, IM__NONE, r->h, false);
    int k = dst_of_next(r);
    l->k = product(r, IM__NONE, r->h, true);
    int v = dst_of_next(r);
    l->v = product(r, IM__NONE, r->h, true);
    l->q_norm = norm(r, q, q, IM__DECODE_HEAD_DIM);
    l->k_norm = norm(r, k, k, IM__DECODE_HEAD_DIM);
    const im__op *turn_q = next(r, IM__OP_ROPE, "its layers are not those of Gemma 3"),
                 *turn_k = next(r, IM__OP_ROPE, "its layers are not those of Gemma 3"),
                 *store = next(r, IM__OP_KV_STORE, "its layers are not those of Gemma 3");
    if (last) next(r, IM__OP_SELECT, "its layers are not those of Gemma 3");
    const im__op *attend = next(r, IM__OP_ATTENTION, "its layers are not those of Gemma 3");
    if (r->why != NULL) return;
    require(r, turn_q->dst == q && turn_k->dst == k && turn_q->rope == turn_k->rope,
            "its heads are not turned as Gemma 3 turns them");
    require(r, store->src == k && store->src2 == v && attend->src == q && attend->layer == store->layer,
            "its attention is not that of Gemma 3");
    require(r, attend->cap == 0, "its attention caps scores");
    require(r, attend->head_dim == IM__DECODE_HEAD_DIM, "its heads have another size than 256");
    require(r, r->p->kv[attend->layer].type == IM__KV_F16, "its cache is not binary16");
    require(r, r->m->attention_scale == 0 || r->m->attention_scale == attend->by, "its layers scale queries differently");
    r->m->attention_scale = attend->by;
    l->cache = attend->layer;
    l->rope = table(r, turn_q->rope);
    l->out = product(r, r->h, attend->dst, false);
}

static void feed_forward(reader *r, im__decode_layer_parts *l)
{
    int gate = dst_of_next(r);
    l->gate = product(r, IM__NONE, r->h, false);
    int up = dst_of_next(r);
    l->up = product(r, IM__NONE, r->h, false);
    const im__op *glu = next(r, IM__OP_GLU, "its layers are not those of Gemma 3");
    require(r, glu->src == gate && glu->src2 == up && glu->glu == IM__GLU_GELU, "its feed-forward part is not that of Gemma 3");
    l->down = product(r, r->h, glu->dst, false);
}

static void layer(reader *r, im__decode_layer_parts *l, bool last)
{
    uint32_t width = r->p->value[r->x].width;
    if (r->h == IM__NONE) r->h = dst_of_next(r);
    l->attn_norm = norm(r, r->h, r->x, width);
    attention(r, l, last);
    l->post_attn_norm = norm(r, r->h, r->h, width);
    add(r);
    l->ffn_norm = norm(r, r->h, r->x, width);
    feed_forward(r, l);
    l->post_ffn_norm = norm(r, r->h, r->h, width);
    add(r);
}

static void read_program(reader *r)
{
    const im__op *embed = next(r, IM__OP_EMBED, "it does not begin with an embedding");
    if (r->why != NULL) return;
    r->x = embed->dst;
    r->m->embed = embed->weight;
    r->m->embed_scale = embed->by;
    for (uint32_t l = 0; l < r->m->layers && r->why == NULL; l++) layer(r, &r->m->layer[l], l == r->m->layers - 1);
    r->m->final_norm = norm(r, r->h, r->x, r->p->value[r->x].width);
    r->m->head = product(r, r->p->logits, r->h, true);
    require(r, r->at == r->p->op_count, "something follows its logits");
    require(r, r->why != NULL || form_of(r->p, r->m->embed) >= 0, "its embedding is of a type without a kernel");
}

/* ---- finding the kernel ------------------------------------------------------------------------------------------------------------------- */

static bool is(const im__program *p, int matrix, im__cuda_form form) { return form_of(p, matrix) == (int)form; }

static bool layer_fits(const im__program *p, const im__decode_layer_parts *l, const im__decode_shape *s)
{
    return is(p, l->q, s->form) && is(p, l->k, s->form) && is(p, l->gate, s->form) && is(p, l->up, s->form) &&
           (is(p, l->v, s->form) || is(p, l->v, s->values)) && is(p, l->out, s->out) &&
           (is(p, l->down, s->down) || is(p, l->down, s->down_too));
}

static bool fits(const im__program *p, const im__decode_model *m, uint32_t width, const im__decode_shape *s)
{
    const im__decode_layer_parts *l = &m->layer[0];
    bool all = s->width == width && s->hidden == p->matrix[l->gate].w.n_out &&
               s->heads * IM__DECODE_HEAD_DIM == p->matrix[l->q].w.n_out && s->kv_heads == p->kv[l->cache].kv_heads &&
               is(p, m->head, s->head);
    for (uint32_t i = 0; i < m->layers && all; i++) all = layer_fits(p, &m->layer[i], s);
    return all;
}

static const im__decode_shape *find(const reader *r, const im__decode_shape *shapes, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (fits(r->p, r->m, r->p->value[r->x].width, &shapes[i])) return &shapes[i];
    return NULL;
}

static void mark_others(const im__program *p, im__decode_model *m)
{
    for (uint32_t i = 0; i < m->layers; i++) {
        im__decode_layer_parts *l = &m->layer[i];
        l->other = (is(p, l->v, m->shape->form) ? 0 : IM__DECODE_OTHER_VALUES) |
                   (is(p, l->down, m->shape->down) ? 0 : IM__DECODE_OTHER_DOWN);
    }
}

/* The widths of the first layer are those of all. */
static bool alike(const im__program *p, const im__decode_model *m)
{
    const im__decode_layer_parts *a = &m->layer[0];
    for (uint32_t i = 1; i < m->layers; i++) {
        const im__decode_layer_parts *b = &m->layer[i];
        if (p->matrix[b->q].w.n_out != p->matrix[a->q].w.n_out || p->matrix[b->gate].w.n_out != p->matrix[a->gate].w.n_out ||
            p->kv[b->cache].kv_heads != p->kv[a->cache].kv_heads)
            return false;
    }
    return true;
}

im_status im__decode_match(im__decode_model *out, const im__program *p, const im__decode_shape *shapes, size_t count, im_error *err)
{
    *out = (im__decode_model){.layers = (uint32_t)p->kv_count, .vocab = p->vocab, .rope = {IM__NONE, IM__NONE}};
    reader r = {.p = p, .m = out, .x = IM__NONE, .h = IM__NONE};
    if (p->kv_count == 0 || p->kv_count > IM__DECODE_TAGS - 2) refuse(&r, "it has no layers, or too many");
    out->layer = im__calloc(p->kv_count == 0 ? 1 : p->kv_count, sizeof *out->layer);
    if (out->layer == NULL) return im__fail(err, IM_ERR_MEMORY, "out of memory");
    if (r.why == NULL) read_program(&r);
    require(&r, r.why != NULL || alike(p, out), "its layers differ in width");
    if (r.why == NULL) out->shape = find(&r, shapes, count);
    require(&r, r.why != NULL || out->shape != NULL, "no kernel was built for its widths and types");
    if (r.why == NULL) {
        mark_others(p, out);
        return IM_OK;
    }
    im__decode_model_clear(out);
    return im__fail(err, IM_ERR_UNSUPPORTED, "the persistent decoder does not serve this model: %s", r.why);
}

void im__decode_model_clear(im__decode_model *m)
{
    im__free(m->layer);
    *m = (im__decode_model){0};
}
