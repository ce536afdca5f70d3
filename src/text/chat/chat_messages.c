/* SPDX-License-Identifier: Apache-2.0 */
#include "text/chat/chat_messages.h"

typedef struct chat {
    im__jrun *run;
    const im__jchat_style *style;
    size_t index; /* of the message, for errors */
    im__jchat_facts facts;
} chat;

#define REFUSE(c, ...) im__jfail((c)->run, __VA_ARGS__)

static bool set(im__jrun *run, im__jdict *d, const char *name, im__jvalue value)
{
    im__jvalue key;
    return im__jstr_static(run, name, &key) && im__jdict_set(run, d, &key, &value);
}

static const im__jvalue *get(const im__jvalue *dict, const char *name)
{
    const im__jvalue *v = dict->type == J_DICT ? im__jdict_find(dict->as.dict, name, strlen(name)) : NULL;
    return v == NULL || v->type == J_NONE ? NULL : v;
}

/* ---- roles ---- */

static const char *const role_names[IM__JROLES] = {"system", "user", "assistant", "tool"};

static bool read_role(chat *c, const im__jvalue *message, im__jrole *out)
{
    if (message->type != J_DICT) return REFUSE(c, "message %zu is no object", c->index);
    const im__jvalue *role = get(message, "role");
    if (role == NULL || role->type != J_STR) return REFUSE(c, "message %zu has no role", c->index);
    *out = J_SYSTEM;
    if (im__jstr_is(role, "developer")) return true;
    for (int i = 0; i < IM__JROLES; i++) {
        *out = (im__jrole)i;
        if (im__jstr_is(role, role_names[i])) return true;
    }
    return REFUSE(c, "message %zu has the unknown role '%.*s' (known: system, developer, user, assistant, tool)", c->index,
                  im__jshown(role->as.str->n), role->as.str->p);
}

/* ---- content ---- */

static bool check_part(chat *c, const im__jvalue *part)
{
    const im__jvalue *type = get(part, "type"), *text = get(part, "text");
    if (part->type != J_DICT || type == NULL || type->type != J_STR)
        return REFUSE(c, "message %zu: a part of its content has no type", c->index);
    if (!im__jstr_is(type, "text"))
        return REFUSE(c, "message %zu: content of type '%.*s' is not supported, only text is", c->index,
                      im__jshown(type->as.str->n), type->as.str->p);
    return (text != NULL && text->type == J_STR) || REFUSE(c, "message %zu: a text part has no text", c->index);
}

static bool read_parts(chat *c, im__jrole role, const im__jvalue *content, im__jvalue *out)
{
    im__jtext t = {.run = c->run};
    for (size_t i = 0; i < content->as.seq->n; i++) {
        const im__jvalue *part = &content->as.seq->at[i];
        if (!check_part(c, part)) return false;
        im__jtext_add(&t, get(part, "text")->as.str);
    }
    *out = *content;
    return c->style->parts[role] || im__jtext_done(&t, out);
}

static bool read_content(chat *c, im__jrole role, const im__jvalue *message, bool may_miss, im__jvalue *out)
{
    const im__jvalue *content = get(message, "content");
    if (content == NULL && !may_miss)
        return REFUSE(
            c, role == J_ASSISTANT ? "message %zu (assistant) has neither content nor tool_calls" : "message %zu has no content",
            c->index);
    if (content == NULL) {
        *out = im__jnone();
        return c->style->content_none || im__jstr_static(c->run, "", out);
    }
    if (content->type == J_LIST) return read_parts(c, role, content, out);
    if (content->type != J_STR) return REFUSE(c, "message %zu: content must be text or a list of text parts", c->index);
    *out = *content;
    return true;
}

/* ---- tool calls ---- */

/* A copy of the dict with one value replaced. */
static bool with(im__jrun *run, const im__jvalue *dict, const char *name, const im__jvalue *value, im__jvalue *out)
{
    im__jdict *d = im__jdict_new(run);
    if (d == NULL) return false;
    for (size_t i = 0; i < dict->as.dict->n; i++) {
        const im__jentry *e = &dict->as.dict->at[i];
        if (!im__jdict_set(run, d, &e->key, im__jstr_is(&e->key, name) ? value : &e->value)) return false;
    }
    *out = (im__jvalue){.type = J_DICT, .as.dict = d};
    return true;
}

