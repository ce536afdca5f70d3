/* SPDX-License-Identifier: Apache-2.0 */
#include "fields.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- messages -------------------------------------------------------------------------------------------------------------------------------- */

static const char *const roles[] = {"system", "developer", "user", "assistant", "tool"};

static bool check_part(const json_t *part, const char *name, problem *p)
{
    const json_t *type = json_object_get(part, "type");
    if (!json_is_object(part) || !json_is_string(type))
        return problem_set(p, 400, name, "invalid_type", "%s: every part must be an object with a type", name);
    if (strcmp(json_string_value(type), "text") != 0)
        return problem_set(p, 400, name, "unsupported_content", "%s: parts of type '%.40s' are not served here, only text is", name,
                           json_string_value(type));
    if (!json_is_string(json_object_get(part, "text")))
        return problem_set(p, 400, name, "invalid_type", "%s: a text part needs a text", name);
    return true;
}

static bool check_content(const json_t *message, bool may_miss, const char *name, problem *p)
{
    const json_t *content = json_object_get(message, "content");
    if (content == NULL || json_is_null(content))
        return may_miss || problem_set(p, 400, name, "missing_field", "%s is missing", name);
    if (json_is_string(content)) return true;
    if (!json_is_array(content))
        return problem_set(p, 400, name, "invalid_type", "%s must be a text or a list of text parts", name);
    for (size_t i = 0; i < json_array_size(content); i++)
        if (!check_part(json_array_get(content, i), name, p)) return false;
    return true;
}

static bool is_absent(const json_t *v) { return v == NULL || json_is_null(v); }

static bool check_call(const json_t *call, const char *name, problem *p)
{
    const json_t *id = json_object_get(call, "id"), *type = json_object_get(call, "type"),
                 *function = json_object_get(call, "function"), *arguments = json_object_get(function, "arguments");
    if (!json_is_string(json_object_get(function, "name")))
        return problem_set(p, 400, name, "invalid_type", "%s: every call needs a function with a name", name);
    if (!is_absent(arguments) && !json_is_string(arguments) && !json_is_object(arguments))
        return problem_set(p, 400, name, "invalid_type", "%s: arguments must be a text or an object", name);
    if (!is_absent(id) && !json_is_string(id)) return problem_set(p, 400, name, "invalid_type", "%s: an id must be a text", name);
    if (is_absent(type) || (json_is_string(type) && strcmp(json_string_value(type), "function") == 0)) return true;
    return problem_set(p, 400, name, "invalid_value", "%s: calls are of type 'function'", name);
}

/* Calls that an earlier answer made. */
static bool check_calls(const json_t *calls, const char *name, problem *p)
{
    if (is_absent(calls)) return true;
    if (!json_is_array(calls)) return problem_set(p, 400, name, "invalid_type", "%s must be a list", name);
    for (size_t i = 0; i < json_array_size(calls); i++)
        if (!check_call(json_array_get(calls, i), name, p)) return false;
    return true;
}

static bool check_message(const json_t *message, size_t index, problem *p)
{
    char name[64];
    size_t i = 0, count = sizeof roles / sizeof *roles;
    const json_t *role = json_object_get(message, "role");
    snprintf(name, sizeof name, "messages[%zu]", index);
    if (!json_is_object(message)) return problem_set(p, 400, name, "invalid_type", "%s must be an object", name);
    snprintf(name, sizeof name, "messages[%zu].role", index);
    if (!json_is_string(role)) return problem_set(p, 400, name, "missing_field", "%s is missing, or no text", name);
    while (i < count && strcmp(roles[i], json_string_value(role)) != 0) i++;
    if (i == count)
        return problem_set(p, 400, name, "invalid_value",
                           "%s: the role '%.40s' is not known (system, developer, user, assistant and tool are)", name,
                           json_string_value(role));
    const json_t *calls = json_object_get(message, "tool_calls");
    bool may_miss = strcmp(roles[i], "assistant") == 0 && json_array_size(calls) > 0;
    snprintf(name, sizeof name, "messages[%zu].tool_calls", index);
    if (!check_calls(calls, name, p)) return false;
    snprintf(name, sizeof name, "messages[%zu].content", index);
    return check_content(message, may_miss, name, p);
}

bool fields_messages(const json_t *value, problem *p)
{
    if (!json_is_array(value)) return problem_set(p, 400, "messages", "invalid_type", "messages must be a list");
    if (json_array_size(value) == 0) return problem_set(p, 400, "messages", "empty_array", "messages is empty");
    for (size_t i = 0; i < json_array_size(value); i++)
        if (!check_message(json_array_get(value, i), i, p)) return false;
    return true;
}

/* ---- prompts ---------------------------------------------------------------------------------------------------------------------------------- */

static bool wrong(fields *f)
{
    return problem_set(f->problem, 400, "prompt", "invalid_type",
                       "prompt must be a text, a list of texts, a list of token ids, or a list of such lists");
}

static bool read_ids(fields *f, const json_t *list, fields_prompt *out)
{
    size_t n = json_array_size(list);
    out->ids = calloc(n + 1, sizeof *out->ids);
    if (out->ids == NULL) return problem_set(f->problem, 503, NULL, "memory", "out of memory");
    for (size_t i = 0; i < n; i++) {
        int64_t id;
        if (!value_int(json_array_get(list, i), "prompt", 0, (int64_t)f->rules->vocabulary - 1, &id, f->problem)) return false;
        out->ids[i] = (int32_t)id;
    }
    out->count = n;
    return true;
}

static bool read_prompt(fields *f, const json_t *v, fields_prompt *out)
{
    if (json_is_array(v)) return json_array_size(v) > 0 ? read_ids(f, v, out) : wrong(f);
    if (!json_is_string(v)) return wrong(f);
    out->text = json_string_value(v);
    out->text_len = json_string_length(v);
    return true;
}

bool fields_prompts(fields *f, json_t *value)
{
    bool several = json_is_array(value) && !json_is_integer(json_array_get(value, 0));
    f->prompt_count = several ? json_array_size(value) : 1;
    if (f->prompt_count == 0 || f->prompt_count > f->rules->max_choices)
        return problem_set(f->problem, 400, "prompt", "invalid_value", "between 1 and %u prompts are answered at once",
                           f->rules->max_choices);
    f->prompts = calloc(f->prompt_count, sizeof *f->prompts);
    if (f->prompts == NULL) return problem_set(f->problem, 503, NULL, "memory", "out of memory");
    for (size_t i = 0; i < f->prompt_count; i++)
        if (!read_prompt(f, several ? json_array_get(value, i) : value, &f->prompts[i])) return false;
    return true;
}
