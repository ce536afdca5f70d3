/* SPDX-License-Identifier: Apache-2.0 */
#include "model/source.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct reader {
    const im__gguf *g;
    const char *arch;
    char key[128];
} reader;

static const char *key_of(reader *r, const char *name)
{
    snprintf(r->key, sizeof r->key, "%s.%s", r->arch, name);
    return r->key;
}

static im_status get_u32(reader *r, const char *name, bool required, uint32_t lo, uint32_t hi, uint32_t *out, im_error *err)
{
    const char *key = key_of(r, name);
    bool present = im__gguf_find(r->g, key) != NULL;
    IM__TRY(im__gguf_get_u32(r->g, key, required, out, err));
    if (present && (*out < lo || *out > hi))
        return im__fail(err, IM_ERR_FORMAT, "%s: key %s is %u, outside %u .. %u", r->g->path[0], key, *out, lo, hi);
    return IM_OK;
}

/* A finite number within [lo, hi]; `absent` when the key is not there. */
static im_status get_f32(reader *r, const char *name, float absent, float lo, float hi, float *out, im_error *err)
{
    const char *key = key_of(r, name);
    *out = absent;
    if (im__gguf_find(r->g, key) == NULL) return IM_OK;
    IM__TRY(im__gguf_get_f32(r->g, key, true, out, err));
    if (!(*out >= lo && *out <= hi))
        return im__fail(err, IM_ERR_FORMAT, "%s: key %s is %g, outside %g .. %g", r->g->path[0], key, (double)*out, (double)lo,
                        (double)hi);
    return IM_OK;
}

/* One number for all layers or a list with one for each. */
static im_status get_per_layer(reader *r, const char *name, bool required, uint32_t absent, uint32_t hi, uint32_t layers,
                               uint32_t **out, im_error *err)
{
    const char *key = key_of(r, name);
    int32_t *list = NULL;
    size_t count = 0;
    const im__gguf_kv *kv = im__gguf_find(r->g, key);
    bool per_layer = kv != NULL && kv->type == IM__GGUF_ARRAY;
    IM__TRY(im__gguf_get_i32s(r->g, key, &list, &count, err));
    uint32_t *filled = im__calloc(layers, sizeof *filled);
    im_status status = IM_OK;
    if (filled == NULL)
        status = im__fail(err, IM_ERR_MEMORY, "out of memory");
    else if (count == 0 && required)
        status = im__fail(err, IM_ERR_FORMAT, "%s: key %s is missing", r->g->path[0], key);
    else if (per_layer && count < layers)
        status = im__fail(err, IM_ERR_FORMAT, "%s: key %s has %zu entries for %u layers", r->g->path[0], key, count, layers);
    for (uint32_t i = 0; i < layers && status == IM_OK; i++) {
        int64_t v = count == 0 ? (int64_t)absent : list[per_layer ? i : 0];
        if (v < 1 || v > hi)
            status = im__fail(err, IM_ERR_FORMAT, "%s: key %s is %lld, outside 1 .. %u", r->g->path[0], key, (long long)v, hi);
        else
            filled[i] = (uint32_t)v;
    }
    im__free(list);
    if (status != IM_OK)
        im__free(filled);
    else
        *out = filled;
    return status;
}

static im_status read_rope(reader *r, im__params *p, im_error *err)
{
    float base, base_swa, factor, legacy;
    im__gguf_string type = {NULL, 0};
    p->rot_dim = p->head_dim;
    IM__TRY(get_u32(r, "rope.dimension_count", false, 2, p->head_dim, &p->rot_dim, err));
    if (p->rot_dim % 2 != 0) return im__fail(err, IM_ERR_FORMAT, "%s: key rope.dimension_count is odd", r->g->path[0]);
    IM__TRY(get_f32(r, "rope.freq_base", 0, 1, 1e12f, &base, err));
    IM__TRY(get_f32(r, "rope.freq_base_swa", 0, 1, 1e12f, &base_swa, err));
    IM__TRY(get_f32(r, "rope.scale_linear", 1, 1e-3f, 1e6f, &legacy, err));
    IM__TRY(get_f32(r, "rope.scaling.factor", legacy, 1e-3f, 1e6f, &factor, err));
    IM__TRY(im__gguf_get_string(r->g, key_of(r, "rope.scaling.type"), false, &type, err));
    bool none = type.len == 4 && memcmp(type.ptr, "none", 4) == 0;
    bool linear = type.len == 6 && memcmp(type.ptr, "linear", 6) == 0;
    if (type.len != 0 && !none && !linear)
        return im__fail(err, IM_ERR_UNSUPPORTED, "%s: key %s is \"%.*s\"; known are none and linear", r->g->path[0], r->key,
                        (int)(type.len > 40 ? 40 : type.len), type.ptr);
    p->rope_base = base;
    p->rope_base_swa = base_swa;
    p->rope_factor = none ? 1.0 : (double)factor;
    return IM_OK;
}

