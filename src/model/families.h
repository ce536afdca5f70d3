/* SPDX-License-Identifier: Apache-2.0
 *
 * The families, one function each: metadata in, program out (im__family.build). families.c lists them by architecture name.
 */
#ifndef IRONMULE_MODEL_FAMILIES_H
#define IRONMULE_MODEL_FAMILIES_H

#include "model/build.h"

im_status im__family_llama(im__program *p, const im__source *s, const im__params *params, im_error *err);
im_status im__family_qwen2(im__program *p, const im__source *s, const im__params *params, im_error *err);
im_status im__family_qwen3(im__program *p, const im__source *s, const im__params *params, im_error *err);
im_status im__family_gemma2(im__program *p, const im__source *s, const im__params *params, im_error *err);
im_status im__family_gemma3(im__program *p, const im__source *s, const im__params *params, im_error *err);

#endif
