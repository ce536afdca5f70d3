/* SPDX-License-Identifier: Apache-2.0 */
#include "job.h"

#include "memory.h"

#include <stdlib.h>
#include <string.h>

/* ---- problems --------------------------------------------------------------------------------------------------------------------------------- */

int status_of(im_status status, const char **code)
{
    switch (status) {
    case IM_ERR_ARGUMENT: *code = "invalid_value"; return 400;
    case IM_ERR_CONTEXT: *code = "context_length_exceeded"; return 400;
    case IM_ERR_TEMPLATE: *code = "template_refused"; return 400;
    case IM_ERR_UNSUPPORTED: *code = "unsupported"; return 400;
    case IM_ERR_BUSY: *code = "queue_full"; return 503;
    case IM_ERR_MEMORY: *code = "memory"; return 503;
    case IM_ERR_CANCELLED: *code = "stopping"; return 503;
    case IM_ERR_DEVICE: *code = "device"; return 503;
    case IM_ERR_TIMEOUT: *code = "timeout"; return 504;
    case IM_ERR_NUMERIC: *code = "numeric"; return 500;
    default: *code = "internal"; return 500;
    }
}

/* Clients are not told where the file lies. */
static const char *without_path(const job *j, const char *message)
{
    const char *path = j->s->model.path;
    size_t n = strlen(path);
    return strncmp(message, path, n) == 0 && strncmp(message + n, ": ", 2) == 0 ? message + n + 2 : message;
}

bool job_failed(job *j, const im_error *err)
{
    const char *code;
    int status = status_of(err->status, &code);
    bool about_prompt = status == 400;
    const char *param = !about_prompt ? NULL : j->kind == JOB_COMPLETION ? "prompt" : "messages";
    return problem_set(&j->problem, status, param, code, "%s", without_path(j, err->message));
}

static bool no_memory(job *j) { return problem_set(&j->problem, 503, NULL, "memory", "out of memory"); }

/* ---- reading ------------------------------------------------------------------------------------------------------------------------------------ */

const fields_rules *job_rules(job *j, fields_rules *rules, const char *names[SERVE_MAX_NAMES + 3])
{
    const serve_options *o = j->s->o;
    size_t n = 0;
    names[n++] = j->s->model_id;
    for (size_t i = 0; i < o->aliases.count; i++) names[n++] = o->aliases.item[i];
    names[n] = NULL;
    *rules = (fields_rules){
        .models = names, .any_model = o->any_model, .vocabulary = j->s->model.vocabulary, .max_choices = o->max_choices};
    return rules;
}

bool job_read_body(job *j)
{
    const char *names[SERVE_MAX_NAMES + 3];
    fields_rules rules;
    j->f.doc = body_object(j->body, j->body_len, &j->problem);
    free(j->body);
    j->body = NULL;
    if (j->f.doc == NULL) return false;
    const json_t *model = json_object_get(j->f.doc, "model");
    return model == NULL || json_is_null(model) || fields_model(model, job_rules(j, &rules, names), &j->problem);
}

/* ---- encoding ------------------------------------------------------------------------------------------------------------------------------------- */

static bool encode_chat(job *j)
{
    im_chat_options o;
    im_error err;
    im_chat_options_defaults(&o);
    o.parse_special = j->f.parse_special;
    o.chat_template = j->s->o->chat_template;
    char *messages = json_dumps(j->f.messages, JSON_COMPACT), *variables = NULL;
    if (j->f.variables != NULL) o.variables = variables = json_dumps(j->f.variables, JSON_COMPACT);
    bool good = messages != NULL && (j->f.variables == NULL || variables != NULL);
    im_status status =
        !good ? IM_OK : im_model_chat(j->s->o->model, messages, &o, NULL, NULL, &j->prompts[0], &j->prompt_lens[0], &err);
    free(messages);
    free(variables);
    return !good ? no_memory(j) : status == IM_OK || job_failed(j, &err);
}

static bool encode_prompt(job *j, size_t i)
{
    const fields_prompt *p = &j->f.prompts[i];
    im_error err;
    if (p->ids == NULL)
        return im_model_encode(j->s->o->model, p->text, p->text_len, IM_ENCODE_DEFAULT, &j->prompts[i], &j->prompt_lens[i], &err) ==
                   IM_OK ||
               job_failed(j, &err);
    j->prompt_lens[i] = p->count; /* used where they are */
    return true;
}

static bool encode(job *j)
{
    j->prompts = calloc(j->f.prompt_count, sizeof *j->prompts);
    j->prompt_lens = calloc(j->f.prompt_count, sizeof *j->prompt_lens);
    if (j->prompts == NULL || j->prompt_lens == NULL) return no_memory(j);
    if (j->kind == JOB_CHAT) return encode_chat(j);
    for (size_t i = 0; i < j->f.prompt_count; i++) {
        if (!encode_prompt(j, i)) return false;
        if (j->prompt_lens[i] == 0)
            return problem_set(&j->problem, 400, "prompt", "invalid_value", "prompt: at least one token is needed");
    }
    return true;
}

