/* SPDX-License-Identifier: Apache-2.0 */
#include "common.h"
#include "serve/serve.h"
#include "store/resolve.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const arg_command about = {
    .name = "serve",
    .summary = "an HTTP server with an OpenAI-compatible API and a chat page",
    .usage = "MODEL",
    .details =
        "Listens on 127.0.0.1:8080. Any address that others can reach needs --api-key-env or --api-key-file. Greedy unless a "
        "request says\n"
        "otherwise; every request gets the bits that it would get alone. SIGTERM or Ctrl-C lets running answers finish, a "
        "second one leaves at once.\n"
        "--mode desktop: 4 answers at once, 32 waiting, steps of 100 ms, no deadline; server: 16, 512, 200 ms, 600 s. Sizes may "
        "end in K, M or "
        "G.",
    .examples = "  ironmule serve model.gguf\n"
                "  ironmule serve model.gguf --parallel 8 --context 8192 --cache-ram 2G\n"
                "  KEYS=... ironmule serve model.gguf --host 0.0.0.0 --api-key-env KEYS --tls-cert cert.pem --tls-key key.pem\n"
                "  ironmule serve model.gguf --dry-run --json",
    .least = 1,
    .most = 1,
};

typedef struct settings {
    serve_options o;
    const char *template_file, *mode, *cpu, *device, *device_fallback, *log_format, *log_level;
    const char *cache_ram, *cache_host, *cache_disk, *kv_tokens, *max_body;
    int64_t port, threads, context, chunk, parallel, queue, connections, max_tokens, choices;
    arg_list aliases, origins, hosts;
    double max_step_ms;
    bool dry_run, json;
} settings;

/* ---- values ------------------------------------------------------------------------------------------------------------------------------------------- */

/* "512M", "2G", "1048576"; -1: given right, otherwise the exit code. */
static int read_size(const char *name, const char *text, uint64_t *out)
{
    static const char units[] = "KMG";
    char *end;
    if (text == NULL) return -1;
    double v = strtod(text, &end);
    const char *unit = *end != 0 ? strchr(units, *end) : NULL;
    if (end == text || !(v >= 0) || (*end != 0 && (unit == NULL || (end[1] != 0 && strcmp(end + 1, "iB") != 0))))
        return args_wrong(&about, "--%s: \"%s\" is no size; 512M and 2G are", name, text);
    for (const char *u = units; unit != NULL && u <= unit; u++) v *= 1024;
    if (v > 1e15) return args_wrong(&about, "--%s: %s is too large", name, text);
    *out = (uint64_t)v;
    return -1;
}

static void copy_names(serve_names *to, const arg_list *from)
{
    for (to->count = 0; to->count < from->count && to->count < SERVE_MAX_NAMES; to->count++)
        to->item[to->count] = from->item[to->count];
}

static bool is_one_of(const char *value, const char *a, const char *b) { return strcmp(value, a) == 0 || strcmp(value, b) == 0; }

/* What the mode means, where no option says otherwise. */
static void apply_mode(settings *s)
{
    bool server = strcmp(s->mode, "server") == 0;
    if (s->parallel == 0) s->parallel = server ? 16 : 4;
    if (s->queue < 0) s->queue = server ? 512 : 32;
    if (s->connections == 0) s->connections = server ? 2048 : 256;
    if (s->max_step_ms < 0) s->max_step_ms = server ? 200 : 100;
    if (s->o.request_s < 0) s->o.request_s = server ? 600 : 0;
}

enum { LEAST_POSITIONS = 64, USUAL_CONTEXT = 4096 };

/* No request can have more positions than all of them together have. */
static void fit_context(settings *s)
{
    im_engine_options *e = &s->o.engine;
    im_model_info info;
    im_model_get_info(s->o.model, &info);
    uint32_t usual = info.context < USUAL_CONTEXT ? info.context : USUAL_CONTEXT, context = e->context > 0 ? e->context : usual;
    if (e->kv_tokens == 0 || e->kv_tokens >= context) return;
    e->context = (uint32_t)e->kv_tokens;
    say(about.name, "warning: --kv-tokens leaves a request %u positions for prompt and answer, not the %u of the context",
        e->context, context);
}

