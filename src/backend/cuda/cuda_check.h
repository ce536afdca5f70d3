/* SPDX-License-Identifier: Apache-2.0
 *
 * A proof on the user's own device: a small model with random weights, a prompt and single tokens, each logit compared with the interpreter's.
 */
#ifndef IRONMULE_CUDA_CUDA_CHECK_H
#define IRONMULE_CUDA_CUDA_CHECK_H

#include "base/error.h"

#include <stddef.h>

/* *checked (may be NULL): logits compared. IM_ERR_INTERNAL when one differs; else as im__backend_cuda_open and steps fail. */
im_status im__cuda_self_check(int device, size_t *checked, im_error *err);

#endif
