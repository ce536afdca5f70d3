/* SPDX-License-Identifier: Apache-2.0 */
#include "job.h"

#include "memory.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *finish_reason(im_stop_reason reason) { return reason == IM_STOP_LENGTH ? "length" : "stop"; }

/* ---- usage ---------------------------------------------------------------------------------------------------------------------------------------- */

json_t *usage_object(const job *j)
{
    size_t prompt = 0, cached = 0, completion = 0;
    for (size_t i = 0; i < j->submitted; i++) {
        const choice *c = &j->choices[i];
        completion += c->result.count;
        if (i > 0 && c->prompt == j->choices[i - 1].prompt) continue; /* several answers to one prompt */
        prompt += c->result.prompt_tokens;
        cached += c->result.cached_tokens;
    }
    return json_pack("{s:I, s:I, s:I, s:{s:I}}", "prompt_tokens", (json_int_t)prompt, "completion_tokens", (json_int_t)completion,
                     "total_tokens", (json_int_t)(prompt + completion), "prompt_tokens_details", "cached_tokens",
                     (json_int_t)cached);
}

/* ---- what is ours -------------------------------------------------------------------------------------------------------------------------------------- */

static json_t *hash_of(const choice *c)
{
    char text[17];
    snprintf(text, sizeof text, "%016" PRIx64, c->result.logits_hash);
    return json_string(text);
}

static json_t *ids_of(const choice *c)
{
    json_t *list = json_array();
    for (size_t i = 0; i < c->result.count; i++) json_array_append_new(list, json_integer(c->result.ids[i]));
    return list;
}

static double rate(size_t tokens, double ms) { return ms > 0 ? (double)tokens * 1e3 / ms : 0; }

static json_t *timings_of(const choice *c)
{
    const im_result *r = &c->result;
    size_t computed = r->prompt_tokens - r->cached_tokens;
    return json_pack("{s:f, s:f, s:f, s:f, s:f, s:f}", "queue_ms", r->queue_ms, "prompt_ms", r->prompt_ms, "first_token_ms",
                     r->first_token_ms, "generate_ms", r->generate_ms, "prompt_tokens_per_s", rate(computed, r->prompt_ms),
                     "tokens_per_s", rate(r->count > 0 ? r->count - 1 : 0, r->generate_ms));
}

/* One value when there is one choice, a list in the order of the choices when there are several. */
static void add_each(const job *j, json_t *to, const char *name, json_t *(*of)(const choice *))
{
    json_t *list = json_array();
    for (size_t i = 0; i < j->submitted; i++) json_array_append_new(list, of(&j->choices[i]));
    json_object_set(to, name, j->submitted == 1 ? json_array_get(list, 0) : list);
    json_decref(list);
}

static json_t *sampling_in_force(const job *j)
{
    const im_sampling *s = &j->f.sampling;
    return json_pack("{s:f, s:f, s:i, s:f, s:I, s:f, s:f, s:f}", "temperature", (double)s->temperature, "top_p", (double)s->top_p,
                     "top_k", (int)s->top_k, "min_p", (double)s->min_p, "seed", (json_int_t)s->seed, "repetition_penalty",
                     (double)s->repetition_penalty, "frequency_penalty", (double)s->frequency_penalty, "presence_penalty",
                     (double)s->presence_penalty);
}

json_t *extras_object(const job *j)
{
    const fields *f = &j->f;
    if (!f->extras && f->ignored == NULL) return NULL;
    json_t *o = json_object();
    if (f->want_hash) add_each(j, o, "logits_hash", hash_of);
    if (f->want_timings) add_each(j, o, "timings", timings_of);
    if (f->want_ids) add_each(j, o, "token_ids", ids_of);
    if (f->extras) json_object_set_new(o, "sampling", sampling_in_force(j));
    if (f->ignored != NULL) json_object_set(o, "ignored", f->ignored);
    return o;
}

/* ---- the whole answer ------------------------------------------------------------------------------------------------------------------------------------- */

static json_t *choice_object(job *j, choice *c)
{
    for (letter *l = c->tokens; l != NULL && c->entries != NULL; l = l->next) logprobs_add(j, c, (token_letter *)l);
    choice_free_tokens(c);
    const im_result *r = &c->result;
    json_t *text = text_of_bytes(r->text, r->text_len);
    c->sent = r->text_len;
    json_t *logprobs = logprobs_take(j, c, true);
    const char *reason = finish_reason(r->stop_reason);
    if (!j->f.chat)
        return json_pack("{s:i, s:o, s:o, s:s}", "index", (int)c->index, "text", text, "logprobs", logprobs, "finish_reason",
                         reason);
    return json_pack("{s:i, s:{s:s, s:o, s:n}, s:o, s:s}", "index", (int)c->index, "message", "role", "assistant", "content", text,
                     "refusal", "logprobs", logprobs, "finish_reason", reason);
}

static json_t *answer_object(job *j)
{
    im_engine_info info;
    im_engine_get_info(atomic_load(&j->s->engine), &info);
    json_t *choices = json_array(), *extras = extras_object(j);
    for (size_t i = 0; i < j->submitted; i++) json_array_append_new(choices, choice_object(j, &j->choices[i]));
    json_t *doc = json_pack("{s:s, s:s, s:I, s:s, s:s?, s:o, s:o}", "id", j->id, "object",
                            j->f.chat ? "chat.completion" : "text_completion", "created", (json_int_t)j->created, "model",
                            j->s->model_id, "system_fingerprint", info.fingerprint, "choices", choices, "usage", usage_object(j));
    if (extras != NULL) json_object_set_new(doc, "ironmule", extras);
    return doc;
}

void answer_compose(job *j)
{
    json_t *doc = answer_object(j);
    j->reply = doc == NULL ? NULL : json_dumps(doc, JSON_COMPACT);
    json_decref(doc);
    for (size_t i = 0; i < j->choice_count; i++) {
        json_decref(j->choices[i].entries);
        j->choices[i].entries = NULL;
    }
    if (memory_was_short() || j->reply == NULL) problem_set(&j->problem, 503, NULL, "memory", "out of memory");
}

void answer_write(job *j) { conn_answer(j->conn, 200, "application/json", j->reply, strlen(j->reply), NULL); }
