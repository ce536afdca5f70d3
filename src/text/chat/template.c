/* SPDX-License-Identifier: Apache-2.0 */
#include "text/chat/template.h"

#include "base/utf8.h"
#include "text/chat/chat_messages.h"
#include "text/chat/jinja_eval.h"

/* What a template may use. A step takes about 50 ns; the depth keeps parsing and evaluation within 192 KiB of stack, unoptimised. */
#define LARGEST_TEMPLATE ((size_t)1 << 20)
static const im__jlimits parse_limits = {.memory = (size_t)128 << 20, .steps = 50000000, .depth = 100};
static const im__jlimits render_limits = {
    .memory = (size_t)256 << 20, .output = (size_t)32 << 20, .steps = 20000000, .depth = 300, .range_max = 100000};
static const im__jlimits probe_limits = {
    .memory = (size_t)4 << 20, .output = (size_t)1 << 20, .steps = 200000, .depth = 300, .range_max = 100000};

struct im__template {
    im__jarena arena;
    im__jtree tree;
    im__jchat_style style;
};

static im__jrun new_run(const im__jlimits *limits, im_error *err)
{
    return (im__jrun){.arena = {.budget = limits->memory}, .limits = *limits, .err = err};
}

/* ---- rendering ---- */

/* Makes the spans of `text` that came from the conversation. */
static im_status make_spans(const im__jtext *text, im__rendered *out, im_error *err)
{
    size_t cap = 0;
    for (size_t i = 0; i < text->n;) {
        uint8_t origin = text->mark != NULL ? text->mark[i] : text->origin;
        size_t begin = i;
        while (i < text->n && (text->mark != NULL ? text->mark[i] : text->origin) == origin) i++;
        if (origin != J_FROM_INPUT) continue;
        if (out->plain_count == cap) {
            cap = cap == 0 ? 8 : cap * 2;
            struct im__rendered_span *grown = im__realloc(out->plain, cap, sizeof *grown);
            if (grown == NULL) return im__fail(err, IM_ERR_MEMORY, "no memory for a rendered conversation");
            out->plain = grown;
        }
        out->plain[out->plain_count++] = (struct im__rendered_span){begin, i};
    }
    return IM_OK;
}

/* Cuts the text where the tag of continue_last begins. A template that strips the message has taken the blank at the end of the
 * tag; then the blanks before it go as well, as if the message had been stripped. */
static bool cut_at_tag(im__jrun *run, im__jtext *text)
{
    size_t end = text->n, begin;
    while (end > 0 && text->mark != NULL && text->mark[end - 1] != J_FROM_TAG) end--;
    for (begin = end; begin > 0 && text->mark != NULL && text->mark[begin - 1] == J_FROM_TAG;) begin--;
    run->line = 0;
    if (begin == end || text->mark == NULL)
        return im__jfail(run, "this chat template does not show the last message so that it could be continued");
    text->n = begin;
    if (end - begin < sizeof IM__JTAG - 1) {
        size_t from;
        im__jstr s = {.p = text->data, .n = begin};
        im__jstr_strip(&s, NULL, false, true, &from, &text->n);
    }
    return true;
}

static bool run_template(im__jrun *run, const im__template *t, const im__template_input *input, const im__jchat_style *style,
                         im__jtext *text, im__jchat_facts *facts)
{
    im__jdict *variables;
    if (!im__jchat_variables(run, input, style, &variables, facts)) return false;
    run->variables = variables;
    run->tree = &t->tree;
    run->now = input->now;
    im__jscope *top = im__jscope_new(run, NULL);
    if (top == NULL || im__jexec(run, top, t->tree.body, text) == J_FAILED) return false;
    return !facts->continues || cut_at_tag(run, text);
}

static im_status render_once(const im__template *t, const im__template_input *input, const im__jchat_style *style,
                             const im__jlimits *limits, im__rendered *out, im__jchat_facts *facts, im_error *err)
{
    im_error own = {0};
    im__jrun run = new_run(limits, &own);
    im__jtext text = {.run = &run};
    im_status status = IM_OK;
    *facts = (im__jchat_facts){.continues = false};
    if (!run_template(&run, t, input, style, &text, facts)) {
        status = own.status;
        if (err != NULL) *err = own;
    } else {
        im__buf_append(&out->text, text.data, text.n);
        status =
            out->text.failed ? im__fail(err, IM_ERR_MEMORY, "no memory for a rendered conversation") : make_spans(&text, out, err);
    }
    if (status != IM_OK) im__rendered_free(out);
    im__jarena_free(&run.arena);
    return status;
}

