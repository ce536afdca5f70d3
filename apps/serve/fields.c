/* SPDX-License-Identifier: Apache-2.0 */
#include "fields.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define INVALID(f, name, ...) problem_set((f)->problem, 400, name, "invalid_value", __VA_ARGS__)

static bool ignore(fields *f, const char *name)
{
    if (f->ignored == NULL) f->ignored = json_array();
    json_array_append_new(f->ignored, json_string(name));
    return true;
}

/* ---- model ----------------------------------------------------------------------------------------------------------------------------------- */

bool fields_model(const json_t *value, const fields_rules *rules, problem *p)
{
    const char *name;
    size_t n;
    if (!value_text(value, "model", &name, &n, p)) return false;
    for (size_t i = 0; rules->models[i] != NULL; i++)
        if (strcmp(rules->models[i], name) == 0) return true;
    if (n == 0 || rules->any_model) return true;
    return problem_set(p, 404, "model", "model_not_found", "the model '%.100s' is not served here; '%s' is (see /v1/models)", name,
                       rules->models[0]);
}

static bool read_model(fields *f, json_t *v) { return fields_model(v, f->rules, f->problem); }

/* ---- sampling ---------------------------------------------------------------------------------------------------------------------------------- */

static bool number_into(fields *f, json_t *v, const char *name, double lo, double hi, float *out)
{
    double number;
    if (!value_number(v, name, lo, hi, &number, f->problem)) return false;
    *out = (float)number;
    return true;
}

static bool read_temperature(fields *f, json_t *v) { return number_into(f, v, "temperature", 0, 2, &f->sampling.temperature); }

static bool read_top_p(fields *f, json_t *v)
{
    if (!number_into(f, v, "top_p", 0, 1, &f->sampling.top_p)) return false;
    if (f->sampling.top_p < 1e-9f) f->sampling.top_p = 1e-9f; /* 0: the most likely one alone */
    return true;
}

static bool read_min_p(fields *f, json_t *v) { return number_into(f, v, "min_p", 0, 0.999999, &f->sampling.min_p); }

static bool read_top_k(fields *f, json_t *v)
{
    int64_t k;
    if (!value_int(v, "top_k", -1, INT32_MAX, &k, f->problem)) return false;
    f->sampling.top_k = k < 0 ? 0 : (int32_t)k;
    return true;
}

static bool read_presence(fields *f, json_t *v)
{
    return number_into(f, v, "presence_penalty", -2, 2, &f->sampling.presence_penalty);
}

static bool read_frequency(fields *f, json_t *v)
{
    return number_into(f, v, "frequency_penalty", -2, 2, &f->sampling.frequency_penalty);
}

static bool read_repetition(fields *f, json_t *v)
{
    return number_into(f, v, "repetition_penalty", 0.01, 100, &f->sampling.repetition_penalty);
}

static bool read_seed(fields *f, json_t *v)
{
    int64_t seed;
    if (!value_int(v, "seed", INT64_MIN, INT64_MAX, &seed, f->problem)) return false;
    f->sampling.seed = (uint64_t)seed;
    f->seeded = true;
    return true;
}

static bool read_bias(fields *f, json_t *v)
{
    const char *key;
    json_t *value;
    if (!json_is_object(v)) return INVALID(f, "logit_bias", "logit_bias must be an object of token ids and numbers");
    f->bias = calloc(json_object_size(v) + 1, sizeof *f->bias);
    if (f->bias == NULL) return problem_set(f->problem, 503, NULL, "memory", "out of memory");
    json_object_foreach(v, key, value)
    {
        char *end;
        double bias;
        errno = 0;
        long long id = strtoll(key, &end, 10);
        if (key[0] < '0' || key[0] > '9' || *end != 0 || errno != 0 || id >= (long long)f->rules->vocabulary)
            return INVALID(f, "logit_bias", "logit_bias: '%.40s' is no token id below %u", key, f->rules->vocabulary);
        if (!value_number(value, "logit_bias", -100, 100, &bias, f->problem)) return false;
        f->bias[f->sampling.bias_count++] = (im_logit_bias){(int32_t)id, (float)bias};
    }
    f->sampling.bias = f->bias;
    return true;
}

