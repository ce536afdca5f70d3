/* SPDX-License-Identifier: Apache-2.0
 *
 * From logits to a token. Greedy: the lowest id among the largest logits. Otherwise, in this order: temperature, top_k, top_p, min_p, one draw.
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

/* Refuses parameters that mean nothing (negative temperature, top_p outside (0, 1], min_p outside [0, 1), NaN). */
im_status im__sampling_check(const im_sampling *s, im_error *err);

/* `work`: room for n candidates. Returns the id, or -1 when a logit is NaN or the largest is infinite. */
int32_t im__sample(const float *logits, size_t n, const im_sampling *s, uint64_t index, im__candidate *work);

/* One block of Philox 4x32-10, words in the order of the paper. */
void im__philox4x32(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);
/* The first of its four words; low halves come first in key and counter, the upper half of the counter is 0. */
uint32_t im__philox(uint64_t key, uint64_t counter);

#endif
