/* SPDX-License-Identifier: Apache-2.0
 *
 * What a thread of the library is: signals stay with the program's own threads, and floating point works as the numeric contract says, whatever the program
 * that calls has set (flush to zero, another rounding).
 */
#ifndef IRONMULE_BASE_THREAD_H
#define IRONMULE_BASE_THREAD_H

#include <fenv.h>
#include <pthread.h>
#include <stdbool.h>

/* Starts a thread that runs main(argument): all signals that come from outside are blocked in it, its float environment is the default one.
 * false: the system has no thread to give. Join with pthread_join. */
bool im__thread_start(pthread_t *out, void *(*main)(void *), void *argument);

/* Around work on a thread of the caller whose float results count: sets the default environment; leave gives back what enter found. */
typedef fenv_t im__float_state;
void im__float_enter(im__float_state *saved);
void im__float_leave(const im__float_state *saved);

/* On a thread of the library, behind a call of the program's function: it may have left another environment, or loaded something that does. */
void im__float_reset(void);

#endif