/* ---- length and stopping -------------------------------------------------------------------------------------------------------------------------- */

static bool length_into(fields *f, json_t *v, const char *name)
{
    int64_t n;
    if (!value_int(v, name, 1, INT64_MAX, &n, f->problem)) return false;
    if (f->max_tokens != 0 && f->max_tokens != (uint64_t)n)
        return INVALID(f, name, "max_tokens and max_completion_tokens differ; give one of them");
    f->max_tokens = (uint64_t)n;
    return true;
}

static bool read_max_tokens(fields *f, json_t *v) { return length_into(f, v, "max_tokens"); }
static bool read_max_completion(fields *f, json_t *v) { return length_into(f, v, "max_completion_tokens"); }

static bool add_stop(fields *f, const json_t *v, size_t at)
{
    if (!json_is_string(v)) return problem_set(f->problem, 400, "stop", "invalid_type", "stop must be a text, or a list of texts");
    if (json_string_length(v) == 0) return INVALID(f, "stop", "stop: an empty text would end every answer at once");
    if (strlen(json_string_value(v)) != json_string_length(v)) return INVALID(f, "stop", "stop: a text holds U+0000");
    f->stop[at] = json_string_value(v);
    return true;
}

static bool read_stop(fields *f, json_t *v)
{
    if (!json_is_array(v)) return add_stop(f, v, 0);
    if (json_array_size(v) > FIELDS_MAX_STOPS) return INVALID(f, "stop", "stop: at most %d texts", FIELDS_MAX_STOPS);
    for (size_t i = 0; i < json_array_size(v); i++)
        if (!add_stop(f, json_array_get(v, i), i)) return false;
    return true;
}

static bool read_ignore_eos(fields *f, json_t *v) { return value_bool(v, "ignore_eos", &f->ignore_eos, f->problem); }

/* ---- shape of the answer ---------------------------------------------------------------------------------------------------------------------------- */

static bool read_n(fields *f, json_t *v)
{
    int64_t n;
    if (!value_int(v, "n", 1, f->rules->max_choices, &n, f->problem)) return false;
    f->n = (uint32_t)n;
    return true;
}

static bool read_stream(fields *f, json_t *v) { return value_bool(v, "stream", &f->stream, f->problem); }

static bool read_stream_options(fields *f, json_t *v)
{
    const json_t *usage = json_object_get(v, "include_usage");
    if (!json_is_object(v))
        return problem_set(f->problem, 400, "stream_options", "invalid_type", "stream_options must be an object");
    f->stream_options = true;
    return usage == NULL || json_is_null(usage) || value_bool(usage, "stream_options.include_usage", &f->include_usage, f->problem);
}

static bool read_logprobs(fields *f, json_t *v)
{
    int64_t n;
    if (f->chat) return value_bool(v, "logprobs", &f->logprobs, f->problem);
    if (json_is_false(v)) return true;
    if (!value_int(v, "logprobs", 0, FIELDS_MAX_TOP, &n, f->problem)) return false;
    f->logprobs = true;
    f->top_logprobs = (uint32_t)n;
    return true;
}

static bool read_top_logprobs(fields *f, json_t *v)
{
    int64_t n;
    if (!value_int(v, "top_logprobs", 0, FIELDS_MAX_TOP, &n, f->problem)) return false;
    f->top_logprobs = (uint32_t)n;
    f->top_given = true;
    return true;
}

