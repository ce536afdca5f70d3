/* SPDX-License-Identifier: Apache-2.0
 *
 * The model half of the public door: opening a file, what it says of itself, text to ids and back, conversations.
 */
#include "base/machine.h"
#include "base/thread.h"
#include "engine/internal.h"
#include "num/dtype.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

void im_model_options_init(im_model_options *o, size_t size)
{
    im__options_copy(o, size, &(im_model_options){.size = 0}, sizeof *o);
}

/* ---- what a file says of itself --------------------------------------------------------------------------------------------------- */

static void count_tensors(const im__source *s, im_model_info *info)
{
    uint64_t held[IM__DTYPE_END] = {0}, most = 0;
    info->quantisation = "";
    for (size_t i = 0; i < s->tensor_count; i++) {
        const im__tensor *t = &s->tensor[i];
        uint64_t elements = t->dim[0] * t->dim[1] * t->dim[2] * t->dim[3];
        info->parameters += elements;
        if (t->dtype >= IM__DTYPE_END) continue;
        held[t->dtype] += elements;
        if (held[t->dtype] <= most) continue;
        most = held[t->dtype];
        info->quantisation = im__dtype_get(t->dtype)->name;
    }
    info->file_bytes = s->file_bytes;
}

/* Appends a string of the file and returns where it begins. Control characters are left out: it will be printed. */
static size_t keep_string(im__buf *b, const char *s, size_t n)
{
    size_t at = b->len;
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)s[i] >= 0x20 && s[i] != 0x7f) im__buf_append(b, &s[i], 1);
    im__buf_append(b, "", 1);
    return at;
}

static size_t keep_bytes(im__buf *b, im__bytes s, const char *absent)
{
    return s.ptr == NULL ? keep_string(b, absent, strlen(absent)) : keep_string(b, s.ptr, s.len);
}

static im_status fill_info(im_model *m, const char *path, im_error *err)
{
    im__buf b = {0};
    const char *slash = strrchr(path, '/'), *file = slash == NULL ? path : slash + 1;
    size_t at_path = keep_string(&b, path, strlen(path)), at_name = keep_bytes(&b, m->source->name, file);
    size_t at_arch = keep_bytes(&b, m->source->architecture, ""), at_licence = keep_bytes(&b, m->source->licence, "");
    if (b.failed) {
        im__buf_free(&b);
        return im__fail(err, IM_ERR_MEMORY, "out of memory");
    }
    m->strings = b.data;
    m->info = (im_model_info){
        .path = b.data + at_path, .name = b.data + at_name, .architecture = b.data + at_arch, .licence = b.data + at_licence};
    m->info.vocabulary = (uint32_t)im__tokenizer_count(m->tokenizer);
    m->info.bos = im__tokenizer_bos(m->tokenizer);
    m->info.eos = im__tokenizer_eos(m->tokenizer);
    count_tensors(m->source, &m->info);
    return IM_OK;
}

/* ---- opening -------------------------------------------------------------------------------------------------------------------------- */

/* A template that cannot be compiled does not keep the model from completing plain text: the error is kept and given to whoever wants to chat. */
static void compile_template(im_model *m)
{
    im__bytes source = m->source->chat_template;
    m->chat_error.status = IM_ERR_UNSUPPORTED;
    snprintf(m->chat_error.message, sizeof m->chat_error.message, "this model has no chat template");
    if (source.ptr == NULL) return;
    m->info.has_chat_template = true;
    im__template_new(&m->chat, source.ptr, source.len, &m->chat_error);
}

static uint64_t prompt_products(const im__program *p)
{
    uint64_t products = 0;
    for (size_t i = 0; i < p->op_count; i++)
        if (p->op[i].kind == IM__OP_MATMUL && p->op[i].dst != p->logits)
            products += (uint64_t)p->matrix[p->op[i].weight].w.n_in * p->matrix[p->op[i].weight].w.n_out;
    return products;
}

static im_status read_program(im_model *m, im_error *err)
{
    IM__TRY(im__program_read(m->source, &m->program, err));
    m->has_program = true;
    if (m->program.vocab != im__tokenizer_count(m->tokenizer))
        return im__fail(err, IM_ERR_FORMAT, "%s: the vocabulary has %zu tokens, but the embedding %u rows", m->info.path,
                        im__tokenizer_count(m->tokenizer), m->program.vocab);
    m->info.layers = (uint32_t)m->program.kv_count;
    m->info.embedding = m->program.value[0].width;
    m->info.context = m->program.context;
    m->info.products = prompt_products(&m->program);
    m->info.program_digest = im__program_digest(&m->program);
    return IM_OK;
}

