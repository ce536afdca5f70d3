/* SPDX-License-Identifier: Apache-2.0 */
#include "common.h"

#include <stdlib.h>
#include <string.h>

static const arg_command about = {
    .name = "benchmark",
    .summary = "speed of prompts and answers, in rows comparable with other tools",
    .usage = "MODEL",
    .details =
        "Rows: ppN reads a prompt of N tokens; tgN writes N tokens, one by one; tgN@dM writes them behind a prompt of M "
        "tokens, whose reading is\n"
        "not counted. They mean what llama-bench's rows of these names mean: random tokens, no tokenising, no sampling. tgNxS is S "
        "answers of N\n"
        "tokens at once, all their tokens counted. One warm-up of each row is not counted. Tokens a second are given as median, "
        "best and "
        "worst of\n"
        "the repetitions.",
    .examples =
        "  ironmule benchmark model.gguf --rows pp128,pp512,tg64,tg64@d1024\n  ironmule benchmark model.gguf --threads 1 --json",
    .least = 1,
    .most = 1,
};

enum { MOST_ROWS = 32, MOST_STREAMS = 64 };

typedef struct settings {
    run_options run;
    const char *rows;
    int64_t repetitions;
    bool json, no_limits;
} settings;

typedef struct bench_row {
    char name[32];
    uint32_t prompt, generate; /* tokens read before, tokens written; generate 0: the prompt is what counts */
    uint32_t streams;          /* sequences at once */
    double *rate;              /* [repetitions] tokens a second */
} bench_row;

/* ---- rows --------------------------------------------------------------------------------------------------------------------------------- */

static bool parse_row(const char *text, size_t n, bench_row *row)
{
    unsigned count, depth = 0, streams = 1;
    int used = 0;
    if (n == 0 || n >= sizeof row->name) return false;
    memcpy(row->name, text, n);
    row->name[n] = 0;
    bool prompt = sscanf(row->name, "pp%7u%n", &count, &used) == 1 && (size_t)used == n;
    bool plain = !prompt && sscanf(row->name, "tg%7u%n", &count, &used) == 1 && (size_t)used == n;
    bool deep = !prompt && !plain && sscanf(row->name, "tg%7u@d%7u%n", &count, &depth, &used) == 2 && (size_t)used == n;
    bool many = !prompt && !plain && !deep && sscanf(row->name, "tg%7ux%3u%n", &count, &streams, &used) == 2 && (size_t)used == n;
    row->prompt = prompt ? count : deep ? depth : 0;
    row->generate = prompt ? 0 : count;
    row->streams = many ? streams : 1;
    return (prompt || plain || deep || many) && count > 0 && row->streams > 0 && row->streams <= MOST_STREAMS;
}

/* The number of rows, or 0 after a message. */
static size_t parse_rows(const char *list, bench_row *rows)
{
    size_t count = 0;
    while (*list != 0) {
        size_t n = strcspn(list, ",");
        if (count == MOST_ROWS || !parse_row(list, n, &rows[count])) {
            args_wrong(&about, "--rows: \"%.*s\" is no row; write ppN, tgN, tgN@dM or tgNxS, at most %d of them", (int)n, list,
                       MOST_ROWS);
            return 0;
        }
        count++;
        list += n + (list[n] == ',');
    }
    if (count == 0) args_wrong(&about, "--rows: the list is empty");
    return count;
}

/* Positions that the longest row needs: what it reads, the one token that starts an answer, what it writes. */
static uint32_t positions(const bench_row *rows, size_t count)
{
    uint32_t most = 0;
    for (size_t i = 0; i < count; i++) {
        uint32_t n = rows[i].prompt + rows[i].generate + 2;
        if (n > most) most = n;
    }
    return most;
}

static uint32_t most_streams(const bench_row *rows, size_t count)
{
    uint32_t most = 1;
    for (size_t i = 0; i < count; i++)
        if (rows[i].streams > most) most = rows[i].streams;
    return most;
}

/* ---- one run -------------------------------------------------------------------------------------------------------------------------------- */

/* Ids from a fixed linear congruential sequence: the same for every run and machine. */
static int32_t *random_ids(uint32_t vocabulary, size_t n)
{
    int32_t *ids = calloc(n, sizeof *ids);
    uint64_t state = 1;
    for (size_t i = 0; ids != NULL && i < n; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        ids[i] = (int32_t)((state >> 33) % vocabulary);
    }
    return ids;
}

