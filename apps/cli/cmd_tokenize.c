/* SPDX-License-Identifier: Apache-2.0 */
#include "common.h"

#include <stdlib.h>
#include <string.h>

static const arg_command about = {
    .name = "tokenize",
    .summary = "token ids and pieces of a text",
    .usage = "MODEL [TEXT | -]",
    .details = "Without --json prints one token a line: its id and its piece as the file stores it. No weights are read.",
    .examples = "  ironmule tokenize model.gguf \"Hello world\"\n  ironmule tokenize model.gguf --json --no-bos --file text.txt",
    .least = 1,
    .most = 2,
};

typedef struct settings {
    const char *file, *pre;
    bool json, no_bos, no_special;
} settings;

static json_t *document(const im_model *model, const int32_t *ids, size_t n)
{
    json_t *list = json_array(), *pieces = json_array();
    for (size_t i = 0; i < n; i++) {
        const char *piece = "";
        size_t len = 0;
        im_model_piece(model, ids[i], &piece, &len);
        json_array_append_new(list, json_integer(ids[i]));
        json_array_append_new(pieces, json_text(piece, len));
    }
    return json_pack("{s:o, s:o}", "ids", list, "pieces", pieces);
}

static int print_lines(const im_model *model, const int32_t *ids, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const char *piece = "";
        size_t len = 0;
        im_model_piece(model, ids[i], &piece, &len);
        json_t *text = json_text(piece, len); /* quoted and escaped: a piece may hold a newline */
        char *shown = json_dumps(text, JSON_ENCODE_ANY);
        printf("%8d %s\n", ids[i], shown == NULL ? "" : shown);
        free(shown);
        json_decref(text);
    }
    return EXIT_DONE;
}

static int run(const im_model *model, const settings *s, const char *text, size_t len)
{
    im_error err;
    int32_t *ids;
    size_t n;
    unsigned flags = (s->no_bos ? IM_ENCODE_NO_BOS : 0) | (s->no_special ? IM_ENCODE_PLAIN : 0);
    if (im_model_encode(model, text, len, flags, &ids, &n, &err) != IM_OK) return say_failed(about.name, &err);
    int code = s->json ? print_json(document(model, ids, n)) : print_lines(model, ids, n);
    im_free(ids);
    return code;
}

static char *input(const settings *s, const arg_rest *rest, size_t *len)
{
    if (s->file != NULL) return read_file(about.name, s->file, len);
    if (rest->count < 2 || strcmp(rest->item[1], "-") == 0) return read_file(about.name, "-", len);
    *len = strlen(rest->item[1]);
    return strdup(rest->item[1]);
}

int cmd_tokenize(int argc, char **argv)
{
    settings s = {0};
    arg_rest rest;
    const arg_option options[] = {
        {"file", 'f', ARG_STRING, &s.file, "FILE", "text from a file (- for standard input)", 0, 0},
        {"no-bos", 0, ARG_FLAG, &s.no_bos, NULL, "add no BOS or EOS token", 0, 0},
        {"no-special", 0, ARG_FLAG, &s.no_special, NULL, "control tokens in the text are plain text", 0, 0},
        {"pre", 0, ARG_STRING, &s.pre, "NAME", "force this pre-tokeniser", 0, 0},
        {"json", 0, ARG_FLAG, &s.json, NULL, "one JSON document: ids, pieces", 0, 0},
        {NULL, 0, ARG_FLAG, NULL, NULL, NULL, 0, 0},
    };
    int code = args_parse(&about, options, argc, argv, &rest);
    size_t len;
    if (code >= 0) return code;
    if (s.file != NULL && rest.count > 1) return args_wrong(&about, "the text is given twice");
    im_model *model = open_model(about.name, rest.item[0], true, s.pre);
    char *text = model == NULL ? NULL : input(&s, &rest, &len);
    code = text == NULL ? EXIT_FAILED : run(model, &s, text, len);
    free(text);
    im_model_close(model);
    return code;
}
