/* SPDX-License-Identifier: Apache-2.0 */
#include "common.h"

#include "hub/hub_error.h"

#include "store/resolve.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* ---- messages ---------------------------------------------------------------------------------------------------------------------- */

int say(const char *who, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fprintf(stderr, "ironmule%s%s: ", who[0] == 0 ? "" : " ", who);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    return EXIT_FAILED;
}

int say_failed(const char *who, const im_error *err) { return say(who, "%s", err->message); }

/* A terminal that knows more than letters. */
static bool is_screen(FILE *f)
{
    const char *term = getenv("TERM");
    return isatty(fileno(f)) && term != NULL && strcmp(term, "dumb") != 0;
}

bool use_colour(FILE *f)
{
    const char *wish = getenv("NO_COLOR");
    return is_screen(f) && (wish == NULL || wish[0] == 0);
}

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

void progress_draw(progress *p, double fraction, const char *detail)
{
    char bar[31];
    double now = now_ms();
    if (now - p->drawn < 100 || !is_screen(stderr)) return;
    int filled = fraction < 0 ? 0 : fraction > 1 ? 30 : (int)(fraction * 30);
    memset(bar, '.', sizeof bar - 1);
    memset(bar, '#', (size_t)filled);
    bar[30] = 0;
    fprintf(stderr, "\r\033[K%s [%s] %3.0f%% %s", p->label, bar, fraction * 100, detail == NULL ? "" : detail);
    fflush(stderr);
    p->drawn = now;
    p->shown = true;
}

void progress_end(progress *p)
{
    if (p->shown) fputs("\r\033[K", stderr);
    p->shown = false;
}

/* ---- opening --------------------------------------------------------------------------------------------------------------------------- */

/* What to say when the kernel has no more of a mapped model to give: kept ready, for a signal handler cannot format. */
static char vanished[4352];

static void on_vanished(int number)
{
    (void)number;
    ssize_t unheard = write(STDERR_FILENO, vanished, strlen(vanished)); /* nobody left to tell when this fails */
    (void)unheard;
    _exit(EXIT_FAILED);
}

static void expect_vanishing(const char *who, const char *path)
{
    struct sigaction action = {.sa_handler = on_vanished};
    snprintf(vanished, sizeof vanished,
             "ironmule %s: %.4096s: cannot be read any more: the file was cut short, or its disk failed, while it was in use\n",
             who, path);
    sigemptyset(&action.sa_mask);
    sigaction(SIGBUS, &action, NULL);
}

im_model *open_model(const char *who, const char *named, bool vocabulary_only, const char *pre)
{
    im_error err;
    im_model *model = NULL;
    im_model_options o;
    resolved found;
    if (model_resolve(&found, named, &err) != IM_OK) {
        say_failed(who, &err);
        return NULL;
    }
    im_model_options_defaults(&o);
    o.vocabulary_only = vocabulary_only;
    o.pre_tokenizer = pre;
    expect_vanishing(who, found.path);
    if (im_model_open(&model, found.path, &o, &err) != IM_OK) {
        model = NULL;
        say_failed(who, &err);
    }
    resolved_free(&found);
    return model;
}

static void draw_load(void *user, double fraction) { progress_draw(user, fraction, NULL); }

/* Room for what a conversation has computed so far, as often as its context needs: twice, since windows are kept at more than one point. Pages that it does not reach are
 * never touched. */
static uint64_t cache_for(const im_model *model, const im_engine_options *o)
{
    im_memory_plan p;
    if (im_engine_plan(model, o, &p, NULL) != IM_OK) return 0;
    return p.available == 0 || p.weights + 3 * p.kv + p.workspace < p.available ? 2 * p.kv : 0;
}

void warn_context(const char *who, const im_model *model, int64_t context)
{
    im_model_info info;
    im_model_get_info(model, &info);
    if (context > info.context)
        say(who, "warning: the model was made for %u positions; beyond them its answers lose sense (--context %lld)", info.context,
            (long long)context);
}

/* `user`: the command's name. */
static void warn(void *user, im_log_level level, const char *line)
{
    if (level == IM_LOG_WARNING) say(user, "warning: %s", line);
}

im_engine *open_engine(const char *who, im_model *model, const run_options *run, uint32_t context, uint32_t sequences,
                       bool conversation)
{
    im_error err;
    im_engine *engine;
    im_engine_options o;
    progress bar = {.label = "loading", .drawn = now_ms()};
    warn_context(who, model, run->context);
    im_engine_options_defaults(&o);
    o.threads = (int)run->threads;
    o.context = run->context > 0 ? (uint32_t)run->context : context;
    o.chunk = (uint32_t)run->chunk;
    o.max_sequences = sequences;
    o.cpu_level = run->cpu;
    o.device = run->device;
    o.device_fallback = run->device_fallback;
    o.log = warn;
    o.log_user = (void *)(uintptr_t)who;
    o.progress = draw_load;
    o.progress_user = &bar;
    if (conversation) o.cache_ram = cache_for(model, &o);
    im_status status = im_engine_open_model(&engine, model, &o, &err);
    progress_end(&bar);
    if (status == IM_OK) return engine;
    say_failed(who, &err);
    return NULL;
}

