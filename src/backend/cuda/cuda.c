/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cuda/cuda.h"

#include "backend/cpu/kernels.h"
#include "backend/cuda/cuda_decode.h"
#include "backend/cuda/fatbin.h"
#include "base/machine.h"

#include <stdio.h>
#include <string.h>

enum { ALIGN = 256, OLDEST = 75 };

/* ---- workspace ------------------------------------------------------------------------------------------------------------------- */

/* Addresses inside a block that begins at `begin`. */
typedef struct carver {
    im__cuda_ptr begin;
    size_t used;
    bool failed; /* more than can be counted */
} carver;

static im__cuda_ptr take(carver *w, size_t count, size_t size)
{
    size_t bytes, at = w->used;
    if (!im__mul(count, size, &bytes) || !im__add(bytes, ALIGN - 1, &bytes) || !im__add(at, bytes & ~(size_t)(ALIGN - 1), &w->used))
        w->failed = true;
    return w->begin + at;
}

static im__cuda_act take_act(carver *w, size_t rows, size_t planes, size_t n)
{
    im__cuda_act act = {.n = (uint32_t)n, .rest_rows = (uint32_t)rows};
    act.q = take(w, rows * planes, n);
    act.group = take(w, rows * planes, n / IM__ACT_GROUP * sizeof(im__cuda_group));
    return act;
}

/* The same walk counts (begin 0) and gives addresses. */
static void carve(im__cuda *c, carver *w)
{
    const im__program *p = c->p;
    size_t rows = c->options.max_rows;
    for (size_t v = 0; v < p->value_count; v++) {
        c->value[v] = take(w, (int)v == p->logits ? c->options.max_logit_rows : rows, p->value[v].width * sizeof(float));
        if (c->lowered.planes[v] > 0) c->act[v] = take_act(w, rows, c->lowered.planes[v], p->value[v].width);
    }
    for (size_t i = 0; i < p->rope_count; i++) {
        c->cosine[i] = take(w, rows, p->rope[i].rot_dim / 2 * sizeof(float));
        c->sine[i] = take(w, rows, p->rope[i].rot_dim / 2 * sizeof(float));
    }
    c->actions = take(w, im__cuda_count_actions(c), sizeof(im__cuda_action));
    c->partial = take(w, c->partial_floats, sizeof(float));
    c->step = take(w, 1, c->step_bytes);
    c->answer = take(w, 1, c->answer_bytes);
}

/* ---- the plan ------------------------------------------------------------------------------------------------------------------------ */

static void settle_options(im__cuda *c, const im__program *p, const im__backend_options *o)
{
    c->p = p;
    c->options = *o;
    c->options.cpu_level = NULL; /* the caller's string is not ours to keep */
    if (c->options.context == 0) c->options.context = p->context;
    if (c->options.sequences == 0 || c->options.sequences > o->max_rows) c->options.sequences = o->max_rows;
}

static im_status take_lists(im__cuda *c, im_error *err)
{
    const im__program *p = c->p;
    c->layer_offset = im__calloc(p->kv_count, sizeof *c->layer_offset);
    c->layout = im__calloc(p->matrix_count, sizeof *c->layout);
    c->matrix = im__calloc(p->matrix_count, sizeof *c->matrix);
    c->vector = im__calloc(p->vector_count, sizeof *c->vector);
    c->frequency = im__calloc(p->rope_count, sizeof *c->frequency);
    c->value = im__calloc(p->value_count, sizeof *c->value);
    c->act = im__calloc(p->value_count, sizeof *c->act);
    c->cosine = im__calloc(p->rope_count, sizeof *c->cosine);
    c->sine = im__calloc(p->rope_count, sizeof *c->sine);
    bool all = c->layer_offset && c->layout && c->matrix && c->vector && c->frequency && c->value && c->act && c->cosine && c->sine;
    return all ? IM_OK : im__fail(err, IM_ERR_MEMORY, "out of memory");
}

static im_status check_device(im__cuda *c, im_error *err)
{
    IM__TRY(im__cuda_driver_open(&c->d, err));
    IM__TRY(im__cuda_kernels(err));
    IM__TRY(im__cuda_device_get(c->options.device, &c->device, err));
    if (c->device.capability >= OLDEST) return IM_OK;
    return im__fail(err, IM_ERR_UNSUPPORTED, "%s has compute capability %d.%d; the oldest that kernels are made for is %d.%d",
                    c->device.name, c->device.capability / 10, c->device.capability % 10, OLDEST / 10, OLDEST % 10);
}

