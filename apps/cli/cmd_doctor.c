/* SPDX-License-Identifier: Apache-2.0 */
#include "common.h"

#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const arg_command about = {
    .name = "doctor",
    .summary = "checks this machine: features, kernels, memory, bandwidth",
    .usage = "[MODEL]",
    .details = "Each kernel level computes a real case in a child process and must return the bits of the plain C functions. With "
               "MODEL: whether it\n"
               "fits, and how fast an answer can be at most (memory bandwidth over the bytes that a token reads).",
    .examples = "  ironmule doctor\n  ironmule doctor model.gguf --json",
    .least = 0,
    .most = 1,
};

enum { MOST_GPUS = 16 };

typedef struct settings {
    run_options run;
    bool json;
} settings;

static void cpu_model(char *out, size_t size)
{
    char line[256];
    FILE *f = fopen("/proc/cpuinfo", "r");
    snprintf(out, size, "unknown");
    while (f != NULL && fgets(line, sizeof line, f) != NULL) {
        char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) != 0 || colon == NULL) continue;
        snprintf(out, size, "%.*s", (int)strcspn(colon + 2, "\n"), colon + 2);
        break;
    }
    if (f != NULL) fclose(f);
}

/* ---- kernels -------------------------------------------------------------------------------------------------------------------------------- */

typedef struct verdict {
    bool good;
    size_t checked;
    im_error error;
} verdict;

typedef void check(int number, const char *name, verdict *v);

static void check_level(int number, const char *name, verdict *v)
{
    (void)number;
    v->good = im_cpu_self_check(name, &v->checked, &v->error) == IM_OK;
}

static void check_gpu(int number, const char *name, verdict *v)
{
    (void)name;
    v->good = im_gpu_self_check(number, &v->checked, &v->error) == IM_OK;
}

/* The child may die of an instruction that the machine claims to have, or of a driver: that is a verdict too. */
static verdict prove(check *run, int number, const char *name)
{
    int ends[2], status = 0;
    verdict v = {.good = false};
    snprintf(v.error.message, sizeof v.error.message, "the child process could not be started");
    if (pipe(ends) != 0) return v;
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        run(number, name, &v);
        _exit(write(ends[1], &v, sizeof v) == (ssize_t)sizeof v ? 0 : 1);
    }
    close(ends[1]);
    bool told = child > 0 && read(ends[0], &v, sizeof v) == (ssize_t)sizeof v;
    close(ends[0]);
    if (child > 0) waitpid(child, &status, 0);
    if (child > 0 && !told) {
        v.good = false;
        snprintf(v.error.message, sizeof v.error.message, "the check of %s died of signal %d", name,
                 WIFSIGNALED(status) ? WTERMSIG(status) : 0);
    }
    return v;
}

/* What a child says of GPUs: this process must not start a driver, for children made after that could not use it. */
typedef struct gpu_list {
    im_status status;
    im_error error;
    int count;
    im_gpu_info gpu[MOST_GPUS];
} gpu_list;

static void list_gpus(gpu_list *out)
{
    out->status = im_gpu_count(&out->count, &out->error);
    if (out->status == IM_OK && out->count > MOST_GPUS) out->count = MOST_GPUS;
    for (int i = 0; out->status == IM_OK && i < out->count; i++) out->status = im_gpu_get_info(i, &out->gpu[i], &out->error);
}

static void read_all(int from, void *to, size_t n)
{
    ssize_t got;
    for (size_t done = 0; done < n && (got = read(from, (char *)to + done, n - done)) > 0; done += (size_t)got) {
    }
}

static gpu_list find_gpus(void)
{
    int ends[2];
    gpu_list list = {.status = IM_ERR_DEVICE, .error = {IM_ERR_DEVICE, "the driver ended the process that asked it"}};
    if (pipe(ends) != 0) return list;
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        list_gpus(&list);
        _exit(write(ends[1], &list, sizeof list) == (ssize_t)sizeof list ? 0 : 1);
    }
    close(ends[1]);
    if (child > 0) read_all(ends[0], &list, sizeof list);
    close(ends[0]);
    if (child > 0) waitpid(child, NULL, 0);
    return list;
}

/* ---- report ------------------------------------------------------------------------------------------------------------------------------------- */

