/* SPDX-License-Identifier: Apache-2.0 */
#include "text/tokenizer/tokenizer_json.h"

#include "text/tokenizer/json_build.h"

#include "base/file_map.h"

#include <string.h>
#include <unistd.h>

#define MOST_ROWS ((size_t)1 << 24)
#define LARGEST_FILE ((size_t)1 << 28)
#define LARGEST_TEMPLATE ((size_t)1 << 22)

void im__json_rules_free(im__json_rules *r)
{
    if (r == NULL) return;
    im__added_tokens_free(&r->late);
    im__free(r->arena);
    im__free(r->late_text);
    im__free(r->token);
    im__free(r->type);
    im__free(r);
}

/* ---- one tokenizer ---- */

static im_status check_texts(im__json_build *b, const im__tokenizer_json_texts *x, im__json *root)
{
    if (x->tokenizer.len > LARGEST_FILE || x->config.len > LARGEST_FILE || x->special_tokens_map.len > LARGEST_FILE)
        return im__fail(b->err, IM_ERR_FORMAT, "%s: a file of more than %zu bytes is no tokenizer", b->name, LARGEST_FILE);
    if (b->options->rows > MOST_ROWS)
        return im__fail(b->err, IM_ERR_FORMAT, "%s: a vocabulary of %zu rows is not possible", b->name, b->options->rows);
    IM__TRY(im__json_check(x->tokenizer.ptr, x->tokenizer.len, b->name, root, b->err));
    if (x->config.len > 0) IM__TRY(im__json_check(x->config.ptr, x->config.len, "tokenizer_config.json", &b->config, b->err));
    if (x->special_tokens_map.len == 0) return IM_OK;
    return im__json_check(x->special_tokens_map.ptr, x->special_tokens_map.len, "special_tokens_map.json", &b->special_tokens_map,
                          b->err);
}

/* Truncation and padding are for batches of training texts. */
static im_status open_parts(im__json_build *b, im__json root)
{
    im__json key, value;
    unsigned seen = 0;
    const im__json_field field[] = {
        {"version", NULL},
        {"truncation", NULL},
        {"padding", NULL},
        {"added_tokens", &b->added_tokens},
        {"normalizer", &b->normalizer},
        {"pre_tokenizer", &b->pre_tokenizer},
        {"post_processor", &b->post_processor},
        {"decoder", &b->decoder},
        {"model", NULL},
        {0},
    };
    if (im__json_kind_of(root) != IM__JSON_OBJECT)
        return im__fail(b->err, IM_ERR_FORMAT, "%s: the file is %s, not an object", b->name, im__json_kind_name(root));
    for (im__json_items items = im__json_items_of(root), members; (key = im__json_key(&items)).len > 0;) {
        bool inside = im__json_is(key, "model") && im__json_enter(&items, &members);
        value = (im__json){NULL, 0};
        if (!inside) im__json_next(&items, NULL, &value);
        IM__TRY(im__json_take(b, key, value, "the file", field, &seen));
        if (!inside) continue;
        IM__TRY(im__json_read_model(b, &members));
        im__json_leave(&items, &members);
    }
    if (b->vocab.len > 0) return IM_OK;
    return im__fail(b->err, IM_ERR_FORMAT, "%s: there is no vocabulary", b->name);
}

/* Room by the size of the file: an entry of the vocabulary ("a":1,) takes 6 bytes at least, so ids with holes between them cannot ask for much. */
static im_status reserve(im__json_build *b, const im__tokenizer_json_texts *x)
{
    size_t strings = x->tokenizer.len - b->merges.len + x->config.len + x->special_tokens_map.len + 64;
    b->capacity = b->vocab.len / 4 + b->added_tokens.len / 16 + 1024;
    if (b->capacity < b->options->rows) b->capacity = b->options->rows;
    if (b->capacity > MOST_ROWS) b->capacity = MOST_ROWS;
    b->r->token = im__calloc(b->capacity, sizeof *b->r->token);
    b->r->type = im__calloc(b->capacity, sizeof *b->r->type);
    b->r->arena = im__calloc(strings, 1);
    b->arena = (im__buf){.data = b->r->arena, .cap = strings};
    return b->r->token != NULL && b->r->type != NULL && b->r->arena != NULL ? IM_OK : im__json_memory(b);
}

