/* SPDX-License-Identifier: Apache-2.0
 *
 * Opening and closing an engine: every default is settled, all memory is counted, checked against the machine and taken, then the thread starts.
 */
#include "base/machine.h"
#include "base/thread.h"
#include "engine/device.h"
#include "engine/internal.h"

#include <string.h>

#define DEFAULT_CONTEXT 4096
#define DEFAULT_CHUNK 256
#define DEFAULT_CHUNK_CUDA 2048 /* many rows occupy many processors */
#define MOST_BYTES_OF_ROWS ((uint64_t)290 << 20)
#define MOST_CHUNK 4096
#define MOST_THREADS 1024
#define MOST_SEQUENCES 1024

void im_engine_options_init(im_engine_options *o, size_t size)
{
    im__options_copy(o, size, &(im_engine_options){.size = 0}, sizeof *o);
}

/* So many rows that what lies between a wide model's operations stays small beside its weights; half as many rows are read nearly as fast. */
static uint32_t chunk_of_gpu(const im__program *p)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < p->value_count; i++)
        if ((int)i != p->logits) bytes += p->value[i].width * (uint64_t)(sizeof(float) + 1); /* some are quantised besides */
    uint32_t chunk = DEFAULT_CHUNK_CUDA;
    while (chunk > DEFAULT_CHUNK && chunk * bytes > MOST_BYTES_OF_ROWS) chunk /= 2;
    return chunk;
}

static im_status settle(const im_model *m, const im_engine_options *given, bool cuda, im_engine_options *o, im_error *err)
{
    im_engine_options_defaults(o);
    if (given != NULL) memcpy(o, given, given->size < sizeof *o ? given->size : sizeof *o);
    if (!m->has_program) return im__fail(err, IM_ERR_ARGUMENT, "%s: was opened for its vocabulary only", m->info.path);
    if (o->threads < 0 || o->threads > MOST_THREADS)
        return im__fail(err, IM_ERR_ARGUMENT, "%d threads; 1 .. %d, or 0 for the default", o->threads, MOST_THREADS);
    if (o->threads == 0) o->threads = im__machine_cores();
    if (o->context == 0) o->context = m->program.context < DEFAULT_CONTEXT ? m->program.context : DEFAULT_CONTEXT;
    if (o->context < 2 || o->context > (1u << 24))
        return im__fail(err, IM_ERR_ARGUMENT, "a context of %u positions; 2 .. %u are possible", o->context, 1u << 24);
    if (o->chunk == 0) o->chunk = cuda ? chunk_of_gpu(&m->program) : DEFAULT_CHUNK;
    if (o->chunk > MOST_CHUNK) return im__fail(err, IM_ERR_ARGUMENT, "a chunk of %u rows; at most %d", o->chunk, MOST_CHUNK);
    if (o->chunk > o->context) o->chunk = o->context;
    if (!(o->max_step_ms >= 0)) return im__fail(err, IM_ERR_ARGUMENT, "a step of %g ms", o->max_step_ms);
    if (!cuda || o->cache_ram == 0) o->cache_host = 0;
    if (o->max_sequences == 0) o->max_sequences = 1;
    if (o->max_sequences > MOST_SEQUENCES)
        return im__fail(err, IM_ERR_ARGUMENT, "%u sequences; at most %d", o->max_sequences, MOST_SEQUENCES);
    return IM_OK;
}

static bool wants_folder(const im_engine_options *o) { return o->cache_dir != NULL && o->cache_ram > 0 && o->cache_disk > 0; }
static bool wants_tier(const im_engine_options *o) { return wants_folder(o) || o->cache_host > 0; }

static im__kv_sizes kv_sizes(const im_model *m, const im_engine_options *o)
{
    im__kv_sizes sizes;
    im__kv_needs needs = {.context = o->context,
                          .chunk = o->chunk,
                          .sequences = o->max_sequences,
                          .tokens = o->kv_tokens,
                          .cache_bytes = o->cache_ram,
                          .ahead = wants_tier(o)};
    im__kv_plan(&m->program, &needs, &sizes);
    return sizes;
}