static json_t *kernel_report(bool *all_good)
{
    json_t *list = json_array();
    for (const char *const *level = im_cpu_levels(); *level != NULL; level++) {
        verdict v = prove(check_level, 0, *level);
        json_t *entry = json_pack("{s:s, s:b, s:I}", "level", *level, "proved", (int)v.good, "kernels", (json_int_t)v.checked);
        if (!v.good) json_object_set_new(entry, "error", json_text(v.error.message, strlen(v.error.message)));
        json_array_append_new(list, entry);
        *all_good = *all_good && v.good;
    }
    return list;
}

static json_t *gpu_entry(int n, const im_gpu_info *g, bool *all_good)
{
    char name[16];
    snprintf(name, sizeof name, "cuda:%d", n);
    verdict v = prove(check_gpu, n, name);
    json_t *entry = json_pack("{s:s, s:o, s:f, s:i, s:i, s:I, s:f, s:b, s:I}", "device", name, "name",
                              json_text(g->name, strlen(g->name)), "compute_capability", g->capability / 10.0, "driver_cuda",
                              g->driver, "processors", (int)g->processors, "memory_bytes", (json_int_t)g->memory_bytes,
                              "read_bytes_per_s", g->read_bytes_per_s, "proved", (int)v.good, "checked", (json_int_t)v.checked);
    if (!v.good) json_object_set_new(entry, "error", json_text(v.error.message, strlen(v.error.message)));
    *all_good = *all_good && v.good;
    return entry;
}

/* "gpus", and in "gpu" the first one's name or why there is none. */
static void gpu_report(json_t *doc, bool *all_good)
{
    gpu_list found = find_gpus();
    json_t *list = json_array();
    for (int i = 0; found.status == IM_OK && i < found.count; i++)
        json_array_append_new(list, gpu_entry(i, &found.gpu[i], all_good));
    const char *text = found.status != IM_OK ? found.error.message : found.gpu[0].name;
    json_object_set_new(doc, "gpus", list);
    json_object_set_new(doc, "gpu", json_text(text, strlen(text)));
}

/* What a model needs here, or its error; adds to the document. */
/* Of the processor's memory, or the GPU's. */
static double bandwidth_of(const json_t *doc, const im_memory_plan *plan)
{
    const json_t *gpu = json_array_get(json_object_get(doc, "gpus"), 0);
    bool cpu = strcmp(plan->device, "cpu") == 0;
    return json_real_value(json_object_get(cpu ? doc : gpu, "read_bytes_per_s"));
}

static bool model_report(json_t *doc, const char *path, const settings *s)
{
    im_error err;
    im_memory_plan plan;
    im_engine_options o;
    im_engine_options_defaults(&o);
    o.context = (uint32_t)s->run.context;
    o.threads = (int)s->run.threads;
    o.device = s->run.device;
    o.device_fallback = s->run.device_fallback;
    im_model *model = open_model(about.name, path, false, NULL);
    bool good = model != NULL && im_engine_plan(model, &o, &plan, &err) == IM_OK;
    if (good) {
        uint64_t need = plan.weights + plan.kv + plan.workspace;
        double bandwidth = bandwidth_of(doc, &plan);
        json_object_set_new(doc, "model",
                            json_pack("{s:o, s:s, s:I, s:I, s:b, s:f}", "path", json_text(path, strlen(path)), "device",
                                      plan.device, "needs_bytes", (json_int_t)need, "weights_bytes", (json_int_t)plan.weights,
                                      "fits", (int)(plan.available == 0 || need <= plan.available), "tokens_per_s_at_most",
                                      plan.weights > 0 ? bandwidth / (double)plan.weights : 0.0));
    } else if (model != NULL) {
        say_failed(about.name, &err);
    }
    im_model_close(model);
    return good;
}

