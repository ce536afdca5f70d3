/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/internal.h"

#include "base/machine.h"
#include "base/thread.h"
#include "engine/logprob.h"

#include <string.h>
#include <xxhash.h>

/* ---- options ------------------------------------------------------------------------------------------------------------------------ */

void im_request_options_init(im_request_options *o, size_t size)
{
    im__options_copy(o, size, &(im_request_options){.max_tokens = 256, .sampling = {.top_p = 1, .repetition_penalty = 1}},
                     sizeof *o);
}

im_status im__request_check_ids(const im_engine *e, const char *what, const int32_t *ids, size_t n, im_error *err)
{
    for (size_t i = 0; i < n; i++)
        if (ids[i] < 0 || (uint32_t)ids[i] >= e->model->program.vocab)
            return im__fail(err, IM_ERR_ARGUMENT, "%s: token %zu is %d, but the model knows ids 0 .. %u", what, i, ids[i],
                            e->model->program.vocab - 1);
    return IM_OK;
}

static im_status check(const im_engine *e, const im_request_options *o, im_error *err)
{
    if (o->prompt == NULL || o->prompt_len == 0)
        return im__fail(err, IM_ERR_ARGUMENT, "an empty prompt: at least one token is needed");
    if (o->max_tokens == 0) return im__fail(err, IM_ERR_ARGUMENT, "max_tokens is 0; it must be at least 1");
    if (o->forced == NULL && o->forced_len > 0) return im__fail(err, IM_ERR_ARGUMENT, "forced ids are NULL");
    for (size_t i = 0; o->stop != NULL && o->stop[i] != NULL; i++)
        if (o->stop[i][0] == 0) return im__fail(err, IM_ERR_ARGUMENT, "stop string %zu is empty: it would end every answer", i);
    if (o->prompt_len >= e->options.context)
        return im__fail(err, IM_ERR_CONTEXT,
                        "the prompt has %zu tokens, but the context has %u positions and one must be left for the answer",
                        o->prompt_len, e->options.context);
    if (o->neighbours < 0 || (uint32_t)o->neighbours >= e->options.max_sequences)
        return im__fail(err, IM_ERR_ARGUMENT, "%d neighbours need an engine for %d sequences; this one has %u", o->neighbours,
                        o->neighbours + 1, e->options.max_sequences);
    if (!(o->deadline_ms >= 0)) return im__fail(err, IM_ERR_ARGUMENT, "a deadline of %g ms", o->deadline_ms);
    if (o->want_logprobs && o->top_logprobs > IM__MOST_TOP)
        return im__fail(err, IM_ERR_ARGUMENT, "%u top log-probabilities; at most %d", o->top_logprobs, IM__MOST_TOP);
    IM__TRY(im__sampling_check(&o->sampling, e->model->program.vocab, err));
    IM__TRY(im__request_check_ids(e, "prompt", o->prompt, o->prompt_len, err));
    return im__request_check_ids(e, "forced", o->forced, o->forced_len, err);
}

static bool copy_stop(im_request *r, const char *const *stop)
{
    size_t n = 0;
    if (stop == NULL || stop[0] == NULL) return true;
    while (stop[n] != NULL) n++;
    r->stop = im__calloc(n + 1, sizeof *r->stop);
    for (size_t i = 0; r->stop != NULL && i < n; i++) {
        r->stop[i] = im__strdup(stop[i], strlen(stop[i]));
        if (r->stop[i] == NULL) return false;
    }
    return r->stop != NULL;
}

static bool copy_bias(im_request *r, const im_sampling *s)
{
    r->bias = im__calloc(s->bias_count, sizeof *r->bias);
    r->sampling.bias = r->bias;
    if (r->bias != NULL && s->bias_count > 0) memcpy(r->bias, s->bias, s->bias_count * sizeof *r->bias);
    return r->bias != NULL;
}

