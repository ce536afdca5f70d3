/* SPDX-License-Identifier: Apache-2.0
 *
 * Chat templates: a sandboxed interpreter for the Jinja that Hugging Face templates use, set up as transformers sets Jinja up
 * (trim_blocks, lstrip_blocks, loop controls, its own tojson, raise_exception, strftime_now, the generation tag).
 *
 *     im__template *t;
 *     im__rendered r;
 *     IM__TRY(im__template_new(&t, source, strlen(source), err));
 *     status = im__template_render(t, &(im__template_input){.messages = json, .messages_len = n, .add_generation_prompt = true}, &r, err);
 *
 * Everything in a template is hostile: there is no access to anything but the variables below; steps, memory, depth of nesting and bytes
 * of output are bounded, and a thread needs no more than 256 KiB of stack. A template that this interpreter cannot run is an error that
 * names line and construct. Not there: include, import, extends, block, do; integers beyond 64 bits are kept and written, but cannot be
 * calculated with; filters and tests that no chat template uses (urlize, xmlattr ...).
 * A compiled template is immutable and may be rendered from any number of threads.
 */
#ifndef IRONMULE_TEXT_TEMPLATE_H
#define IRONMULE_TEXT_TEMPLATE_H

#include "base/error.h"
#include "base/mem.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct im__template im__template;

/* Parses `source` (n bytes). Errors: IM_ERR_TEMPLATE with line and construct; IM_ERR_MEMORY. *out is owned by the caller. */
im_status im__template_new(im__template **out, const char *source, size_t n, im_error *err);
void im__template_free(im__template *t); /* NULL allowed */

typedef struct im__template_input {
    const char *messages; /* JSON array of messages, as the chat API takes them; n bytes */
    size_t messages_len;
    const char *tools; /* JSON array, or NULL */
    size_t tools_len;
    const char *variables; /* JSON object of further variables (enable_thinking ...), or NULL; their text counts as conversation */
    size_t variables_len;
    const char *bos_token, *eos_token; /* NULL counts as "" */
    bool add_generation_prompt;
    bool continue_last; /* the last message is the assistant's and is continued: the text ends where it ends */
    bool continue_open; /* the same, when the last message is the assistant's and has text but no calls */
    int64_t now;        /* seconds since 1970, local calendar, for strftime_now */
} im__template_input;

/* A rendered conversation. `plain` are the ranges of `text` that came out of the conversation (message content, names, tool
 * results, tool definitions) and not from the template itself: sorted, disjoint. Control tokens typed there are plain text. */
typedef struct im__rendered {
    im__buf text;
    struct im__rendered_span {
        size_t begin, end;
    } * plain;
    size_t plain_count;
} im__rendered;

/* What happens to the messages before the template sees them:
 *   roles      "developer" becomes "system"; another than system, user, assistant, tool is refused, and so is an empty list.
 *   content    a list of text parts is joined without anything between them, unless this template takes lists for that role (found out
 *              when it was compiled); parts that are not text are refused. null or no content is "" for an assistant message that has
 *              tool_calls or reasoning (none for templates that test "content is none"); for any other message it is refused.
 *   tool_calls an empty list counts as none. Arguments given as JSON text become the value they spell, other text stays text; when a
 *              template fails on that, it gets the text as it came.
 *   others     keys whose value is null are dropped; reasoning_content, thinking and reasoning stand for one another. An empty list of
 *              tools counts as none.
 * Such a refusal, and the template's own raise_exception("...") with its sentence, is IM_ERR_TEMPLATE: an error of the request. A
 * conversation that the template accepts is rendered as the template has it, also where the template itself drops a message.
 * On failure *out is empty. */
im_status im__template_render(const im__template *t, const im__template_input *input, im__rendered *out, im_error *err);
void im__rendered_free(im__rendered *r);

#endif
