/* SPDX-License-Identifier: Apache-2.0
 *
 * Log-probabilities of a given text: every position's logits are reduced to three numbers as soon as they are there.
 */
#include "engine/internal.h"

#include "base/thread.h"
#include "engine/logprob.h"

#include <string.h>

void im__score_take_logits(im_request *r, const float *logits, size_t first, size_t rows)
{
    size_t vocab = r->engine->model->program.vocab;
    for (size_t i = 0; i < rows && first + i + 1 < r->known; i++, logits += vocab) {
        int32_t best = r->engine->backend->argmax(logits, vocab);
        if (best < 0) {
            im__request_not_finite(r, first + i);
            return;
        }
        im__log_norm norm = im__log_norm_of(logits, vocab, logits[best]);
        r->logprob[first + i] = im__logprob(&norm, logits[r->ids[first + i + 1]]);
        if (r->top1 != NULL) r->top1[first + i] = best;
        if (r->top1_logprob != NULL) r->top1_logprob[first + i] = im__logprob(&norm, logits[best]);
    }
    bool more = r->on_score == NULL || r->on_score(r->user, first + rows, r->known);
    im__float_reset();
    if (!more) r->status = im__fail(&r->error, IM_ERR_CANCELLED, "cancelled");
}

im_status im_engine_score(im_engine *e, const int32_t *ids, size_t count, float *logprob, int32_t *top1, float *top1_logprob,
                          bool (*progress)(void *user, size_t done, size_t total), void *user, im_error *err)
{
    im_request *r;
    im_request_options o;
    if (e == NULL || ids == NULL || logprob == NULL) return im__fail(err, IM_ERR_ARGUMENT, "a NULL argument");
    if (count < 2) return im__fail(err, IM_ERR_ARGUMENT, "%zu tokens cannot be scored: at least 2 are needed", count);
    if (count > e->options.context)
        return im__fail(err, IM_ERR_CONTEXT, "the text has %zu tokens, but the context has %u positions", count,
                        e->options.context);
    im_request_options_defaults(&o);
    o.prompt = ids;
    o.prompt_len = count;
    o.max_tokens = 1;
    o.no_cache = true;
    IM__TRY(im__request_check_ids(e, "text", ids, count, err));
    IM__TRY(im__request_new(e, &o, &r, err));
    r->kind = IM__REQUEST_SCORE;
    r->logprob = logprob;
    r->top1 = top1;
    r->top1_logprob = top1_logprob;
    r->on_score = progress;
    r->user = user;
    im_status status = im__request_count_pages(r, err);
    if (status == IM_OK) status = im__request_queue(r, err);
    if (status != IM_OK) {
        im__request_destroy(r);
        return status;
    }
    status = im_request_wait(r, NULL, err);
    im_request_free(r);
    return status;
}
