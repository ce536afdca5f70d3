/* SPDX-License-Identifier: Apache-2.0 */
#include "model/source.h"

#include <string.h>

_Static_assert(sizeof(im__bytes) == sizeof(im__gguf_string), "the reader's strings are the tokenizer's bytes");

static im_status token_id(const im__gguf *g, const char *key, size_t count, int32_t *out, im_error *err)
{
    uint32_t id;
    *out = -1;
    const im__gguf_kv *kv = im__gguf_find(g, key);
    if (kv == NULL) return IM_OK;
    if (kv->type == IM__GGUF_I32) { /* -1 stands for "none" in some files */
        int32_t v;
        memcpy(&v, kv->data, sizeof v);
        if (v == -1) return IM_OK;
    }
    IM__TRY(im__gguf_get_u32(g, key, true, &id, err));
    if (id >= count)
        return im__fail(err, IM_ERR_FORMAT, "%s: key %s is %u, but the vocabulary has %zu tokens", g->path[0], key, id, count);
    *out = (int32_t)id;
    return IM_OK;
}

static im_status tri_state(const im__gguf *g, const char *key, int *out, im_error *err)
{
    bool b = false;
    *out = -1;
    if (im__gguf_find(g, key) == NULL) return IM_OK;
    IM__TRY(im__gguf_get_bool(g, key, true, &b, err));
    *out = b;
    return IM_OK;
}

/* `array`: NULL when the key is absent; an empty array is too short. */
static im_status same_length(const im__gguf *g, const char *key, const void *array, size_t have, size_t want, im_error *err)
{
    if (array == NULL || have == want) return IM_OK;
    return im__fail(err, IM_ERR_FORMAT, "%s: %s has %zu entries, but the vocabulary has %zu tokens", g->path[0], key, have, want);
}

static im__bytes bytes_of(im__gguf_string s) { return (im__bytes){s.ptr, s.len}; }

static im_status read_arrays(const im__gguf *g, im__vocab_source *s, im__vocab_arrays *a, im_error *err)
{
    size_t scores = 0, types = 0;
    IM__TRY(im__gguf_get_strings(g, "tokenizer.ggml.tokens", &a->token, &s->count, err));
    if (s->count == 0) return im__fail(err, IM_ERR_FORMAT, "%s: no vocabulary (tokenizer.ggml.tokens)", g->path[0]);
    if (s->count > INT32_MAX) return im__fail(err, IM_ERR_FORMAT, "%s: %zu tokens are too many", g->path[0], s->count);
    IM__TRY(im__gguf_get_strings(g, "tokenizer.ggml.merges", &a->merge, &s->merge_count, err));
    IM__TRY(im__gguf_get_f32s(g, "tokenizer.ggml.scores", &a->score, &scores, err));
    IM__TRY(same_length(g, "tokenizer.ggml.scores", a->score, scores, s->count, err));
    IM__TRY(im__gguf_get_i32s(g, "tokenizer.ggml.token_type", &a->type, &types, err));
    IM__TRY(same_length(g, "tokenizer.ggml.token_type", a->type, types, s->count, err));
    s->token = (const im__bytes *)a->token;
    s->merge = (const im__bytes *)a->merge;
    s->score = a->score;
    s->type = a->type;
    return IM_OK;
}

/* Keys that name a token which ends a turn, besides eos. */
static const char *const end_key[] = {"tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"};

static im_status read_ends(const im__gguf *g, im__vocab_source *s, im__vocab_arrays *a, im_error *err)
{
    for (size_t i = 0; i < sizeof end_key / sizeof *end_key; i++) {
        int32_t id;
        IM__TRY(token_id(g, end_key[i], s->count, &id, err));
        if (id >= 0) a->end[s->end_count++] = id;
    }
    s->end = a->end;
    return IM_OK;
}

static im_status read_source(const im__gguf *g, const char *pre, im__vocab_source *s, im__vocab_arrays *a, im_error *err)
{
    im__gguf_string model = {NULL, 0}, pre_name = {NULL, 0};
    IM__TRY(im__gguf_get_string(g, "tokenizer.ggml.model", true, &model, err));
    IM__TRY(im__gguf_get_string(g, "tokenizer.ggml.pre", false, &pre_name, err));
    IM__TRY(read_arrays(g, s, a, err));
    s->model = bytes_of(model);
    s->pre = pre != NULL ? (im__bytes){pre, strlen(pre)} : bytes_of(pre_name);
    s->force_pre = pre != NULL;
    IM__TRY(token_id(g, "tokenizer.ggml.bos_token_id", s->count, &s->bos, err));
    IM__TRY(token_id(g, "tokenizer.ggml.eos_token_id", s->count, &s->eos, err));
    IM__TRY(token_id(g, "tokenizer.ggml.unknown_token_id", s->count, &s->unk, err));
    IM__TRY(token_id(g, "tokenizer.ggml.padding_token_id", s->count, &s->pad, err));
    IM__TRY(read_ends(g, s, a, err));
    IM__TRY(tri_state(g, "tokenizer.ggml.add_bos_token", &s->add_bos, err));
    IM__TRY(tri_state(g, "tokenizer.ggml.add_eos_token", &s->add_eos, err));
    return tri_state(g, "tokenizer.ggml.add_space_prefix", &s->add_space_prefix, err);
}

im_status im__vocabulary_read(const im__gguf *g, const char *pre, im__tokenizer **out, im__vocab_arrays *keep, im_error *err)
{
    im__vocab_source source = {0};
    im_error why = {IM_OK, ""};
    *keep = (im__vocab_arrays){0};
    im_status status = read_source(g, pre, &source, keep, err);
    if (status == IM_OK) {
        status = im__tokenizer_new(out, &source, &why);
        if (status != IM_OK) im__fail(err, status, "%s: %s", g->path[0], why.message);
    }
    if (status != IM_OK) im__vocab_arrays_clear(keep);
    return status;
}

void im__vocab_arrays_clear(im__vocab_arrays *a)
{
    im__free(a->token);
    im__free(a->merge);
    im__free(a->score);
    im__free(a->type);
    *a = (im__vocab_arrays){0};
}
