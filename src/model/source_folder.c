/* SPDX-License-Identifier: Apache-2.0
 *
 * Folders: stored names become roles, codes with their scales one tensor, and what GGUF files store in another way is said beside the tensor: the order of
 * Llama's Q and K rows, the 1 that Gemma's norms leave out, the divisors of Llama 3's rotation.
 */
#include "model/hf.h"
#include "text/tokenizer/tokenizer_json.h"

#include <stdio.h>
#include <string.h>

static im__hf *folder_of(const im__source *s) { return s->file; }

/* ---- tensors ---- */

static im_status bad(const im__st_entry *e, im_error *err, const char *what)
{
    return im__fail(err, IM_ERR_FORMAT, "%s: tensor %s %s", e->shard->path, e->tensor->name, what);
}

static uint32_t float_type(im__st_type type)
{
    return type == IM__ST_F32 ? IM__F32 : type == IM__ST_F16 ? IM__F16 : type == IM__ST_BF16 ? IM__BF16 : IM__DTYPE_END;
}

static bool ends_in(const char *name, const char *end)
{
    size_t n = strlen(name), k = strlen(end);
    return n >= k && strcmp(name + n - k, end) == 0;
}

/* The stem of a stored name with another end; NULL: there is no such tensor. */
static const im__st_entry *sibling(const im__hf *f, const char *name, const char *end)
{
    char other[IM__ST_MAX_NAME + 16];
    const char *dot = strrchr(name, '.');
    if (dot == NULL) return NULL;
    snprintf(other, sizeof other, "%.*s.%s", (int)(dot - name), name, end);
    return im__st_folder_find(f->weights, other);
}

/* Scales and biases belong to the codes beside them. */
static bool is_part(const im__hf *f, const char *name)
{
    const im__st_entry *codes = ends_in(name, ".scales") || ends_in(name, ".biases") ? sibling(f, name, "weight") : NULL;
    return codes != NULL && codes->tensor->type == IM__ST_U32;
}

/* Rows and columns that go with `rows` rows of n elements in groups. */
static bool fits(const im__st_tensor *t, uint64_t rows, uint64_t n, uint32_t group)
{
    return t->n_dims == 2 && t->dim[0] == rows && n % group == 0 && t->dim[1] == n / group;
}

static im_status join_scales(const im__hf *f, const im__st_entry *e, const im__hf_codes *q, im__tensor *t, im_error *err)
{
    const im__st_entry *scales = sibling(f, e->tensor->name, "scales"), *biases = sibling(f, e->tensor->name, "biases");
    if (!fits(scales->tensor, t->dim[1], t->dim[0], q->group))
        return im__fail(err, IM_ERR_FORMAT, "%s: tensor %s does not have one scale for %u elements of each row",
                        scales->shard->path, scales->tensor->name, q->group);
    t->split = (im__split){.scale = scales->tensor->data, .scale_dtype = float_type(scales->tensor->type), .group = q->group};
    t->scale_bytes = scales->tensor->bytes;
    if (q->mxfp4) {
        t->dtype = IM__MXFP4;
        t->split.scale_dtype = IM__I8;
        if (scales->tensor->type == IM__ST_U8 && biases == NULL) return IM_OK;
        return bad(scales, err, "is no exponents of mxfp4 (U8, without biases)");
    }
    t->dtype = im__split_dtype(q->bits, q->group, t->split.scale_dtype);
    if (t->dtype == IM__DTYPE_END) return bad(scales, err, "has a type that no scales can have; known are F32, F16 and BF16");
    if (biases == NULL) return bad(e, err, "has scales, but no biases");
    if (biases->tensor->type != scales->tensor->type || !fits(biases->tensor, t->dim[1], t->dim[0], q->group))
        return bad(biases, err, "is not of the type and shape of the scales");
    t->split.bias = biases->tensor->data;
    t->bias_bytes = biases->tensor->bytes;
    return IM_OK;
}

static im_status codes_tensor(const im__hf *f, const im__st_entry *e, im__tensor *t, im_error *err)
{
    im__hf_codes q;
    const im__st_tensor *from = e->tensor;
    char stem[IM__ST_MAX_NAME + 1];
    snprintf(stem, sizeof stem, "%.*s", (int)(strrchr(from->name, '.') - from->name), from->name);
    IM__TRY(im__hf_codes_of(f, stem, &q, err));
    if (from->type != IM__ST_U32 || from->n_dims != 2 || from->dim[1] > UINT32_MAX || from->dim[1] * 32 % q.bits != 0)
        return bad(e, err, "has scales, but is not a matrix of codes (U32)");
    t->dim[0] = from->dim[1] * 32 / q.bits;
    t->dim[1] = from->dim[0];
    return join_scales(f, e, &q, t, err);
}