static bool read_extras(fields *f, json_t *v)
{
    const struct {
        const char *name, *full;
        bool *to;
    } known[] = {{"logits_hash", "ironmule.logits_hash", &f->want_hash},
                 {"timings", "ironmule.timings", &f->want_timings},
                 {"token_ids", "ironmule.token_ids", &f->want_ids},
                 {"parse_special", "ironmule.parse_special", &f->parse_special},
                 {"no_cache", "ironmule.no_cache", &f->no_cache}};
    const char *key;
    json_t *value;
    if (!json_is_object(v)) return problem_set(f->problem, 400, "ironmule", "invalid_type", "ironmule must be an object");
    f->extras = true;
    json_object_foreach(v, key, value)
    {
        size_t i = 0, count = sizeof known / sizeof *known;
        while (i < count && strcmp(known[i].name, key) != 0) i++;
        if (i == count) return INVALID(f, "ironmule", "ironmule.%.40s is not known", key);
        if (!json_is_null(value) && !value_bool(value, known[i].full, known[i].to, f->problem)) return false;
    }
    return true;
}

static bool read_messages(fields *f, json_t *v)
{
    f->messages = v;
    return fields_messages(v, f->problem);
}

static bool read_variables(fields *f, json_t *v)
{
    if (!json_is_object(v))
        return problem_set(f->problem, 400, "chat_template_kwargs", "invalid_type", "chat_template_kwargs must be an object");
    f->variables = v;
    return true;
}

/* ---- what is not served ----------------------------------------------------------------------------------------------------------------------------- */

static bool is_empty_list(const json_t *v) { return json_is_array(v) && json_array_size(v) == 0; }

static bool is_text(const json_t *v, const char *text) { return json_is_string(v) && strcmp(json_string_value(v), text) == 0; }

/* Values that ask for nothing more than what is served anyway. */
static bool asks_nothing(const char *name, const json_t *v)
{
    if (json_is_false(v) || is_empty_list(v)) return true;
    if (strcmp(name, "response_format") == 0) return is_text(json_object_get(v, "type"), "text");
    if (strcmp(name, "tool_choice") == 0) return is_text(v, "none") || is_text(v, "auto");
    if (strcmp(name, "modalities") == 0) return json_array_size(v) == 1 && is_text(json_array_get(v, 0), "text");
    if (strcmp(name, "best_of") == 0) return json_is_integer(v) && json_integer_value(v) == 1;
    return strcmp(name, "suffix") == 0 && is_text(v, "");
}

static bool is_unserved(const char *name)
{
    static const char *const names[] = {"tools",       "tool_choice", "functions",  "function_call",      "response_format",
                                        "modalities",  "audio",       "prediction", "web_search_options", "best_of",
                                        "suffix",      "echo",        "grammar",    "json_schema",        "guided_json",
                                        "guided_regex"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(names[i], name) == 0) return true;
    return false;
}

static bool read_unknown(fields *f, const char *name, const json_t *v)
{
    if (!is_unserved(name)) return ignore(f, name);
    if (asks_nothing(name, v)) return true;
    return problem_set(f->problem, 400, name, "unsupported_field", "%s is not served here", name);
}

/* ---- all of it ----------------------------------------------------------------------------------------------------------------------------------------- */

enum { CHAT = 1, COMPLETION = 2, BOTH = 3 };

static const struct field {
    const char *name;
    int where;
    bool (*read)(fields *f, json_t *v);
} known[] = {
    {"model", BOTH, read_model},
    {"messages", CHAT, read_messages},
    {"chat_template_kwargs", CHAT, read_variables},
    {"prompt", COMPLETION, fields_prompts},
    {"stream", BOTH, read_stream},
    {"stream_options", BOTH, read_stream_options},
    {"max_tokens", BOTH, read_max_tokens},
    {"max_completion_tokens", CHAT, read_max_completion},
    {"stop", BOTH, read_stop},
    {"seed", BOTH, read_seed},
    {"temperature", BOTH, read_temperature},
    {"top_p", BOTH, read_top_p},
    {"top_k", BOTH, read_top_k},
    {"min_p", BOTH, read_min_p},
    {"n", BOTH, read_n},
    {"logprobs", BOTH, read_logprobs},
    {"top_logprobs", CHAT, read_top_logprobs},
    {"logit_bias", BOTH, read_bias},
    {"presence_penalty", BOTH, read_presence},
    {"frequency_penalty", BOTH, read_frequency},
    {"repetition_penalty", BOTH, read_repetition},
    {"ignore_eos", BOTH, read_ignore_eos},
    {"ironmule", BOTH, read_extras},
};