/* Counts bytes; takes nothing large, and nothing on the device. */
static im_status prepare(im__cuda *c, const im__program *p, const im__backend_options *o, im_error *err)
{
    settle_options(c, p, o);
    IM__TRY(check_device(c, err));
    IM__TRY(im__lower(p, &c->lowered, err));
    IM__TRY(take_lists(c, err));
    IM__TRY(im__cuda_weights_plan(c, err));
    IM__TRY(im__kv_count_pools(p, o->pages, c->pool_bytes, &c->all_pools_bytes, err));
    im__kv_place_layers(p, c->layer_offset);
    for (int k = 0; k < IM__POOLS; k++) c->page_bytes[k] = im__kv_page_bytes(p, (im__pool_kind)k);
    im__cuda_count_attention(c);
    c->step_bytes = im__cuda_step_bytes(c);
    c->answer_bytes = sizeof(im__cuda_answer) + o->max_logit_rows * sizeof(int32_t);
    carver count = {0};
    carve(c, &count);
    c->work_bytes = count.used;
    return count.failed ? im__fail(err, IM_ERR_MEMORY, "the workspace exceeds the address space") : IM_OK;
}

/* ---- opening --------------------------------------------------------------------------------------------------------------------------- */

static im_status fits(im__cuda *c, im_error *err)
{
    size_t available, total, need = 0;
    IM__CUDA_TRY(c, memory_info(&available, &total), "reading the device's free memory");
    bool counts = im__add(c->weights_bytes, c->all_pools_bytes, &need) && im__add(need, c->work_bytes, &need);
    if (counts && need <= available) return IM_OK;
    return im__fail(
        err, IM_ERR_MEMORY,
        "%s: %zu MiB are needed (weights %zu, KV cache %zu, workspace %zu), but only %zu of %zu MiB are free; a smaller "
        "context or fewer sequences need less",
        c->device.name, need >> 20, c->weights_bytes >> 20, c->all_pools_bytes >> 20, c->work_bytes >> 20, available >> 20,
        total >> 20);
}

static im_status start(im__cuda *c, im_error *err)
{
    IM__CUDA_TRY(c, context_retain(&c->context, c->device.device), "starting the device");
    c->context_held = true;
    IM__CUDA_TRY(c, context_set(c->context), "using the device");
    IM__TRY(fits(c, err));
    IM__CUDA_TRY(c, stream_create(&c->stream, IM__CUDA_STREAM_NON_BLOCKING), "making a stream");
    IM__CUDA_TRY(c, stream_create(&c->page_stream, IM__CUDA_STREAM_NON_BLOCKING), "making a stream");
    return IM_OK;
}

static im_status load_modules(im__cuda *c, im_error *err)
{
    size_t count;
    const im__cuda_image *image = im__cuda_images(&count);
    c->module = im__calloc(count, sizeof *c->module);
    if (c->module == NULL) return im__fail(err, IM_ERR_MEMORY, "out of memory");
    for (size_t i = 0; i < count; i++) {
        im__cuda_result r = c->d->module_load(&c->module[c->modules], image[i].data);
        if (r == IM__CUDA_ERROR_NO_BINARY) continue; /* kernels for other devices only */
        IM__TRY(im__cuda_try(c->d, r, image[i].name, err));
        c->modules++;
    }
    if (c->modules > 0) return IM_OK;
    return im__fail(
        err, IM_ERR_UNSUPPORTED,
        "%s has compute capability %d.%d, and its driver is for CUDA %d.%d; this build has kernels for %s, which do not "
        "run there: a newer driver, or a build with IRONMULE_CUDA_ARCHS=native (./start makes one)",
        c->device.name, c->device.capability / 10, c->device.capability % 10, c->device.driver / 1000, c->device.driver % 1000 / 10,
        im__cuda_architectures());
}

static im_status take_block(im__cuda *c, im__cuda_ptr *out, size_t bytes, const char *what, im_error *err)
{
    if (bytes == 0) return IM_OK;
    return im__cuda_try(c->d, c->d->mem_alloc(out, bytes), what, err);
}