static im_status submit(im_engine *e, const bench_row *row, const int32_t *ids, im_request **request, im_error *err)
{
    im_request_options o;
    im_request_options_defaults(&o);
    o.prompt = ids;
    o.prompt_len = row->generate > 0 ? row->prompt + 1 : row->prompt;
    o.max_tokens = row->generate + 1;
    o.ignore_eos = o.no_hash = true;
    return im_request_submit(e, &o, request, err);
}

/* Waits for a request of the row, if there is one, and frees it; *ms grows to the time that it took. */
static im_status finish(im_request *request, const bench_row *row, double *ms, im_error *err)
{
    im_result result;
    if (request == NULL) return IM_OK;
    interrupt_set(request);
    im_status status = im_request_wait(request, &result, err);
    interrupt_clear();
    im_request_free(request);
    if (status != IM_OK) return status;
    double took = row->generate > 0 ? result.generate_ms : result.prompt_ms;
    if (took > *ms) *ms = took;
    return IM_OK;
}

/* Tokens a second of one repetition; negative after a message. An answer starts from one token, as an empty cache has nothing to continue. */
static double run_once(im_engine *e, const bench_row *row, const int32_t *ids)
{
    im_error err, later;
    im_request *request[MOST_STREAMS] = {NULL};
    im_status status = IM_OK;
    double ms = 0;
    for (uint32_t i = 0; i < row->streams && status == IM_OK; i++) status = submit(e, row, ids + i, &request[i], &err);
    for (uint32_t i = 0; i < row->streams; i++) {
        im_status ended = finish(request[i], row, &ms, status == IM_OK ? &err : &later);
        if (status == IM_OK) status = ended;
    }
    if (status != IM_OK) return say_failed(about.name, &err), -1;
    return row->streams * (row->generate > 0 ? row->generate : row->prompt) * 1e3 / ms;
}

/* Repetition by repetition over all rows, so that a drift of the machine's speed meets all of them; the first round is the warm-up. */
static bool run_rows(im_engine *e, bench_row *rows, size_t count, const int32_t *ids, size_t repetitions)
{
    progress bar = {.label = "measuring"};
    for (size_t round = 0; round <= repetitions; round++)
        for (size_t i = 0; i < count; i++) {
            progress_draw(&bar, (double)(round * count + i) / (double)((repetitions + 1) * count), rows[i].name);
            double rate = run_once(e, &rows[i], ids);
            if (rate < 0) return progress_end(&bar), false;
            if (round > 0) rows[i].rate[round - 1] = rate;
        }
    progress_end(&bar);
    return true;
}

/* ---- report ---------------------------------------------------------------------------------------------------------------------------------- */

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(const double *sorted, size_t n)
{
    return n % 2 == 1 ? sorted[n / 2] : (sorted[n / 2 - 1] + sorted[n / 2]) / 2;
}

/* What share of the machine's limit a speed is: bytes read for an answer, integer operations for a prompt; 0: not known. */
static double share(const bench_row *row, double rate, const im_machine_limits *limits, const im_engine_info *info,
                    const im_model_info *model)
{
    if (row->generate > 0)
        return limits->read_bytes_per_s > 0 ? rate / row->streams * (double)info->memory.weights / limits->read_bytes_per_s : 0;
    return limits->int8_ops_per_s > 0 ? rate * 2 * (double)model->products / limits->int8_ops_per_s : 0;
}

static json_t *row_report(const bench_row *row, size_t repetitions)
{
    json_t *samples = json_array();
    for (size_t i = 0; i < repetitions; i++) json_array_append_new(samples, json_real(row->rate[i]));
    qsort(row->rate, repetitions, sizeof *row->rate, by_size);
    return json_pack("{s:s, s:i, s:i, s:f, s:f, s:f, s:o}", "row", row->name, "prompt", (int)row->prompt, "generate",
                     (int)row->generate, "median", median(row->rate, repetitions), "best", row->rate[repetitions - 1], "worst",
                     row->rate[0], "samples", samples);
}

static json_t *document(const im_engine_info *info, const im_model_info *model, const im_machine_limits *limits)
{
    return json_pack("{s:o, s:s, s:i, s:s, s:s, s:f, s:I, s:I, s:f, s:f}", "model", json_text(model->name, strlen(model->name)),
                     "version", im_version(), "threads", info->threads, "cpu_level", info->cpu_level, "kernels", info->kernels,
                     "load_ms", info->load_ms, "weights_bytes", (json_int_t)info->memory.weights, "products",
                     (json_int_t)model->products, "read_bytes_per_s", limits->read_bytes_per_s, "int8_ops_per_s",
                     limits->int8_ops_per_s);
}

