/* SPDX-License-Identifier: Apache-2.0
 *
 * One token of an answer: chosen from the logits, turned into text, held against what ends an answer, shown to the callback.
 */
#include "engine/internal.h"

#include "base/machine.h"
#include "base/thread.h"
#include "engine/logprob.h"

#include <string.h>
#include <xxhash.h>

bool im__request_needs_logits(const im_request *r)
{
    return r->kind == IM__REQUEST_SCORE || !r->no_hash || r->want_logits || r->want_logprobs || r->sampling.temperature > 0 ||
           im__sampling_edits(&r->sampling);
}

static int32_t choose(im_request *r, const float *logits, const int32_t *choice, size_t index)
{
    im_engine *e = r->engine;
    size_t vocab = e->model->program.vocab;
    if (im__sampling_edits(&r->sampling)) {
        im__history history = {.ids = r->ids, .prompt = r->prompt, .known = r->known};
        im__logits_edit(e->edited, logits, vocab, &r->sampling, &history, e->mark);
        logits = e->edited;
    }
    int32_t id = r->sampling.temperature > 0 ? im__sample(logits, vocab, &r->sampling, index, e->candidates)
                 : choice != NULL && !im__sampling_edits(&r->sampling) ? *choice
                                                                       : e->backend->argmax(logits, vocab);
    if (id < 0) return -1; /* also when the token is forced: a NaN is an error */
    return index < r->forced_len ? r->forced[index] : id;
}

/* Where the earliest stop string begins in text[from ..], or SIZE_MAX. */
static size_t find_stop(const im_request *r, size_t from)
{
    size_t best = SIZE_MAX;
    for (size_t i = 0; r->stop != NULL && r->stop[i] != NULL; i++) {
        size_t n = strlen(r->stop[i]), back = from > n ? from - n : 0;
        if (n == 0 || r->text.len < n) continue;
        const char *at = memmem(r->text.data + back, r->text.len - back, r->stop[i], n);
        if (at != NULL && (size_t)(at - r->text.data) < best) best = (size_t)(at - r->text.data);
    }
    return best;
}

/* Bytes at the end of the text that may turn into a stop string and are held back from the callback. */
static size_t held_back(const im_request *r)
{
    size_t most = 0;
    for (size_t i = 0; r->stop != NULL && r->stop[i] != NULL; i++) {
        size_t n = strlen(r->stop[i]);
        for (size_t k = n < r->text.len - r->emitted ? n : r->text.len - r->emitted; k > most; k--)
            if (memcmp(r->text.data + r->text.len - k, r->stop[i], k) == 0) most = k;
    }
    return most;
}

static im_stop_reason why_stop(const im_request *r, int32_t id)
{
    if (!r->ignore_eos && im__tokenizer_is_end(r->engine->model->tokenizer, id)) return IM_STOP_EOS;
    if (r->known - r->prompt >= r->max_tokens || r->known >= r->engine->options.context) return IM_STOP_LENGTH;
    return IM_STOP_NONE;
}

/* Adds the token's text and settles whether the answer ends. */
static void add_text(im_request *r, int32_t id)
{
    size_t before = r->text.len;
    r->stop_reason = why_stop(r, id);
    if (r->stop_reason != IM_STOP_EOS) im__decoder_feed(&r->decoder, id, &r->text);
    if (r->stop_reason != IM_STOP_NONE) im__decoder_finish(&r->decoder, &r->text);
    size_t stop = find_stop(r, before);
    if (stop == SIZE_MAX) return;
    r->stop_reason = IM_STOP_STRING;
    r->text.len = stop;
    r->text.data[stop] = 0;
}

/* What the event says of probabilities. */
static void weigh(const im_request *r, const float *logits, im_top_token *top, im_token_event *event)
{
    im_engine *e = r->engine;
    size_t vocab = e->model->program.vocab;
    int32_t best = e->backend->argmax(logits, vocab);
    im__log_norm norm = im__log_norm_of(logits, vocab, logits[best]);
    event->logprob = im__logprob(&norm, logits[event->id]);
    event->top = top;
    event->top_count = im__top_tokens(&norm, logits, vocab, r->top_logprobs, top);
}

static bool emit(im_request *r, int32_t id, const float *logits)
{
    im_top_token top[IM__MOST_TOP];
    size_t end = r->stop_reason == IM_STOP_NONE ? r->text.len - held_back(r) : r->text.len;
    im_token_event event = {.id = id,
                            .index = (uint32_t)(r->known - r->prompt - 1),
                            .text = r->text.data == NULL ? "" : r->text.data + r->emitted,
                            .text_len = end > r->emitted ? end - r->emitted : 0,
                            .logits = r->want_logits ? logits : NULL,
                            .vocabulary = r->engine->model->program.vocab};
    if (end > r->emitted) r->emitted = end;
    if (r->on_token == NULL) return true;
    if (r->want_logprobs) weigh(r, logits, top, &event);
    bool more = r->on_token(r->user, &event);
    im__float_reset();
    return more;
}

static void failed(im_request *r, im_status status, const char *message) { r->status = im__fail(&r->error, status, "%s", message); }

void im__request_not_finite(im_request *r, size_t position)
{
    r->status = im__fail(&r->error, IM_ERR_NUMERIC,
                         "%s: a logit at position %zu is not a number: the weights are damaged or the activations overflow",
                         r->engine->model->info.path, position);
}

void im__request_take_logits(im_request *r, const float *logits, const int32_t *choice)
{
    size_t index = r->known - r->prompt;
    if (!r->no_hash) XXH3_64bits_update(r->hash, logits, r->engine->model->program.vocab * sizeof(float));
    int32_t id = choose(r, logits, choice, index);
    if (id < 0) {
        im__request_not_finite(r, r->known - 1);
        return;
    }
    r->ids[r->known++] = id;
    r->last = im__now_ms();
    if (index == 0) r->first = r->last;
    if (!r->is_companion) atomic_fetch_add_explicit(&r->engine->counters.generated_tokens, 1, memory_order_relaxed);
    add_text(r, id);
    if (r->text.failed)
        failed(r, IM_ERR_MEMORY, "out of memory");
    else if (!emit(r, id, logits))
        failed(r, IM_ERR_CANCELLED, "cancelled");
}
