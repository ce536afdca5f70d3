/* SPDX-License-Identifier: Apache-2.0
 *
 * Chat templates: a sandboxed interpreter for the Jinja that Hugging Face templates use, set up as transformers sets Jinja up
 * (trim_blocks, lstrip_blocks, loop controls, its own tojson, raise_exception, strftime_now, the generation tag).
 *
 * Everything in a template is hostile: there is no access to anything but the variables below; steps, depth of nesting and bytes of
 * output are bounded; a template that this interpreter cannot run is an error that names line and construct.
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
    const char *variables; /* JSON object of further variables (enable_thinking ...), or NULL */
    size_t variables_len;
    const char *bos_token, *eos_token; /* NULL counts as "" */
    bool add_generation_prompt;
    bool continue_last; /* the last message is the assistant's and is continued: no end marker behind it, no generation prompt */
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

/* Messages are normalised first: role "developer" becomes "system"; an unknown role (not system, user, assistant, tool), an empty list or a message that is
 * no object is IM_ERR_TEMPLATE; content given as a list of text parts is joined unless the template itself handles lists; null content of an assistant message with tool_calls is kept
 * as the template expects (""); tool-call arguments given as JSON text become the value they spell, other text stays text.
 * The template's own raise_exception(...) gives IM_ERR_TEMPLATE with its sentence. On failure *out is empty. */
im_status im__template_render(const im__template *t, const im__template_input *input, im__rendered *out, im_error *err);
void im__rendered_free(im__rendered *r);

#endif