static im_status take_ends(im__json_build *b)
{
    im__vocab_source *s = &b->t->source;
    for (size_t i = 0; i < b->options->end_count; i++) {
        int32_t id = b->options->end[i];
        if (!im__token_in_vocabulary(b->t, id))
            return im__fail(b->err, IM_ERR_FORMAT, "%s: the vocabulary has %zu tokens, but an end token is %ld", b->name, s->count,
                            (long)id);
        if (s->end_count < IM__END_MAX) b->r->end[s->end_count++] = id;
    }
    s->end = b->r->end;
    im__token_ends_init(b->t);
    return IM_OK;
}

/* Does the text of every byte have a letter? Bytes that UTF-8 never has need none. */
static bool has_letters(const im__tokenizer *t)
{
    for (unsigned byte = 0; byte < 0xf5; byte++) {
        if (t->byte_id[byte] < 0 && byte != 0xc0 && byte != 0xc1) return false;
    }
    return true;
}

static im_status note_characters(im__json_build *b)
{
    im__tokenizer *t = b->t;
    if (t->byte_level) {
        im__token_note_letters(t);
        if (has_letters(t) || (t->source.unk < 0 && !b->byte_fallback)) return IM_OK;
        return im__fail(b->err, IM_ERR_UNSUPPORTED,
                        "%s: a ByteLevel vocabulary with an unknown token, but without all letters, is not known", b->name);
    }
    im__token_note_spaces(t);
    if (b->merges_strange || im__piece_map_find(&t->pieces, t->space.ptr, t->space.len) < 0)
        memset(t->joins_space, 1, sizeof t->joins_space);
    return IM_OK;
}

static im_status build(im__json_build *b, const im__tokenizer_json_texts *x)
{
    im__json root;
    IM__TRY(check_texts(b, x, &root));
    IM__TRY(open_parts(b, root));
    IM__TRY(reserve(b, x));
    IM__TRY(im__json_read_vocab(b));
    IM__TRY(im__json_read_added(b));
    IM__TRY(im__json_read_added_config(b));
    IM__TRY(im__json_close_vocab(b));
    IM__TRY(im__json_read_normalizer(b));
    IM__TRY(im__json_read_pre_tokenizer(b));
    IM__TRY(im__json_read_decoder(b));
    IM__TRY(im__json_read_post_processor(b));
    IM__TRY(im__json_read_config(b));
    IM__TRY(im__json_read_merges(b));
    IM__TRY(im__json_index_added(b));
    IM__TRY(note_characters(b));
    return take_ends(b);
}

im_status im__tokenizer_json_parse(im__tokenizer **out, const im__tokenizer_json_texts *texts,
                                   const im__tokenizer_json_options *options, im_error *err)
{
    im__json_build b = {.name = texts->name, .err = err, .options = options, .prefix = -1, .suffix = -1};
    b.t = im__tokenizer_blank();
    if (b.t != NULL) b.r = b.t->json = im__calloc(1, sizeof *b.r);
    im_status status = b.r == NULL ? im__json_memory(&b) : build(&b, texts);
    im__free(b.added);
    if (status == IM_OK)
        *out = b.t;
    else
        im__tokenizer_free(b.t);
    return status;
}

/* ---- a folder ---- */

typedef struct folder {
    const char *path;
    im__buf name; /* of the file at hand */
    im__file_map tokenizer, config, special_tokens_map, template;
} folder;

