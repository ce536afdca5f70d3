/* SPDX-License-Identifier: Apache-2.0 */
#include "common.h"

#include <stdlib.h>

static const arg_command about = {
    .name = "template",
    .summary = "a conversation as the model's chat template renders it",
    .usage = "MODEL --messages FILE",
    .details =
        "FILE holds a JSON list of messages as the chat API takes them. Control tokens typed in message content are plain text\n"
        "unless --parse-special is given.",
    .examples = "  echo '[{\"role\": \"user\", \"content\": \"Hi\"}]' | ironmule template model.gguf --messages -",
    .least = 1,
    .most = 1,
};

typedef struct settings {
    const char *messages, *tools, *variables, *chat_template, *pre;
    bool json, no_generation_prompt, parse_special;
} settings;

/* The contents of an optional file; false after a message. */
static bool optional(const char *path, char **text)
{
    size_t n;
    *text = path == NULL ? NULL : read_file(about.name, path, &n);
    return path == NULL || *text != NULL;
}

static int print_result(const settings *s, const char *text, size_t len, const int32_t *ids, size_t n)
{
    if (!s->json) return fwrite(text, 1, len, stdout) == len ? EXIT_DONE : EXIT_FAILED;
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++) json_array_append_new(list, json_integer(ids[i]));
    return print_json(json_pack("{s:o, s:o}", "text", json_text(text, len), "ids", list));
}

static int run(const im_model *model, const settings *s)
{
    im_error err;
    im_chat_options o;
    char *messages = NULL, *tools = NULL, *variables = NULL, *source = NULL, *text = NULL;
    int32_t *ids = NULL;
    size_t len = 0, n = 0;
    int code = EXIT_FAILED;
    im_chat_options_defaults(&o);
    if (optional(s->messages, &messages) && optional(s->tools, &tools) && optional(s->variables, &variables) &&
        optional(s->chat_template, &source)) {
        o.tools = tools;
        o.variables = variables;
        o.chat_template = source;
        o.no_generation_prompt = s->no_generation_prompt;
        o.parse_special = s->parse_special;
        code = im_model_chat(model, messages, &o, &text, &len, &ids, &n, &err) == IM_OK ? print_result(s, text, len, ids, n)
                                                                                        : say_failed(about.name, &err);
    }
    free(messages);
    free(tools);
    free(variables);
    free(source);
    im_free(text);
    im_free(ids);
    return code;
}

int cmd_template(int argc, char **argv)
{
    settings s = {0};
    arg_rest rest;
    const arg_option options[] = {
        {"messages", 'm', ARG_STRING, &s.messages, "FILE", "JSON list of messages (- for standard input)", 0, 0},
        {"tools", 0, ARG_STRING, &s.tools, "FILE", "JSON list of tool definitions", 0, 0},
        {"variables", 0, ARG_STRING, &s.variables, "FILE", "JSON object of further template variables", 0, 0},
        {"chat-template", 0, ARG_STRING, &s.chat_template, "FILE", "this template in place of the model's", 0, 0},
        {"no-generation-prompt", 0, ARG_FLAG, &s.no_generation_prompt, NULL, "do not open the assistant's turn", 0, 0},
        {"parse-special", 0, ARG_FLAG, &s.parse_special, NULL, "control tokens typed in content become tokens", 0, 0},
        {"pre", 0, ARG_STRING, &s.pre, "NAME", "force this pre-tokeniser", 0, 0},
        {"json", 0, ARG_FLAG, &s.json, NULL, "one JSON document: text, ids", 0, 0},
        {NULL, 0, ARG_FLAG, NULL, NULL, NULL, 0, 0},
    };
    int code = args_parse(&about, options, argc, argv, &rest);
    if (code >= 0) return code;
    if (s.messages == NULL) return args_wrong(&about, "--messages is missing");
    im_model *model = open_model(about.name, rest.item[0], true, s.pre);
    if (model == NULL) return EXIT_FAILED;
    code = run(model, &s);
    im_model_close(model);
    return code;
}