static int read_sizes(settings *s)
{
    uint64_t body = s->o.max_body;
    int code = read_size("cache-ram", s->cache_ram, &s->o.engine.cache_ram);
    if (code < 0) code = read_size("cache-host", s->cache_host, &s->o.engine.cache_host);
    if (code < 0) code = read_size("cache-disk", s->cache_disk, &s->o.engine.cache_disk);
    if (code < 0) code = read_size("kv-tokens", s->kv_tokens, &s->o.engine.kv_tokens);
    if (code < 0) code = read_size("max-body", s->max_body, &body);
    if (code < 0 && (body < 1024 || body > (1u << 30))) code = args_wrong(&about, "--max-body: between 1K and 1G");
    if (code < 0 && s->o.engine.kv_tokens > 0 && s->o.engine.kv_tokens < LEAST_POSITIONS)
        code = args_wrong(&about, "--kv-tokens: at least %d, the positions of a page", LEAST_POSITIONS);
    s->o.max_body = (size_t)body;
    if (s->o.max_bodies < 4 * s->o.max_body) s->o.max_bodies = 4 * s->o.max_body;
    return code;
}

/* They stand in answers and metrics. */
static bool is_name(const char *name)
{
    json_t *text = strlen(name) > 200 ? NULL : json_string(name); /* NULL also when it is no UTF-8 */
    bool good = text != NULL && name[0] != 0;
    for (const char *c = name; *c != 0; c++) good = good && (unsigned char)*c >= ' ' && *c != 127;
    json_decref(text);
    return good;
}

/* A model that was called by a name answers to it. */
static void take_name(settings *s, const char *model)
{
    bool room = s->aliases.count < sizeof s->aliases.item / sizeof *s->aliases.item - 1;
    if (room && !looks_like_path(model) && access(model, F_OK) != 0 && is_name(model)) s->aliases.item[s->aliases.count++] = model;
}

static int check(const settings *s)
{
    const serve_options *o = &s->o;
    bool keys = o->key_env != NULL || o->key_file != NULL;
    if (!is_one_of(s->mode, "desktop", "server")) return args_wrong(&about, "--mode: desktop or server");
    if (!is_one_of(s->log_format, "text", "json")) return args_wrong(&about, "--log-format: text or json");
    if (strcmp(s->log_level, "warning") != 0 && !is_one_of(s->log_level, "info", "debug"))
        return args_wrong(&about, "--log-level: debug, info or warning");
    if ((o->tls_cert == NULL) != (o->tls_key == NULL)) return args_wrong(&about, "--tls-cert and --tls-key come together");
    if (!keys && o->unix_path == NULL && !serve_is_loopback(o->host))
        return args_wrong(&about, "--host %s can be reached by others: --api-key-env or --api-key-file is needed", o->host);
    for (size_t i = 0; i < s->aliases.count; i++)
        if (!is_name(s->aliases.item[i]))
            return args_wrong(&about, "--alias: a name has 1 to 200 bytes of UTF-8, none of them a control character");
    if (o->engine.cache_disk > 0 && o->engine.cache_dir == NULL) return args_wrong(&about, "--cache-disk needs --cache-dir");
    return -1;
}

static void take_over(settings *s)
{
    serve_options *o = &s->o;
    o->port = (int)s->port;
    o->max_connections = (uint32_t)s->connections;
    o->max_choices = (uint32_t)s->choices;
    o->default_max_tokens = (uint32_t)s->max_tokens;
    o->engine.threads = (int)s->threads;
    o->engine.context = (uint32_t)s->context;
    o->engine.chunk = (uint32_t)s->chunk;
    o->engine.max_sequences = (uint32_t)s->parallel;
    o->engine.max_queue = (uint32_t)s->queue;
    o->engine.max_step_ms = s->max_step_ms;
    o->engine.cpu_level = s->cpu;
    o->engine.device = s->device;
    o->engine.device_fallback = s->device_fallback;
    if (o->engine.cache_dir != NULL && o->engine.cache_disk == 0) o->engine.cache_disk = (uint64_t)4 << 30;
    o->log_json = strcmp(s->log_format, "json") == 0;
    o->log_debug = strcmp(s->log_level, "debug") == 0;
    o->quiet = strcmp(s->log_level, "warning") == 0;
    copy_names(&o->aliases, &s->aliases);
    copy_names(&o->origins, &s->origins);
    copy_names(&o->hosts, &s->hosts);
}

/* ---- the plan ------------------------------------------------------------------------------------------------------------------------------------------ */

enum { DEFAULT_CACHE_MIB = 512, DEFAULT_HOST_GIB = 4 };

static double mib(uint64_t bytes) { return (double)bytes / (1 << 20); }

static uint64_t plan_bytes(const im_memory_plan *p) { return p->weights + p->kv + p->workspace; }

