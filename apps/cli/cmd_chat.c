/* SPDX-License-Identifier: Apache-2.0 */
#include "common.h"
#include "line.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const arg_command about = {
    .name = "chat",
    .summary = "a conversation in the terminal",
    .usage = "MODEL",
    .details = "Lines are edited as usual (arrows, history, Ctrl-R); a backslash at the end continues a line. Ctrl-C stops an "
               "answer, Ctrl-D\n"
               "leaves. Commands: /help /clear /stats /exit. Nothing is written to disk.",
    .examples = "  ironmule chat model.gguf --system \"Answer in one sentence.\"",
    .least = 1,
    .most = 1,
};

typedef struct settings {
    run_options run;
    const char *system, *chat_template;
    sampling_options sampling;
    int64_t max_tokens;
    bool stats;
} settings;

typedef struct conversation {
    const settings *s;
    im_engine *engine;
    im_sampling sampling;
    char *chat_template;
    json_t *messages;
    bool colour;
    progress bar;
    uint64_t answers;
    size_t tokens;  /* generated so far */
    im_result last; /* numbers only: its pointers are not used after the answer */
} conversation;

static void start_over(conversation *c)
{
    json_decref(c->messages);
    c->messages = json_array();
    if (c->s->system != NULL)
        json_array_append_new(c->messages,
                              json_pack("{s:s, s:o}", "role", "system", "content", json_text(c->s->system, strlen(c->s->system))));
}

static void add_message(conversation *c, const char *role, const char *text, size_t n)
{
    json_array_append_new(c->messages, json_pack("{s:s, s:o}", "role", role, "content", json_text(text, n)));
}

static void drop_last_message(conversation *c) { json_array_remove(c->messages, json_array_size(c->messages) - 1); }

/* ---- commands ------------------------------------------------------------------------------------------------------------------------------ */

static void print_stats(const conversation *c)
{
    const im_result *r = &c->last;
    im_engine_info info;
    im_engine_get_info(c->engine, &info);
    if (c->answers == 0) {
        fprintf(stderr, "no answer yet; %d threads, %s kernels, context %u\n", info.threads, info.cpu_level, info.context);
        return;
    }
    double prompt_rate = r->prompt_ms > 0 ? (double)(r->prompt_tokens - r->cached_tokens) * 1e3 / r->prompt_ms : 0;
    double rate = r->generate_ms > 0 && r->count > 1 ? (double)(r->count - 1) * 1e3 / r->generate_ms : 0;
    fprintf(
        stderr,
        "last answer: %zu prompt tokens (%zu known) at %.1f/s, first token after %.0f ms, %zu tokens at %.1f/s; conversation: %llu "
        "answers, %zu tokens, %zu of %u positions\n",
        r->prompt_tokens, r->cached_tokens, prompt_rate, r->first_token_ms, r->count, rate, (unsigned long long)c->answers,
        c->tokens, r->prompt_tokens + r->count, info.context);
}

static void print_help(void)
{
    fputs("/help   this text\n/clear  forget the conversation\n/stats  speed of the last answer\n/exit   leave (also "
          "Ctrl-D)\nCtrl-C stops an answer.\n",
          stderr);
}

/* One word behind a slash was meant as a command; a path or a sentence goes to the model. */
static bool looks_like_command(const char *line)
{
    size_t n = strspn(line + 1, "abcdefghijklmnopqrstuvwxyz");
    return line[0] == '/' && n > 0 && line[n + 1] == 0;
}

/* True when the line was a command; *leave is set by /exit. */
static bool run_command(conversation *c, const char *line, bool *leave)
{
    if (line[0] != '/') return false;
    if (strcmp(line, "/help") == 0)
        print_help();
    else if (strcmp(line, "/stats") == 0)
        print_stats(c);
    else if (strcmp(line, "/exit") == 0 || strcmp(line, "/quit") == 0)
        *leave = true;
    else if (strcmp(line, "/clear") == 0) {
        start_over(c);
        fputs("the conversation is forgotten\n", stderr);
    } else if (looks_like_command(line)) {
        fprintf(stderr, "unknown command %s; /help lists them, a space in front sends it to the model\n", line);
    } else {
        return false;
    }
    return true;
}

/* ---- answers ---------------------------------------------------------------------------------------------------------------------------------- */

static bool on_token(void *user, const im_token_event *event)
{
    conversation *c = user;
    progress_end(&c->bar);
    fwrite(event->text, 1, event->text_len, stdout);
    return fflush(stdout) == 0;
}

static void on_prompt(void *user, size_t done, size_t total)
{
    conversation *c = user;
    progress_draw(&c->bar, (double)done / (double)total, NULL);
}

static im_status submit(conversation *c, im_request **request, im_error *err)
{
    int32_t *ids = NULL;
    im_request_options o;
    im_chat_options chat;
    im_request_options_defaults(&o);
    im_chat_options_defaults(&chat);
    chat.chat_template = c->chat_template;
    char *messages = json_dumps(c->messages, 0);
    im_status status = im_model_chat(im_engine_model(c->engine), messages, &chat, NULL, NULL, &ids, &o.prompt_len, err);
    free(messages);
    if (status != IM_OK) return status;
    o.prompt = ids;
    o.max_tokens = (uint32_t)c->s->max_tokens;
    o.sampling = c->sampling;
    o.sampling.seed += c->answers;
    o.on_token = on_token;
    o.on_prompt = on_prompt;
    o.no_hash = true; /* nobody sees it, and answers come faster without */
    o.user = c;
    status = im_request_submit(c->engine, &o, request, err);
    im_free(ids);
    return status;
}

