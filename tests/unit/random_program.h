/* SPDX-License-Identifier: Apache-2.0
 *
 * Programs that no model family would write: values are overwritten and read in any order, products of any type stand side by side, layers have
 * windows or not. They are well-formed, and their numbers stay moderate.
 */
#ifndef IRONMULE_TESTS_RANDOM_PROGRAM_H
#define IRONMULE_TESTS_RANDOM_PROGRAM_H

#include "ops/program.h"

/* A fixed stream of numbers. */
uint32_t random_below(uint32_t *state, uint32_t n);
float random_float(uint32_t *state); /* -1 .. 1 */

/* The program of this seed; random_program_clear frees it with its weights. Fails the test when memory runs out. */
void random_program(im__program *p, uint32_t seed);
void random_program_clear(im__program *p);

#endif
