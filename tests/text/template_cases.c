/* SPDX-License-Identifier: Apache-2.0 */
#include "template_cases.h"

#include "text/chat/template.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char *dump(const json_t *v, size_t *n)
{
    char *text = v == NULL ? NULL : json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT);
    *n = text == NULL ? 0 : strlen(text);
    return text;
}

static void show(const char *what, const char *text, size_t n)
{
    printf("  %s: \"", what);
    for (size_t i = 0; i < n; i++) {
        if (text[i] == '\n')
            printf("\\n");
        else
            putchar(text[i]);
    }
    printf("\"\n");
}

static int spans_differ(const im__rendered *r, const json_t *plain)
{
    int wrong = json_array_size(plain) != r->plain_count;
    for (size_t i = 0; i < r->plain_count && i < json_array_size(plain); i++) {
        const char *want = json_string_value(json_array_get(plain, i));
        size_t n = r->plain[i].end - r->plain[i].begin;
        wrong |= want == NULL || strlen(want) != n || memcmp(r->text.data + r->plain[i].begin, want, n) != 0;
    }
    if (!wrong) return 0;
    for (size_t i = 0; i < r->plain_count; i++)
        show("plain span", r->text.data + r->plain[i].begin, r->plain[i].end - r->plain[i].begin);
    return 1;
}

static int judge(const json_t *c, im_status status, const im_error *err, const im__rendered *r)
{
    const char *rendered = json_string_value(json_object_get(c, "rendered"));
    const char *error = json_string_value(json_object_get(c, "error"));
    size_t n = json_string_length(json_object_get(c, "rendered"));
    if (rendered == NULL) {
        if (status == IM_ERR_TEMPLATE && (error == NULL || strstr(err->message, error) != NULL)) return 0;
        show("wanted the error", error != NULL ? error : "(any)", error != NULL ? strlen(error) : 5);
    } else if (status == IM_OK && r->text.len == n && memcmp(r->text.data != NULL ? r->text.data : "", rendered, n) == 0) {
        const json_t *plain = json_object_get(c, "plain");
        return plain != NULL && spans_differ(r, plain);
    } else {
        show("wanted", rendered, n);
    }
    if (status == IM_OK)
        show("got   ", r->text.data, r->text.len);
    else
        printf("  got error %d: %s\n", (int)status, err->message);
    return 1;
}

static int run_case(const im__template *t, const json_t *set, const json_t *tmpl, const json_t *c)
{
    im__template_input in = {.now = json_integer_value(json_object_get(set, "now"))};
    im_error err = {0};
    im__rendered r;
    char *messages = dump(json_object_get(c, "messages"), &in.messages_len);
    char *tools = dump(json_object_get(c, "tools"), &in.tools_len);
    const json_t *given = json_object_get(c, "variables");
    char *variables =
        json_is_string(given) ? strdup(json_string_value(json_object_get(set, "variables"))) : dump(given, &in.variables_len);
    if (json_is_string(given)) in.variables_len = strlen(variables);
    in.messages = messages != NULL ? messages : "[{\"role\":\"user\",\"content\":\"\"}]";
    if (messages == NULL) in.messages_len = strlen(in.messages);
    in.tools = tools;
    in.variables = variables;
    in.bos_token = json_string_value(json_object_get(tmpl, "bos_token"));
    in.eos_token = json_string_value(json_object_get(tmpl, "eos_token"));
    in.add_generation_prompt = json_is_true(json_object_get(c, "add_generation_prompt"));
    in.continue_last = json_is_true(json_object_get(c, "continue_last"));
    im_status status = im__template_render(t, &in, &r, &err);
    int wrong = judge(c, status, &err, &r);
    im__rendered_free(&r);
    free(messages);
    free(tools);
    free(variables);
    return wrong;
}

/* The text of a template that is not in the file itself. */
static char *foreign_text(const json_t *tmpl, const char *folder)
{
    char path[4096];
    const char *in = json_string_value(json_object_get(tmpl, "template_in"));
    if (in == NULL || folder == NULL) return NULL;
    snprintf(path, sizeof path, "%s/%s/tokenizer_config.json", folder, in);
    json_t *config = json_load_file(path, JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL, NULL);
    const char *text = json_string_value(json_object_get(config, "chat_template"));
    char *copy = text != NULL ? strdup(text) : NULL;
    json_decref(config);
    return copy;
}

static void run_template(const json_t *set, const json_t *tmpl, const char *folder, template_tally *sum)
{
    const char *name = json_string_value(json_object_get(tmpl, "name"));
    const char *text = json_string_value(json_object_get(tmpl, "template"));
    size_t n = json_string_length(json_object_get(tmpl, "template")), i;
    char *foreign = text == NULL ? foreign_text(tmpl, folder) : NULL;
    im_error err = {0};
    im__template *t = NULL;
    const json_t *c;
    if (text == NULL && foreign == NULL) {
        printf("left out, its text is not here: %s\n", name);
        sum->left_out++;
        return;
    }
    im_status status = im__template_new(&t, text != NULL ? text : foreign, text != NULL ? n : strlen(foreign), &err);
    json_array_foreach(json_object_get(tmpl, "cases"), i, c)
    {
        im__rendered none = {0};
        int wrong = status == IM_OK ? run_case(t, set, tmpl, c) : judge(c, status, &err, &none);
        const char *kind = json_string_value(json_object_get(c, "kind"));
        if (wrong) printf("  ^ %s, case %zu (%s)\n", name, i, kind != NULL ? kind : "");
        sum->cases++;
        sum->wrong += wrong;
    }
    im__template_free(t);
    free(foreign);
}

int run_template_cases(const char *path, const char *folder, template_tally *sum)
{
    json_error_t problem;
    const json_t *tmpl;
    size_t i;
    json_t *set = json_load_file(path, JSON_ALLOW_NUL, &problem);
    if (set == NULL) {
        printf("%s: %s\n", path, problem.text);
        return 0;
    }
    json_array_foreach(json_object_get(set, "templates"), i, tmpl) run_template(set, tmpl, folder, sum);
    json_decref(set);
    return 1;
}
