/* SPDX-License-Identifier: Apache-2.0 */
#include "server.h"

#include "conn.h"
#include "drain.h"
#include "listener.h"
#include "memory.h"
#include "watchdog.h"

#include <errno.h>
#include <event2/thread.h>
#include <inttypes.h>
#include <jansson.h>
#include <libgen.h>
#include <netdb.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* ---- small things ---------------------------------------------------------------------------------------------------------------------------------- */

double server_now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

void server_new_id(server *s, const char *prefix, char out[48])
{
    snprintf(out, 48, "%s%016" PRIx64 "%08" PRIx64, prefix, s->id_salt, ++s->next_id & 0xffffffff);
}

bool serve_is_loopback(const char *host)
{
    if (strcmp(host, "localhost") == 0 || strcmp(host, "::1") == 0) return true;
    return strncmp(host, "127.", 4) == 0 && strspn(host, "0123456789.") == strlen(host);
}

void serve_options_defaults(serve_options *o)
{
    *o = (serve_options){
        .host = "127.0.0.1",
        .port = 8080,
        .max_head = 16384,
        .max_body = 1 << 20,
        .max_bodies = 64 << 20,
        .max_output = 1 << 20,
        .max_connections = 512,
        .max_choices = 8,
        .head_s = 10,
        .body_s = 30,
        .idle_s = 75,
        .write_s = 30,
        .request_s = 600,
        .drain_s = 30,
        .stuck_s = 60,
        .comment_s = 10,
    };
    im_engine_options_defaults(&o->engine);
}

/* ---- loading ------------------------------------------------------------------------------------------------------------------------------------------- */

typedef struct loaded_letter {
    letter letter;
    server *s;
    im_engine *engine;
    im_error error;
} loaded_letter;

static void read_loaded(letter *l, void *user)
{
    loaded_letter *done = (loaded_letter *)l;
    server *s = user;
    s->loading = false;
    pthread_join(s->loader, NULL); /* it has nothing left to do */
    s->loader_started = false;
    if (done->engine == NULL) {
        journal_fatal(&s->journal, "the model cannot be loaded", done->error.message);
        s->exit_code = 1;
        event_base_loopbreak(s->base);
    } else {
        im_engine_info info;
        im_engine_get_info(done->engine, &info);
        atomic_store(&s->engine, done->engine);
        journal_say(&s->journal, IM_LOG_INFO, "ready: %s, %s, %d threads, context %u, %u at once, loaded in %.1f s", s->model_id,
                    info.cpu_level, info.threads, info.context, info.max_sequences, info.load_ms / 1e3);
        listener_notify("READY=1");
    }
    free(done);
}

static void *load(void *argument)
{
    loaded_letter *done = argument;
    server *s = done->s;
    if (im_engine_open_model(&done->engine, s->o->model, &s->o->engine, &done->error) != IM_OK) done->engine = NULL;
    mailbox_post(&s->mailbox, &done->letter);
    return NULL;
}

/* The server answers health and refusals while the weights are read. */
static bool start_loading(server *s)
{
    sigset_t all, before;
    loaded_letter *done = calloc(1, sizeof *done);
    if (done == NULL) return false;
    done->letter.read = read_loaded;
    done->s = s;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    s->loader_started = pthread_create(&s->loader, NULL, load, done) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    s->loading = s->loader_started;
    if (!s->loader_started) free(done);
    return s->loader_started;
}

/* ---- setting up ------------------------------------------------------------------------------------------------------------------------------------------ */

static void name_model(server *s)
{
    if (s->o->aliases.count > 0) {
        snprintf(s->model_id, sizeof s->model_id, "%s", s->o->aliases.item[0]);
        return;
    }
    const char *path = s->model.path, *slash = strrchr(path, '/');
    snprintf(s->model_id, sizeof s->model_id, "%s", slash != NULL && slash[1] != 0 ? slash + 1 : path);
    size_t n = strlen(s->model_id);
    if (n > 5 && strcmp(s->model_id + n - 5, ".gguf") == 0) s->model_id[n - 5] = 0;
    for (char *c = s->model_id; *c != 0; c++)
        if ((unsigned char)*c <= ' ' || (unsigned char)*c >= 127) *c = '_';
}

/* Connections need descriptors; where the system gives fewer, there are fewer connections. */
static void fit_connections(serve_options *o)
{
    enum { OTHERS = 64 };
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
    limit.rlim_cur = limit.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0 && getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
    if (limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur >= o->max_connections + OTHERS) return;
    o->max_connections = limit.rlim_cur > OTHERS + 1 ? (uint32_t)(limit.rlim_cur - OTHERS) : 1;
}

static im_status fail(im_error *err, im_status status, const char *format, ...) __attribute__((format(printf, 3, 4)));
static im_status fail(im_error *err, im_status status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    err->status = status;
    vsnprintf(err->message, sizeof err->message, format, args);
    va_end(args);
    return status;
}

static im_status set_up(server *s, im_error *err)
{
    im_status status;
    if (getrandom(&s->id_salt, sizeof s->id_salt, 0) < 0) s->id_salt = (uint64_t)getpid();
    im_model_get_info(s->o->model, &s->model);
    name_model(s);
    s->base = event_base_new();
    if (s->base == NULL || !mailbox_open(&s->mailbox, s->base, s))
        return fail(err, IM_ERR_INTERNAL, "the event loop cannot be set up");
    if (!drain_open(s) || !watchdog_open(s)) return fail(err, IM_ERR_INTERNAL, "the event loop cannot be set up");
    if (!worker_open(&s->workers)) return fail(err, IM_ERR_INTERNAL, "no threads for the workers");
    if ((status = guard_open(&s->guard, s->o, err)) != IM_OK) return status;
    if ((status = listener_open_tls(s->o, &s->tls, err)) != IM_OK) return status;
    if ((status = listener_open(s, err)) != IM_OK) return status;
    return start_loading(s) ? IM_OK : fail(err, IM_ERR_INTERNAL, "no thread to load the model");
}

