/* SPDX-License-Identifier: Apache-2.0 */
#include "verify.h"

#include <signal.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const arg_command about = {
    .name = "verify",
    .summary = "proves on this machine that a model gives one answer, however it is computed",
    .usage = "MODEL | --compare REPORT REPORT",
    .details =
        "Computes prompts with one thread, alone, and then in other ways: by every kernel level and GPU, with all threads,\n"
        "in other chunks, beside other sequences, with a warm cache. All bits of all logits of every step must be the same.\n"
        "Exit code 0: they are; 3: they are not, and the first difference is named: arm, prompt, step (generated token),\n"
        "row (id of the vocabulary), and both bit patterns.\n"
        "--compare holds two reports of --json against each other, say of two machines: for the same model and numerics\n"
        "every common prompt must have the same bits. A report holds the prompts' token ids.",
    .examples = "  ironmule verify model.gguf\n  ironmule verify model.gguf --full --json > mine.json\n"
                "  ironmule verify --compare mine.json yours.json",
    .least = 1,
    .most = 2,
};

typedef struct settings {
    bool quick, full, json, compare;
    int64_t tokens, threads;
    const char *device;
    arg_list prompt;
} settings;

/* What a run needs: all of it is there for the whole of it. */
typedef struct verification {
    const settings *s;
    im_model *model;
    verify_prompts prompts;
    verify_arms arms;
    json_t *report;
    size_t runs, different; /* prompts in arms */
    char left_out[16];      /* the last device that was */
    progress bar;
} verification;

static double seconds_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* ---- arms ----------------------------------------------------------------------------------------------------------------------------------- */

static bool is_processor(const verify_arm *arm) { return strcmp(arm->device, "cpu") == 0; }

static im_engine *open_for(const verification *v, const verify_arm *arm)
{
    run_options run = {
        .threads = arm->threads, .chunk = arm->chunk, .cpu = is_processor(arm) ? arm->level : NULL, .device = arm->device};
    uint32_t context = v->prompts.context < 64 ? 64 : v->prompts.context;
    im_model_info info;
    im_model_get_info(v->model, &info);
    return open_engine(about.name, v->model, &run, context < info.context ? context : info.context, VERIFY_MOST_SEQUENCES, true);
}

static void draw(verification *v, const verify_arm *arm)
{
    char name[120];
    verify_arm_print(arm, name, sizeof name);
    progress_draw(&v->bar, (double)(arm - v->arms.item) / (double)v->arms.count, name);
}

static void count(verification *v, const verify_outcome *outcome)
{
    for (size_t i = 0; i < v->prompts.count; i++) {
        v->runs += outcome[i].ran;
        v->different += outcome[i].ran && !outcome[i].same;
    }
}

static int run_arm(verification *v, im_engine *e, const verify_arm *arm)
{
    verify_outcome outcome[VERIFY_MOST_PROMPTS] = {{0}};
    bool is_reference = arm == v->arms.item;
    draw(v, arm);
    int code = verify_run(e, arm, &v->prompts, is_reference, outcome);
    progress_end(&v->bar);
    if (code != EXIT_DONE) return code;
    if (is_reference) verify_report_prompts(v->report, &v->prompts);
    verify_report_arm(v->report, arm, e, &v->prompts, outcome, !v->s->json);
    fflush(stdout);
    count(v, outcome);
    return EXIT_DONE;
}

/* A GPU that nobody asked for by name may be unfit for the model: then it is left out, which is said. */
static bool leave_out(verification *v, const verify_arm *arm)
{
    if (is_processor(arm) || v->s->device != NULL) return false;
    say(about.name, "%s is left out", arm->device);
    verify_report_left_out(v->report, arm->device);
    snprintf(v->left_out, sizeof v->left_out, "%s", arm->device);
    return true;
}

/* Arms from *at on that share an engine; *at becomes the next one. */
static int run_engine(verification *v, size_t *at)
{
    const verify_arm *first = &v->arms.item[*at];
    im_engine *e = strcmp(v->left_out, first->device) == 0 ? NULL : open_for(v, first);
    int code = EXIT_DONE;
    if (e == NULL && strcmp(v->left_out, first->device) != 0 && !leave_out(v, first)) code = EXIT_FAILED;
    for (; *at < v->arms.count && verify_arms_share_engine(first, &v->arms.item[*at]); (*at)++)
        if (e != NULL && code == EXIT_DONE) code = run_arm(v, e, &v->arms.item[*at]);
    im_engine_close(e);
    return code;
}

/* Ctrl-C between two requests, while an engine is opened: what was found so far is on stdout. */
static void on_interrupt(int number)
{
    (void)number;
    _exit(EXIT_INTERRUPTED);
}

/* ---- the outcome --------------------------------------------------------------------------------------------------------------------------- */

static long long number_of(const json_t *object, const char *key) { return json_integer_value(json_object_get(object, key)); }
static const char *text_of(const json_t *object, const char *key) { return json_string_value(json_object_get(object, key)); }

static void print_difference(const json_t *d)
{
    printf("first difference: %s, prompt %s, step %lld", text_of(d, "arm"), text_of(d, "prompt"), number_of(d, "step"));
    if (json_object_get(d, "token") != NULL)
        printf(": token %lld, the reference has %lld\n", number_of(d, "token"), number_of(d, "reference_token"));
    else
        printf(", row %lld: bits %s, the reference has %s\n", number_of(d, "row"), text_of(d, "bits"),
               text_of(d, "reference_bits"));
}