static im__backend_options backend_options(const im_model *m, const im_engine_options *o)
{
    im__kv_sizes sizes = kv_sizes(m, o);
    im__backend_options b = {.threads = o->threads,
                             .cpu_level = o->cpu_level,
                             .max_rows = (size_t)o->chunk + o->max_sequences,
                             .context = o->context,
                             .sequences = o->max_sequences};
    b.max_logit_rows =
        (size_t)IM__SCORE_ROWS + o->max_sequences - 1; /* one text is scored, or several in turn; the others decode */
    for (int k = 0; k < IM__POOLS; k++) b.pages[k] = im__kv_memory_pages(&m->program, &sizes, (im__pool_kind)k);
    return b;
}

static size_t logits_bytes(const im_model *m, const im__backend_options *b)
{
    return b->max_logit_rows * m->program.vocab * sizeof(float);
}

static size_t tier_bytes(const im_model *m, const im_engine_options *o)
{
    size_t page_bytes[IM__POOLS];
    for (int k = 0; k < IM__POOLS; k++) page_bytes[k] = im__kv_page_bytes(&m->program, (im__pool_kind)k);
    return im__tier_bytes(page_bytes, im__kv_seq_pages(o->context));
}

/* Of a token: a candidate, an edited logit, a mark. */
#define VOCABULARY_BYTES (sizeof(im__candidate) + sizeof(float) + sizeof(uint32_t))

static im_status plan_memory(const im_model *m, const im_engine_options *o, const im__backend_options *b, bool cuda,
                             im_memory_plan *plan, im_error *err)
{
    im__memory_plan backend;
    im__kv_sizes sizes = kv_sizes(m, o);
    IM__TRY(im__device_plan(cuda, &m->program, b, &backend, err));
    uint64_t own = logits_bytes(m, b) + m->program.vocab * VOCABULARY_BYTES; /* the engine's */
    if (o->cache_ram > 0) own += im__prefix_bytes(&sizes, o->context);
    if (wants_tier(o)) own += tier_bytes(m, o);
    *plan = (im_memory_plan){.weights = backend.weights,
                             .kv = backend.kv,
                             .workspace = backend.workspace + (cuda ? 0 : own),
                             .kv_bytes_per_token = im__kv_page_bytes(&m->program, IM__POOL_FULL) / IM__PAGE,
                             .available = backend.available,
                             .host = !cuda                              ? 0
                                     : o->cache_host < UINT64_MAX - own ? own + o->cache_host
                                                                        : UINT64_MAX,
                             .device = cuda ? "cuda" : "cpu"};
    return IM_OK;
}

/* All that is known of an engine before anything is taken. */
typedef struct whole_plan {
    im_engine_options options;
    im__backend_options backend;
    im_memory_plan memory;
} whole_plan;

static im_status make_plan(const im_model *m, const im_engine_options *given, bool cuda, int ordinal, whole_plan *out,
                           im_error *err)
{
    IM__TRY(settle(m, given, cuda, &out->options, err));
    out->backend = backend_options(m, &out->options);
    out->backend.device = ordinal;
    return plan_memory(m, &out->options, &out->backend, cuda, &out->memory, err);
}

static im_status devices_of(const im_engine_options *given, im__device_choice *out, im_error *err)
{
    im_engine_options o;
    im_engine_options_defaults(&o);
    if (given != NULL) memcpy(&o, given, given->size < sizeof o ? given->size : sizeof o);
    return im__device_parse(o.device, o.device_fallback, out, err);
}

static bool fits(const im_memory_plan *p) { return p->available == 0 || p->weights + p->kv + p->workspace <= p->available; }

im_status im_engine_plan(const im_model *m, const im_engine_options *options, im_memory_plan *out, im_error *err)
{
    whole_plan p;
    im__device_choice device;
    if (m == NULL || out == NULL) return im__fail(err, IM_ERR_ARGUMENT, "a NULL argument");
    IM__TRY(devices_of(options, &device, err));
    im_status status = device.cuda ? make_plan(m, options, true, device.ordinal, &p, err) : IM_ERR_UNSUPPORTED;
    if (device.cpu && (status != IM_OK || !fits(&p.memory))) status = make_plan(m, options, false, 0, &p, err);
    if (status == IM_OK) *out = p.memory;
    return status;
}

