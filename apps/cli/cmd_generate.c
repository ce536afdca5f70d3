/* SPDX-License-Identifier: Apache-2.0 */
#include "common.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const arg_command about = {
    .name = "generate",
    .summary = "one answer to standard output, streamed",
    .usage = "MODEL [PROMPT | -]",
    .details = "The prompt is an argument, a file, a list of ids, or standard input (-). The model's chat template is used when it "
               "has one;\n"
               "--raw leaves it out. Greedy unless --temperature is given. With the same file and prompt the logits have the same "
               "bits for\n"
               "every --threads, --chunk, --cpu and --neighbours; logits_hash in the JSON shows it.",
    .examples = "  ironmule generate model.gguf \"Why is the sky blue?\"\n"
                "  ironmule generate model.gguf --raw --prompt-file story.txt --max-tokens 200 --temperature 0.8 --seed 7\n"
                "  ironmule generate model.gguf \"Hi\" --json --top 5",
    .least = 1,
    .most = 2,
};

typedef struct settings {
    run_options run;
    const char *prompt_file, *ids_file, *system, *pre;
    sampling_options sampling;
    int64_t max_tokens, top, neighbours;
    bool json, raw, plain, parse_special, ignore_eos;
    arg_list stop;
} settings;

/* What the callback needs: where text goes, and the steps of --top. */
typedef struct output {
    const settings *s;
    json_t *steps;
    progress bar;
} output;

/* ---- prompt -------------------------------------------------------------------------------------------------------------------------------- */

static char *prompt_text(const settings *s, const arg_rest *rest, size_t *n)
{
    const char *given = rest->count > 1 ? rest->item[1] : NULL;
    if (s->prompt_file != NULL) return read_file(about.name, s->prompt_file, n);
    if (given == NULL || strcmp(given, "-") == 0) return read_file(about.name, "-", n);
    *n = strlen(given);
    return strdup(given);
}

static im_status encode_plain(im_model *model, const settings *s, const char *text, size_t len, int32_t **ids, size_t *n,
                              im_error *err)
{
    if (s->system != NULL) say(about.name, "--system has no effect: this model has no chat template");
    return im_model_encode(model, text, len, s->plain ? IM_ENCODE_PLAIN : IM_ENCODE_DEFAULT, ids, n, err);
}

static im_status encode_chat(im_model *model, const settings *s, const char *text, size_t len, int32_t **ids, size_t *n,
                             im_error *err)
{
    im_chat_options o;
    im_chat_options_defaults(&o);
    o.parse_special = s->parse_special;
    json_t *messages = json_array();
    if (s->system != NULL)
        json_array_append_new(messages,
                              json_pack("{s:s, s:o}", "role", "system", "content", json_text(s->system, strlen(s->system))));
    json_array_append_new(messages, json_pack("{s:s, s:o}", "role", "user", "content", json_text(text, len)));
    char *dumped = json_dumps(messages, 0);
    im_status status = im_model_chat(model, dumped, &o, NULL, NULL, ids, n, err);
    free(dumped);
    json_decref(messages);
    return status;
}

/* The ids of the prompt, however it was given; NULL after a message. Free with free. */
static int32_t *prompt_ids(im_model *model, const settings *s, const arg_rest *rest, size_t *n)
{
    im_error err;
    im_model_info info;
    size_t len;
    int32_t *ids = NULL;
    if (s->ids_file != NULL) return read_ids(about.name, s->ids_file, n);
    char *text = prompt_text(s, rest, &len);
    if (text == NULL) return NULL;
    im_model_get_info(model, &info);
    im_status status = !s->raw && info.has_chat_template ? encode_chat(model, s, text, len, &ids, n, &err)
                                                         : encode_plain(model, s, text, len, &ids, n, &err);
    free(text);
    if (status == IM_OK && ids != NULL) return ids;
    if (status == IM_OK)
        say(about.name, "an empty prompt: at least one token is needed");
    else
        say_failed(about.name, &err);
    return NULL;
}

/* ---- output -------------------------------------------------------------------------------------------------------------------------------- */

/* The k largest logits, best first; the lower id first among equals. */
static json_t *top_logits(const float *logits, size_t n, size_t k)
{
    json_t *list = json_array();
    size_t *best = calloc(k, sizeof *best), count = 0;
    for (size_t i = 0; best != NULL && i < n; i++) {
        if (count == k && !(logits[i] > logits[best[k - 1]])) continue;
        size_t at = count < k ? count++ : k - 1;
        while (at > 0 && logits[i] > logits[best[at - 1]]) {
            best[at] = best[at - 1];
            at--;
        }
        best[at] = i;
    }
    for (size_t i = 0; i < count; i++) json_array_append_new(list, json_pack("[i, f]", (int)best[i], (double)logits[best[i]]));
    free(best);
    return list;
}