/* `holder` is a call, or its "function"; arguments that spell JSON become the value they spell. */
static bool read_arguments(chat *c, const im__jvalue *holder, im__jvalue *out)
{
    const im__jvalue *arguments = get(holder, "arguments");
    im__jvalue parsed;
    bool valid;
    *out = *holder;
    if (arguments == NULL || arguments->type != J_STR) return true;
    c->facts.has_text_arguments = true;
    if (c->style->keep_arguments) return true;
    if (!im__jjson_try(c->run, arguments->as.str->p, arguments->as.str->n, &parsed, &valid)) return false;
    return !valid || with(c->run, holder, "arguments", &parsed, out);
}

static bool read_call(chat *c, const im__jvalue *call, im__jvalue *out)
{
    im__jvalue function, direct;
    if (call->type != J_DICT) return REFUSE(c, "message %zu: a tool call is no object", c->index);
    if (!read_arguments(c, call, &direct)) return false;
    const im__jvalue *inner = get(&direct, "function");
    *out = direct;
    if (inner == NULL) return true;
    if (inner->type != J_DICT) return REFUSE(c, "message %zu: the function of a tool call is no object", c->index);
    return read_arguments(c, inner, &function) && with(c->run, &direct, "function", &function, out);
}

/* *out is none when there are no calls. */
static bool read_calls(chat *c, const im__jvalue *message, im__jvalue *out)
{
    const im__jvalue *calls = get(message, "tool_calls");
    *out = im__jnone();
    if (calls == NULL || (calls->type == J_LIST && calls->as.seq->n == 0)) return true;
    if (calls->type != J_LIST) return REFUSE(c, "message %zu: tool_calls must be a list", c->index);
    im__jseq *list = im__jseq_new(c->run, calls->as.seq->n);
    if (list == NULL) return false;
    for (size_t i = 0; i < calls->as.seq->n; i++, list->n++)
        if (!read_call(c, &calls->as.seq->at[i], &list->at[i])) return false;
    *out = im__jseq_value(J_LIST, list);
    return true;
}

/* ---- messages ---- */

/* Templates read the reasoning of an earlier answer under one of two names; callers send it under one of three. */
static bool add_reasoning(chat *c, const im__jvalue *message, im__jdict *d)
{
    static const char *const names[] = {"reasoning_content", "thinking", "reasoning"};
    const im__jvalue *reasoning = NULL;
    for (int i = 0; i < 3 && reasoning == NULL; i++) reasoning = get(message, names[i]);
    if (reasoning == NULL) return true;
    if (get(message, "thinking") == NULL && !set(c->run, d, "thinking", *reasoning)) return false;
    return set(c->run, d, "reasoning_content", *reasoning);
}

static bool read_message(chat *c, const im__jvalue *message, im__jvalue *out)
{
    static const char *const special[] = {"role", "content", "tool_calls", "reasoning_content"};
    im__jrole role = J_USER;
    im__jvalue content, calls, name;
    if (!read_role(c, message, &role) || !read_calls(c, message, &calls)) return false;
    bool reasons =
        get(message, "reasoning_content") != NULL || get(message, "thinking") != NULL || get(message, "reasoning") != NULL;
    bool may_miss = role == J_ASSISTANT && (calls.type != J_NONE || reasons);
    im__jdict *d = im__jdict_new(c->run);
    if (d == NULL || !read_content(c, role, message, may_miss, &content) || !im__jstr_static(c->run, role_names[role], &name))
        return false;
    if (!set(c->run, d, "role", name) || !set(c->run, d, "content", content)) return false;
    if (calls.type != J_NONE && !set(c->run, d, "tool_calls", calls)) return false;
    if (!add_reasoning(c, message, d)) return false;
    for (size_t i = 0; i < message->as.dict->n; i++) {
        const im__jentry *e = &message->as.dict->at[i];
        bool done = e->value.type == J_NONE;
        for (size_t k = 0; k < sizeof special / sizeof special[0]; k++) done = done || im__jstr_is(&e->key, special[k]);
        if (!done && !im__jdict_set(c->run, d, &e->key, &e->value)) return false;
    }
    *out = (im__jvalue){.type = J_DICT, .as.dict = d};
    return true;
}

