/* SPDX-License-Identifier: Apache-2.0
 *
 * Penalties and bias, and what parameters of a sampler are possible.
 */
#include "engine/sampler.h"

#include <math.h>
#include <string.h>

#define EXCLUDE (-100.0f)

static im_status check_bias(const im_sampling *s, size_t vocabulary, im_error *err)
{
    if (s->bias_count > 0 && s->bias == NULL) return im__fail(err, IM_ERR_ARGUMENT, "logit biases are NULL");
    if (s->bias_count >= vocabulary) /* then not all of them can be excluded */
        return im__fail(err, IM_ERR_ARGUMENT, "%zu logit biases; fewer than the %zu tokens are possible", s->bias_count,
                        vocabulary);
    for (size_t i = 0; i < s->bias_count; i++) {
        const im_logit_bias *b = &s->bias[i];
        if (b->id < 0 || (size_t)b->id >= vocabulary)
            return im__fail(err, IM_ERR_ARGUMENT, "logit bias %zu is for token %d, but the model knows ids 0 .. %zu", i, b->id,
                            vocabulary - 1);
        if (!(b->bias >= -100 && b->bias <= 100))
            return im__fail(err, IM_ERR_ARGUMENT, "logit bias %g of token %d is outside -100 .. 100", (double)b->bias, b->id);
    }
    return IM_OK;
}

im_status im__sampling_check(const im_sampling *s, size_t vocabulary, im_error *err)
{
    if (!(s->temperature >= 0 && s->temperature <= 100))
        return im__fail(err, IM_ERR_ARGUMENT, "temperature %g is outside 0 .. 100", (double)s->temperature);
    if (s->top_k < 0) return im__fail(err, IM_ERR_ARGUMENT, "top_k %d is negative", s->top_k);
    if (!(s->top_p > 0 && s->top_p <= 1)) return im__fail(err, IM_ERR_ARGUMENT, "top_p %g is outside (0, 1]", (double)s->top_p);
    if (!(s->min_p >= 0 && s->min_p < 1)) return im__fail(err, IM_ERR_ARGUMENT, "min_p %g is outside [0, 1)", (double)s->min_p);
    float r = s->repetition_penalty;
    if (!(r == 0 || (r >= 0.01f && r <= 100)))
        return im__fail(err, IM_ERR_ARGUMENT, "repetition_penalty %g is outside 0.01 .. 100", (double)r);
    if (!(s->frequency_penalty >= -2 && s->frequency_penalty <= 2))
        return im__fail(err, IM_ERR_ARGUMENT, "frequency_penalty %g is outside -2 .. 2", (double)s->frequency_penalty);
    if (!(s->presence_penalty >= -2 && s->presence_penalty <= 2))
        return im__fail(err, IM_ERR_ARGUMENT, "presence_penalty %g is outside -2 .. 2", (double)s->presence_penalty);
    return check_bias(s, vocabulary, err);
}

static bool repeats(const im_sampling *s) { return s->repetition_penalty != 0 && s->repetition_penalty != 1; }
static bool counts(const im_sampling *s) { return s->frequency_penalty != 0 || s->presence_penalty != 0; }

bool im__sampling_edits(const im_sampling *s) { return repeats(s) || counts(s) || s->bias_count > 0; }

static void repetition(float *x, float penalty, const im__history *h, uint32_t *mark)
{
    for (size_t i = 0; i < h->known; i++) {
        int32_t id = h->ids[i];
        if (mark[id]++ == 0) x[id] = x[id] > 0 ? x[id] / penalty : x[id] * penalty;
    }
    for (size_t i = 0; i < h->known; i++) mark[h->ids[i]] = 0;
}

static void frequency(float *x, const im_sampling *s, const im__history *h, uint32_t *mark)
{
    for (size_t i = h->prompt; i < h->known; i++) mark[h->ids[i]]++;
    for (size_t i = h->prompt; i < h->known; i++) {
        int32_t id = h->ids[i];
        if (mark[id] > 0) x[id] = x[id] - ((float)mark[id] * s->frequency_penalty + s->presence_penalty);
        mark[id] = 0;
    }
}

void im__logits_edit(float *out, const float *logits, size_t n, const im_sampling *s, const im__history *history, uint32_t *mark)
{
    memcpy(out, logits, n * sizeof *out);
    if (repeats(s)) repetition(out, s->repetition_penalty, history, mark);
    if (counts(s)) frequency(out, s, history, mark);
    for (size_t i = 0; i < s->bias_count; i++) out[s->bias[i].id] += s->bias[i].bias == EXCLUDE ? -INFINITY : s->bias[i].bias;
}
