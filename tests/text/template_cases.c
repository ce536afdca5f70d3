/* SPDX-License-Identifier: Apache-2.0 */
#include "template_cases.h"

#include "text/chat/template.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* JSON text of an input: a string in the file is that text itself ("shared": the one of the whole file). */
static char *input_text(const json_t *set, const json_t *c, const char *key, size_t *n)
{
    const json_t *v = json_object_get(c, key);
    const char *given = json_string_value(v);
    if (given != NULL && strcmp(given, "shared") == 0) given = json_string_value(json_object_get(set, key));
    char *text = given != NULL ? strdup(given) : v == NULL ? NULL : json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT);
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
    char *messages = input_text(set, c, "messages", &in.messages_len);
    char *tools = input_text(set, c, "tools", &in.tools_len);
    char *variables = input_text(set, c, "variables", &in.variables_len);
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

static char *copy_text(const json_t *v)
{
    const char *text = json_string_value(v);
    return text != NULL ? strdup(text) : NULL;
}

/* The text of a template that is not in the file itself. */
static char *foreign_text(const json_t *tmpl, const char *folder)
{
    char path[4096];
    const char *in = json_string_value(json_object_get(tmpl, "template_in"));
    if (in == NULL || folder == NULL) return NULL;
    snprintf(path, sizeof path, "%s/%s/tokenizer_config.json", folder, in);
    json_t *config = json_load_file(path, JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL, NULL);
    char *copy = copy_text(json_object_get(config, "chat_template"));
    json_decref(config);
    return copy;
}

/* The text of the template called `name` in golden.json, which lies beside the file at `path`. */
static char *golden_text(const char *path, const char *name)
{
    char golden[4096];
    const char *slash = strrchr(path, '/');
    const json_t *tmpl;
    char *copy = NULL;
    size_t i;
    snprintf(golden, sizeof golden, "%.*sgolden.json", slash != NULL ? (int)(slash + 1 - path) : 0, path);
    json_t *set = json_load_file(golden, JSON_ALLOW_NUL, NULL);
    json_array_foreach(json_object_get(set, "templates"), i, tmpl)
    {
        const char *found = json_string_value(json_object_get(tmpl, "name"));
        if (copy == NULL && found != NULL && strcmp(found, name) == 0) copy = copy_text(json_object_get(tmpl, "template"));
    }
    json_decref(set);
    return copy;
}

static char *template_text(const char *path, const json_t *tmpl, const char *folder)
{
    const char *golden = json_string_value(json_object_get(tmpl, "template_from_golden"));
    if (golden != NULL) return golden_text(path, golden);
    char *own = copy_text(json_object_get(tmpl, "template"));
    return own != NULL ? own : foreign_text(tmpl, folder);
}

static void run_template(const char *path, const json_t *set, const json_t *tmpl, const char *folder, template_tally *sum)
{
    const char *name = json_string_value(json_object_get(tmpl, "name"));
    char *text = template_text(path, tmpl, folder);
    im_error err = {0};
    im__template *t = NULL;
    const json_t *c;
    size_t i;
    if (text == NULL) {
        printf("[  SKIPPED ] %s: its text is not here\n", name);
        sum->left_out++;
        return;
    }
    im_status status = im__template_new(&t, text, strlen(text), &err);
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
    free(text);
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
    json_array_foreach(json_object_get(set, "templates"), i, tmpl) run_template(path, set, tmpl, folder, sum);
    json_decref(set);
    return 1;
}
