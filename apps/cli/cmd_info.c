/* SPDX-License-Identifier: Apache-2.0 */
#include "common.h"
#include "defaults.h"
#include "hub/hub_net.h"

#include <inttypes.h>
#include <string.h>

static const arg_command about = {
    .name = "info",
    .summary = "version, build, kernel levels; a model's metadata and program",
    .usage = "[MODEL]",
    .details = "Without MODEL: what this build is. With MODEL: what the file says of itself and the memory that it needs. "
               "--program prints\n"
               "the list of operations that the model is; its digest is part of the model's identity. --settings shows each "
               "setting and whether it comes\n"
               "from the environment, from the file or from the program.",
    .examples = "  ironmule info --json\n  ironmule info model.gguf --program\n  ironmule info --settings",
    .least = 0,
    .most = 1,
};

typedef struct settings {
    run_options run;
    bool json, program, settings;
} settings;

static const char *const libraries[] = {
    "utf8proc (MIT)", "jansson (MIT)", "libedit (BSD-3-Clause)", "xxHash (BSD-2-Clause)", "libcurl (curl)", NULL,
};

static json_t *strings(const char *const *list)
{
    json_t *out = json_array();
    for (; *list != NULL; list++) json_array_append_new(out, json_string(*list));
    return out;
}

/* "cuda (kernels for 75 90): N devices", or why there are none. */
static void cuda_state(char *out, size_t size)
{
    im_error err;
    int count;
    const char *for_which = im_gpu_architectures();
    if (im_gpu_count(&count, &err) == IM_OK)
        snprintf(out, size, "kernels for %s; %d device%s here", for_which, count, count == 1 ? "" : "s");
    else
        snprintf(out, size, "%s%s%snot available: %s", for_which[0] == 0 ? "" : "kernels for ", for_which,
                 for_which[0] == 0 ? "" : "; ", err.message);
}

static json_t *gpus(void)
{
    im_gpu_info g;
    int count = 0;
    json_t *list = json_array();
    if (im_gpu_count(&count, NULL) != IM_OK) return list;
    for (int i = 0; i < count && im_gpu_get_info(i, &g, NULL) == IM_OK; i++)
        json_array_append_new(list, json_pack("{s:o, s:f, s:i, s:i, s:I, s:f}", "name", json_text(g.name, strlen(g.name)),
                                              "compute_capability", g.capability / 10.0, "driver_cuda", g.driver, "processors",
                                              (int)g.processors, "memory_bytes", (json_int_t)g.memory_bytes, "read_bytes_per_s",
                                              g.read_bytes_per_s));
    return list;
}

static void print_gpus(const json_t *list)
{
    size_t i;
    json_t *g;
    json_array_foreach(list, i, g)
    {
        int driver = (int)json_integer_value(json_object_get(g, "driver_cuda"));
        printf("cuda:%zu: %s, compute capability %.1f, %lld multiprocessors, %.1f GiB, up to %.0f GB/s, driver for CUDA %d.%d\n", i,
               json_string_value(json_object_get(g, "name")), json_real_value(json_object_get(g, "compute_capability")),
               json_integer_value(json_object_get(g, "processors")),
               json_number_value(json_object_get(g, "memory_bytes")) / 1073741824.0,
               json_real_value(json_object_get(g, "read_bytes_per_s")) / 1e9, driver / 1000, driver % 1000 / 10);
    }
}

static json_t *build_document(void)
{
    char cuda[IM_ERROR_MESSAGE_MAX + 64];
    cuda_state(cuda, sizeof cuda);
    const char *compiler =
#if defined(__clang__)
        "clang " __clang_version__;
#else
        "gcc " __VERSION__;
#endif
    return json_pack("{s:s, s:i, s:s, s:s, s:o, s:[s, s], s:s, s:o, s:b, s:o}", "version", im_version(), "numerics",
                     im_numerics_version(), "licence", "Apache-2.0", "compiler", compiler, "cpu_levels", strings(im_cpu_levels()),
                     "backends", "cpu", "cuda", "cuda", cuda, "gpus", gpus(), "downloads", hub_net_missing() == NULL, "libraries",
                     strings(libraries));
}

static int print_build(void)
{
    json_t *doc = build_document();
    printf("ironmule %s, numerics version %d, Apache-2.0\ncompiler: %s\nbackends: cpu, cuda (%s)\nkernel levels here:",
           im_version(), im_numerics_version(), json_string_value(json_object_get(doc, "compiler")),
           json_string_value(json_object_get(doc, "cuda")));
    for (const char *const *level = im_cpu_levels(); *level != NULL; level++) printf(" %s", *level);
    printf("\n");
    print_gpus(json_object_get(doc, "gpus"));
    printf("downloads: %s\nlibraries:", hub_net_missing() == NULL ? "yes, when asked for" : hub_net_missing());
    for (size_t i = 0; libraries[i] != NULL; i++) printf("%s %s", i == 0 ? "" : ",", libraries[i]);
    printf("\n");
    json_decref(doc);
    return EXIT_DONE;
}