static im_status float_tensor(const im__st_entry *e, im__tensor *t, im_error *err)
{
    const im__st_tensor *from = e->tensor;
    t->dtype = float_type(from->type);
    if (t->dtype == IM__DTYPE_END)
        return im__fail(err, IM_ERR_UNSUPPORTED, "%s: tensor %s has elements of type %s%s", e->shard->path, from->name,
                        im__st_type_name(from->type),
                        from->type == IM__ST_U32 ? " and no scales beside it" : "; known are F32, F16 and BF16");
    if (from->n_dims < 1 || from->n_dims > 2) return bad(e, err, "is neither a vector nor a matrix");
    t->dim[0] = from->dim[from->n_dims - 1];
    t->dim[1] = from->n_dims == 2 ? from->dim[0] : 1;
    return IM_OK;
}

static im_status add_tensor(im__source *s, const im__st_entry *e, im_error *err)
{
    const im__hf *f = folder_of(s);
    im__tensor *t = &s->tensor[s->tensor_count];
    const bool llama = strcmp(f->params.arch, "llama") == 0;
    if (im__hf_ignores(f, e->tensor->name) || is_part(f, e->tensor->name)) return IM_OK;
    *t = (im__tensor){.dim = {1, 1, 1, 1}, .data = e->tensor->data, .bytes = e->tensor->bytes, .path = e->shard->path};
    im__hf_role(f, e->tensor->name, t->name);
    bool codes = ends_in(t->name, ".weight") && sibling(f, e->tensor->name, "scales") != NULL;
    IM__TRY(codes ? codes_tensor(f, e, t, err) : float_tensor(e, t, err));
    if (t->dim[0] == 0 || t->dim[1] == 0) return bad(e, err, "is empty");
    const char *dot = strrchr(t->name, '.');
    size_t stem = dot == NULL ? 0 : (size_t)(dot - t->name);
    if (llama && stem > 7 && (memcmp(dot - 7, ".attn_q", 7) == 0 || memcmp(dot - 7, ".attn_k", 7) == 0))
        t->halves = f->params.head_dim;
    if (f->gemma && ends_in(t->name, "norm.weight")) t->plus = 1;
    s->tensor_count++;
    return IM_OK;
}

/* As if the file had it. */
static void add_divisors(im__source *s)
{
    im__hf *f = folder_of(s);
    uint32_t pairs = f->params.rot_dim / 2;
    if (!f->has_divisors) return;
    s->tensor[s->tensor_count++] = (im__tensor){.name = "rope_freqs.weight",
                                                .dtype = IM__F32,
                                                .dim = {pairs, 1, 1, 1},
                                                .data = (const uint8_t *)f->divisor,
                                                .bytes = pairs * sizeof(float),
                                                .made = true,
                                                .path = f->config_path};
}

static im_status add_tensors(im__source *s, im_error *err)
{
    const im__hf *f = folder_of(s);
    for (size_t i = 0; i < f->weights->count; i++) IM__TRY(add_tensor(s, &f->weights->entry[i], err));
    add_divisors(s);
    return im__source_sort(s, err);
}

/* Tied or not, and as many rows as the configuration says. */
static im_status check_ends_of_model(const im__source *s, im_error *err)
{
    const im__hf *f = folder_of(s);
    const im__tensor *embedding = im__source_find(s, "token_embd.weight");
    if (!f->tied && im__source_find(s, "output.weight") == NULL)
        return im__fail(err, IM_ERR_FORMAT,
                        "%s: tensor %sweight is missing, and %s does not tie it to the embedding (tie_word_embeddings)", s->path,
                        f->head, f->config_path);
    if (embedding != NULL && embedding->dim[1] != f->params.vocab)
        return im__fail(err, IM_ERR_FORMAT, "%s: the embedding has %llu rows, but vocab_size in %s is %u", s->path,
                        (unsigned long long)embedding->dim[1], f->config_path, f->params.vocab);
    return IM_OK;
}

/* ---- what a source answers ---- */

static im_status copy_list(const uint32_t *from, uint32_t n, uint32_t **out)
{
    *out = im__calloc(n, sizeof **out);
    if (*out == NULL) return IM_ERR_MEMORY;
    memcpy(*out, from, n * sizeof *from);
    return IM_OK;
}

