/* SPDX-License-Identifier: Apache-2.0
 * An input is a template, a zero byte, and messages; without the zero byte, or without messages behind it, a fixed conversation is
 * rendered. A third part, if there is one, are the template's variables. */
#include "text/chat/template.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char talk[] =
    "[{\"role\":\"system\",\"content\":\"Be \\u00e9 <|x|>\"},{\"role\":\"user\",\"content\":\" hi "
    "\\n\"},{\"role\":\"assistant\",\"content\":"
    "\"<think>a</"
    "think>b\",\"tool_calls\":[{\"id\":\"c1\",\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"a\\\": "
    "[1, 2.5, null, true, "
    "12345678901234567890]}\"}}]},{\"role\":\"tool\",\"content\":\"ok\",\"tool_call_id\":\"c1\",\"name\":\"f\"}]";
static const char tools[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"type\":\"object\",\"properties\":{}}}}]";

/* The spans are sorted, disjoint, not empty and inside the text. */
static void check(const im__rendered *r)
{
    size_t last = 0;
    for (size_t i = 0; i < r->plain_count; i++) {
        if (r->plain[i].begin < last || r->plain[i].end <= r->plain[i].begin || r->plain[i].end > r->text.len) abort();
        last = r->plain[i].end;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *source = (const char *)data, *end = source + size;
    const char *split = size > 0 ? memchr(source, 0, size) : NULL;
    const char *messages = split != NULL ? split + 1 : end;
    const char *second = messages < end ? memchr(messages, 0, (size_t)(end - messages)) : NULL;
    im__template *t;
    im_error err = {0};
    if (im__template_new(&t, source, (size_t)((split != NULL ? split : end) - source), &err) != IM_OK) return 0;
    im__template_input in = {.messages = talk, .messages_len = strlen(talk), .tools = tools, .tools_len = strlen(tools)};
    in.bos_token = "<s>";
    in.eos_token = "</s>";
    in.add_generation_prompt = size % 2 == 0;
    in.continue_last = size % 7 == 0;
    in.now = 1772886896;
    if (messages < end) {
        in.messages = messages;
        in.messages_len = (size_t)((second != NULL ? second : end) - messages);
    }
    if (second != NULL) {
        in.variables = second + 1;
        in.variables_len = (size_t)(end - second) - 1;
    }
    im__rendered r;
    im_status status = im__template_render(t, &in, &r, &err);
    if (status == IM_OK) check(&r);
    if (status != IM_OK && err.message[0] == 0) abort();
    im__rendered_free(&r);
    im__template_free(t);
    return 0;
}
