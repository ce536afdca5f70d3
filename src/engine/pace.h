/* SPDX-License-Identifier: Apache-2.0
 *
 * How long a step will take, from those that were: so that prompts join the steps of running answers only as far as a latency budget allows.
 *
 * The time of a step grows with its prompt rows, slowly at first, where reading the weights takes longest, then in proportion. So what a row costs beyond a step
 * without any is kept for sizes of 16, 32, 64 ... rows apart; a size costs a row at least what a smaller one does. Medians, so that a step which something else on the
 * machine delayed counts for nothing; a cost that rises from step to step, as it does with the depth of a prompt, is carried forward. What has not been seen for a while is forgotten.
 */
#ifndef IRONMULE_ENGINE_PACE_H
#define IRONMULE_ENGINE_PACE_H

#include <stddef.h>

#define IM__PACE_TILE 16 /* prompt rows that join until more is known */
#define IM__PACE_LEAST 4 /* prompt rows that always join: prompts go on whatever the budget */
#define IM__PACE_SIZES 9 /* 16 .. 4096 rows */
#define IM__PACE_SAMPLES 5

typedef struct im__pace_samples {
    double ms[IM__PACE_SAMPLES];
    size_t count; /* the latest is at [(count - 1) % IM__PACE_SAMPLES] */
    size_t last;  /* im__pace.prompts when it was noted */
} im__pace_samples;

/* Start with {0}. */
typedef struct im__pace {
    im__pace_samples decode;              /* steps without prompt rows */
    im__pace_samples row[IM__PACE_SIZES]; /* a prompt row in a step of 16 << i rows or more, beyond a step without any */
    size_t prompts;                       /* steps with prompt rows */
} im__pace;

/* A step of so many rows took `ms`. */
void im__pace_note(im__pace *p, size_t decode_rows, size_t prompt_rows, double ms);

/* What a step without prompt rows takes, in ms; 0: not known. */
double im__pace_decode(const im__pace *p);

/* Prompt rows that may join a step of running answers so that it is expected to stay within budget_ms, at most twice the largest size that is known. Where the answers alone
 * need most of the budget, or more, as many as are expected to take a seventh of it, but no fewer than the least. A multiple of the tile, if it is as many. */
size_t im__pace_rows(const im__pace *p, double budget_ms);

#endif