static im_status refuse_what_does_not_fit(const im_memory_plan *plan, im_error *err)
{
    uint64_t need = plan->weights + plan->kv + plan->workspace, host = plan->host == 0 ? 0 : im__machine_memory();
    if (plan->host > host && host > 0)
        return im__fail(err, IM_ERR_MEMORY,
                        "%llu MiB of the host's memory are needed beside the GPU's, but only %llu MiB are available",
                        (unsigned long long)(plan->host >> 20), (unsigned long long)(host >> 20));
    if (fits(plan)) return IM_OK;
    return im__fail(err, IM_ERR_MEMORY,
                    "%llu MiB are needed (weights %llu, KV cache %llu, workspace %llu), but only %llu MiB are available; a smaller "
                    "context needs less",
                    (unsigned long long)(need >> 20), (unsigned long long)(plan->weights >> 20),
                    (unsigned long long)(plan->kv >> 20), (unsigned long long)(plan->workspace >> 20),
                    (unsigned long long)(plan->available >> 20));
}

static im_status take_memory(im_engine *e, const im__backend_options *b, im_error *err)
{
    e->max_rows = b->max_rows;
    e->max_logit_rows = b->max_logit_rows;
    e->logits_bytes = logits_bytes(e->model, b);
    e->row = im__calloc(b->max_rows, sizeof *e->row);
    e->tables = im__calloc(e->options.max_sequences, sizeof *e->tables);
    e->member = im__calloc(e->options.max_sequences, sizeof *e->member);
    e->candidates = im__calloc(e->model->program.vocab, sizeof *e->candidates);
    e->edited = im__calloc(e->model->program.vocab, sizeof *e->edited);
    e->mark = im__calloc(e->model->program.vocab, sizeof *e->mark);
    e->choice = im__calloc(b->max_logit_rows, sizeof *e->choice);
    e->logits = im__aligned_alloc(e->logits_bytes);
    if (!e->choice || !e->row || !e->tables || !e->member || !e->candidates || !e->edited || !e->mark || !e->logits)
        return im__fail(err, IM_ERR_MEMORY, "out of memory");
    return IM_OK;
}

/* `after`: the processor has taken over. */
static void describe(const im_engine *e, bool after, im_engine_info *info)
{
    const char *text = e->backend->describe(e->backend), *colon = strchr(text, ':');
    char *kernels = e->kernels[after];
    if (kernels != NULL && colon != NULL) kernels[colon - text] = 0;
    info->device = e->backend->name;
    info->cpu_level = kernels == NULL ? "" : kernels;
    info->kernels = kernels == NULL || colon == NULL ? "" : kernels + (colon - text) + 2;
    info->threads = e->options.threads;
    info->context = e->options.context;
    info->chunk = e->options.chunk;
    info->max_sequences = e->options.max_sequences;
    info->fingerprint = e->fingerprint[after];
    info->note = e->note == NULL ? "" : e->note;
}

static void disk_news(void *engine)
{
    im_engine *e = engine;
    pthread_mutex_lock(&e->lock);
    e->look_again = true;
    pthread_cond_signal(&e->wake);
    pthread_mutex_unlock(&e->lock);
}

static void disk_log(void *engine, im_log_level level, const char *line) { im__log(engine, level, "%s", line); }

/* Reads all weights: once is enough. */
static im_status fingerprint_pages(im_engine *e, im_error *err)
{
    if (!e->has_page_fingerprint) IM__TRY(im__fingerprint_pages(e, e->page_fingerprint, err));
    e->has_page_fingerprint = true;
    return IM_OK;
}