static im_status take_memory(im__cuda *c, im_error *err)
{
    IM__TRY(take_block(c, &c->weights, c->weights_bytes, "taking memory for the weights", err));
    for (int k = 0; k < IM__POOLS; k++)
        IM__TRY(take_block(c, &c->pool[k], c->pool_bytes[k], "taking memory for the KV cache", err));
    IM__TRY(take_block(c, &c->work, c->work_bytes, "taking memory for the workspace", err));
    IM__CUDA_TRY(c, host_alloc((void **)&c->step_host, c->step_bytes, IM__CUDA_HOST_PORTABLE), "taking pinned memory");
    IM__CUDA_TRY(c, host_alloc((void **)&c->answer_host, c->answer_bytes, IM__CUDA_HOST_PORTABLE), "taking pinned memory");
    carver w = {.begin = c->work};
    carve(c, &w);
    if (c->partial_floats > 0)
        IM__CUDA_TRY(c, fill(c->partial, 0, c->partial_floats * sizeof(float), c->stream), "clearing memory");
    for (int k = 0; k < IM__POOLS; k++) /* keys beyond a row's own are multiplied by zero, so they must be numbers */
        if (c->pool_bytes[k] > 0) IM__CUDA_TRY(c, fill(c->pool[k], 0, c->pool_bytes[k], c->stream), "clearing memory");
    IM__CUDA_TRY(c, fill(c->answer, 0, c->answer_bytes, c->stream), "clearing memory");
    return im__cuda_try(c->d, c->d->stream_wait(c->stream), "clearing memory", err);
}

static void free_device(im__cuda *c)
{
    const im__cuda_driver *d = c->d;
    if (c->stream != NULL) d->stream_wait(c->stream);
    im__cuda_graphs_clear(c);
    im__cuda_decoder_close(c->decoder);
    const im__cuda_ptr block[] = {c->weights, c->pool[0], c->pool[1], c->work};
    for (size_t i = 0; i < sizeof block / sizeof *block; i++)
        if (block[i] != 0) d->mem_free(block[i]);
    if (c->step_host != NULL) d->host_free(c->step_host);
    if (c->answer_host != NULL) d->host_free(c->answer_host);
    for (size_t i = 0; i < c->modules; i++) d->module_unload(c->module[i]);
    if (c->page_stream != NULL) d->stream_destroy(c->page_stream);
    if (c->stream != NULL) d->stream_destroy(c->stream);
    d->context_release(c->device.device);
}

static void close_cuda(im__backend *b)
{
    im__cuda *c = (im__cuda *)b;
    if (c->context_held) {
        c->d->context_set(c->context);
        free_device(c);
    }
    pthread_mutex_destroy(&c->page_lock);
    im__lowered_clear(&c->lowered);
    im__buf_free(&c->description);
    void *const lists[] = {c->layer_offset, c->layout, c->matrix, c->vector, c->frequency, c->value,
                           c->act,          c->cosine, c->sine,   c->module, c->stage,     c->action};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) im__free(lists[i]);
    im__free(c);
}

/* What it does not serve, it is done without. */
static im_status open_decoder(im__cuda *c, im_error *err)
{
    im_error why;
    im_status status = im__cuda_decoder_open(&c->decoder, c, &why);
    if (status == IM_OK || status == IM_ERR_UNSUPPORTED || status == IM_ERR_MEMORY) return IM_OK;
    return im__fail(err, status, "%s", why.message);
}

/* at: before the driver, and after each of the parts. */
static void note_times(const im__cuda *c, const double *at)
{
    char line[256];
    if (c->options.note == NULL) return;
    snprintf(line, sizeof line, "%s: driver %.0f ms, kernels %.0f ms, memory %.0f ms, weights %.0f ms (%.1f GB/s), program %.0f ms",
             c->device.name, at[1] - at[0], at[2] - at[1], at[3] - at[2], at[4] - at[3],
             (double)c->weights_bytes / 1e6 / (at[4] - at[3] > 0.001 ? at[4] - at[3] : 0.001), at[5] - at[4]);
    c->options.note(c->options.note_user, line);
}

static im_status open_cuda(im__cuda *c, const im__program *p, const im__backend_options *o, im_error *err)
{
    double at[6] = {im__now_ms()};
    IM__TRY(prepare(c, p, o, err));
    IM__TRY(start(c, err));
    at[1] = im__now_ms();
    IM__TRY(load_modules(c, err));
    at[2] = im__now_ms();
    IM__TRY(take_memory(c, err));
    at[3] = im__now_ms();
    IM__TRY(im__cuda_weights_send(c, err));
    at[4] = im__now_ms();
    IM__TRY(im__cuda_stages_make(c, err));
    IM__TRY(open_decoder(c, err));
    at[5] = im__now_ms();
    note_times(c, at);
    im__buf_printf(&c->description, "cuda: %s, compute capability %d.%d, %u multiprocessors%s", c->device.name,
                   c->device.capability / 10, c->device.capability % 10, c->device.processors,
                   c->decoder != NULL ? ", persistent decoder" : "");
    return c->description.failed ? im__fail(err, IM_ERR_MEMORY, "out of memory") : IM_OK;
}