/* Maps a file of the folder; one that is absent stays empty unless it must be there. */
static im_status open_file(folder *f, const char *file, bool must, im__file_map *map, im_error *err)
{
    f->name.len = 0;
    im__buf_printf(&f->name, "%s/%s", f->path, file);
    if (f->name.failed) return im__fail(err, IM_ERR_MEMORY, "%s: not enough memory to open its files", f->path);
    if (!must && access(f->name.data, F_OK) != 0) return IM_OK;
    return im__file_map_open(map, f->name.data, err);
}

static im__bytes bytes_of(const im__file_map *map) { return (im__bytes){(const char *)map->data, map->size}; }

static im_status put_template(im__json v, im__buf *out, im_error *err)
{
    if (v.len > LARGEST_TEMPLATE)
        return im__fail(err, IM_ERR_FORMAT, "tokenizer_config.json: a chat template of %zu bytes is too large", v.len);
    if (!im__json_text(v, out))
        return im__fail(err, IM_ERR_FORMAT, "tokenizer_config.json: the chat template is %s", im__json_kind_name(v));
    return IM_OK;
}

/* Of several named templates the default one, or the only one. */
static im_status choose_template(im__json list, im__buf *out, im_error *err)
{
    im__json v, name, text = {NULL, 0};
    size_t count = 0;
    for (im__json_items items = im__json_items_of(list); im__json_next(&items, NULL, &v); count++) {
        im__json_member(v, "template", &text);
        im__json_member(v, "name", &name);
        if (im__json_is(name, "default")) return put_template(text, out, err);
    }
    if (count == 1) return put_template(text, out, err);
    return im__fail(err, IM_ERR_UNSUPPORTED, "tokenizer_config.json: none of its %zu chat templates is named default", count);
}

static im_status read_template(folder *f, im__buf *out, im_error *err)
{
    im__json root, v;
    IM__TRY(open_file(f, "chat_template.jinja", false, &f->template, err));
    if (f->template.size > LARGEST_TEMPLATE)
        return im__fail(err, IM_ERR_FORMAT, "%s: a chat template of %zu bytes is too large", f->name.data, f->template.size);
    if (f->template.size > 0) {
        im__buf_append(out, f->template.data, f->template.size);
        return IM_OK;
    }
    if (f->config.size == 0) return IM_OK;
    IM__TRY(im__json_check((const char *)f->config.data, f->config.size, "tokenizer_config.json", &root, err));
    if (im__json_member(root, "chat_template", &v) == 0 || im__json_kind_of(v) == IM__JSON_NULL) return IM_OK;
    return im__json_kind_of(v) == IM__JSON_ARRAY ? choose_template(v, out, err) : put_template(v, out, err);
}

static im_status read_folder(folder *f, im__tokenizer **out, im__buf *chat_template, const im__tokenizer_json_options *options,
                             im_error *err)
{
    IM__TRY(open_file(f, "tokenizer_config.json", false, &f->config, err));
    IM__TRY(open_file(f, "special_tokens_map.json", false, &f->special_tokens_map, err));
    if (chat_template != NULL) IM__TRY(read_template(f, chat_template, err));
    if (chat_template != NULL && chat_template->failed)
        return im__fail(err, IM_ERR_MEMORY, "%s: not enough memory for its chat template", f->path);
    IM__TRY(open_file(f, "tokenizer.json", true, &f->tokenizer, err));
    const im__tokenizer_json_texts texts = {f->name.data, bytes_of(&f->tokenizer), bytes_of(&f->config),
                                            bytes_of(&f->special_tokens_map)};
    return im__tokenizer_json_parse(out, &texts, options, err);
}

im_status im__tokenizer_json_read(im__tokenizer **out, im__buf *chat_template, const char *path,
                                  const im__tokenizer_json_options *options, im_error *err)
{
    folder f = {.path = path};
    im_status status = read_folder(&f, out, chat_template, options, err);
    im__buf_free(&f.name);
    im__file_map_close(&f.tokenizer);
    im__file_map_close(&f.config);
    im__file_map_close(&f.special_tokens_map);
    im__file_map_close(&f.template);
    return status;
}