static void print_rows(const json_t *list)
{
    size_t i;
    json_t *row;
    printf("%-12s %10s %10s %10s %10s\n", "row", "median/s", "best/s", "worst/s", "of limit");
    json_array_foreach(list, i, row)
    {
        double of_limit = json_real_value(json_object_get(row, "of_limit"));
        printf("%-12s %10.2f %10.2f %10.2f ", json_string_value(json_object_get(row, "row")),
               json_real_value(json_object_get(row, "median")), json_real_value(json_object_get(row, "best")),
               json_real_value(json_object_get(row, "worst")));
        if (of_limit > 0)
            printf("%9.0f%%\n", 100 * of_limit);
        else
            printf("%10s\n", "-");
    }
}

static int report(const im_engine *e, const settings *s, const bench_row *rows, size_t count)
{
    im_engine_info info;
    im_model_info model;
    im_machine_limits limits = {0};
    im_engine_get_info(e, &info);
    im_model_get_info(im_engine_model(e), &model);
    bool limited = !s->no_limits && strcmp(info.device, "cpu") == 0;
    if (limited) im_machine_measure(info.threads, info.cpu_level, &limits, NULL);
    json_t *doc = document(&info, &model, &limits), *list = json_array();
    for (size_t i = 0; i < count; i++) {
        json_t *row = row_report(&rows[i], (size_t)s->repetitions);
        json_object_set_new(row, "of_limit",
                            json_real(share(&rows[i], json_real_value(json_object_get(row, "median")), &limits, &info, &model)));
        json_array_append_new(list, row);
    }
    json_object_set(doc, "rows", list);
    if (!s->json) {
        printf("%s, %d threads, %s kernels\n", model.name, info.threads, info.cpu_level);
        print_rows(list);
        if (limited)
            printf("limits: memory is read at %.1f GB/s, %.0f billion 8-bit operations/s\n", limits.read_bytes_per_s / 1e9,
                   limits.int8_ops_per_s / 1e9);
    }
    json_decref(list);
    if (s->json) return print_json(doc);
    json_decref(doc);
    return EXIT_DONE;
}

/* ---- the command --------------------------------------------------------------------------------------------------------------------------------- */

static int measure(im_model *model, const settings *s, bench_row *rows, size_t count)
{
    im_model_info info;
    im_model_get_info(model, &info);
    uint32_t need = positions(rows, count);
    im_engine *e = open_engine(about.name, model, &s->run, need, most_streams(rows, count), false);
    int32_t *ids = e == NULL ? NULL : random_ids(info.vocabulary, need + MOST_STREAMS);
    double *rates = calloc(count * (size_t)s->repetitions, sizeof *rates);
    int code = EXIT_FAILED;
    for (size_t i = 0; i < count; i++) rows[i].rate = rates + i * (size_t)s->repetitions;
    if (ids != NULL && rates != NULL && run_rows(e, rows, count, ids, (size_t)s->repetitions)) code = report(e, s, rows, count);
    free(rates);
    free(ids);
    im_engine_close(e);
    return interrupted() ? EXIT_INTERRUPTED : code;
}

int cmd_benchmark(int argc, char **argv)
{
    settings s = {.rows = "pp128,pp512,tg64", .repetitions = 5};
    bench_row rows[MOST_ROWS];
    arg_rest rest;
    const arg_option options[] = {
        {"rows", 'r', ARG_STRING, &s.rows, "LIST", "what to measure (default pp128,pp512,tg64)", 0, 0},
        {"repetitions", 'n', ARG_INT, &s.repetitions, "N", "of each row (default 5)", 1, 1000},
        {"no-limits", 0, ARG_FLAG, &s.no_limits, NULL, "do not measure the machine's memory bandwidth", 0, 0},
        {"json", 0, ARG_FLAG, &s.json, NULL, "one JSON document with every sample", 0, 0},
        RUN_OPTIONS(s.run),
        {NULL, 0, ARG_FLAG, NULL, NULL, NULL, 0, 0},
    };
    int code = args_parse(&about, options, argc, argv, &rest);
    if (code >= 0) return code;
    size_t count = parse_rows(s.rows, rows);
    if (count == 0) return EXIT_USAGE;
    im_model *model = open_model(about.name, rest.item[0], false, NULL);
    if (model == NULL) return EXIT_FAILED;
    code = measure(model, &s, rows, count);
    im_model_close(model);
    return code;
}
