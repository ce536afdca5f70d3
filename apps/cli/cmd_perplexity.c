/* SPDX-License-Identifier: Apache-2.0 */
#include "common.h"

#include <math.h>
#include <stdlib.h>

static const arg_command about = {
    .name = "perplexity",
    .summary = "how well a model predicts a text",
    .usage = "MODEL [--file FILE | --ids-file FILE]",
    .details = "Every token after the first is scored given those before it: nll is the mean of minus the natural log-probability, "
               "perplexity its\n"
               "exponential. A text longer than --context is cut into windows of that many tokens, each scored by itself (tokens "
               "counts the\n"
               "scored ones). The text is tokenised with BOS where the model wants one; ids are used as they are.",
    .examples = "  ironmule perplexity model.gguf --file book.txt --context 1024\n  ironmule perplexity model.gguf --ids-file "
                "ids.json --json --per-token",
    .least = 1,
    .most = 1,
};

typedef struct settings {
    run_options run;
    const char *file, *ids_file, *pre;
    bool json, per_token;
} settings;

typedef struct scores {
    float *logprob, *top1_logprob;
    int32_t *top1;
    size_t count;
    double nll; /* sum */
} scores;

typedef struct position {
    progress bar;
    size_t before, total;
} position;

static bool draw(void *user, size_t done, size_t total)
{
    position *p = user;
    char detail[64];
    (void)total;
    snprintf(detail, sizeof detail, "%zu of %zu tokens", p->before + done, p->total);
    progress_draw(&p->bar, (double)(p->before + done) / (double)p->total, detail);
    return !interrupted();
}

/* Scores windows of the engine's context one after the other. */
static im_status score(im_engine *e, const int32_t *ids, size_t n, scores *out, im_error *err)
{
    im_engine_info info;
    im_engine_get_info(e, &info);
    position p = {.bar = {.label = "scoring"}, .total = n};
    im_status status = IM_OK;
    for (size_t at = 0; at + 1 < n && status == IM_OK; at += info.context) {
        size_t len = n - at < info.context ? n - at : info.context, to = out->count;
        if (len < 2) break;
        p.before = at;
        status = im_engine_score(e, ids + at, len, out->logprob + to, out->top1 + to, out->top1_logprob + to, draw, &p, err);
        for (size_t i = 0; i + 1 < len && status == IM_OK; i++) out->nll -= (double)out->logprob[to + i];
        if (status == IM_OK) out->count += len - 1;
    }
    progress_end(&p.bar);
    return status;
}

static json_t *numbers(const float *x, size_t n)
{
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++) json_array_append_new(list, json_real((double)x[i]));
    return list;
}

static int report(const settings *s, const scores *out)
{
    double nll = out->nll / (double)out->count, perplexity = exp(nll);
    if (!s->json) {
        printf("tokens %zu\nnll %.6f\nperplexity %.4f\n", out->count, nll, perplexity);
        return EXIT_DONE;
    }
    json_t *doc = json_pack("{s:I, s:f, s:f}", "tokens", (json_int_t)out->count, "nll", nll, "perplexity", perplexity);
    if (s->per_token) {
        json_t *top1 = json_array();
        for (size_t i = 0; i < out->count; i++) json_array_append_new(top1, json_integer(out->top1[i]));
        json_object_set_new(doc, "per_token", numbers(out->logprob, out->count));
        json_object_set_new(doc, "top1", top1);
        json_object_set_new(doc, "top1_logprob", numbers(out->top1_logprob, out->count));
    }
    return print_json(doc);
}

static int run(im_engine *e, const settings *s, const int32_t *ids, size_t n)
{
    im_error err;
    scores out = {
        .logprob = calloc(n, sizeof(float)), .top1_logprob = calloc(n, sizeof(float)), .top1 = calloc(n, sizeof(int32_t))};
    int code = EXIT_FAILED;
    if (out.logprob == NULL || out.top1_logprob == NULL || out.top1 == NULL) {
        say(about.name, "out of memory");
    } else {
        interrupt_set(NULL);
        im_status status = score(e, ids, n, &out, &err);
        interrupt_clear();
        code = status == IM_OK ? report(s, &out) : interrupted() ? EXIT_INTERRUPTED : say_failed(about.name, &err);
    }
    free(out.logprob);
    free(out.top1_logprob);
    free(out.top1);
    return code;
}

/* The ids to score; NULL after a message. Free with im_free. */
static int32_t *input(const im_model *model, const settings *s, size_t *n)
{
    im_error err;
    size_t len;
    int32_t *ids;
    if (s->ids_file != NULL) return read_ids(about.name, s->ids_file, n);
    char *text = read_file(about.name, s->file == NULL ? "-" : s->file, &len);
    if (text == NULL) return NULL;
    im_status status = im_model_encode(model, text, len, IM_ENCODE_PLAIN, &ids, n, &err);
    free(text);
    if (status == IM_OK && ids != NULL) return ids;
    if (status == IM_OK)
        say(about.name, "the text is empty; at least 2 tokens are needed");
    else
        say_failed(about.name, &err);
    return NULL;
}

static uint32_t context_for(const im_model *model, size_t n)
{
    im_model_info info;
    im_model_get_info(model, &info);
    uint32_t most = info.context < 4096 ? info.context : 4096;
    return n < 2 ? 2 : n < most ? (uint32_t)n : most;
}

int cmd_perplexity(int argc, char **argv)
{
    settings s = {0};
    arg_rest rest;
    const arg_option options[] = {
        {"file", 'f', ARG_STRING, &s.file, "FILE", "text from a file (- for standard input, the default)", 0, 0},
        {"ids-file", 0, ARG_STRING, &s.ids_file, "FILE", "a JSON list of token ids, used as they are", 0, 0},
        {"per-token", 0, ARG_FLAG, &s.per_token, NULL, "with --json: log-probability of each token", 0, 0},
        {"json", 0, ARG_FLAG, &s.json, NULL, "one JSON document: tokens, nll, perplexity", 0, 0},
        {"pre", 0, ARG_STRING, &s.pre, "NAME", "force this pre-tokeniser", 0, 0},
        RUN_OPTIONS(s.run),
        {NULL, 0, ARG_FLAG, NULL, NULL, NULL, 0, 0},
    };
    size_t n = 0;
    int code = args_parse(&about, options, argc, argv, &rest);
    if (code >= 0) return code;
    if (s.file != NULL && s.ids_file != NULL) return args_wrong(&about, "the text is given twice");
    if (s.per_token && !s.json) return args_wrong(&about, "--per-token needs --json");
    im_model *model = open_model(about.name, rest.item[0], false, s.pre);
    int32_t *ids = model == NULL ? NULL : input(model, &s, &n);
    if (ids != NULL && n < 2) say(about.name, "%zu tokens are too few to score; at least 2 are needed", n);
    im_engine *e = ids == NULL || n < 2 ? NULL : open_engine(about.name, model, &s.run, context_for(model, n), 1, false);
    code = e == NULL ? EXIT_FAILED : run(e, &s, ids, n);
    im_engine_close(e);
    im_free(ids);
    im_model_close(model);
    return code;
}