static bool on_token(void *user, const im_token_event *event)
{
    output *out = user;
    progress_end(&out->bar);
    if (out->steps != NULL)
        json_array_append_new(out->steps, json_pack("{s:i, s:o}", "id", (int)event->id, "top",
                                                    top_logits(event->logits, event->vocabulary, (size_t)out->s->top)));
    if (out->s->json) return true;
    fwrite(event->text, 1, event->text_len, stdout);
    return fflush(stdout) == 0;
}

static void on_prompt(void *user, size_t done, size_t total)
{
    output *out = user;
    char detail[48];
    snprintf(detail, sizeof detail, "%zu of %zu tokens", done, total);
    progress_draw(&out->bar, (double)done / (double)total, detail);
}

static json_t *id_list(const int32_t *ids, size_t n)
{
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++) json_array_append_new(list, json_integer(ids[i]));
    return list;
}

static double rate(size_t tokens, double ms) { return ms > 0 ? (double)tokens * 1e3 / ms : 0; }

static json_t *timings(const im_engine *e, const im_result *r)
{
    im_engine_info info;
    im_engine_get_info(e, &info);
    return json_pack("{s:f, s:f, s:f, s:f, s:f, s:f}", "load_ms", info.load_ms, "prompt_ms", r->prompt_ms, "first_token_ms",
                     r->first_token_ms, "generate_ms", r->generate_ms, "prompt_tokens_per_s", rate(r->prompt_tokens, r->prompt_ms),
                     "tokens_per_s", rate(r->count > 0 ? r->count - 1 : 0, r->generate_ms));
}

static const char *stop_name(im_stop_reason reason)
{
    static const char *const name[] = {
        [IM_STOP_NONE] = "cancelled", [IM_STOP_EOS] = "eos", [IM_STOP_LENGTH] = "length", [IM_STOP_STRING] = "stop"};
    return name[reason];
}

static int report(const im_engine *e, const output *out, const int32_t *prompt, const im_result *r)
{
    im_model_info model;
    im_engine_info info;
    im_model_get_info(im_engine_model(e), &model);
    im_engine_get_info(e, &info);
    json_t *usage = json_pack("{s:i, s:i, s:i}", "prompt_tokens", (int)r->prompt_tokens, "completion_tokens", (int)r->count,
                              "total_tokens", (int)(r->prompt_tokens + r->count));
    json_t *doc = json_pack("{s:o, s:o, s:o, s:o, s:s, s:o, s:o, s:o}", "model", json_text(model.name, strlen(model.name)),
                            "prompt_ids", id_list(prompt, r->prompt_tokens), "ids", id_list(r->ids, r->count), "text",
                            json_text(r->text, r->text_len), "stop_reason", stop_name(r->stop_reason), "logits_hash",
                            json_hex64(r->logits_hash), "usage", usage, "timings", timings(e, r));
    json_object_set_new(doc, "device", json_string(info.device));
    json_object_set_new(doc, "cpu_level", json_string(info.cpu_level));
    json_object_set_new(doc, "threads", json_integer(info.threads));
    if (info.clamped > 0) json_object_set_new(doc, "cache_values_clamped", json_integer((json_int_t)info.clamped));
    if (out->steps != NULL) json_object_set(doc, "steps", out->steps);
    return print_json(doc);
}

/* ---- the run ------------------------------------------------------------------------------------------------------------------------------------ */

static im_request_options request_options(const settings *s, output *out, const int32_t *ids, size_t n)
{
    im_request_options o;
    im_request_options_defaults(&o);
    o.prompt = ids;
    o.prompt_len = n;
    o.max_tokens = (uint32_t)s->max_tokens;
    o.sampling = sampling_of(about.name, &s->sampling);
    o.ignore_eos = s->ignore_eos;
    o.stop = s->stop.count > 0 ? s->stop.item : NULL;
    o.want_logits = out->steps != NULL;
    o.on_token = on_token;
    o.on_prompt = on_prompt;
    o.no_hash = !s->json; /* nobody sees it */
    o.user = out;
    o.neighbours = (int)s->neighbours;
    return o;
}