static bool read_field(fields *f, const char *name, json_t *v)
{
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(known[i].name, name) == 0 && (known[i].where & (f->chat ? CHAT : COMPLETION)) != 0) return known[i].read(f, v);
    if (strcmp(name, "user") == 0)
        return json_is_string(v) || problem_set(f->problem, 400, "user", "invalid_type", "user must be a text");
    return read_unknown(f, name, v);
}

static bool check_together(fields *f)
{
    if (f->chat ? f->messages == NULL : f->prompts == NULL)
        return problem_set(f->problem, 400, f->chat ? "messages" : "prompt", "missing_field", "%s is missing",
                           f->chat ? "messages" : "prompt");
    if (f->top_given && !f->logprobs) return INVALID(f, "top_logprobs", "top_logprobs needs logprobs: true");
    if (f->stream_options && !f->stream) return INVALID(f, "stream_options", "stream_options needs stream: true");
    if (f->n * f->prompt_count > f->rules->max_choices)
        return INVALID(f, "n", "n times the number of prompts is %zu; at most %u answers are given", f->n * f->prompt_count,
                       f->rules->max_choices);
    return true;
}

/* Greedy is the default, and then some fields say nothing. */
static void note_without_effect(fields *f)
{
    static const char *const names[] = {"top_p", "top_k", "min_p", "seed"};
    if (f->sampling.temperature > 0) return;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const json_t *v = json_object_get(f->doc, names[i]);
        bool neutral = v == NULL || json_is_null(v) || (strcmp(names[i], "top_p") == 0 && json_number_value(v) == 1) ||
                       (i == 1 && json_number_value(v) <= 0) || (i == 2 && json_number_value(v) == 0);
        if (!neutral) ignore(f, names[i]);
    }
}

bool fields_read(fields *f, json_t *doc, bool chat, const fields_rules *rules, problem *p)
{
    const char *key;
    json_t *value;
    im_request_options defaults;
    im_request_options_defaults(&defaults);
    *f = (fields){
        .doc = doc, .chat = chat, .n = 1, .rules = rules, .problem = p, .sampling = defaults.sampling, .prompt_count = chat};
    f->sampling.temperature = 0;
    json_object_foreach(doc, key, value)
    {
        if (json_is_null(value)) continue;
        if (!read_field(f, key, value)) return false;
    }
    if (!check_together(f)) return false;
    note_without_effect(f);
    /* Without a seed each request gets one of its own, which the answer can tell. */
    if (f->seeded) return true;
    if (getrandom(&f->sampling.seed, sizeof f->sampling.seed, GRND_NONBLOCK) < 0) f->sampling.seed = 0;
    f->sampling.seed &= INT64_MAX; /* so that it can be sent back as a number */
    return true;
}

void fields_release(fields *f)
{
    for (size_t i = 0; f->prompts != NULL && i < f->prompt_count; i++) free(f->prompts[i].ids);
    free(f->prompts);
    free(f->bias);
    json_decref(f->doc);
    f->prompts = NULL;
    f->bias = NULL;
    f->sampling.bias = NULL;
    f->sampling.bias_count = 0;
    f->doc = f->messages = f->variables = NULL;
    f->stop[0] = NULL;
}

void fields_free(fields *f)
{
    fields_release(f);
    json_decref(f->ignored);
    *f = (fields){.doc = NULL};
}
