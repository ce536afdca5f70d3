/* SPDX-License-Identifier: Apache-2.0 */
#include "model/hf.h"
#include "num/real.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* An object of the file. */
typedef struct config {
    const char *path;
    im__json object;
    im_error *err;
} config;

/* ---- values with bounds; null counts as absent ---- */

static im_status member(const config *c, const char *key, im__json *v)
{
    if (im__json_member(c->object, key, v) > 1) return im__fail(c->err, IM_ERR_FORMAT, "%s: key %s is there twice", c->path, key);
    if (im__json_kind_of(*v) == IM__JSON_NULL) *v = (im__json){NULL, 0};
    return IM_OK;
}

static im_status bad_kind(const config *c, const char *key, im__json v, const char *wanted)
{
    return im__fail(c->err, IM_ERR_FORMAT, "%s: key %s is %s, not %s", c->path, key, im__json_kind_name(v), wanted);
}

static im_status absent(const config *c, const char *key)
{
    return im__fail(c->err, IM_ERR_FORMAT, "%s: key %s is missing", c->path, key);
}

/* *out keeps its value when the key is absent and not required. */
static im_status get_u32(const config *c, const char *key, bool required, uint32_t lo, uint32_t hi, uint32_t *out)
{
    im__json v;
    uint64_t n = 0;
    IM__TRY(member(c, key, &v));
    if (v.ptr == NULL) return required ? absent(c, key) : IM_OK;
    if (!im__json_u64(v, &n)) return bad_kind(c, key, v, "a whole number");
    if (n < lo || n > hi)
        return im__fail(c->err, IM_ERR_FORMAT, "%s: key %s is %llu, outside %u .. %u", c->path, key, (unsigned long long)n, lo, hi);
    *out = (uint32_t)n;
    return IM_OK;
}

/* As binary32, which is what a GGUF file of the same model holds. */
static im_status get_f32(const config *c, const char *key, bool required, double lo, double hi, float *out)
{
    im__json v;
    double d = 0;
    IM__TRY(member(c, key, &v));
    if (v.ptr == NULL) return required ? absent(c, key) : IM_OK;
    if (!im__json_double(v, &d)) return bad_kind(c, key, v, "a number");
    if (!(d >= lo && d <= hi))
        return im__fail(c->err, IM_ERR_FORMAT, "%s: key %s is %g, outside %g .. %g", c->path, key, d, lo, hi);
    *out = (float)d;
    return IM_OK;
}

static im_status get_bool(const config *c, const char *key, bool *out)
{
    im__json v;
    IM__TRY(member(c, key, &v));
    if (v.ptr == NULL || im__json_bool(v, out)) return IM_OK;
    return bad_kind(c, key, v, "true or false");
}

/* An object inside; one without a value when it is absent. */
static im_status get_object(const config *c, const char *key, config *out)
{
    *out = *c;
    IM__TRY(member(c, key, &out->object));
    if (out->object.ptr == NULL || im__json_kind_of(out->object) == IM__JSON_OBJECT) return IM_OK;
    return bad_kind(c, key, out->object, "an object");
}

/* A value as messages show it; lists and objects, which may have lines, by their kind. */
static const char *shown(im__json v, char out[64])
{
    im__json_kind kind = im__json_kind_of(v);
    if (kind == IM__JSON_ARRAY || kind == IM__JSON_OBJECT) return im__json_kind_name(v);
    snprintf(out, 64, "%.*s", (int)(v.len > 60 ? 60 : v.len), v.ptr);
    return out;
}

static im_status unsupported(const config *c, const char *key, im__json v, const char *known)
{
    char room[64];
    return im__fail(c->err, IM_ERR_UNSUPPORTED, "%s: key %s is %s, which is not supported; known are %s", c->path, key,
                    shown(v, room), known);
}

/* ---- architecture ---- */