static im_status open_model(im_model *m, const char *path, const im_model_options *o, im_error *err)
{
    IM__TRY(im__source_open(&m->source, path, err));
    IM__TRY(m->source->kind->vocabulary(m->source, o->pre_tokenizer, &m->tokenizer, err));
    IM__TRY(fill_info(m, path, err));
    if (!o->vocabulary_only) IM__TRY(read_program(m, err));
    compile_template(m);
    return IM_OK;
}

im_status im_model_open(im_model **out, const char *path, const im_model_options *options, im_error *err)
{
    im_model_options o;
    if (out == NULL || path == NULL) return im__fail(err, IM_ERR_ARGUMENT, "a NULL argument");
    im_model_options_defaults(&o);
    if (options != NULL) memcpy(&o, options, options->size < sizeof o ? options->size : sizeof o);
    im_model *m = im__calloc(1, sizeof *m);
    if (m == NULL) return im__fail(err, IM_ERR_MEMORY, "out of memory");
    im__float_state floats;
    double started = im__now_ms();
    atomic_store(&m->users, 1);
    im__float_enter(&floats); /* widening vectors and rotation frequencies compute */
    im_status status = open_model(m, path, &o, err);
    im__float_leave(&floats);
    m->open_ms = im__now_ms() - started;
    if (status == IM_OK)
        *out = m;
    else
        im_model_close(m);
    return status;
}

void im_model_close(im_model *m)
{
    if (m == NULL || atomic_fetch_sub(&m->users, 1) > 1) return;
    im__template_free(m->chat);
    im__tokenizer_free(m->tokenizer);
    im__program_clear(&m->program);
    im__source_close(m->source);
    im__free(m->strings);
    im__free(m);
}

void im_model_get_info(const im_model *m, im_model_info *info) { *info = m->info; }

/* Hands a buffer out as a string, or says that memory ran out. */
static im_status hand_out(im__buf *b, char **text, size_t *n, im_error *err)
{
    if (!b->failed) im__buf_append(b, "", 0); /* an empty one becomes "" */
    if (b->failed) {
        im__buf_free(b);
        return im__fail(err, IM_ERR_MEMORY, "out of memory");
    }
    if (n != NULL) *n = b->len;
    if (text != NULL)
        *text = b->data;
    else
        im__buf_free(b);
    return IM_OK;
}

im_status im_model_program(const im_model *m, char **text, im_error *err)
{
    im__buf b = {0};
    if (!m->has_program) return im__fail(err, IM_ERR_ARGUMENT, "%s: was opened for its vocabulary only", m->info.path);
    im__program_print(&m->program, &b);
    return hand_out(&b, text, NULL, err);
}

/* ---- text ------------------------------------------------------------------------------------------------------------------------------ */

im_status im_model_encode(const im_model *m, const char *text, size_t n, unsigned flags, int32_t **ids, size_t *count,
                          im_error *err)
{
    im__ids list = {0};
    im__encode_options o = {.parse_special = (flags & IM_ENCODE_PLAIN) == 0,
                            .add_bos = (flags & IM_ENCODE_NO_BOS) == 0,
                            .add_eos = (flags & IM_ENCODE_NO_BOS) == 0};
    if (ids == NULL || count == NULL || (text == NULL && n > 0)) return im__fail(err, IM_ERR_ARGUMENT, "a NULL argument");
    im_status status = im__tokenizer_encode(m->tokenizer, text, n, &o, &list, err);
    if (status != IM_OK) {
        im__ids_free(&list); /* what fitted before memory ran out */
        return status;
    }
    *ids = list.data;
    *count = list.len;
    return IM_OK;
}

im_status im_model_decode(const im_model *m, const int32_t *ids, size_t count, char **text, size_t *n, im_error *err)
{
    im__buf b = {0};
    im__decoder d;
    im__decoder_init(&d, m->tokenizer, false);
    for (size_t i = 0; i < count; i++) im__decoder_feed(&d, ids[i], &b);
    im__decoder_finish(&d, &b);
    return hand_out(&b, text, n, err);
}

bool im_model_piece(const im_model *m, int32_t id, const char **piece, size_t *n)
{
    im__bytes raw = im__tokenizer_raw(m->tokenizer, id);
    if (raw.ptr == NULL) return false;
    *piece = raw.ptr;
    *n = raw.len;
    return true;
}

