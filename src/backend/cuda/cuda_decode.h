/* SPDX-License-Identifier: Apache-2.0
 *
 * One sequence's row as one launch of the persistent decoder (kernels/decode.h), in place of the stages of a step.
 */
#ifndef IRONMULE_BACKEND_CUDA_CUDA_DECODE_H
#define IRONMULE_BACKEND_CUDA_CUDA_DECODE_H

#include "backend/backend.h"

struct im__cuda;
typedef struct im__cuda_decoder im__cuda_decoder;

enum { IM__CUDA_DECODE_MOST_TOKENS = 64 }; /* of a launch */

/* For a backend that is otherwise ready. IM_ERR_UNSUPPORTED, with the reason, when the program or the device is not one that it serves; IM_ERR_MEMORY when its
 * own memory (packets, lists) does not fit. The caller goes on without in either case. */
im_status im__cuda_decoder_open(im__cuda_decoder **out, struct im__cuda *c, im_error *err);
void im__cuda_decoder_close(im__cuda_decoder *d); /* NULL allowed; the context is current */

/* Whether it takes a step: one row that wants logits, within the context. */
bool im__cuda_decoder_takes(const im__cuda_decoder *d, const im__step *step);

/* Puts the step on the stream, with the greedy tokens after it: `tokens` rows in all, whose pages are in the tables. Logits of the last row come to the place of
 * the program's logits, chosen tokens to the backend's answer, as many as there were rows (the answer has room for that many). */
im_status im__cuda_decoder_launch(im__cuda_decoder *d, const im__step *step, uint32_t tokens, im_error *err);

/* While the device works: prepares the launch that follows. */
void im__cuda_decoder_prepare(im__cuda_decoder *d);

/* After the stream was waited for: IM_ERR_DEVICE when blocks lost each other. */
im_status im__cuda_decoder_check(const im__cuda_decoder *d, im_error *err);

#endif