static const struct {
    const char *type, *arch;
} models[] = {
    {"gemma2", "gemma2"}, {"gemma3", "gemma3"}, {"gemma3_text", "gemma3"}, {"llama", "llama"},
    {"mistral", "llama"}, {"qwen2", "qwen2"},   {"qwen3", "qwen3"},
};

static im_status read_type(im__hf *f, config *c)
{
    im__json v;
    IM__TRY(member(c, "model_type", &v));
    if (v.ptr == NULL) return absent(c, "model_type");
    if (im__json_kind_of(v) != IM__JSON_STRING) return bad_kind(c, "model_type", v, "a string");
    for (size_t i = 0; i < sizeof models / sizeof *models && f->params.arch[0] == 0; i++)
        if (im__json_is(v, models[i].type)) memcpy(f->params.arch, models[i].arch, strlen(models[i].arch) + 1);
    if (f->params.arch[0] == 0) return unsupported(c, "model_type", v, "gemma2, gemma3, gemma3_text, llama, mistral, qwen2, qwen3");
    f->gemma = strncmp(f->params.arch, "gemma", 5) == 0;
    f->params.window_everywhere = im__json_is(v, "mistral");
    if (!im__json_is(v, "gemma3")) return IM_OK;
    config text;
    IM__TRY(get_object(c, "text_config", &text));
    f->nested = text.object.ptr != NULL;
    if (f->nested) f->text = text.object;
    return IM_OK;
}

static im_status check_activation(const im__hf *f, const config *c)
{
    im__json v;
    const char *const known = f->gemma ? "gelu_pytorch_tanh" : "silu", *key = "hidden_activation";
    IM__TRY(member(c, key, &v));
    if (v.ptr == NULL) IM__TRY(member(c, key = "hidden_act", &v));
    return v.ptr == NULL || im__json_is(v, known) ? IM_OK : unsupported(c, key, v, known);
}

/* ---- sizes ---- */

/* What the class of Gemma 3 fills in where the configuration of the larger model says nothing. */
static void nested_defaults(im__params *p)
{
    p->heads = 8;
    p->vocab = 262208;
    p->context = 131072;
    p->eps = 1e-6f;
}

static im_status fill_layers(const config *c, uint32_t layers, uint32_t value, uint32_t **out)
{
    *out = im__calloc(layers, sizeof **out);
    if (*out == NULL) return im__fail(c->err, IM_ERR_MEMORY, "out of memory");
    for (uint32_t i = 0; i < layers; i++) (*out)[i] = value;
    return IM_OK;
}

static im_status read_heads(const im__hf *f, const config *c, im__params *p)
{
    uint32_t kv = f->nested ? 4 : 0;
    IM__TRY(get_u32(c, "num_attention_heads", !f->nested, 1, IM__MAX_HEADS, &p->heads));
    if (kv == 0) kv = p->heads;
    IM__TRY(get_u32(c, "num_key_value_heads", false, 1, IM__MAX_HEADS, &kv));
    if (kv > p->heads || p->heads % kv != 0)
        return im__fail(c->err, IM_ERR_FORMAT, "%s: %u heads (num_attention_heads) cannot share %u KV heads (num_key_value_heads)",
                        c->path, p->heads, kv);
    IM__TRY(fill_layers(c, p->layers, kv, &p->kv_heads));
    p->head_dim = f->gemma ? 256 : 0;
    IM__TRY(get_u32(c, "head_dim", false, 2, IM__MAX_HEAD_DIM, &p->head_dim));
    if (p->head_dim == 0 && p->embd % p->heads != 0)
        return im__fail(c->err, IM_ERR_FORMAT, "%s: key hidden_size is %u, which %u heads cannot share", c->path, p->embd,
                        p->heads);
    if (p->head_dim == 0) p->head_dim = p->embd / p->heads;
    if (p->head_dim < 2 || p->head_dim % 2 != 0 || p->head_dim > IM__MAX_HEAD_DIM)
        return im__fail(c->err, IM_ERR_FORMAT, "%s: a head of %u elements; it must be even and at most %u", c->path, p->head_dim,
                        IM__MAX_HEAD_DIM);
    p->rot_dim = p->head_dim;
    return IM_OK;
}