static void copy_scalars(im_request *r, const im_request_options *o)
{
    r->max_tokens = o->max_tokens;
    r->sampling = o->sampling;
    r->ignore_eos = o->ignore_eos;
    r->want_logits = o->want_logits;
    r->want_logprobs = o->want_logprobs;
    r->top_logprobs = o->top_logprobs;
    r->no_hash = o->no_hash;
    r->no_cache = o->no_cache;
    r->client = o->client;
    r->deadline = o->deadline_ms;
    r->on_token = o->on_token;
    r->on_prompt = o->on_prompt;
    r->on_end = o->on_end;
    r->user = o->user;
}

static bool copy_options(im_request *r, const im_request_options *o)
{
    size_t answer =
        o->max_tokens < r->engine->options.context - o->prompt_len ? o->max_tokens : r->engine->options.context - o->prompt_len;
    copy_scalars(r, o);
    r->prompt = r->known = o->prompt_len;
    r->capacity = o->prompt_len + answer;
    r->ids = im__calloc(r->capacity, sizeof *r->ids);
    r->forced_len = o->forced_len;
    r->forced = im__calloc(o->forced_len, sizeof *r->forced);
    r->hash = XXH3_createState();
    if (r->ids == NULL || r->forced == NULL || r->hash == NULL || !copy_stop(r, o->stop) || !copy_bias(r, &o->sampling))
        return false;
    memcpy(r->ids, o->prompt, o->prompt_len * sizeof *r->ids);
    if (o->forced_len > 0) memcpy(r->forced, o->forced, o->forced_len * sizeof *r->forced);
    return true;
}

/* The cache is of no use for scores, which need the logits of every position. */
static bool make_names(im_request *r)
{
    if (r->no_cache || r->engine->options.cache_ram == 0) return true;
    r->name = im__calloc(r->capacity / IM__PAGE + 1, sizeof *r->name);
    if (r->name == NULL) return false;
    r->names = r->prompt / IM__PAGE;
    im__page_names(r->ids, 0, r->names, r->name);
    return true;
}

im_status im__request_count_pages(im_request *r, im_error *err)
{
    /* the last token of an answer is never read again */
    size_t positions = r->kind == IM__REQUEST_SCORE ? r->prompt : r->capacity - 1;
    size_t have = r->engine->sizes.running[IM__POOL_FULL], together = 1 + r->companions;
    r->pages = im__kv_seq_pages(positions);
    if (r->pages * together <= have) return IM_OK;
    return im__fail(err, IM_ERR_MEMORY,
                    "the prompt of %zu tokens and an answer of up to %zu need %zu KV pages of %d positions, but the engine has %zu",
                    r->prompt, r->capacity - r->prompt, r->pages * together, IM__PAGE, have);
}

im_status im__request_new(im_engine *e, const im_request_options *o, im_request **out, im_error *err)
{
    im_request *r = im__calloc(1, sizeof *r);
    if (r == NULL) return im__fail(err, IM_ERR_MEMORY, "out of memory");
    r->engine = e;
    atomic_fetch_add(&e->users, 1);
    if (!copy_options(r, o) || !make_names(r)) {
        im__request_destroy(r);
        return im__fail(err, IM_ERR_MEMORY, "out of memory");
    }
    XXH3_64bits_reset(r->hash);
    im__decoder_init(&r->decoder, e->model->tokenizer, false);
    r->decoder.started = true; /* the answer continues a text: its leading space belongs to it */
    *out = r;
    return IM_OK;
}

void im__request_destroy(im_request *r)
{
    if (r == NULL) return;
    for (size_t i = 0; i < r->companions; i++) im__request_destroy(r->companion[i]);
    im__free(r->companion);
    for (size_t i = 0; r->stop != NULL && r->stop[i] != NULL; i++) im__free(r->stop[i]);
    im__free(r->stop);
    im__free(r->ids);
    im__free(r->forced);
    im__free(r->bias);
    im__free(r->name);
    im__buf_free(&r->text);
    XXH3_freeState(r->hash);
    im__engine_release(r->engine);
    im__free(r);
}