/* Behind a GPU's memory: so many gigabytes of the machine's own, or a quarter of it. */
static uint64_t host_cache(void)
{
    im_machine_info machine;
    im_machine_get_info(&machine);
    uint64_t wish = (uint64_t)DEFAULT_HOST_GIB << 30;
    return machine.memory_available > 0 && machine.memory_available / 4 < wish ? machine.memory_available / 4 : wish;
}

/* The cache takes half a gigabyte unless told otherwise, but never more than a quarter of what the plan leaves free. */
static im_status plan(settings *s, im_memory_plan *p, im_error *err)
{
    im_engine_options *e = &s->o.engine;
    if (s->cache_host == NULL) e->cache_host = host_cache();
    if (s->cache_ram == NULL) {
        e->cache_ram = 0;
        im_status status = im_engine_plan(s->o.model, e, p, err);
        if (status != IM_OK) return status;
        uint64_t spare = p->available > plan_bytes(p) ? (p->available - plan_bytes(p)) / 4 : 0,
                 wish = (uint64_t)DEFAULT_CACHE_MIB << 20;
        e->cache_ram = p->available == 0 || spare > wish ? wish : spare;
    }
    return im_engine_plan(s->o.model, e, p, err);
}

/* 1: it does not fit, which was said. */
static int refuse_plan(const settings *s, const im_memory_plan *p)
{
    if (p->available == 0 || plan_bytes(p) <= p->available) return -1;
    return say(about.name, "%.0f MiB are needed and %.0f MiB available; less: --parallel N (now %u), --context N, --cache-ram SIZE",
               mib(plan_bytes(p)), mib(p->available), s->o.engine.max_sequences);
}

static json_t *names_json(const serve_names *names)
{
    json_t *list = json_array();
    for (size_t i = 0; i < names->count; i++) json_array_append_new(list, json_string(names->item[i]));
    return list;
}

/* What else a start would need. */
static int check_start(const serve_options *o)
{
    char note[SERVE_NOTE];
    im_error err;
    if (serve_check(o, note, &err) != IM_OK) return say_failed(about.name, &err);
    if (note[0] != 0) say(about.name, "warning: %s", note);
    return -1;
}

static int dry_run(const settings *s, const im_memory_plan *p)
{
    int code = check_start(&s->o);
    if (code >= 0) return code;
    const serve_options *o = &s->o;
    const im_engine_options *e = &o->engine;
    json_t *memory =
        json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "weights", (json_int_t)p->weights, "kv", (json_int_t)p->kv, "workspace",
                  (json_int_t)p->workspace, "total", (json_int_t)plan_bytes(p), "available", (json_int_t)p->available,
                  "kv_bytes_per_token", (json_int_t)p->kv_bytes_per_token, "host", (json_int_t)p->host);
    json_t *engine = json_pack("{s:I, s:i, s:i, s:I, s:f, s:I, s:I, s:I, s:s?, s:I}", "threads", (json_int_t)e->threads, "parallel",
                               (int)e->max_sequences, "context", (int)e->context, "queue", (json_int_t)e->max_queue, "max_step_ms",
                               e->max_step_ms, "kv_tokens", (json_int_t)e->kv_tokens, "cache_ram", (json_int_t)e->cache_ram,
                               "cache_host", (json_int_t)(p->host > 0 ? e->cache_host : 0), "cache_dir", e->cache_dir, "cache_disk",
                               (json_int_t)e->cache_disk);
    json_t *limits =
        json_pack("{s:I, s:I, s:I, s:I, s:i, s:i, s:i, s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "max_head", (json_int_t)o->max_head,
                  "max_body", (json_int_t)o->max_body, "max_output", (json_int_t)o->max_output, "max_connections",
                  (json_int_t)o->max_connections, "max_choices", (int)o->max_choices, "max_stops", 16, "max_tokens",
                  (int)o->default_max_tokens, "head_s", o->head_s, "body_s", o->body_s, "idle_s", o->idle_s, "write_s", o->write_s,
                  "request_s", o->request_s, "drain_s", o->drain_s, "stuck_s", o->stuck_s);
    json_t *net = json_pack("{s:s?, s:i, s:s?, s:b, s:b, s:o, s:o}", "host", o->unix_path == NULL ? o->host : NULL, "port", o->port,
                            "unix", o->unix_path, "tls", o->tls_cert != NULL, "keys", o->key_env != NULL || o->key_file != NULL,
                            "origins", names_json(&o->origins), "hosts", names_json(&o->hosts));
    json_t *doc = json_pack("{s:o, s:o, s:o, s:o}", "memory", memory, "engine", engine, "limits", limits, "listen", net);
    if (s->json || doc == NULL) return print_json(doc);
    char *text = json_dumps(doc, JSON_INDENT(2) | JSON_PRESERVE_ORDER);
    json_decref(doc);
    if (text != NULL) printf("%s\n", text);
    free(text);
    return EXIT_DONE;
}