/* ---- pages ------------------------------------------------------------------------------------------------------------------------------ */

static uint64_t clamped(const im__backend *b) { return atomic_load(&((const im__cuda *)b)->clamped); }
static const char *describe(const im__backend *b) { return ((const im__cuda *)b)->description.data; }

static im__cuda_ptr page_at(const im__cuda *c, im__pool_kind pool, int32_t page)
{
    return c->pool[pool] + (uint64_t)page * c->page_bytes[pool];
}

/* One copy after the other; `to` or `from` is on the host. */
static bool move_page(im__cuda *c, im__pool_kind pool, int32_t page, void *to, const void *from)
{
    const im__cuda_driver *d = c->d;
    pthread_mutex_lock(&c->page_lock);
    im__cuda_result r = d->context_set(c->context);
    if (r == 0 && to != NULL) r = d->copy_out(to, page_at(c, pool, page), c->page_bytes[pool], c->page_stream);
    if (r == 0 && from != NULL) r = d->copy_in(page_at(c, pool, page), from, c->page_bytes[pool], c->page_stream);
    if (r == 0) r = d->stream_wait(c->page_stream);
    pthread_mutex_unlock(&c->page_lock);
    if (r != 0) atomic_store(&c->failed, true);
    return r == 0;
}

static bool page_read(const im__backend *b, im__pool_kind pool, int32_t page, void *bytes)
{
    return move_page((im__cuda *)b, pool, page, bytes, NULL);
}

static bool page_write(im__backend *b, im__pool_kind pool, int32_t page, const void *bytes)
{
    return move_page((im__cuda *)b, pool, page, NULL, bytes);
}

/* It is waited for: a page that was copied from may be given to somebody else, whose page_write is in another stream. */
static void page_copy(im__backend *b, im__pool_kind pool, int32_t from, int32_t to)
{
    im__cuda *c = (im__cuda *)b;
    if (c->page_bytes[pool] == 0) return;
    im__cuda_result r = c->d->context_set(c->context);
    if (r == 0) r = c->d->copy_within(page_at(c, pool, to), page_at(c, pool, from), c->page_bytes[pool], c->stream);
    if (r == 0) r = c->d->stream_wait(c->stream);
    if (r != 0) atomic_store(&c->failed, true);
}

/* ---- the door ----------------------------------------------------------------------------------------------------------------------------- */

static im__cuda *new_cuda(void)
{
    im__ops ops;
    im__cuda *c = im__calloc(1, sizeof *c);
    if (c == NULL) return NULL;
    im__ops_c(&ops);
    im__ops_cpu(&ops, im__cpu_best()); /* for logits that the host looks at */
    pthread_mutex_init(&c->page_lock, NULL);
    c->base = (im__backend){.name = "cuda",
                            .chooses = true,
                            .run = im__cuda_run,
                            .close = close_cuda,
                            .argmax = ops.argmax,
                            .clamped = clamped,
                            .describe = describe,
                            .page_read = page_read,
                            .page_write = page_write,
                            .page_copy = page_copy};
    return c;
}

im_status im__backend_cuda_open(im__backend **out, const im__program *p, const im__backend_options *o, im_error *err)
{
    im__cuda *c = new_cuda();
    if (c == NULL) return im__fail(err, IM_ERR_MEMORY, "out of memory");
    im_status status = open_cuda(c, p, o, err);
    if (status == IM_OK)
        *out = &c->base;
    else
        close_cuda(&c->base);
    return status;
}

im_status im__backend_cuda_plan(const im__program *p, const im__backend_options *o, im__memory_plan *plan, im_error *err)
{
    im__cuda *c = new_cuda();
    if (c == NULL) return im__fail(err, IM_ERR_MEMORY, "out of memory");
    im_status status = prepare(c, p, o, err);
    if (status == IM_OK)
        *plan = (im__memory_plan){
            .weights = c->weights_bytes, .kv = c->all_pools_bytes, .workspace = c->work_bytes, .available = c->device.memory};
    close_cuda(&c->base);
    return status;
}