static void finish(conversation *c, const im_result *r, im_status status)
{
    fputs(c->colour ? "\033[0m\n" : "\n", stdout);
    fflush(stdout);
    add_message(c, "assistant", r->text, r->text_len);
    c->last = *r;
    c->answers++;
    c->tokens += r->count;
    if (status == IM_ERR_CANCELLED)
        fputs("[stopped]\n", stderr);
    else if (r->stop_reason == IM_STOP_LENGTH)
        fputs("[cut: --max-tokens or --context reached]\n", stderr);
    if (c->s->stats) print_stats(c);
}

static int answer(conversation *c, const char *line)
{
    im_error err;
    im_request *request;
    im_result result;
    add_message(c, "user", line, strlen(line));
    c->bar = (progress){.label = "reading"};
    if (submit(c, &request, &err) != IM_OK) {
        drop_last_message(c);
        say_failed(about.name, &err);
        if (err.status == IM_ERR_CONTEXT)
            fputs("/clear begins a new conversation; --context makes room for a longer one\n", stderr);
        return EXIT_FAILED;
    }
    if (c->colour) fputs("\033[36m", stdout);
    interrupt_set(request);
    im_status status = im_request_wait(request, &result, &err);
    interrupt_clear();
    progress_end(&c->bar);
    if (status == IM_OK || status == IM_ERR_CANCELLED) {
        finish(c, &result, status);
    } else {
        drop_last_message(c);
        say_failed(about.name, &err);
    }
    im_request_free(request);
    return status == IM_OK || status == IM_ERR_CANCELLED ? EXIT_DONE : EXIT_FAILED;
}

/* ---- the loop ------------------------------------------------------------------------------------------------------------------------------------ */

static void greet(const conversation *c)
{
    im_model_info model;
    im_engine_info info;
    im_model_get_info(im_engine_model(c->engine), &model);
    im_engine_get_info(c->engine, &info);
    fprintf(stderr, "%s (%s), %d threads, %s kernels. /help for commands.\n", model.name, model.quantisation, info.threads,
            info.cpu_level);
}

static int loop(conversation *c, line_reader *lines)
{
    int code = EXIT_DONE;
    bool leave = false, terminal = line_is_terminal(lines);
    if (terminal) greet(c);
    while (!leave) {
        const char *line;
        line_status status = line_read(lines, &line);
        if (status == LINE_END) break;
        if (status == LINE_INTERRUPTED || line[strspn(line, " \t")] == 0 || run_command(c, line, &leave)) continue;
        code = answer(c, line);
        if (code != EXIT_DONE && !terminal) break; /* a script must see it */
    }
    if (terminal && !leave) putchar('\n');
    return code;
}

static int run(im_engine *engine, const settings *s)
{
    conversation c = {.s = s, .engine = engine, .colour = use_colour(stdout), .sampling = sampling_of(about.name, &s->sampling)};
    size_t n;
    int code = EXIT_FAILED;
    if (s->chat_template != NULL && (c.chat_template = read_file(about.name, s->chat_template, &n)) == NULL) return code;
    line_reader *lines = line_open("> ");
    start_over(&c);
    code = lines == NULL ? say(about.name, "out of memory") : loop(&c, lines);
    line_close(lines);
    json_decref(c.messages);
    free(c.chat_template);
    return code;
}

/* Room for a conversation; the memory is taken as it grows. */
static uint32_t context_for(const im_model *model)
{
    im_model_info info;
    im_model_get_info(model, &info);
    return info.context < 8192 ? info.context : 8192;
}

static int refuse(const im_model_info *info)
{
    return say(about.name,
               "%s has no chat template: it was not made for conversations. 'ironmule generate --raw' continues a text; "
               "--chat-template gives one",
               info->name);
}

int cmd_chat(int argc, char **argv)
{
    settings s = {.max_tokens = 1024, .sampling = {.top_p = 1}};
    arg_rest rest;
    const arg_option options[] = {
        {"system", 's', ARG_STRING, &s.system, "TEXT", "system message of the conversation", 0, 0},
        {"max-tokens", 'n', ARG_INT, &s.max_tokens, "N", "longest answer (default 1024)", 1, 1 << 24},
        {"chat-template", 0, ARG_STRING, &s.chat_template, "FILE", "this template in place of the model's", 0, 0},
        SAMPLING_OPTIONS(s.sampling),
        {"stats", 0, ARG_FLAG, &s.stats, NULL, "speed after each answer", 0, 0},
        RUN_OPTIONS(s.run),
        {NULL, 0, ARG_FLAG, NULL, NULL, NULL, 0, 0},
    };
    int code = args_parse(&about, options, argc, argv, &rest);
    im_model_info info;
    if (code >= 0) return code;
    im_model *model = open_model(about.name, rest.item[0], false, NULL);
    if (model == NULL) return EXIT_FAILED;
    im_model_get_info(model, &info);
    im_engine *engine = NULL;
    if (!info.has_chat_template && s.chat_template == NULL)
        code = refuse(&info);
    else
        engine = open_engine(about.name, model, &s.run, context_for(model), 1, true);
    if (engine != NULL)
        code = run(engine, &s);
    else
        code = EXIT_FAILED;
    im_engine_close(engine);
    im_model_close(model);
    return code;
}