/* ---- submitting ---------------------------------------------------------------------------------------------------------------------------------------- */

/* As many as were asked for, no more than the context leaves room for. */
static uint32_t tokens_for(const job *j, size_t prompt)
{
    im_engine_info info;
    im_engine_get_info(atomic_load(&j->s->engine), &info);
    uint64_t room = prompt < info.context ? info.context - prompt : 1, wanted = j->f.max_tokens;
    if (wanted == 0) wanted = j->s->o->default_max_tokens;
    return (uint32_t)(wanted == 0 || wanted > room ? room : wanted);
}

/* In the words that clients look for to tell this refusal from others. */
static bool too_long(job *j, size_t prompt)
{
    im_engine_info info;
    im_engine_get_info(atomic_load(&j->s->engine), &info);
    const char *option = j->s->o->engine.kv_tokens == info.context ? "--kv-tokens" : "--context";
    return problem_set(
        &j->problem, 400, j->kind == JOB_CHAT ? "messages" : "prompt", "context_length_exceeded",
        "this model's maximum context length is %u tokens on this server (%s sets it; the model was made for %u); the "
        "prompt has %zu, and one must be left for the answer",
        info.context, option, j->s->model.context, prompt);
}

static bool submit(job *j, choice *c)
{
    const fields *f = &j->f;
    im_request_options o;
    im_error err;
    im_request_options_defaults(&o);
    const int32_t *ids = j->prompts[c->prompt];
    if (ids == NULL) ids = f->prompts[c->prompt].ids;
    o.prompt = ids;
    o.prompt_len = j->prompt_lens[c->prompt];
    o.max_tokens = tokens_for(j, o.prompt_len);
    o.sampling = f->sampling;
    o.sampling.seed += c->index; /* several answers to one question differ */
    o.ignore_eos = f->ignore_eos;
    o.stop = f->stop[0] != NULL ? f->stop : NULL;
    o.no_hash = !f->want_hash;
    o.want_logprobs = f->logprobs;
    o.top_logprobs = f->top_logprobs;
    o.no_cache = f->no_cache;
    o.client = j->client;
    if (j->s->o->request_s > 0) {
        double left = j->s->o->request_s * 1e3 - (server_now_ms() - j->arrived);
        o.deadline_ms = left > 1 ? left : 1;
    }
    job_hooks(j, c, &o);
    if (f->logprobs) c->entries = json_array();
    im_status status = im_request_submit(atomic_load(&j->s->engine), &o, &c->request, &err);
    if (status == IM_ERR_CONTEXT) return too_long(j, o.prompt_len);
    return status == IM_OK || job_failed(j, &err);
}

static void submit_all(job *j)
{
    j->choice_count = j->f.prompt_count * j->f.n;
    j->choices = calloc(j->choice_count, sizeof *j->choices);
    if (j->choices == NULL) {
        j->choice_count = 0;
        no_memory(j);
        return;
    }
    for (size_t i = 0; i < j->choice_count; i++) {
        choice *c = &j->choices[i];
        c->job = j;
        c->index = (uint32_t)i;
        c->tokens_last = &c->tokens;
        c->prompt = (uint32_t)(i / j->f.n);
    }
    while (j->submitted < j->choice_count && !atomic_load(&j->cancelled) && submit(j, &j->choices[j->submitted])) j->submitted++;
}

static void prepare_text(job *j)
{
    const char *names[SERVE_MAX_NAMES + 3];
    fields_rules rules;
    json_t *doc = body_object(j->body, j->body_len, &j->problem);
    free(j->body);
    j->body = NULL;
    if (doc == NULL) return;
    if (fields_read(&j->f, doc, j->kind == JOB_CHAT, job_rules(j, &rules, names), &j->problem) && encode(j)) submit_all(j);
    j->f.rules = NULL; /* it ends here */
}

/* What was read is used up: the engine has copies of its own, or the reply is written. */
static void release(job *j)
{
    for (size_t i = 0; j->prompts != NULL && i < j->f.prompt_count; i++) im_free(j->prompts[i]);
    free(j->prompts);
    free(j->prompt_lens);
    j->prompts = NULL;
    j->prompt_lens = NULL;
    fields_release(&j->f);
    if (!memory_was_short()) return;
    j->problem = (problem){.status = 0}; /* whatever it looked like */
    no_memory(j);
}

void job_prepare(task *t)
{
    job *j = (job *)t;
    if (!atomic_load(&j->cancelled)) switch (j->kind) {
        case JOB_CHAT:
        case JOB_COMPLETION: prepare_text(j); break;
        case JOB_TOKENIZE: job_tokenize(j); break;
        case JOB_DETOKENIZE: job_detokenize(j); break;
        case JOB_TEMPLATE: job_template(j); break;
        }
    release(j);
    mailbox_post(&j->s->mailbox, &j->prepared);
}
