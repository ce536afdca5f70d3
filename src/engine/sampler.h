/* SPDX-License-Identifier: Apache-2.0
 *
 * From logits to a token. First what the request asks to change in the logits (im__logits_edit); then greedy: the lowest id among the largest logits;
 * otherwise, in this order: temperature, top_k, top_p, min_p, one draw.
 * The draw comes from Philox 4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011) with key = the request's seed and counter = index of
 * the token, so it does not depend on neighbours or on how many draws came before.
 */
#ifndef IRONMULE_ENGINE_SAMPLER_H
#define IRONMULE_ENGINE_SAMPLER_H

#include "base/error.h"

#include <ironmule/ironmule.h>

typedef struct im__candidate {
    float p; /* relative to the most likely token: e^((logit - max) / temperature) */
    int32_t id;
} im__candidate;

/* Refuses parameters that mean nothing (negative temperature, top_p outside (0, 1], min_p outside [0, 1), NaN, a bias of an id outside the vocabulary). */
im_status im__sampling_check(const im_sampling *s, size_t vocabulary, im_error *err);

/* Do these parameters change logits? */
bool im__sampling_edits(const im_sampling *s);

/* What a token's penalties depend on: ids[0 .. prompt) and the answer so far, ids[prompt .. known). */
typedef struct im__history {
    const int32_t *ids;
    size_t prompt, known;
} im__history;

/* out[n] = the logits with repetition penalty, frequency and presence penalties and bias, in this order, in binary32. A NaN stays one, also under a bias that
 * excludes. `mark` [n]: all zero, and so again afterwards. Time: n, and the history for penalties. */
void im__logits_edit(float *out, const float *logits, size_t n, const im_sampling *s, const im__history *history, uint32_t *mark);

/* `work`: room for n candidates. Returns the id, or -1 when a logit is NaN or the largest is infinite. */
int32_t im__sample(const float *logits, size_t n, const im_sampling *s, uint64_t index, im__candidate *work);

/* One block of Philox 4x32-10, words in the order of the paper. */
void im__philox4x32(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);
/* The first of its four words; low halves come first in key and counter, the upper half of the counter is 0. */
uint32_t im__philox(uint64_t key, uint64_t counter);

#endif