/* ---- neighbours: other sequences in the same steps, for proofs ------------------------------------------------------------------------- */

/* Prompt lengths and ids of a companion come from the sampler's generator, so that a run can be repeated. It lasts as long as the request at least: as many tokens
 * as that has steps at most. */
static im_status add_companion(im_request *r, int index, im_error *err)
{
    im_engine *e = r->engine;
    int32_t prompt[48];
    size_t n = 1 + im__philox((uint64_t)index, 0) % 48;
    if (n >= e->options.context) n = e->options.context - 1;
    for (size_t i = 0; i < n; i++) prompt[i] = (int32_t)(im__philox((uint64_t)index, i + 1) % e->model->program.vocab);
    im_request_options o;
    im_request_options_defaults(&o);
    o.prompt = prompt;
    o.prompt_len = n;
    o.max_tokens = (uint32_t)(r->capacity < n ? 1 : r->capacity);
    o.ignore_eos = o.no_cache = true;
    IM__TRY(im__request_new(e, &o, &r->companion[r->companions], err));
    im_request *companion = r->companion[r->companions++];
    companion->is_companion = true;
    return im__request_count_pages(companion, err);
}

static im_status add_companions(im_request *r, int n, im_error *err)
{
    r->companion = im__calloc((size_t)n, sizeof(im_request *));
    if (r->companion == NULL) return im__fail(err, IM_ERR_MEMORY, "out of memory");
    for (int i = 0; i < n; i++) IM__TRY(add_companion(r, i, err));
    return IM_OK;
}

/* ---- life of a request ------------------------------------------------------------------------------------------------------------------ */

im_status im__request_over(const im_request *r, double now, im_error *err)
{
    if (atomic_load(&r->cancelled)) return im__fail(err, IM_ERR_CANCELLED, "cancelled");
    if (r->deadline == 0 || now < r->deadline) return IM_OK;
    return im__fail(err, IM_ERR_TIMEOUT, "the deadline of %.0f ms passed after %zu of %zu prompt tokens and %zu generated ones",
                    r->deadline - r->submitted, r->seq.length < r->prompt ? r->seq.length : r->prompt, r->prompt,
                    r->known - r->prompt);
}

static void count_end(im_engine *e, const im_request *r)
{
    atomic_uint_least64_t *count = r->status == IM_OK              ? &e->counters.finished
                                   : r->status == IM_ERR_CANCELLED ? &e->counters.cancelled
                                   : r->status == IM_ERR_TIMEOUT   ? &e->counters.timed_out
                                                                   : &e->counters.failed;
    if (!r->is_companion) atomic_fetch_add(count, 1);
}

void im__request_end(im_request *r, im_status status, const im_error *error)
{
    im_engine *e = r->engine;
    for (size_t i = 0; i < r->companions; i++) atomic_store(&r->companion[i]->cancelled, true);
    r->status = status;
    if (status != IM_OK && error != &r->error) r->error = *error;
    count_end(e, r);
    if (r->on_end != NULL) {
        pthread_mutex_lock(&e->lock);
        r->finished = true;
        pthread_mutex_unlock(&e->lock);
        r->on_end(r->user);
        im__float_reset();
    }
    pthread_mutex_lock(&e->lock);
    r->finished = r->released = true;
    pthread_cond_broadcast(&e->finished);
    pthread_mutex_unlock(&e->lock);
}

/* Companions go around the request, so that it is neither the first nor the last of a step. */
static void enqueue(im_engine *e, im_request *r)
{
    atomic_fetch_add(&e->counters.submitted, 1);
    r->submitted = im__now_ms();
    if (r->deadline > 0) r->deadline += r->submitted;
    for (size_t i = 0; i < r->companions; i += 2) im__queue_add(e, r->companion[i]);
    im__queue_add(e, r);
    for (size_t i = 1; i < r->companions; i += 2) im__queue_add(e, r->companion[i]);
    e->look_again = true;
    pthread_cond_signal(&e->wake);
}

