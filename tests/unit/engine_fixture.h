/* SPDX-License-Identifier: Apache-2.0
 *
 * What the tests of the engine share: a small model, prompts, one generation with everything that it gives.
 */
#ifndef IRONMULE_TESTS_ENGINE_FIXTURE_H
#define IRONMULE_TESTS_ENGINE_FIXTURE_H

#include <ironmule/ironmule.h>

#define TINY_MODEL IM_TEST_DATA "/zoo/arch-tiny.gguf"

/* n ids of a fixed stream, all below `vocabulary`. */
void make_prompt(int32_t *ids, size_t n, uint32_t seed, uint32_t vocabulary);

/* Writes a small Gemma 2 with every second layer seeing only the last `window` positions, context 512, vocabulary 397; the caller unlinks it. `path`: room for 64 bytes. */
void make_windowed_model(char *path, uint32_t window);

/* Opens an engine on the small model with these options; fails the test when it cannot. */
im_engine *open_tiny(const im_engine_options *options);

/* Threads, chunk, context, sequences; the rest as by default. */
im_engine_options sized(int threads, uint32_t chunk, uint32_t context, uint32_t sequences);

/* Greedy, end tokens ignored: the hash of the logits of `tokens` tokens after a prompt of n ids from make_prompt. Fails the test on an error. */
uint64_t generate_hash(im_engine *engine, size_t n, uint32_t seed, uint32_t tokens, int neighbours);

im_request *submit_prompt(im_engine *engine, size_t n, uint32_t seed, im_request_options o);

#endif
