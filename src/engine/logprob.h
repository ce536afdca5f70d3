/* SPDX-License-Identifier: Apache-2.0
 *
 * Log-probabilities (docs/numerics.md, section 5): in binary64 until the end, the same for scores and for generated tokens. Pure functions over logits
 * none of which is NaN.
 */
#ifndef IRONMULE_ENGINE_LOGPROB_H
#define IRONMULE_ENGINE_LOGPROB_H

#include <ironmule/ironmule.h>

#define IM__MOST_TOP 20

/* What all log-probabilities of a row of logits share: the largest logit, and the log of the sum of e^(logit - max). */
typedef struct im__log_norm {
    double max, log_sum;
} im__log_norm;

im__log_norm im__log_norm_of(const float *logits, size_t n, float max);
float im__logprob(const im__log_norm *norm, float logit);

/* The `most` (at most IM__MOST_TOP) most likely tokens, falling, the lowest id first among equals. Returns how many there are. */
size_t im__top_tokens(const im__log_norm *norm, const float *logits, size_t n, size_t most, im_top_token *top);

#endif