/* A template that cannot be run is told at the start, not to the first client. */
static int check_template(const serve_options *o)
{
    static const char hello[] = "[{\"role\":\"user\",\"content\":\"Hello\"}]";
    im_chat_options c;
    im_error err;
    char *text;
    im_chat_options_defaults(&c);
    c.chat_template = o->chat_template;
    if (o->chat_template == NULL) return -1;
    if (im_model_chat(o->model, hello, &c, &text, NULL, NULL, NULL, &err) != IM_OK)
        return say(about.name, "--chat-template: %s", err.message);
    im_free(text);
    return -1;
}

/* ---- the command ---------------------------------------------------------------------------------------------------------------------------------------- */

static int serve(settings *s)
{
    im_error err;
    im_memory_plan *p = &s->o.plan;
    warn_context(about.name, s->o.model, s->context);
    fit_context(s);
    if (plan(s, p, &err) != IM_OK) return say_failed(about.name, &err);
    int code = refuse_plan(s, p);
    if (code < 0) code = s->dry_run ? dry_run(s, p) : serve_run(&s->o);
    return code;
}

int cmd_serve(int argc, char **argv)
{
    settings s = {.mode = "desktop", .log_format = "text", .log_level = "info", .queue = -1, .max_step_ms = -1};
    serve_options *o = &s.o;
    arg_rest rest;
    serve_options_defaults(o);
    o->request_s = -1;
    s.port = o->port;
    s.choices = o->max_choices;
    const arg_option options[] = {
        {"host", 0, ARG_STRING, &o->host, "ADDRESS", "listen on this address (default 127.0.0.1)", 0, 0},
        {"port", 'p', ARG_INT, &s.port, "N", "and port (default 8080; 0: any free one)", 0, 65535},
        {"unix", 0, ARG_STRING, &o->unix_path, "PATH", "listen on a Unix socket in their place", 0, 0},
        {"tls-cert", 0, ARG_STRING, &o->tls_cert, "FILE", "certificate chain (PEM): speak TLS", 0, 0},
        {"tls-key", 0, ARG_STRING, &o->tls_key, "FILE", "its private key (PEM)", 0, 0},
        {"api-key-env", 0, ARG_STRING, &o->key_env, "NAME", "environment variable with API keys, one a line", 0, 0},
        {"api-key-file", 0, ARG_STRING, &o->key_file, "FILE", "file with API keys, one a line", 0, 0},
        {"allow-origin", 0, ARG_LIST, &s.origins, "ORIGIN", "web pages that may use the server (CORS); may be repeated; *: all", 0,
         0},
        {"allow-host", 0, ARG_LIST, &s.hosts, "NAME", "answer to this Host header too, without a key; *: to any", 0, 0},
        {"alias", 0, ARG_LIST, &s.aliases, "NAME", "what the model is called; may be repeated, the first one is shown", 0, 0},
        {"any-model", 0, ARG_FLAG, &o->any_model, NULL, "requests may name any model", 0, 0},
        {"chat-template", 0, ARG_STRING, &s.template_file, "FILE", "a chat template in place of the model's", 0, 0},
        {"mode", 0, ARG_STRING, &s.mode, "MODE", "desktop (default) or server: see below", 0, 0},
        {"parallel", 0, ARG_INT, &s.parallel, "N", "answers computed at the same time", 1, 256},
        {"queue", 0, ARG_INT, &s.queue, "N", "answers that may wait; more get 503 (0: no limit)", 0, 1000000},
        {"connections", 0, ARG_INT, &s.connections, "N", "open connections at most (desktop 256, server 2048)", 1, 100000},
        {"context", 'c', ARG_INT, &s.context, "N", "positions for prompt and answer of one request", 2, 16777216},
        {"kv-tokens", 0, ARG_STRING, &s.kv_tokens, "N", "positions of all running requests together (default: parallel x context)",
         0, 0},
        {"max-tokens", 'n', ARG_INT, &s.max_tokens, "N", "longest answer when a request does not say (default: the context)", 1,
         1 << 24},
        {"max-choices", 0, ARG_INT, &s.choices, "N", "answers that one request may ask for (default 8)", 1, 64},
        {"max-step-ms", 0, ARG_NUMBER, &s.max_step_ms, "X", "a newcomer's prompt holds running answers up no longer (0: no limit)",
         0, 1e6},
        {"cache-ram", 0, ARG_STRING, &s.cache_ram, "SIZE", "prefix cache in memory (default 512M or what is spare; 0: none)", 0, 0},
        {"cache-host", 0, ARG_STRING, &s.cache_host, "SIZE", "on a GPU: the machine's own memory behind it (default 4G; 0: none)",
         0, 0},
        {"cache-dir", 0, ARG_STRING, &o->engine.cache_dir, "FOLDER", "keep the prefix cache on disk too, over restarts", 0, 0},
        {"cache-disk", 0, ARG_STRING, &s.cache_disk, "SIZE", "size of that folder at most (default 4G)", 0, 0},
        {"threads", 't', ARG_INT, &s.threads, "N", "threads that compute (default: one a physical core)", 1, 1024},
        {"chunk", 0, ARG_INT, &s.chunk, "N", "prompt rows computed in one step (default 256)", 1, 4096},
        {"cpu", 0, ARG_STRING, &s.cpu, "LEVEL", "kernels up to this level: c, avx2, avxvnni, avx512, amx, neon, i8mm", 0, 0},
        {"device", 0, ARG_STRING, &s.device, "NAME", "auto, cpu, cuda or cuda:N (default auto)", 0, 0},
        {"device-fallback", 0, ARG_STRING, &s.device_fallback, "NAME",
         "cpu: when the GPU fails, running answers go on there (default: they end with 503)", 0, 0},
        {"max-body", 0, ARG_STRING, &s.max_body, "SIZE", "largest body of a request (default 1M)", 0, 0},
        {"timeout-request", 0, ARG_NUMBER, &o->request_s, "S", "a request's deadline in seconds (0: none)", 0, 1e6},
        {"timeout-head", 0, ARG_NUMBER, &o->head_s, "S", "a request's head must arrive within (default 10)", 0.1, 1e5},
        {"timeout-body", 0, ARG_NUMBER, &o->body_s, "S", "its body within (default 30)", 0.1, 1e5},
        {"timeout-idle", 0, ARG_NUMBER, &o->idle_s, "S", "an idle connection is kept for (default 75)", 0.1, 1e6},
        {"timeout-write", 0, ARG_NUMBER, &o->write_s, "S", "a reader that takes nothing for so long is dropped (default 30)", 1,
         1e5},
        {"stream-comment", 0, ARG_NUMBER, &o->comment_s, "S", "a silent stream sends a comment so often (default 10; 0: never)", 0,
         1e5},
        {"drain", 0, ARG_NUMBER, &o->drain_s, "S", "after SIGTERM, running answers have so long (default 30)", 0, 1e5},
        {"watchdog", 0, ARG_NUMBER, &o->stuck_s, "S", "report a step that takes longer (default 60)", 0.1, 1e5},
        {"log-format", 0, ARG_STRING, &s.log_format, "FORMAT", "text (default) or json", 0, 0},
        {"log-level", 0, ARG_STRING, &s.log_level, "LEVEL", "debug, info (default) or warning (no line for each request)", 0, 0},
        {"dry-run", 0, ARG_FLAG, &s.dry_run, NULL, "check all that a start needs, print the memory plan and the settings, and stop",
         0, 0},
        {"json", 0, ARG_FLAG, &s.json, NULL, "with --dry-run: on one line", 0, 0},
        {NULL, 0, ARG_FLAG, NULL, NULL, NULL, 0, 0},
    };
    int code = args_parse(&about, options, argc, argv, &rest);
    if (code >= 0) return code;
    if (s.json && !s.dry_run) return args_wrong(&about, "--json needs --dry-run");
    take_name(&s, rest.item[0]);
    if ((code = check(&s)) >= 0 || (code = read_sizes(&s)) >= 0) return code;
    apply_mode(&s);
    take_over(&s);
    size_t n;
    char *template = s.template_file == NULL ? NULL : read_file(about.name, s.template_file, &n);
    if (s.template_file != NULL && template == NULL) return EXIT_FAILED;
    o->chat_template = template;
    o->model = open_model(about.name, rest.item[0], false, NULL);
    code = o->model == NULL ? EXIT_FAILED : check_template(o);
    if (code < 0) code = serve(&s);
    im_model_close(o->model);
    free(template);
    return code;
}
