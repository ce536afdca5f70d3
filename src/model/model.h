/* SPDX-License-Identifier: Apache-2.0
 *
 * From a checked file to what the engine runs: vocabulary, chat template and program. One file a family (family_*.c) turns metadata into a program; a new
 * family is a new list, not a new forward pass.
 */
#ifndef IRONMULE_MODEL_MODEL_H
#define IRONMULE_MODEL_MODEL_H

#include "model/source.h"
#include "ops/program.h"
#include "text/chat/template.h"

/* A family: how the architecture of this name becomes a program. */
typedef struct im__family {
    const char *arch;
    im_status (*build)(im__program *p, const im__source *s, const im__params *params, im_error *err);
} im__family;
const im__family *im__family_find(const char *arch, size_t n); /* NULL: unknown */
void im__family_names(im__buf *out);                           /* "gemma2, gemma3, llama, qwen2, qwen3" */

/* Builds the program of the model: every tensor that the architecture needs is there, of the right shape and of a type that runs, and
 * no tensor is left over. */
im_status im__program_read(const im__source *s, im__program *out, im_error *err);

#endif