im_sampling sampling_of(const char *who, const sampling_options *o)
{
    if (o->temperature <= 0 && (o->top_k > 0 || o->top_p < 1 || o->min_p > 0 || o->seed > 0))
        say(who, "greedy, as --temperature is 0: --top-k, --top-p, --min-p and --seed have no effect");
    return (im_sampling){.temperature = (float)o->temperature,
                         .top_k = (int32_t)o->top_k,
                         .top_p = (float)o->top_p,
                         .min_p = (float)o->min_p,
                         .seed = (uint64_t)o->seed};
}

/* ---- inputs ------------------------------------------------------------------------------------------------------------------------------ */

static char *read_stream(FILE *f, size_t *n)
{
    size_t cap = 1 << 16, len = 0, got;
    char *data = malloc(cap);
    while (data != NULL && (got = fread(data + len, 1, cap - len - 1, f)) > 0) {
        len += got;
        if (len + 1 < cap) continue;
        char *grown = realloc(data, cap *= 2);
        if (grown == NULL) free(data);
        data = grown;
    }
    if (data != NULL) data[len] = 0;
    *n = len;
    return data;
}

char *read_file(const char *who, const char *path, size_t *n)
{
    bool standard = strcmp(path, "-") == 0;
    if (standard && isatty(STDIN_FILENO)) say(who, "reading from the terminal; Ctrl-D ends the text");
    errno = 0;
    FILE *f = standard ? stdin : fopen(path, "rb");
    char *data = NULL;
    if (f != NULL) data = read_stream(f, n);
    if (f == NULL || data == NULL || ferror(f)) {
        say(who, "%s: %s", path, errno == 0 ? "cannot be read" : strerror(errno));
        free(data);
        data = NULL;
    }
    if (f != NULL && !standard) fclose(f);
    return data;
}

static int32_t *ids_of(const char *who, const char *path, const json_t *list, size_t *n)
{
    json_t *item;
    size_t i;
    *n = json_array_size(list);
    int32_t *ids = json_is_array(list) ? calloc(*n + 1, sizeof *ids) : NULL;
    if (ids == NULL) say(who, "%s: not a JSON list of token ids", path);
    json_array_foreach(list, i, item)
    {
        json_int_t v = json_integer_value(item);
        if (ids == NULL) break;
        if (json_is_integer(item) && v >= 0 && v <= INT32_MAX) {
            ids[i] = (int32_t)v;
            continue;
        }
        say(who, "%s: entry %zu is no token id", path, i);
        free(ids);
        return NULL;
    }
    return ids;
}

int32_t *read_ids(const char *who, const char *path, size_t *n)
{
    size_t len;
    json_error_t why;
    char *text = read_file(who, path, &len);
    if (text == NULL) return NULL;
    json_t *list = json_loadb(text, len, JSON_REJECT_DUPLICATES, &why);
    int32_t *ids = NULL;
    if (list == NULL)
        say(who, "%s: line %d: %s", path, why.line, why.text);
    else
        ids = ids_of(who, path, list, n);
    json_decref(list);
    free(text);
    return ids;
}

/* ---- Ctrl-C -------------------------------------------------------------------------------------------------------------------------------- */

static _Atomic(im_request *) current;
static atomic_bool armed, was_interrupted;
static struct sigaction before_set;

static void on_interrupt(int number)
{
    if (!atomic_exchange(&armed, false)) {
        signal(number, SIG_DFL);
        raise(number);
        return;
    }
    atomic_store(&was_interrupted, true);
    im_request_cancel(atomic_exchange(&current, NULL));
}

void interrupt_set(im_request *r)
{
    struct sigaction action = {.sa_handler = on_interrupt, .sa_flags = SA_RESTART}; /* what is being written is written */
    sigemptyset(&action.sa_mask);
    atomic_store(&was_interrupted, false);
    atomic_store(&current, r);
    atomic_store(&armed, true);
    sigaction(SIGINT, &action, &before_set);
}

void interrupt_clear(void)
{
    sigaction(SIGINT, &before_set, NULL);
    atomic_store(&armed, false);
    atomic_store(&current, NULL);
}

bool interrupted(void) { return atomic_load(&was_interrupted); }

/* ---- JSON ------------------------------------------------------------------------------------------------------------------------------------ */

json_t *json_text(const char *s, size_t n)
{
    json_t *text = json_stringn(s, n);
    if (text != NULL) return text;
    /* Not UTF-8: byte by byte, what is not ASCII becomes U+FFFD. */
    char *clean = malloc(3 * n + 1);
    size_t out = 0;
    for (size_t i = 0; clean != NULL && i < n; i++) {
        if ((unsigned char)s[i] < 0x80)
            clean[out++] = s[i];
        else
            out += (size_t)sprintf(clean + out, "\xef\xbf\xbd");
    }
    text = clean == NULL ? NULL : json_stringn(clean, out);
    free(clean);
    return text;
}

json_t *json_hex64(uint64_t v)
{
    char text[17];
    snprintf(text, sizeof text, "%016" PRIx64, v);
    return json_string(text);
}

const char *shown(const char *text)
{
    static char ring[4][4200];
    static unsigned next;
    char *out = ring[next++ % 4];
    snprintf(out, sizeof ring[0], "%s", text);
    hub_clean(out);
    return out;
}

int print_json(json_t *document)
{
    if (document == NULL) return say("", "out of memory");
    json_dumpf(document, stdout, JSON_ENCODE_ANY | JSON_PRESERVE_ORDER);
    putchar('\n');
    json_decref(document);
    return EXIT_DONE;
}