/* What is still there is told to end, and waited for: nothing of it may call back into what is freed next. */
static void take_down(server *s)
{
    listener_close(s);
    while (s->conns != NULL) conn_close(s->conns, NULL);
    /* What the library puts off to the loop's next turn holds connections that are closed. */
    if (s->base != NULL) event_base_loop(s->base, EVLOOP_NONBLOCK);
    worker_close(&s->workers);
    if (s->loader_started) pthread_join(s->loader, NULL);
    if (s->mailbox.event != NULL) mailbox_empty(&s->mailbox);
    im_engine_close(atomic_load(&s->engine));
    if (s->base != NULL) mailbox_close(&s->mailbox);
    drain_close(s);
    watchdog_close(s);
    guard_close(&s->guard);
    SSL_CTX_free(s->tls);
    if (s->base != NULL) event_base_free(s->base);
}

/* The loop needs little time, but at once, also where every core computes: a thread with short turns need not wait for the end of another's. Linux knows this
 * since 6.12; elsewhere nothing happens. The threads that compute were made before and keep theirs. */
static void take_short_turns(void)
{
#ifdef SYS_sched_setattr
    const struct {
        uint32_t size, policy;
        uint64_t flags;
        int32_t nice;
        uint32_t priority;
        uint64_t runtime, deadline, period;
    } turns = {.size = 48, .nice = getpriority(PRIO_PROCESS, 0), .runtime = 100000};
    syscall(SYS_sched_setattr, 0, &turns, 0);
#endif
}

static void write_engine_log(void *user, im_log_level level, const char *line)
{
    server *s = user;
    journal_say(&s->journal, level, "engine: %s", line);
}

static double mib(uint64_t bytes) { return (double)bytes / (1 << 20); }

static void say_plan(server *s)
{
    const im_memory_plan *p = &s->o->plan;
    journal_say(&s->journal, IM_LOG_INFO,
                "memory: weights %.0f MiB, keys and values %.0f MiB (prefix cache %.0f MiB of them), workspace %.0f MiB: %.0f MiB; "
                "available %.0f MiB",
                mib(p->weights), mib(p->kv), mib(s->o->engine.cache_ram), mib(p->workspace), mib(p->weights + p->kv + p->workspace),
                mib(p->available));
    if (p->host > 0)
        journal_say(&s->journal, IM_LOG_INFO,
                    "memory: of the GPU; besides up to %.0f MiB of this machine's own for the prefix cache", mib(p->host));
}

/* Why the cache cannot be kept there; 0: it can. The engine makes the folder when there is none; then the folder around it counts. */
static int check_folder(const char *path)
{
    struct stat st;
    char *around = strdup(path);
    if (around == NULL) return ENOMEM;
    bool there = stat(path, &st) == 0;
    int why = access(there ? path : dirname(around), W_OK | X_OK) == 0 ? 0 : errno;
    free(around);
    if (why != 0 || !there) return why;
    return !S_ISDIR(st.st_mode) ? ENOTDIR : st.st_uid != geteuid() || (st.st_mode & 022) != 0 ? EPERM : 0;
}

/* As at a start, where the server goes on without it. */
static void note_cache(const serve_options *o, char note[SERVE_NOTE])
{
    size_t used = strlen(note);
    int why = o->engine.cache_dir == NULL ? 0 : check_folder(o->engine.cache_dir);
    if (why == 0) return;
    snprintf(note + used, SERVE_NOTE - used, "%sno cache on disk, %s: %s", used > 0 ? "; " : "", o->engine.cache_dir,
             why == EPERM ? "another user's, or others may write into it" : strerror(why));
}

im_status serve_check(const serve_options *o, char note[SERVE_NOTE], im_error *err)
{
    guard g;
    SSL_CTX *tls;
    note[0] = 0;
    im_status status = guard_open(&g, o, err);
    if (status != IM_OK) return status;
    guard_close(&g);
    if ((status = listener_open_tls(o, &tls, err)) != IM_OK) return status;
    SSL_CTX_free(tls);
    if ((status = listener_check(o, note, err)) == IM_OK) note_cache(o, note);
    return status;
}

int serve_run(const serve_options *options)
{
    im_error err = {.message = ""};
    serve_options o = *options;
    server *s = calloc(1, sizeof *s);
    if (s == NULL) {
        fprintf(stderr, "ironmule serve: out of memory\n");
        return 1;
    }
    s->o = &o;
    fit_connections(&o);
    o.engine.log = write_engine_log;
    o.engine.log_user = s;
    s->started = time(NULL);
    s->journal.json = o.log_json;
    s->journal.debug = o.log_debug;
    s->mailbox.wake = -1;
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN); /* a file that may not grow is no reason to end */
    memory_watch();
    say_plan(s);
    if (set_up(s, &err) == IM_OK) {
        take_short_turns();
        event_base_dispatch(s->base);
    } else {
        journal_fatal(&s->journal, "the server cannot start", err.message);
        s->exit_code = 1;
    }
    int code = s->exit_code;
    take_down(s);
    memory_unwatch();
    if (code == 0) journal_say(&s->journal, IM_LOG_INFO, "stopped");
    free(s);
    return code;
}