static json_t *text(const char *s) { return json_text(s, strlen(s)); }

static json_t *model_document(const im_model_info *m, const im_memory_plan *plan)
{
    json_t *memory =
        json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:I}", "device", plan->device, "weights", (json_int_t)plan->weights, "kv",
                  (json_int_t)plan->kv, "workspace", (json_int_t)plan->workspace, "kv_bytes_per_token",
                  (json_int_t)plan->kv_bytes_per_token, "available", (json_int_t)plan->available, "host", (json_int_t)plan->host);
    json_t *doc = json_pack("{s:o, s:o, s:o, s:s, s:o, s:I, s:I}", "path", text(m->path), "name", text(m->name), "architecture",
                            text(m->architecture), "quantisation", m->quantisation, "licence", text(m->licence), "parameters",
                            (json_int_t)m->parameters, "file_bytes", (json_int_t)m->file_bytes);
    json_object_update_new(doc, json_pack("{s:i, s:i, s:i, s:i, s:b, s:i, s:i, s:o, s:o}", "vocabulary", (int)m->vocabulary,
                                          "layers", (int)m->layers, "embedding", (int)m->embedding, "context", (int)m->context,
                                          "chat_template", (int)m->has_chat_template, "bos", (int)m->bos, "eos", (int)m->eos,
                                          "program_digest", json_hex64(m->program_digest), "memory", memory));
    return doc;
}

static int print_model(const im_model_info *m, const im_memory_plan *plan)
{
    printf("%s\n  architecture %s, %.1f million parameters, mostly %s, %.1f MiB\n", shown(m->name), shown(m->architecture),
           (double)m->parameters / 1e6, m->quantisation, (double)m->file_bytes / 1048576.0);
    printf("  %u layers of width %u, vocabulary %u, context %u\n", m->layers, m->embedding, m->vocabulary, m->context);
    printf("  chat template: %s; licence: %s\n", m->has_chat_template ? "yes" : "no",
           m->licence[0] == 0 ? "not stated in the file" : shown(m->licence));
    printf("  program %016" PRIx64 "\n", m->program_digest);
    bool gpu = strcmp(plan->device, "cpu") != 0;
    printf("  memory %s: weights %.1f MiB, KV cache %.1f MiB, workspace %.1f MiB; available %.0f MiB\n",
           gpu ? "of the GPU" : "here", (double)plan->weights / 1048576.0, (double)plan->kv / 1048576.0,
           (double)plan->workspace / 1048576.0, (double)plan->available / 1048576.0);
    if (gpu) printf("  memory here: %.1f MiB\n", (double)plan->host / 1048576.0);
    return EXIT_DONE;
}

static int print_program(const im_model *model)
{
    im_error err;
    char *list;
    if (im_model_program(model, &list, &err) != IM_OK) return say_failed(about.name, &err);
    fputs(list, stdout);
    im_free(list);
    return EXIT_DONE;
}

static int run(const im_model *model, const settings *s)
{
    im_error err;
    im_memory_plan plan;
    im_model_info info;
    im_engine_options o;
    im_engine_options_defaults(&o);
    o.threads = (int)s->run.threads;
    o.context = (uint32_t)s->run.context;
    o.chunk = (uint32_t)s->run.chunk;
    o.cpu_level = s->run.cpu;
    o.device = s->run.device;
    if (s->program) return print_program(model);
    im_model_get_info(model, &info);
    if (im_engine_plan(model, &o, &plan, &err) != IM_OK) return say_failed(about.name, &err);
    return s->json ? print_json(model_document(&info, &plan)) : print_model(&info, &plan);
}

static int print_settings(bool json)
{
    const store_settings *now = defaults_read(about.name);
    if (now == NULL) return EXIT_FAILED;
    if (json) return print_json(defaults_json(now));
    defaults_print(now);
    return EXIT_DONE;
}

int cmd_info(int argc, char **argv)
{
    settings s = {0};
    arg_rest rest;
    const arg_option options[] = {
        {"settings", 0, ARG_FLAG, &s.settings, NULL, "print the settings and where they come from", 0, 0},
        {"program", 0, ARG_FLAG, &s.program, NULL, "print the model's list of operations", 0, 0},
        {"json", 0, ARG_FLAG, &s.json, NULL, "one JSON document", 0, 0},
        RUN_OPTIONS(s.run),
        {NULL, 0, ARG_FLAG, NULL, NULL, NULL, 0, 0},
    };
    int code = args_parse(&about, options, argc, argv, &rest);
    if (code >= 0) return code;
    if (s.program && rest.count == 0) return args_wrong(&about, "--program needs a MODEL");
    if (s.settings) return print_settings(s.json);
    if (rest.count == 0) return s.json ? print_json(build_document()) : print_build();
    im_model *model = open_model(about.name, rest.item[0], false, NULL);
    if (model == NULL) return EXIT_FAILED;
    code = run(model, &s);
    im_model_close(model);
    return code;
}
