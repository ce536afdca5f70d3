/* SPDX-License-Identifier: Apache-2.0 */
#include "job.h"

#include <stdlib.h>
#include <string.h>

/* POST /tokenize, /detokenize, /apply-template: answered by the worker alone. */

static bool no_memory(job *j) { return problem_set(&j->problem, 503, NULL, "memory", "out of memory"); }

/* Takes the document. */
static bool reply(job *j, json_t *doc)
{
    j->reply = doc == NULL ? NULL : json_dumps(doc, JSON_COMPACT);
    json_decref(doc);
    return j->reply != NULL || no_memory(j);
}

/* These routes are ours alone: a field that none of them knows is a mistake. */
static bool known_fields(job *j, const char *const *known)
{
    const char *key;
    json_t *value;
    json_object_foreach(j->f.doc, key, value)
    {
        size_t i = 0;
        (void)value;
        while (known[i] != NULL && strcmp(known[i], key) != 0) i++;
        if (known[i] == NULL && strcmp(key, "model") != 0)
            return problem_set(&j->problem, 400, NULL, "unknown_field", "'%.60s' is no field of this route", key);
    }
    return true;
}

/* Absent and null leave *out as it is. */
static bool flag(job *j, const char *name, bool *out)
{
    const json_t *v = json_object_get(j->f.doc, name);
    return v == NULL || json_is_null(v) || value_bool(v, name, out, &j->problem);
}

static json_t *id_list(const int32_t *ids, size_t n)
{
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++) json_array_append_new(list, json_integer(ids[i]));
    return list;
}

static json_t *piece_list(const job *j, const int32_t *ids, size_t count)
{
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++) {
        const char *piece;
        size_t n;
        bool there = im_model_piece(j->s->o->model, ids[i], &piece, &n);
        json_array_append_new(list, there ? text_of_bytes(piece, n) : json_string(""));
    }
    return list;
}

void job_tokenize(job *j)
{
    static const char *const known[] = {"text", "plain", "bos", "pieces", NULL};
    bool plain = false, bos = true, pieces = false;
    const char *text;
    size_t n, count;
    int32_t *ids;
    im_error err;
    if (!job_read_body(j) || !known_fields(j, known) || !flag(j, "plain", &plain) || !flag(j, "bos", &bos) ||
        !flag(j, "pieces", &pieces))
        return;
    if (!value_text(json_object_get(j->f.doc, "text"), "text", &text, &n, &j->problem)) return;
    unsigned flags = (plain ? IM_ENCODE_PLAIN : 0u) | (bos ? 0u : IM_ENCODE_NO_BOS);
    if (im_model_encode(j->s->o->model, text, n, flags, &ids, &count, &err) != IM_OK) {
        job_failed(j, &err);
        return;
    }
    json_t *doc = json_pack("{s:o, s:I}", "tokens", id_list(ids, count), "count", (json_int_t)count);
    if (doc != NULL && pieces) json_object_set_new(doc, "pieces", piece_list(j, ids, count));
    im_free(ids);
    reply(j, doc);
}

static int32_t *read_tokens(job *j, size_t *count)
{
    const json_t *list = json_object_get(j->f.doc, "tokens");
    if (!json_is_array(list)) {
        problem_set(&j->problem, 400, "tokens", "invalid_type", "tokens must be a list of token ids");
        return NULL;
    }
    *count = json_array_size(list);
    int32_t *ids = calloc(*count + 1, sizeof *ids);
    if (ids == NULL) no_memory(j);
    for (size_t i = 0; ids != NULL && i < *count; i++) {
        int64_t id = 0;
        if (value_int(json_array_get(list, i), "tokens", 0, (int64_t)j->s->model.vocabulary - 1, &id, &j->problem)) {
            ids[i] = (int32_t)id;
            continue;
        }
        free(ids);
        ids = NULL;
    }
    return ids;
}

void job_detokenize(job *j)
{
    static const char *const known[] = {"tokens", NULL};
    size_t count = 0, n;
    char *text;
    im_error err;
    if (!job_read_body(j) || !known_fields(j, known)) return;
    int32_t *ids = read_tokens(j, &count);
    if (ids == NULL) return;
    im_status status = im_model_decode(j->s->o->model, ids, count, &text, &n, &err);
    free(ids);
    if (status != IM_OK) {
        job_failed(j, &err);
        return;
    }
    json_t *doc = json_pack("{s:o}", "text", text_of_bytes(text, n));
    im_free(text);
    reply(j, doc);
}

/* What json_dumps gives for the field, which must be of this type; NULL when it is absent or null. */
static bool dump(job *j, const char *name, json_type type, char **out)
{
    const json_t *v = json_object_get(j->f.doc, name);
    if (v == NULL || json_is_null(v)) return true;
    if (json_typeof(v) != type)
        return problem_set(&j->problem, 400, name, "invalid_type", "%s must be %s", name,
                           type == JSON_ARRAY ? "a list" : "an object");
    *out = json_dumps(v, JSON_COMPACT | JSON_ENCODE_ANY);
    return *out != NULL || no_memory(j);
}

static void render(job *j, const char *messages, const im_chat_options *o)
{
    char *text;
    int32_t *ids;
    size_t n, count;
    im_error err;
    if (im_model_chat(j->s->o->model, messages, o, &text, &n, &ids, &count, &err) != IM_OK) {
        job_failed(j, &err);
        return;
    }
    reply(j, json_pack("{s:o, s:o, s:I}", "prompt", text_of_bytes(text, n), "tokens", id_list(ids, count), "count",
                       (json_int_t)count));
    im_free(text);
    im_free(ids);
}

void job_template(job *j)
{
    static const char *const known[] = {"messages",      "tools", "chat_template_kwargs", "add_generation_prompt",
                                        "parse_special", NULL};
    bool prompt = true;
    char *messages = NULL, *tools = NULL, *variables = NULL;
    im_chat_options o;
    im_chat_options_defaults(&o);
    o.chat_template = j->s->o->chat_template;
    if (!job_read_body(j) || !known_fields(j, known)) return;
    const json_t *list = json_object_get(j->f.doc, "messages");
    if (list == NULL)
        problem_set(&j->problem, 400, "messages", "missing_field", "messages is missing");
    else if (fields_messages(list, &j->problem) && flag(j, "add_generation_prompt", &prompt) &&
             flag(j, "parse_special", &o.parse_special) && dump(j, "messages", JSON_ARRAY, &messages) &&
             dump(j, "tools", JSON_ARRAY, &tools) && dump(j, "chat_template_kwargs", JSON_OBJECT, &variables)) {
        o.tools = tools;
        o.variables = variables;
        o.no_generation_prompt = !prompt;
        render(j, messages, &o);
    }
    free(messages);
    free(tools);
    free(variables);
}