static im_status open_tiers(im_engine *e, const im_engine_options *o, bool folder, im__tier **out, im_error *err)
{
    im__disk_options disk = {.folder = folder ? o->cache_dir : NULL,
                             .limit = o->cache_disk,
                             .host = o->cache_host,
                             .backend = e->backend,
                             .news = disk_news,
                             .log = disk_log,
                             .user = e};
    for (int k = 0; k < IM__POOLS; k++) disk.page_bytes[k] = im__kv_page_bytes(&e->model->program, (im__pool_kind)k);
    if (folder) IM__TRY(fingerprint_pages(e, err));
    memcpy(disk.fingerprint, e->page_fingerprint, sizeof disk.fingerprint);
    return im__tier_open(out, e->prefix, &e->kv, &disk, err);
}

static void set_tier(im_engine *e, im__tier *tier)
{
    pthread_mutex_lock(&e->lock);
    e->tier = tier;
    pthread_mutex_unlock(&e->lock);
}

im_status im__engine_open_tier(im_engine *e, const im_engine_options *o, im_error *err)
{
    im_error why;
    im__tier *tier = NULL;
    im_status status = IM_OK;
    if (wants_folder(o))
        status = open_tiers(e, o, true, &tier, &why);
    else if (o->cache_dir != NULL)
        status = im__fail(&why, IM_ERR_IO, "a folder needs cache_ram and cache_disk as well");
    if (tier == NULL && (status == IM_OK || status == IM_ERR_IO) && o->cache_host > 0) IM__TRY(open_tiers(e, o, false, &tier, err));
    set_tier(e, tier);
    if (status == IM_OK) return IM_OK;
    if (status != IM_ERR_IO) return im__fail(err, status, "%s", why.message);
    im__log(e, IM_LOG_WARNING, "prefix cache on disk: %s; going on without", why.message);
    return IM_OK;
}

/* `options`: of the engine that is being opened. */
static void note_device(void *options, const char *line)
{
    const im_engine_options *o = options;
    if (o->log != NULL) o->log(o->log_user, IM_LOG_DEBUG, line);
}

static im_status open_on(im_engine *e, const im_engine_options *options, bool cuda, int ordinal, im__backend **out, whole_plan *p,
                         im_error *err)
{
    IM__TRY(make_plan(e->model, options, cuda, ordinal, p, err));
    IM__TRY(refuse_what_does_not_fit(&p->memory, err));
    p->backend.progress = p->options.progress;
    p->backend.progress_user = p->options.progress_user;
    p->backend.note = note_device;
    p->backend.note_user = &p->options;
    return im__device_open(cuda, out, &e->model->program, &p->backend, err);
}

/* A device that the caller names must serve; of the others the first that does. */
static im_status open_backend(im_engine *e, const im_engine_options *options, whole_plan *p, im_error *err)
{
    im_error why;
    im__device_choice device;
    IM__TRY(devices_of(options, &device, err));
    im_error *first = device.cpu ? &why : err;
    im_status status = device.cuda ? open_on(e, options, true, device.ordinal, &e->backend, p, first) : IM_ERR_UNSUPPORTED;
    if (status == IM_OK || !device.cpu) return status;
    IM__TRY(open_on(e, options, false, 0, &e->backend, p, err));
    if (!device.cuda) return IM_OK;
    e->options = p->options;
    e->note = im__strdup(why.message, strlen(why.message));
    /* A machine without a GPU is an ordinary one; a GPU that cannot serve is news, and so is one that the caller has named. */
    im_log_level level = device.named ? IM_LOG_WARNING : status == IM_ERR_UNSUPPORTED ? IM_LOG_DEBUG : IM_LOG_INFO;
    im__log(e, level, "on the processor: %s", why.message);
    return IM_OK;
}

static bool copy_string(const char **s)
{
    if (*s == NULL) return true;
    *s = im__strdup(*s, strlen(*s));
    return *s != NULL;
}

/* What moving to the processor needs later. The rows of a step must not become more, for the memory of the rows stays. */
static im_status keep_given(im_engine *e, const im_engine_options *options, im_error *err)
{
    im_engine_options *g = &e->fallback.given;
    if (strcmp(e->backend->name, "cpu") == 0 || e->options.device_fallback == NULL) return IM_OK;
    im_engine_options_defaults(g);
    memcpy(g, options, options->size < sizeof *g ? options->size : sizeof *g);
    g->threads = e->options.threads;
    g->progress = NULL;
    g->device = g->device_fallback = NULL;
    bool level = copy_string(&g->cpu_level), folder = copy_string(&g->cache_dir);
    if (!level || !folder) return im__fail(err, IM_ERR_MEMORY, "out of memory");
    e->fallback.allowed = true;
    return IM_OK;
}