im_status im__request_queue(im_request *r, im_error *err)
{
    im_engine *e = r->engine;
    pthread_mutex_lock(&e->lock);
    bool open = !e->closing;
    size_t waiting = im__queue_waiting(e);
    bool full = e->options.max_queue > 0 && waiting >= e->options.max_queue;
    if (open && !full) enqueue(e, r);
    pthread_mutex_unlock(&e->lock);
    if (!open) return im__fail(err, IM_ERR_BUSY, "the engine is closing");
    if (full) return im__fail(err, IM_ERR_BUSY, "%zu requests are waiting already, of at most %u", waiting, e->options.max_queue);
    return IM_OK;
}

static im_status submit(im_engine *e, const im_request_options *o, im_request **out, im_error *err)
{
    im_request *r;
    IM__TRY(check(e, o, err));
    IM__TRY(im__request_new(e, o, &r, err));
    im_status status = add_companions(r, o->neighbours, err);
    if (status == IM_OK) status = im__request_count_pages(r, err);
    if (status == IM_OK) status = im__request_queue(r, err);
    if (status == IM_OK)
        *out = r;
    else
        im__request_destroy(r);
    return status;
}

im_status im_request_submit(im_engine *e, const im_request_options *options, im_request **out, im_error *err)
{
    im_request_options o;
    if (e == NULL || options == NULL || out == NULL) return im__fail(err, IM_ERR_ARGUMENT, "a NULL argument");
    im_request_options_defaults(&o);
    memcpy(&o, options, options->size < sizeof o ? options->size : sizeof o);
    return submit(e, &o, out, err);
}

/* On the engine's own thread, which is in on_end then, the result is there before the engine has let go. */
static void wait_until_finished(im_request *r)
{
    im_engine *e = r->engine;
    pthread_mutex_lock(&e->lock);
    while (!r->released && !(r->finished && pthread_equal(pthread_self(), e->thread))) pthread_cond_wait(&e->finished, &e->lock);
    pthread_mutex_unlock(&e->lock);
}

static double between(double from, double to) { return from > 0 && to > from ? to - from : 0; }

static im_result result_of(const im_request *r)
{
    return (im_result){.ids = r->ids + r->prompt,
                       .count = r->known - r->prompt,
                       .text = r->text.data == NULL ? "" : r->text.data,
                       .text_len = r->text.len,
                       .stop_reason = r->stop_reason,
                       .logits_hash = r->no_hash ? 0 : XXH3_64bits_digest(r->hash),
                       .prompt_tokens = r->prompt,
                       .cached_tokens = r->cached,
                       .queue_ms = between(r->submitted, r->started),
                       .prompt_ms = between(r->started, r->prompt_done),
                       .first_token_ms = between(r->submitted, r->first),
                       .generate_ms = between(r->first, r->last)};
}

im_status im_request_wait(im_request *r, im_result *result, im_error *err)
{
    if (r == NULL) return im__fail(err, IM_ERR_ARGUMENT, "a NULL argument");
    wait_until_finished(r);
    if (result != NULL) *result = result_of(r);
    return r->status == IM_OK ? IM_OK : im__fail(err, r->status, "%s", r->error.message);
}

void im_request_cancel(im_request *r)
{
    if (r != NULL) atomic_store(&r->cancelled, true);
}

void im_request_free(im_request *r)
{
    if (r == NULL) return;
    im_request_cancel(r);
    wait_until_finished(r);
    for (size_t i = 0; i < r->companions; i++) {
        im_request_cancel(r->companion[i]);
        wait_until_finished(r->companion[i]);
    }
    im__request_destroy(r);
}