static im_status read_sizes(const im__hf *f, const config *c, im__params *p)
{
    uint32_t ff = 0;
    float part = 1;
    if (f->nested) nested_defaults(p);
    IM__TRY(get_u32(c, "num_hidden_layers", true, 1, IM__MAX_LAYERS, &p->layers));
    IM__TRY(get_u32(c, "hidden_size", true, 1, IM__MAX_WIDTH, &p->embd));
    IM__TRY(get_u32(c, "intermediate_size", true, 1, IM__MAX_WIDTH, &ff));
    IM__TRY(fill_layers(c, p->layers, ff, &p->ff));
    IM__TRY(get_u32(c, "vocab_size", !f->nested, 1, INT32_MAX, &p->vocab));
    if (p->context == 0) p->context = 2048;
    IM__TRY(get_u32(c, "max_position_embeddings", false, 1, UINT32_MAX, &p->context));
    if (p->context > IM__MAX_CONTEXT) p->context = IM__MAX_CONTEXT;
    IM__TRY(get_f32(c, "rms_norm_eps", !f->nested, 0, 1, &p->eps));
    IM__TRY(get_f32(c, "partial_rotary_factor", false, 0, 1, &part));
    if (part != 1)
        return im__fail(c->err, IM_ERR_UNSUPPORTED, "%s: key partial_rotary_factor is %g; only 1 is supported", c->path,
                        (double)part);
    return read_heads(f, c, p);
}

/* ---- attention: scale, caps, windows ---- */

/* A cap that is null is none; one that is absent is the family's. */
static im_status get_cap(const config *c, const char *key, float *out)
{
    im__json v;
    *out = im__json_member(c->object, key, &v) == 1 && im__json_kind_of(v) == IM__JSON_NULL ? 0 : -1;
    return get_f32(c, key, false, 0, 1e6, out);
}

/* Layers of the list that see everything: *every = each how-many-th (0: none does); anything irregular is refused. */
static im_status read_layer_types(const config *c, const im__params *p, im__json list, uint32_t *every)
{
    im__json v;
    uint32_t n = 0, first = 0;
    for (im__json_items i = im__json_items_of(list); im__json_next(&i, NULL, &v); n++) {
        bool global = im__json_is(v, "full_attention");
        if (!global && !im__json_is(v, "sliding_attention"))
            return unsupported(c, "layer_types", v, "full_attention, sliding_attention");
        if (global && first == 0) first = n + 1;
        if (first != 0 && global != ((n + 1) % first == 0))
            return im__fail(c->err, IM_ERR_UNSUPPORTED,
                            "%s: key layer_types: layer %u breaks the rule that each %uth sees everything", c->path, n, first);
    }
    if (n != p->layers) return im__fail(c->err, IM_ERR_FORMAT, "%s: key layer_types names %u layers of %u", c->path, n, p->layers);
    *every = first;
    return IM_OK;
}

