/* SPDX-License-Identifier: Apache-2.0
 *
 * Threads that do a step together. A step is a list of phases, a phase a number of independent units; the units of a phase begin when all
 * units of the phase before are done. Whoever is free takes the next unit, so a thread that the system has put aside delays the others only by the unit
 * it holds, never by its absence: there is no barrier that all must reach.
 *
 * The thread that calls im__team_run takes part. Waiting is a short spin, then sleep; an idle team uses no CPU.
 */
#ifndef IRONMULE_BACKEND_CPU_TEAM_H
#define IRONMULE_BACKEND_CPU_TEAM_H

#include "base/error.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct im__team im__team;

/* One unit of work. `thread` is 0 .. threads - 1, for scratch memory. */
typedef void im__team_fn(void *ctx, size_t phase, size_t unit, int thread);

/* threads >= 1 counts the caller of im__team_run. *out is the caller's. */
im_status im__team_new(im__team **out, int threads, size_t max_phases, im_error *err);
void im__team_free(im__team *team); /* NULL allowed; no run may be under way */
int im__team_threads(const im__team *team);

/* Runs all phases; units[i] is the number of units of phase i (0 allowed). One run at a time. When *cancel (NULL allowed) becomes true, phases that have not
 * begun are left out; returns false then. */
bool im__team_run(im__team *team, size_t phases, const uint32_t *units, im__team_fn *fn, void *ctx, const atomic_bool *cancel);

#endif