/* What stands for the engine to the outside. */
static im_status say_what_computes(im_engine *e, bool after, const im_memory_plan *memory, im_error *err)
{
    const char *text = e->backend->describe(e->backend);
    e->kernels[after] = im__strdup(text, strlen(text));
    IM__TRY(im__fingerprint(e, e->fingerprint[after], err));
    im_engine_info info = e->info;
    describe(e, after, &info);
    info.memory = *memory;
    pthread_mutex_lock(&e->lock);
    e->info = info;
    pthread_mutex_unlock(&e->lock);
    return IM_OK;
}

static im_status open_engine(im_engine *e, const im_engine_options *options, im_error *err)
{
    double started = im__now_ms();
    whole_plan p;
    IM__TRY(open_backend(e, options, &p, err));
    e->options = p.options;
    e->sizes = kv_sizes(e->model, &e->options);
    IM__TRY(im__kv_new(&e->kv, &e->model->program, e->options.context, &e->sizes, err));
    if (e->options.cache_ram > 0) IM__TRY(im__prefix_new(&e->prefix, &e->kv, &e->sizes, err));
    IM__TRY(take_memory(e, &p.backend, err));
    IM__TRY(say_what_computes(e, false, &p.memory, err));
    e->info.load_ms = e->model->open_ms + im__now_ms() - started;
    IM__TRY(im__engine_open_tier(e, &e->options, err));
    IM__TRY(keep_given(e, options, err));
    e->options.cpu_level = e->options.device = e->options.cache_dir = e->options.device_fallback =
        NULL; /* the caller's strings are not ours to keep */
    if (!im__thread_start(&e->thread, im__engine_main, e)) return im__fail(err, IM_ERR_MEMORY, "cannot start the engine's thread");
    e->thread_started = true;
    return IM_OK;
}

/* ---- moving -------------------------------------------------------------------------------------------------------------------- */

/* Pages anew, in the numbers of another device. Those that running requests hold together stay as many, so what was admitted finds its place again. */
static im_status renew_pages(im_engine *e, const im_engine_options *o, im_error *err)
{
    im__kv old = e->kv, fresh;
    im__prefix *prefix = NULL;
    im__kv_sizes sizes = kv_sizes(e->model, o);
    IM__TRY(im__kv_new(&fresh, &e->model->program, o->context, &sizes, err));
    e->kv = fresh;
    im_status status = o->cache_ram > 0 ? im__prefix_new(&prefix, &e->kv, &sizes, err) : IM_OK;
    if (status != IM_OK) {
        im__kv_free(&e->kv);
        e->kv = old;
        return status;
    }
    im__prefix_free(e->prefix);
    im__kv_free(&old);
    e->prefix = prefix;
    pthread_mutex_lock(&e->lock);
    for (int k = 0; k < IM__POOLS; k++) e->sizes.cached[k] = sizes.cached[k];
    e->sizes.running[IM__POOL_WINDOW] = sizes.running[IM__POOL_WINDOW];
    pthread_mutex_unlock(&e->lock);
    return IM_OK;
}

static void exchange_backend(im_engine *e, im__backend *b)
{
    im__backend *old = e->backend;
    pthread_mutex_lock(&e->lock);
    e->backend = b;
    pthread_mutex_unlock(&e->lock);
    old->close(old);
}