static im_status read_heads(reader *r, im__params *p, im_error *err)
{
    uint32_t value_length, *heads = NULL;
    IM__TRY(get_per_layer(r, "attention.head_count", true, 0, IM__MAX_HEADS, p->layers, &heads, err));
    p->heads = heads[0];
    bool equal = true;
    for (uint32_t i = 0; i < p->layers; i++) equal = equal && heads[i] == heads[0];
    im__free(heads);
    if (!equal) return im__fail(err, IM_ERR_UNSUPPORTED, "%s: layers with different numbers of heads", r->g->path[0]);
    IM__TRY(get_per_layer(r, "attention.head_count_kv", false, p->heads, p->heads, p->layers, &p->kv_heads, err));
    for (uint32_t i = 0; i < p->layers; i++)
        if (p->heads % p->kv_heads[i] != 0)
            return im__fail(err, IM_ERR_FORMAT, "%s: %u heads cannot share %u KV heads", r->g->path[0], p->heads, p->kv_heads[i]);
    p->head_dim = p->embd / p->heads;
    if (p->embd % p->heads != 0 && im__gguf_find(r->g, key_of(r, "attention.key_length")) == NULL)
        return im__fail(err, IM_ERR_FORMAT, "%s: key %s is %u, which %u heads cannot share", r->g->path[0],
                        key_of(r, "embedding_length"), p->embd, p->heads);
    IM__TRY(get_u32(r, "attention.key_length", false, 1, IM__MAX_HEAD_DIM, &p->head_dim, err));
    value_length = p->head_dim;
    IM__TRY(get_u32(r, "attention.value_length", false, 1, IM__MAX_HEAD_DIM, &value_length, err));
    if (value_length != p->head_dim)
        return im__fail(err, IM_ERR_UNSUPPORTED, "%s: keys of %u and values of %u", r->g->path[0], p->head_dim, value_length);
    if (p->head_dim < 2 || p->head_dim % 2 != 0 || p->head_dim > IM__MAX_HEAD_DIM)
        return im__fail(err, IM_ERR_FORMAT, "%s: a head of %u elements; it must be even and at most %u", r->g->path[0], p->head_dim,
                        IM__MAX_HEAD_DIM);
    return IM_OK;
}

static im_status read_window(reader *r, im__params *p, im_error *err)
{
    const im__gguf_kv *pattern = im__gguf_find(r->g, key_of(r, "attention.sliding_window_pattern"));
    IM__TRY(get_u32(r, "attention.sliding_window", false, 0, UINT32_MAX, &p->window, err));
    if (p->window > INT32_MAX) p->window = 0;
    if (pattern != NULL && pattern->type == IM__GGUF_ARRAY)
        return im__fail(err, IM_ERR_UNSUPPORTED, "%s: a list in attention.sliding_window_pattern; only a number is known",
                        r->g->path[0]);
    return get_u32(r, "attention.sliding_window_pattern", false, 1, IM__MAX_LAYERS, &p->window_every, err);
}

static im_status refuse_experts(reader *r, im_error *err)
{
    uint32_t experts = 0;
    IM__TRY(im__gguf_get_u32(r->g, key_of(r, "expert_count"), false, &experts, err));
    if (experts > 0)
        return im__fail(err, IM_ERR_UNSUPPORTED, "%s: a mixture of %u experts is not supported", r->g->path[0], experts);
    return IM_OK;
}

static im_status read_all(reader *r, im__params *p, im_error *err)
{
    IM__TRY(refuse_experts(r, err));
    IM__TRY(get_u32(r, "block_count", true, 1, IM__MAX_LAYERS, &p->layers, err));
    IM__TRY(get_u32(r, "embedding_length", true, 1, IM__MAX_WIDTH, &p->embd, err));
    IM__TRY(get_u32(r, "context_length", false, 1, UINT32_MAX, &p->context, err));
    if (p->context == 0) p->context = 2048;
    if (p->context > IM__MAX_CONTEXT) p->context = IM__MAX_CONTEXT; /* positions fit into binary32 exactly, and sums cannot wrap */
    IM__TRY(get_per_layer(r, "feed_forward_length", true, 0, IM__MAX_WIDTH, p->layers, &p->ff, err));
    IM__TRY(read_heads(r, p, err));
    IM__TRY(read_rope(r, p, err));
    IM__TRY(read_window(r, p, err));
    if (im__gguf_find(r->g, key_of(r, "attention.layer_norm_rms_epsilon")) == NULL)
        return im__fail(err, IM_ERR_FORMAT, "%s: key %s is missing", r->g->path[0], r->key);
    IM__TRY(get_f32(r, "attention.layer_norm_rms_epsilon", 0, 0, 1, &p->eps, err));
    IM__TRY(get_f32(r, "attention.scale", 0, 1e-6f, 1e6f, &p->attention_scale, err));
    IM__TRY(get_f32(r, "attn_logit_softcapping", -1, 0, 1e6f, &p->attention_cap, err));
    return get_f32(r, "final_logit_softcapping", -1, 0, 1e6f, &p->final_cap, err);
}

im_status im__params_read(const im__gguf *g, im__params *out, im_error *err)
{
    im__params p = {0};
    im__gguf_string arch = {NULL, 0};
    IM__TRY(im__gguf_get_string(g, "general.architecture", true, &arch, err));
    if (arch.len == 0 || arch.len >= sizeof p.arch || memchr(arch.ptr, 0, arch.len) != NULL)
        return im__fail(err, IM_ERR_FORMAT, "%s: general.architecture is no name", g->path[0]);
    memcpy(p.arch, arch.ptr, arch.len);
    reader r = {.g = g, .arch = p.arch};
    im_status status = read_all(&r, &p, err);
    if (status == IM_OK)
        *out = p;
    else
        im__params_clear(&p);
    return status;
}