static im_status read_window(const im__hf *f, const config *c, im__params *p)
{
    im__json types;
    bool used = true;
    uint32_t from = 0, every = 0;
    IM__TRY(get_u32(c, "sliding_window", false, 0, UINT32_MAX, &p->window));
    if (p->window > INT32_MAX) p->window = 0;
    IM__TRY(get_u32(c, "sliding_window_pattern", false, 1, IM__MAX_LAYERS, &p->window_every));
    IM__TRY(get_u32(c, "_sliding_window_pattern", false, 1, IM__MAX_LAYERS, &p->window_every));
    IM__TRY(member(c, "layer_types", &types));
    if (types.ptr != NULL && im__json_kind_of(types) != IM__JSON_ARRAY) return bad_kind(c, "layer_types", types, "a list");
    if (types.ptr != NULL) IM__TRY(read_layer_types(c, p, types, &every));
    if (f->gemma) {
        if (types.ptr != NULL) p->window_every = every != 0 ? every : IM__MAX_LAYERS + 1;
        return IM_OK;
    }
    if (p->window_everywhere) return IM_OK;
    /* Qwen names a window that it does not use. */
    IM__TRY(get_bool(c, "use_sliding_window", &used));
    IM__TRY(get_u32(c, "max_window_layers", false, 0, UINT32_MAX, &from));
    bool all_global = types.ptr == NULL || every == 1;
    if (p->window > 0 && strcmp(p->arch, "llama") != 0 && used && (from < p->layers || !all_global))
        return im__fail(c->err, IM_ERR_UNSUPPORTED,
                        "%s: windows in some layers (use_sliding_window, max_window_layers) are not supported for %s", c->path,
                        p->arch);
    if (!all_global)
        return im__fail(c->err, IM_ERR_UNSUPPORTED, "%s: windows (layer_types) are not supported for %s", c->path, p->arch);
    return IM_OK;
}

static im_status read_attention(const im__hf *f, const config *c, im__params *p)
{
    float scalar = 256;
    IM__TRY(read_window(f, c, p));
    p->attention_cap = p->final_cap = -1;
    if (!f->gemma) return IM_OK;
    IM__TRY(get_f32(c, "query_pre_attn_scalar", false, 1e-6, 1e6, &scalar));
    p->attention_scale = 1.0f / sqrtf(scalar);
    IM__TRY(get_cap(c, "attn_logit_softcapping", &p->attention_cap));
    return get_cap(c, "final_logit_softcapping", &p->final_cap);
}

/* ---- rotation ---- */

/* What a GGUF file of the model holds as rope_freqs.weight: made in binary64 here, stored in binary32 there. */
static im_status read_llama3(im__hf *f, const config *scaling, double base)
{
    float factor = 0, low = 0, high = 0, old = 0;
    IM__TRY(get_f32(scaling, "factor", true, 1e-3, 1e6, &factor));
    IM__TRY(get_f32(scaling, "low_freq_factor", true, 1e-3, 1e6, &low));
    IM__TRY(get_f32(scaling, "high_freq_factor", true, 1e-3, 1e6, &high));
    IM__TRY(get_f32(scaling, "original_max_position_embeddings", true, 1, 1e9, &old));
    if (!(high > low))
        return im__fail(scaling->err, IM_ERR_FORMAT, "%s: key high_freq_factor is not above low_freq_factor", scaling->path);
    for (uint32_t i = 0; i < f->params.rot_dim / 2; i++) {
        double wavelength = 6.283185307179586 / im__rope_frequency(base, i, f->params.rot_dim);
        double smooth = ((double)old / wavelength - (double)low) / ((double)high - (double)low), divisor;
        if (wavelength < (double)old / (double)high)
            divisor = 1;
        else if (wavelength > (double)old / (double)low)
            divisor = (double)factor;
        else
            divisor = 1 / ((1 - smooth) / (double)factor + smooth);
        f->divisor[i] = (float)divisor;
    }
    f->has_divisors = true;
    return IM_OK;
}

static im_status scaling_type(const config *scaling, im__json *type)
{
    IM__TRY(member(scaling, "rope_type", type));
    return type->ptr == NULL ? member(scaling, "type", type) : IM_OK;
}

static im_status read_scaling(im__hf *f, const config *scaling, double base)
{
    im__json type;
    float factor = 1;
    IM__TRY(scaling_type(scaling, &type));
    if (type.ptr == NULL || im__json_is(type, "default")) return IM_OK;
    if (im__json_is(type, "llama3") && !f->gemma) return read_llama3(f, scaling, base);
    if (!im__json_is(type, "linear"))
        return unsupported(scaling, "rope_type", type, f->gemma ? "default, linear" : "default, linear, llama3");
    IM__TRY(get_f32(scaling, "factor", true, 1e-3, 1e6, &factor));
    f->params.rope_factor = (double)factor;
    return IM_OK;
}