static int conclude(verification *v, double seconds)
{
    const json_t *difference = json_object_get(v->report, "difference");
    json_object_set_new(v->report, "runs", json_integer((json_int_t)v->runs));
    json_object_set_new(v->report, "different", json_integer((json_int_t)v->different));
    json_object_set_new(v->report, "same", json_boolean(v->different == 0));
    json_object_set_new(v->report, "seconds", json_real(seconds));
    if (v->s->json)
        print_json(json_incref(v->report));
    else if (difference == NULL)
        printf("one answer: %zu runs in %zu ways, all with the same bits%s%s (%.1f s)\n", v->runs,
               json_array_size(json_object_get(v->report, "arms")), v->left_out[0] == 0 ? "" : "; left out: ", v->left_out,
               seconds);
    else {
        printf("DIFFERENT: %zu of %zu runs (%.1f s)\n", v->different, v->runs, seconds);
        print_difference(difference);
    }
    if (v->s->json && v->different > 0) say(about.name, "%zu of %zu runs are different", v->different, v->runs);
    return v->different == 0 ? EXIT_DONE : EXIT_DIFFERENT;
}

static void print_title(const verification *v)
{
    im_model_info info;
    im_model_get_info(v->model, &info);
    printf("%s, numerics %d, version %s; the first arm is the reference\n", shown(info.name), im_numerics_version(), im_version());
    verify_report_table_head();
}

static int run_all(verification *v)
{
    double begun = seconds_now();
    int code = EXIT_DONE;
    v->report = verify_report_begin(v->model, v->s->full);
    if (v->report == NULL) return say(about.name, "out of memory");
    if (!v->s->json) print_title(v);
    for (size_t at = 0; at < v->arms.count && code == EXIT_DONE;) code = run_engine(v, &at);
    return code == EXIT_DONE ? conclude(v, seconds_now() - begun) : code;
}

static int verify(const settings *s, im_model *model)
{
    verification v = {.s = s, .model = model, .bar = {.label = "computing"}};
    im_machine_info machine;
    im_model_info info;
    int code = EXIT_FAILED;
    im_machine_get_info(&machine);
    im_model_get_info(model, &info);
    verify_plan plan = {.full = s->full,
                        .threads = s->threads > 0      ? (int)s->threads
                                   : machine.cores > 1 ? machine.cores
                                                       : 2,
                        .device = s->device,
                        .parameters = info.parameters};
    if (verify_prompts_make(&v.prompts, model, s->prompt.item, (uint32_t)s->tokens, s->full))
        code = verify_arms_make(&v.arms, &plan, &v.prompts) ? run_all(&v) : say(about.name, "out of memory");
    json_decref(v.report);
    verify_arms_free(&v.arms);
    verify_prompts_free(&v.prompts);
    return code;
}

static bool device_is_known(const char *device)
{
    int n, used = 0;
    if (strcmp(device, "cpu") == 0 || strcmp(device, "cuda") == 0) return true;
    return sscanf(device, "cuda:%3d%n", &n, &used) == 1 && device[used] == 0 && n >= 0;
}

int cmd_verify(int argc, char **argv)
{
    settings s = {.tokens = 6};
    arg_rest rest;
    const arg_option options[] = {
        {"quick", 0, ARG_FLAG, &s.quick, NULL, "a selection that has each way once (default)", 0, 0},
        {"full", 0, ARG_FLAG, &s.full, NULL, "every combination: minutes, for large models hours", 0, 0},
        {"prompt", 0, ARG_LIST, &s.prompt, "TEXT", "a text in place of the built-in prompts; may be repeated", 0, 0},
        {"max-tokens", 'n', ARG_INT, &s.tokens, "N", "tokens that each answer has (default 6)", 1, 64},
        {"threads", 't', ARG_INT, &s.threads, "N", "threads of the arms with more than one (default: all cores)", 2, 1024},
        {"device", 0, ARG_STRING, &s.device, "NAME", "cpu: no GPU; cuda or cuda:N: that one must serve (default: all)", 0, 0},
        {"json", 0, ARG_FLAG, &s.json, NULL, "one JSON document: a report for --compare", 0, 0},
        {"compare", 0, ARG_FLAG, &s.compare, NULL, "hold two reports against each other", 0, 0},
        {NULL, 0, ARG_FLAG, NULL, NULL, NULL, 0, 0},
    };
    int code = args_parse(&about, options, argc, argv, &rest);
    if (code >= 0) return code;
    if (s.compare)
        return rest.count == 2 ? verify_compare(rest.item[0], rest.item[1]) : args_wrong(&about, "--compare takes two reports");
    if (rest.count > 1) return args_wrong(&about, "\"%s\" is one argument too many", rest.item[1]);
    if (s.quick && s.full) return args_wrong(&about, "--quick or --full, not both");
    if (s.device != NULL && strcmp(s.device, "auto") == 0) s.device = NULL;
    if (s.device != NULL && !device_is_known(s.device))
        return args_wrong(&about, "--device: \"%s\" is none of auto, cpu, cuda, cuda:N", s.device);
    signal(SIGINT, on_interrupt);
    im_model *model = open_model(about.name, rest.item[0], false, NULL);
    if (model == NULL) return EXIT_FAILED;
    code = verify(&s, model);
    im_model_close(model);
    return code;
}
