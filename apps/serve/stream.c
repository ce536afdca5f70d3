/* SPDX-License-Identifier: Apache-2.0 */
#include "job.h"

#include "memory.h"

#include <stdlib.h>
#include <string.h>

/* ---- events ------------------------------------------------------------------------------------------------------------------------------------------ */

/* One server-sent event. Takes the document. */
static void send_event(job *j, json_t *doc)
{
    char *text = json_dumps(doc, JSON_COMPACT);
    size_t n = text == NULL ? 0 : strlen(text);
    char *event = malloc(n + 9);
    if (text == NULL || event == NULL || memory_was_short()) {
        conn_break(j->conn, "memory"); /* rather than an answer with a hole */
    } else {
        memcpy(event, "data: ", 6);
        memcpy(event + 6, text, n);
        memcpy(event + 6 + n, "\n\n", 2);
        conn_stream_write(j->conn, event, n + 8);
    }
    free(event);
    free(text);
    json_decref(doc);
}

static json_t *chunk(job *j, json_t *choices)
{
    im_engine_info info;
    im_engine_get_info(atomic_load(&j->s->engine), &info);
    json_t *doc = json_pack("{s:s, s:s, s:I, s:s, s:s?, s:o}", "id", j->id, "object",
                            j->f.chat ? "chat.completion.chunk" : "text_completion", "created", (json_int_t)j->created, "model",
                            j->s->model_id, "system_fingerprint", info.fingerprint, "choices", choices);
    if (j->f.include_usage) json_object_set_new(doc, "usage", json_null());
    return doc;
}

/* `text` NULL: none; `reason` NULL: not the last one. */
static json_t *choice_chunk(job *j, choice *c, json_t *text, json_t *logprobs, const char *reason)
{
    if (!j->f.chat)
        return json_pack("{s:i, s:o, s:o, s:s?}", "index", (int)c->index, "text", text != NULL ? text : json_string(""), "logprobs",
                         logprobs, "finish_reason", reason);
    json_t *delta = json_object();
    if (!c->opened) json_object_set_new(delta, "role", json_string("assistant"));
    if (text != NULL) json_object_set_new(delta, "content", text);
    return json_pack("{s:i, s:o, s:o, s:s?}", "index", (int)c->index, "delta", delta, "logprobs", logprobs, "finish_reason",
                     reason);
}

static void send_choice(job *j, choice *c, json_t *text, json_t *logprobs, const char *reason)
{
    json_t *choices = json_array();
    json_array_append_new(choices, choice_chunk(j, c, text, logprobs, reason));
    c->opened = true;
    json_t *doc = chunk(j, choices), *extras = NULL;
    /* What is ours stands in the last chunk: this one, unless one with the usage follows. */
    if (reason != NULL && j->ended == j->submitted && !j->f.include_usage) extras = extras_object(j);
    if (extras != NULL) json_object_set_new(doc, "ironmule", extras);
    send_event(j, doc);
}

/* ---- the stream ---------------------------------------------------------------------------------------------------------------------------------------- */

void stream_begin(job *j)
{
    if (j->begun) return;
    j->begun = true;
    conn_stream_begin(j->conn, "text/event-stream");
}

/* The first chunk names the role, with no text. */
static void open_choice(job *j, choice *c)
{
    stream_begin(j);
    if (!c->opened && j->f.chat) send_choice(j, c, json_string(""), json_null(), NULL);
    c->opened = true;
}

/* A token that brings no text yet (half a character, the beginning of a stop text) has its event too: whoever measures sees each of them. */
void stream_token(job *j, choice *c, const token_letter *t)
{
    open_choice(j, c);
    c->sent += t->text_len;
    send_choice(j, c, text_of_bytes(t->text, t->text_len), logprobs_take(j, c, false), NULL);
}

/* What no token's event brought: the rest of a character, or of what might have become a stop text. */
void stream_choice_end(job *j, choice *c)
{
    if (c->status != IM_OK) return;
    const im_result *r = &c->result;
    open_choice(j, c);
    json_t *text = r->text_len > c->sent ? text_of_bytes(r->text + c->sent, r->text_len - c->sent) : NULL;
    if (r->text_len > c->sent) c->sent = r->text_len;
    json_t *logprobs = logprobs_take(j, c, true);
    bool more = text != NULL || json_array_size(json_object_get(logprobs, j->f.chat ? "content" : "tokens")) > 0;
    if (more)
        send_choice(j, c, text != NULL ? text : json_string(""), logprobs, NULL);
    else
        json_decref(logprobs);
    send_choice(j, c, NULL, json_null(), finish_reason(r->stop_reason));
}

static void send_last(job *j)
{
    if (j->f.include_usage) {
        json_t *doc = chunk(j, json_array()), *extras = extras_object(j);
        json_object_set_new(doc, "usage", usage_object(j));
        if (extras != NULL) json_object_set_new(doc, "ironmule", extras);
        send_event(j, doc);
    }
    conn_stream_write(j->conn, "data: [DONE]\n\n", 14);
}

void stream_finish(job *j, const choice *wrong)
{
    const char *code;
    if (wrong == NULL) {
        send_last(j);
    } else {
        int status = status_of(wrong->status, &code);
        char *text =
            error_body(status, wrong->status == IM_ERR_CANCELLED ? "the server is stopping" : wrong->error.message, NULL, code);
        if (text != NULL) {
            conn_stream_write(j->conn, "data: ", 6);
            conn_stream_write(j->conn, text, strlen(text));
            conn_stream_write(j->conn, "\n\n", 2);
        }
        free(text);
    }
    conn_stream_end(j->conn);
}