/* Newer files keep everything of the rotation in one object, for each kind of layer if there are two. */
static im_status read_rope(im__hf *f, const config *c)
{
    im__params *p = &f->params;
    config scaling, all, local = *c;
    float base = 0, base_local = 0;
    im__json type;
    p->rope_factor = 1;
    IM__TRY(get_f32(c, "rope_theta", false, 1, 1e12, &base));
    IM__TRY(get_f32(c, "rope_local_base_freq", false, 1, 1e12, &base_local));
    IM__TRY(get_object(c, "rope_scaling", &scaling));
    IM__TRY(get_object(c, "rope_parameters", &all));
    if (all.object.ptr != NULL) {
        scaling = all;
        config global;
        IM__TRY(get_object(&all, "full_attention", &global));
        IM__TRY(get_object(&all, "sliding_attention", &local));
        if (global.object.ptr != NULL) scaling = global;
        IM__TRY(get_f32(&scaling, "rope_theta", false, 1, 1e12, &base));
        if (local.object.ptr != NULL) IM__TRY(get_f32(&local, "rope_theta", false, 1, 1e12, &base_local));
        IM__TRY(scaling_type(&local, &type));
        if (type.ptr != NULL && !im__json_is(type, "default"))
            return unsupported(&local, "rope_type", type, "default for layers with a window");
    }
    p->rope_base = (double)base;
    p->rope_base_swa = (double)base_local;
    return scaling.object.ptr == NULL ? IM_OK : read_scaling(f, &scaling, base > 0 ? (double)base : 10000.0);
}

/* ---- all of it ---- */

/* Other kinds of quantisation are told apart by their method; MLX names none. */
static im_status check_method(const config *c)
{
    config q;
    im__json method;
    IM__TRY(get_object(c, "quantization_config", &q));
    IM__TRY(member(&q, "quant_method", &method));
    return method.ptr == NULL
               ? IM_OK
               : unsupported(c, "quantization_config.quant_method", method, "MLX's, which has none, and plain weights");
}

im_status im__hf_read_config(im__hf *f, im_error *err)
{
    config c = {.path = f->config_path, .object = f->config, .err = err};
    if (im__json_kind_of(f->config) != IM__JSON_OBJECT)
        return im__fail(err, IM_ERR_FORMAT, "%s: is %s, not an object", c.path, im__json_kind_name(f->config));
    f->text = f->config;
    IM__TRY(read_type(f, &c));
    IM__TRY(check_method(&c));
    f->tied = f->gemma;
    IM__TRY(get_bool(&c, "tie_word_embeddings", &f->tied));
    c.object = f->text;
    IM__TRY(get_bool(&c, "tie_word_embeddings", &f->tied));
    IM__TRY(check_activation(f, &c));
    IM__TRY(read_sizes(f, &c, &f->params));
    IM__TRY(read_attention(f, &c, &f->params));
    return read_rope(f, &c);
}

/* ---- end tokens ---- */

enum { MOST_ENDS = 64 };

static im_status add_end(im__hf *f, const config *c, im__json v)
{
    uint64_t id;
    if (!im__json_u64(v, &id)) return bad_kind(c, "eos_token_id", v, "a token's number");
    if (id >= f->params.vocab)
        return im__fail(c->err, IM_ERR_FORMAT, "%s: key eos_token_id is %llu, but there are %u tokens", c->path,
                        (unsigned long long)id, f->params.vocab);
    for (size_t i = 0; i < f->end_count; i++)
        if (f->end[i] == (int32_t)id) return IM_OK;
    if (f->end_count == MOST_ENDS) return im__fail(c->err, IM_ERR_FORMAT, "%s: key eos_token_id names too many tokens", c->path);
    f->end[f->end_count++] = (int32_t)id;
    return IM_OK;
}