static im_status params(const im__source *s, im__params *out, im_error *err)
{
    const im__params *p = &folder_of(s)->params;
    *out = *p;
    out->ff = out->kv_heads = NULL;
    if (copy_list(p->ff, p->layers, &out->ff) == IM_OK && copy_list(p->kv_heads, p->layers, &out->kv_heads) == IM_OK) return IM_OK;
    im__params_clear(out);
    return im__fail(err, IM_ERR_MEMORY, "out of memory");
}

static im_status vocabulary(im__source *s, const char *pre, im__tokenizer **out, im_error *err)
{
    im__hf *f = folder_of(s);
    const im__tokenizer_json_options o = {.end = f->end, .end_count = f->end_count, .rows = f->params.vocab};
    if (pre != NULL)
        return im__fail(err, IM_ERR_ARGUMENT, "%s: tokenizer.json says how text is cut; a pre-tokeniser (--pre) is for GGUF files",
                        s->path);
    IM__TRY(im__tokenizer_json_read(out, &f->chat_template, f->path, &o, err));
    if (f->chat_template.len > 0) s->chat_template = (im__bytes){f->chat_template.data, f->chat_template.len};
    return IM_OK;
}

static const char *label(const im__source *s, const char *role, char out[128]) { return im__hf_label(folder_of(s), role, out); }

static void free_folder(im__hf *f)
{
    im__st_folder_close(f->weights);
    im__file_map_close(&f->config_map);
    im__file_map_close(&f->generation_map);
    im__params_clear(&f->params);
    im__buf_free(&f->chat_template);
    im__free(f->end);
    im__free(f->name);
    im__free(f->path);
    im__free(f);
}

static void close_folder(im__source *s) { free_folder(s->file); }

static const im__source_kind kind = {.params = params, .vocabulary = vocabulary, .label = label, .close = close_folder};

/* ---- opening ---- */

/* In the cache of the hub a folder is called after a revision, and its grandparent models--OWNER--NAME. */
static char *name_of(const char *path)
{
    const char *mark = strstr(path, "models--"), *end = path + strlen(path), *begin;
    while (end > path && end[-1] == '/') end--;
    for (begin = end; begin > path && begin[-1] != '/';) begin--;
    if (mark == NULL || strstr(mark, "/snapshots/") == NULL) return im__strdup(begin, (size_t)(end - begin));
    char *name = im__strdup(mark + 8, strcspn(mark + 8, "/"));
    char *dashes = name == NULL ? NULL : strstr(name, "--");
    if (dashes == NULL) return name;
    *dashes = '/';
    memmove(dashes + 1, dashes + 2, strlen(dashes + 2) + 1);
    return name;
}

static im_status read_folder(im__hf *f, im_error *err)
{
    IM__TRY(
        im__json_file_open(&f->config_map, &f->config, f->path, "config.json", true, f->config_path, sizeof f->config_path, err));
    IM__TRY(im__hf_read_config(f, err));
    IM__TRY(im__json_file_open(&f->generation_map, &f->generation, f->path, "generation_config.json", false, f->generation_path,
                               sizeof f->generation_path, err));
    IM__TRY(im__hf_read_ends(f, err));
    IM__TRY(im__st_folder_open(&f->weights, f->path, err));
    im__hf_find_prefix(f);
    return IM_OK;
}

static im_status fill(im__source *s, im_error *err)
{
    im__hf *f = s->file;
    s->path = f->path;
    s->architecture = (im__bytes){f->params.arch, strlen(f->params.arch)};
    s->name = (im__bytes){f->name, strlen(f->name)};
    for (size_t i = 0; i < f->weights->shard_count; i++) s->file_bytes += f->weights->shard[i]->size;
    IM__TRY(add_tensors(s, err));
    return check_ends_of_model(s, err);
}

im_status im__source_of_folder(im__source **out, const char *path, im_error *err)
{
    *out = NULL;
    im__hf *f = im__calloc(1, sizeof *f);
    if (f == NULL) return im__fail(err, IM_ERR_MEMORY, "out of memory");
    f->path = im__strdup(path, strlen(path));
    f->name = name_of(path);
    im_status status = f->path == NULL || f->name == NULL ? im__fail(err, IM_ERR_MEMORY, "out of memory") : read_folder(f, err);
    im__source *s = status == IM_OK ? im__source_new(&kind, f->weights->count + 1) : NULL;
    if (status == IM_OK && s == NULL) status = im__fail(err, IM_ERR_MEMORY, "out of memory");
    if (s == NULL) {
        free_folder(f);
        return status;
    }
    s->file = f;
    status = fill(s, err);
    if (status == IM_OK)
        *out = s;
    else
        im__source_close(s);
    return status;
}