im_status im__template_render(const im__template *t, const im__template_input *input, im__rendered *out, im_error *err)
{
    im__jchat_facts facts, ignored;
    im_error first = {0};
    im__jchat_style style = t->style;
    *out = (im__rendered){0};
    im_status status = render_once(t, input, &style, &render_limits, out, &facts, &first);
    if (status == IM_ERR_TEMPLATE && facts.has_text_arguments) {
        /* Some templates join the arguments to text and fail on a mapping. */
        style.keep_arguments = true;
        if (render_once(t, input, &style, &render_limits, out, &ignored, NULL) == IM_OK) return IM_OK;
    }
    if (status != IM_OK && err != NULL) *err = first;
    return status;
}

void im__rendered_free(im__rendered *r)
{
    im__buf_free(&r->text);
    im__free(r->plain);
    *r = (im__rendered){0};
}

/* ---- what a template expects ---- */

#define PARTS "[{\"type\":\"text\",\"text\":\"PartOneText\"},{\"type\":\"text\",\"text\":\"PartTwoText\"}]"

/* A conversation for each role whose content is a list; a template that can take it shows both texts and nothing of the list. */
static const char *const probes[IM__JROLES] = {
    [J_SYSTEM] = "[{\"role\":\"system\",\"content\":" PARTS "},{\"role\":\"user\",\"content\":\"q\"}]",
    [J_USER] = "[{\"role\":\"user\",\"content\":" PARTS "}]",
    [J_ASSISTANT] = "[{\"role\":\"user\",\"content\":\"q\"},{\"role\":\"assistant\",\"content\":" PARTS "}]",
    [J_TOOL] =
        "[{\"role\":\"user\",\"content\":\"q\"},{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"id\":\"call00001\","
        "\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":{}}}]},{\"role\":\"tool\",\"name\":\"f\","
        "\"tool_call_id\":\"call00001\",\"content\":" PARTS "}]",
};

static bool takes_parts(const im__template *t, im__jrole role)
{
    im__rendered r = {0};
    im__jchat_facts ignored;
    im__jchat_style style = {.parts = {true, true, true, true}, .content_none = t->style.content_none};
    im__template_input input = {.messages = probes[role], .messages_len = strlen(probes[role])};
    if (render_once(t, &input, &style, &probe_limits, &r, &ignored, NULL) != IM_OK) return false;
    bool shows = r.text.len > 0 && strstr(r.text.data, "PartOneText") != NULL && strstr(r.text.data, "PartTwoText") != NULL;
    bool raw = shows && (strstr(r.text.data, "'type'") != NULL || strstr(r.text.data, "\"type\"") != NULL);
    im__rendered_free(&r);
    return shows && !raw;
}

im_status im__template_new(im__template **out, const char *source, size_t n, im_error *err)
{
    *out = NULL;
    if (n > LARGEST_TEMPLATE) return im__fail(err, IM_ERR_TEMPLATE, "chat template: %zu bytes, more than 1 MiB", n);
    if (!im__utf8_valid(source, n)) return im__fail(err, IM_ERR_TEMPLATE, "chat template: not valid UTF-8");
    im__template *t = im__calloc(1, sizeof *t);
    if (t == NULL) return im__fail(err, IM_ERR_MEMORY, "no memory for a chat template");
    im_error own = {0};
    im__jrun run = new_run(&parse_limits, &own);
    bool ok = im__jparse(&run, source, n, &t->tree);
    t->arena = run.arena;
    if (!ok) {
        im__template_free(t);
        if (err != NULL) *err = own;
        return own.status;
    }
    t->style.content_none = t->tree.asks_content_none;
    for (int role = 0; role < IM__JROLES; role++) t->style.parts[role] = takes_parts(t, (im__jrole)role);
    *out = t;
    return IM_OK;
}

void im__template_free(im__template *t)
{
    if (t == NULL) return;
    im__jarena_free(&t->arena);
    im__free(t);
}