/* Marks the end of the last message. */
static bool add_tag(chat *c, im__jvalue *last)
{
    im__jvalue tag, tagged, *content = im__jdict_find(last->as.dict, "content", 7);
    if (!im__jstr_is(get(last, "role"), "assistant")) return REFUSE(c, "only a message of the assistant can be continued");
    if (content->type == J_LIST && content->as.seq->n > 0) { /* its parts were checked; the last one is tagged */
        im__jvalue *part = &content->as.seq->at[content->as.seq->n - 1];
        content = im__jdict_find(part->as.dict, "text", 4);
    }
    if (content->type != J_STR) return REFUSE(c, "the last message has no text to continue");
    if (!im__jstr_new(c->run, IM__JTAG, sizeof IM__JTAG - 1, J_FROM_TAG, &tag)) return false;
    if (!im__jstr_concat(c->run, content->as.str, tag.as.str, &tagged)) return false;
    *content = tagged;
    return true;
}

/* Does the conversation end with a text of the assistant, such as a caller sends to have it continued? */
static bool ends_open(const im__jvalue *last)
{
    const im__jvalue *content = get(last, "content");
    if (!im__jstr_is(get(last, "role"), "assistant") || content == NULL || get(last, "tool_calls") != NULL) return false;
    return content->type == J_STR ? content->as.str->n > 0 : content->as.seq->n > 0;
}

static bool read_messages(chat *c, const im__template_input *input, im__jvalue *out)
{
    im__jvalue all;
    if (!im__jjson_read(c->run, "messages", input->messages, input->messages_len, &all)) return false;
    if (all.type != J_LIST) return REFUSE(c, "messages must be a list");
    if (all.as.seq->n == 0) return REFUSE(c, "the list of messages is empty");
    im__jseq *list = im__jseq_new(c->run, all.as.seq->n);
    if (list == NULL) return false;
    for (; c->index < all.as.seq->n; c->index++, list->n++)
        if (!read_message(c, &all.as.seq->at[c->index], &list->at[c->index])) return false;
    *out = im__jseq_value(J_LIST, list);
    im__jvalue *last = &list->at[list->n - 1];
    c->facts.continues = input->continue_last || (input->continue_open && ends_open(last));
    return !c->facts.continues || add_tag(c, last);
}

/* No tools and an empty list of tools are the same. */
static bool read_tools(chat *c, const im__template_input *input, im__jvalue *out)
{
    *out = im__jnone();
    if (input->tools == NULL) return true;
    if (!im__jjson_read(c->run, "tools", input->tools, input->tools_len, out)) return false;
    if (out->type != J_LIST && out->type != J_NONE) return REFUSE(c, "tools must be a list");
    if (out->type == J_LIST && out->as.seq->n == 0) *out = im__jnone();
    return true;
}

static bool add_variables(chat *c, const im__template_input *input, im__jdict *d)
{
    im__jvalue more;
    if (input->variables == NULL) return true;
    if (!im__jjson_read(c->run, "template variables", input->variables, input->variables_len, &more)) return false;
    if (more.type != J_DICT) return REFUSE(c, "template variables must be an object");
    if (get(&more, "messages") != NULL || get(&more, "tools") != NULL)
        return REFUSE(c, "messages and tools cannot be given as template variables");
    for (size_t i = 0; i < more.as.dict->n; i++)
        if (!im__jdict_set(c->run, d, &more.as.dict->at[i].key, &more.as.dict->at[i].value)) return false;
    return true;
}

static bool add_token(chat *c, im__jdict *d, const char *name, const char *token)
{
    im__jvalue v;
    return im__jstr_static(c->run, token != NULL ? token : "", &v) && set(c->run, d, name, v);
}

bool im__jchat_variables(im__jrun *run, const im__template_input *input, const im__jchat_style *style, im__jdict **out,
                         im__jchat_facts *facts)
{
    chat c = {.run = run, .style = style};
    im__jvalue messages, tools;
    im__jdict *d = *out = im__jdict_new(run);
    bool ok = d != NULL && read_messages(&c, input, &messages) && read_tools(&c, input, &tools);
    bool prompt = input->add_generation_prompt && !c.facts.continues;
    ok = ok && set(run, d, "messages", messages) && set(run, d, "tools", tools) && set(run, d, "documents", im__jnone()) &&
         set(run, d, "add_generation_prompt", im__jbool(prompt)) && add_token(&c, d, "bos_token", input->bos_token) &&
         add_token(&c, d, "eos_token", input->eos_token) && add_variables(&c, input, d);
    *facts = c.facts;
    return ok;
}