static void print_gpus(const json_t *doc)
{
    size_t i;
    json_t *entry;
    if (json_array_size(json_object_get(doc, "gpus")) == 0)
        printf("gpu         none: %s\n", json_string_value(json_object_get(doc, "gpu")));
    json_array_foreach(json_object_get(doc, "gpus"), i, entry)
    {
        const char *error = json_string_value(json_object_get(entry, "error"));
        int driver = (int)json_integer_value(json_object_get(entry, "driver_cuda"));
        printf("gpu         %s %s, compute capability %.1f, %lld multiprocessors, driver for CUDA %d.%d\n",
               json_string_value(json_object_get(entry, "device")), json_string_value(json_object_get(entry, "name")),
               json_real_value(json_object_get(entry, "compute_capability")),
               json_integer_value(json_object_get(entry, "processors")), driver / 1000, driver % 1000 / 10);
        printf("            %.1f GiB, read at up to %.0f GB/s; %s\n",
               json_number_value(json_object_get(entry, "memory_bytes")) / 1073741824.0,
               json_real_value(json_object_get(entry, "read_bytes_per_s")) / 1e9,
               error != NULL ? error : "proved: same bits as the reference");
    }
}

static void print_report(const json_t *doc)
{
    const json_t *kernels = json_object_get(doc, "kernels"), *model = json_object_get(doc, "model"), *entry;
    size_t i;
    printf("processor   %s, %lld cores for this process\n", json_string_value(json_object_get(doc, "cpu")),
           json_integer_value(json_object_get(doc, "cores")));
    json_array_foreach(kernels, i, entry)
    {
        const char *error = json_string_value(json_object_get(entry, "error"));
        printf("kernels     %-7s %s\n", json_string_value(json_object_get(entry, "level")),
               error != NULL ? error : "proved: same bits as the reference");
    }
    printf("memory      %.1f GiB available, read at %.1f GB/s\nintegers    %.0f billion 8-bit operations/s\n",
           json_number_value(json_object_get(doc, "memory_available_bytes")) / 1073741824.0,
           json_number_value(json_object_get(doc, "read_bytes_per_s")) / 1e9,
           json_number_value(json_object_get(doc, "int8_ops_per_s")) / 1e9);
    print_gpus(doc);
    if (model != NULL)
        printf("model       %s: %.1f MiB needed of %s, %s; at most %.1f tokens/s\n",
               json_string_value(json_object_get(model, "path")),
               json_number_value(json_object_get(model, "needs_bytes")) / 1048576.0,
               strcmp(json_string_value(json_object_get(model, "device")), "cpu") == 0 ? "memory" : "the GPU's memory",
               json_is_true(json_object_get(model, "fits")) ? "fits" : "does NOT fit",
               json_number_value(json_object_get(model, "tokens_per_s_at_most")));
    printf("advice      %s\n", json_string_value(json_object_get(doc, "advice")));
}

static int run(const settings *s, const char *path)
{
    char cpu[160];
    bool good = true;
    im_machine_info machine;
    im_machine_get_info(&machine);
    cpu_model(cpu, sizeof cpu);
    json_t *kernels = kernel_report(&good);
    im_machine_limits limits = {0};
    im_machine_measure(s->run.threads > 0 ? (int)s->run.threads : machine.cores, s->run.cpu, &limits, NULL);
    json_t *doc =
        json_pack("{s:o, s:i, s:o, s:I, s:f}", "cpu", json_text(cpu, strlen(cpu)), "cores", machine.cores, "kernels", kernels,
                  "memory_available_bytes", (json_int_t)machine.memory_available, "read_bytes_per_s", limits.read_bytes_per_s);
    gpu_report(doc, &good);
    json_object_set_new(doc, "int8_ops_per_s", json_real(limits.int8_ops_per_s));
    json_object_set_new(
        doc, "advice",
        json_string(good ? "the defaults are the fastest plan here" : "a level that failed is not used; please report it"));
    if (path != NULL && !model_report(doc, path, s)) good = false;
    if (s->json) {
        if (print_json(doc) != EXIT_DONE) good = false;
    } else {
        print_report(doc);
        json_decref(doc);
    }
    return good ? EXIT_DONE : EXIT_FAILED;
}

int cmd_doctor(int argc, char **argv)
{
    settings s = {0};
    arg_rest rest;
    const arg_option options[] = {
        {"json", 0, ARG_FLAG, &s.json, NULL, "one JSON document", 0, 0},
        RUN_OPTIONS(s.run),
        {NULL, 0, ARG_FLAG, NULL, NULL, NULL, 0, 0},
    };
    int code = args_parse(&about, options, argc, argv, &rest);
    if (code >= 0) return code;
    return run(&s, rest.count > 0 ? rest.item[0] : NULL);
}