im_status im_model_token_bytes(const im_model *m, int32_t id, char **bytes, size_t *n, im_error *err)
{
    im__buf b = {0};
    im__tokenizer_piece(m->tokenizer, id, true, &b);
    return hand_out(&b, bytes, n, err);
}

bool im_model_is_end(const im_model *m, int32_t id) { return im__tokenizer_is_end(m->tokenizer, id); }

/* ---- conversations ------------------------------------------------------------------------------------------------------------------------- */

void im_chat_options_init(im_chat_options *o, size_t size) { im__options_copy(o, size, &(im_chat_options){.size = 0}, sizeof *o); }

static char *special_text(const im_model *m, int32_t id)
{
    im__bytes raw = im__tokenizer_raw(m->tokenizer, id);
    return im__strdup(raw.ptr == NULL ? "" : raw.ptr, raw.ptr == NULL ? 0 : raw.len);
}

static im_status render(const im_model *m, const im__template *t, const char *messages, const im_chat_options *o, im__rendered *out,
                        im_error *err)
{
    char *bos = special_text(m, m->info.bos), *eos = special_text(m, m->info.eos);
    im__template_input in = {.messages = messages,
                             .messages_len = strlen(messages),
                             .tools = o->tools,
                             .tools_len = o->tools == NULL ? 0 : strlen(o->tools),
                             .variables = o->variables,
                             .variables_len = o->variables == NULL ? 0 : strlen(o->variables),
                             .bos_token = bos,
                             .eos_token = eos,
                             .add_generation_prompt = !o->no_generation_prompt,
                             .continue_open = !o->no_generation_prompt,
                             .now = (int64_t)time(NULL)};
    im_status status =
        bos == NULL || eos == NULL ? im__fail(err, IM_ERR_MEMORY, "out of memory") : im__template_render(t, &in, out, err);
    im__free(bos);
    im__free(eos);
    return status;
}

/* The template writes BOS itself where it wants one, so none is added. */
static im_status encode_rendered(const im_model *m, const im__rendered *r, bool parse_all, im__ids *ids, im_error *err)
{
    im__span *plain = im__calloc(r->plain_count, sizeof *plain);
    if (plain == NULL) return im__fail(err, IM_ERR_MEMORY, "out of memory");
    for (size_t i = 0; i < r->plain_count; i++) plain[i] = (im__span){r->plain[i].begin, r->plain[i].end};
    im__encode_options o = {.parse_special = true, .plain = plain, .plain_count = parse_all ? 0 : r->plain_count};
    im_status status = im__tokenizer_encode(m->tokenizer, r->text.data == NULL ? "" : r->text.data, r->text.len, &o, ids, err);
    im__free(plain);
    return status;
}

static im_status chat(const im_model *m, const im__template *t, const char *messages, const im_chat_options *o,
                      im__rendered *rendered, im__ids *ids, im_error *err)
{
    IM__TRY(render(m, t, messages, o, rendered, err));
    return encode_rendered(m, rendered, o->parse_special, ids, err);
}

im_status im_model_chat(const im_model *m, const char *messages, const im_chat_options *options, char **text, size_t *text_len,
                        int32_t **ids, size_t *count, im_error *err)
{
    im_chat_options o;
    im__template *own = NULL;
    im__rendered rendered = {0};
    im__ids list = {0};
    if (messages == NULL) return im__fail(err, IM_ERR_ARGUMENT, "a NULL argument");
    im_chat_options_defaults(&o);
    if (options != NULL) memcpy(&o, options, options->size < sizeof o ? options->size : sizeof o);
    if (o.chat_template != NULL) IM__TRY(im__template_new(&own, o.chat_template, strlen(o.chat_template), err));
    if (own == NULL && m->chat == NULL) return im__fail(err, m->chat_error.status, "%s: %s", m->info.path, m->chat_error.message);
    im_status status = chat(m, own != NULL ? own : m->chat, messages, &o, &rendered, &list, err);
    if (status == IM_OK && text != NULL) status = hand_out(&rendered.text, text, text_len, err);
    if (status == IM_OK && text != NULL) rendered.text = (im__buf){0};
    if (status == IM_OK && ids != NULL) {
        *ids = list.data;
        *count = list.len;
        list = (im__ids){0};
    }
    im__rendered_free(&rendered);
    im__ids_free(&list);
    im__template_free(own);
    return status;
}

void im_free(void *p) { im__free(p); }