static int answer(im_engine *e, const settings *s, const int32_t *ids, size_t n)
{
    im_error err;
    im_request *request;
    im_result result;
    output out = {.s = s, .steps = s->top > 0 ? json_array() : NULL, .bar = {.label = "reading"}};
    im_request_options o = request_options(s, &out, ids, n);
    int code = EXIT_DONE;
    if (im_request_submit(e, &o, &request, &err) != IM_OK) return say_failed(about.name, &err);
    interrupt_set(request);
    im_status status = im_request_wait(request, &result, &err);
    interrupt_clear();
    progress_end(&out.bar);
    bool cancelled = status == IM_ERR_CANCELLED && interrupted();
    if (!s->json && result.text_len > 0 && isatty(STDOUT_FILENO)) putchar('\n');
    if (status != IM_OK && !cancelled)
        code = ferror(stdout) ? EXIT_FAILED : say_failed(about.name, &err);
    else if (s->json)
        code = report(e, &out, ids, &result);
    im_request_free(request);
    json_decref(out.steps);
    return cancelled && code == EXIT_DONE ? EXIT_INTERRUPTED : code;
}

/* Room for the prompt and its answer: a single answer needs no more, and a long prompt gets what it needs. */
static uint32_t context_for(const im_model *model, const settings *s, size_t prompt)
{
    im_model_info info;
    im_model_get_info(model, &info);
    uint64_t need = (uint64_t)prompt + (uint64_t)s->max_tokens + 1;
    if (need < 64 && s->neighbours > 0) need = 64;
    return need < info.context ? (uint32_t)need : info.context;
}

static int run(im_model *model, const settings *s, const arg_rest *rest)
{
    size_t n = 0;
    int32_t *ids = prompt_ids(model, s, rest, &n);
    int code = EXIT_FAILED;
    im_engine *e =
        ids == NULL ? NULL : open_engine(about.name, model, &s->run, context_for(model, s, n), 1 + (uint32_t)s->neighbours, false);
    if (e != NULL) code = answer(e, s, ids, n);
    im_engine_close(e);
    free(ids);
    return code;
}

int cmd_generate(int argc, char **argv)
{
    settings s = {.max_tokens = 256, .sampling = {.top_p = 1}};
    arg_rest rest;
    const arg_option options[] = {
        {"max-tokens", 'n', ARG_INT, &s.max_tokens, "N", "longest answer (default 256)", 1, 1 << 24},
        {"prompt-file", 'f', ARG_STRING, &s.prompt_file, "FILE", "prompt from a file (- for standard input)", 0, 0},
        {"ids-file", 0, ARG_STRING, &s.ids_file, "FILE", "prompt as a JSON list of token ids, used as they are", 0, 0},
        {"system", 's', ARG_STRING, &s.system, "TEXT", "system message in front of the prompt", 0, 0},
        {"raw", 0, ARG_FLAG, &s.raw, NULL, "leave the chat template out: continue the text", 0, 0},
        {"plain", 0, ARG_FLAG, &s.plain, NULL, "with --raw: control tokens in the text are plain text", 0, 0},
        {"parse-special", 0, ARG_FLAG, &s.parse_special, NULL, "control tokens typed in a chat message become tokens", 0, 0},
        {"pre", 0, ARG_STRING, &s.pre, "NAME", "force this pre-tokeniser", 0, 0},
        SAMPLING_OPTIONS(s.sampling),
        {"stop", 0, ARG_LIST, &s.stop, "TEXT", "end the answer at this text; may be repeated", 0, 0},
        {"ignore-eos", 0, ARG_FLAG, &s.ignore_eos, NULL, "go on after an end token", 0, 0},
        {"json", 0, ARG_FLAG, &s.json, NULL, "one JSON document in place of the text", 0, 0},
        {"top", 0, ARG_INT, &s.top, "K", "with --json: the K largest logits of each step", 1, 1000},
        {"neighbours", 0, ARG_INT, &s.neighbours, "N", "so many other sequences share the steps (a proof)", 0, 255},
        RUN_OPTIONS(s.run),
        {NULL, 0, ARG_FLAG, NULL, NULL, NULL, 0, 0},
    };
    int code = args_parse(&about, options, argc, argv, &rest);
    if (code >= 0) return code;
    if ((s.prompt_file != NULL) + (s.ids_file != NULL) + (rest.count > 1) > 1)
        return args_wrong(&about, "the prompt is given twice");
    if (s.system != NULL && (s.raw || s.ids_file != NULL)) return args_wrong(&about, "--system needs the model's chat template");
    if (s.top > 0 && !s.json) return args_wrong(&about, "--top needs --json");
    for (size_t i = 0; i < s.stop.count; i++)
        if (s.stop.item[i][0] == 0) return args_wrong(&about, "--stop: an empty text would stop at once");
    im_model *model = open_model(about.name, rest.item[0], false, s.pre);
    if (model == NULL) return EXIT_FAILED;
    code = run(model, &s, &rest);
    im_model_close(model);
    return code;
}