static im_status add_ends(im__hf *f, const config *c)
{
    im__json v, id;
    IM__TRY(member(c, "eos_token_id", &v));
    if (v.ptr == NULL) return IM_OK;
    if (im__json_kind_of(v) != IM__JSON_ARRAY) return add_end(f, c, v);
    for (im__json_items i = im__json_items_of(v); im__json_next(&i, NULL, &id);) IM__TRY(add_end(f, c, id));
    return IM_OK;
}

im_status im__hf_read_ends(im__hf *f, im_error *err)
{
    config c = {.path = f->config_path, .object = f->config, .err = err};
    f->end = im__calloc(MOST_ENDS, sizeof *f->end);
    if (f->end == NULL) return im__fail(err, IM_ERR_MEMORY, "out of memory");
    IM__TRY(add_ends(f, &c));
    c.object = f->text;
    IM__TRY(add_ends(f, &c));
    if (im__json_kind_of(f->generation) == IM__JSON_NONE) return IM_OK;
    c = (config){.path = f->generation_path, .object = f->generation, .err = err};
    if (im__json_kind_of(f->generation) != IM__JSON_OBJECT)
        return im__fail(err, IM_ERR_FORMAT, "%s: is %s, not an object", c.path, im__json_kind_name(f->generation));
    return add_ends(f, &c);
}

/* ---- codes ---- */

static im_status read_codes(const config *c, const char *where, im__hf_codes *out)
{
    im__json mode;
    IM__TRY(get_u32(c, "bits", false, 1, 64, &out->bits));
    IM__TRY(get_u32(c, "group_size", false, 1, UINT32_MAX, &out->group));
    IM__TRY(member(c, "mode", &mode));
    if (mode.ptr == NULL) return IM_OK;
    out->mxfp4 = im__json_is(mode, "mxfp4");
    if (out->mxfp4 || im__json_is(mode, "affine")) return IM_OK;
    char room[64];
    return im__fail(c->err, IM_ERR_UNSUPPORTED, "%s: %s has mode %s; known are affine and mxfp4", c->path, where,
                    shown(mode, room));
}

static im_status check_codes(const config *c, const char *stem, const im__hf_codes *q)
{
    if (q->mxfp4 ? q->bits == 4 && q->group == 32 : im__split_dtype(q->bits, q->group, IM__F32) != IM__DTYPE_END) return IM_OK;
    return im__fail(c->err, IM_ERR_UNSUPPORTED,
                    "%s: %s has codes of %u bits in groups of %u (quantization); known are 2, 3, 4, 5, 6 and 8 bits in groups of "
                    "32, 64 and 128, and mxfp4 with 4 and 32",
                    c->path, stem, q->bits, q->group);
}

im_status im__hf_codes_of(const im__hf *f, const char *stem, im__hf_codes *out, im_error *err)
{
    config c = {.path = f->config_path, .object = f->config, .err = err}, all, own;
    bool switched = true;
    *out = (im__hf_codes){0};
    IM__TRY(get_object(&c, "quantization", &all));
    if (all.object.ptr == NULL) IM__TRY(get_object(&c, "quantization_config", &all));
    if (all.object.ptr == NULL)
        return im__fail(err, IM_ERR_FORMAT, "%s: key quantization is missing, but %s has scales", c.path, stem);
    IM__TRY(read_codes(&all, "quantization", out));
    own = all;
    IM__TRY(member(&all, stem, &own.object));
    if (im__json_bool(own.object, &switched) && !switched)
        return im__fail(err, IM_ERR_FORMAT, "%s: quantization leaves out %s, but it has scales", c.path, stem);
    if (im__json_kind_of(own.object) == IM__JSON_OBJECT) {
        out->mxfp4 = false;
        IM__TRY(read_codes(&own, stem, out));
    }
    return check_codes(&c, stem, out);
}