im_status im__engine_move_to_cpu(im_engine *e, const char *note, im_error *err)
{
    whole_plan p;
    im__backend *b;
    im_engine_options o = e->fallback.given;
    im_status status = open_on(e, &o, false, 0, &b, &p, err);
    if (status == IM_ERR_MEMORY && o.cache_ram > 0) { /* what a cache takes is less than what it is for */
        o.cache_ram = 1;
        status = open_on(e, &o, false, 0, &b, &p, err);
    }
    if (status != IM_OK) return status;
    status = renew_pages(e, &p.options, err);
    if (status != IM_OK) {
        b->close(b);
        return status;
    }
    exchange_backend(e, b);
    e->options.chunk = p.options.chunk;
    e->pace = (im__pace){0};
    im__free(e->note);
    e->note = im__strdup(note, strlen(note));
    im_error why; /* the processor computes from here on, whatever else cannot be had */
    status = say_what_computes(e, true, &p.memory, &why);
    if (status == IM_OK) status = im__engine_open_tier(e, &p.options, &why);
    if (status != IM_OK) im__log(e, IM_LOG_WARNING, "on the processor, but: %s", why.message);
    return IM_OK;
}

im_status im_engine_open_model(im_engine **out, im_model *model, const im_engine_options *options, im_error *err)
{
    if (out == NULL || model == NULL) return im__fail(err, IM_ERR_ARGUMENT, "a NULL argument");
    im_engine *e = im__calloc(1, sizeof *e);
    if (e == NULL) return im__fail(err, IM_ERR_MEMORY, "out of memory");
    im__float_state floats;
    e->chain_ms = IM__CHAIN_MS;
    e->model = model;
    atomic_fetch_add(&model->users, 1);
    atomic_store(&e->users, 1);
    pthread_mutex_init(&e->lock, NULL);
    pthread_cond_init(&e->wake, NULL);
    pthread_cond_init(&e->finished, NULL);
    im__float_enter(&floats); /* self-checks and packing compute */
    im_status status = open_engine(e, options, err);
    im__float_leave(&floats);
    if (status == IM_OK)
        *out = e;
    else
        im_engine_close(e);
    return status;
}

im_status im_engine_open(im_engine **out, const char *path, const im_engine_options *options, im_error *err)
{
    im_model *model;
    IM__TRY(im_model_open(&model, path, NULL, err));
    im_status status = im_engine_open_model(out, model, options, err);
    im_model_close(model);
    return status;
}

static void stop_thread(im_engine *e)
{
    pthread_mutex_lock(&e->lock);
    e->closing = true;
    atomic_store(&e->abandon, true);
    for (im_request *r = e->running; r != NULL; r = r->next) atomic_store(&r->cancelled, true);
    pthread_cond_signal(&e->wake);
    pthread_mutex_unlock(&e->lock);
    pthread_join(e->thread, NULL);
}

void im__engine_release(im_engine *e)
{
    if (atomic_fetch_sub(&e->users, 1) > 1) return;
    pthread_mutex_destroy(&e->lock);
    pthread_cond_destroy(&e->wake);
    pthread_cond_destroy(&e->finished);
    im__free(e);
}

void im_engine_close(im_engine *e)
{
    if (e == NULL) return;
    if (e->thread_started) stop_thread(e);
    im__tier_close(e->tier);
    if (e->backend != NULL) e->backend->close(e->backend);
    im__prefix_free(e->prefix);
    im__kv_free(&e->kv);
    im__aligned_free(e->logits, e->logits_bytes);
    im__free(e->row);
    im__free(e->tables);
    im__free(e->member);
    im__free(e->candidates);
    im__free(e->edited);
    im__free(e->mark);
    for (int i = 0; i < 2; i++) im__free(e->kernels[i]);
    im__free((void *)(uintptr_t)e->fallback.given.cpu_level);
    im__free((void *)(uintptr_t)e->fallback.given.cache_dir);
    im__free(e->note);
    im__free(e->choice);
    im_model_close(e->model);
    im__engine_release(e);
}

im_model *im_engine_model(const im_engine *e) { return e->model; }

void im_engine_get_info(const im_engine *e, im_engine_info *info)
{
    pthread_mutex_t *lock = (pthread_mutex_t *)(uintptr_t)&e->lock;
    pthread_mutex_lock(lock);
    *info = e->info;
    info->clamped = e->backend->clamped(e->backend);
    pthread_mutex_unlock(lock);
}
