/* SPDX-License-Identifier: Apache-2.0
 *
 * The plain C function of every operation: the definition that ops.h describes, in the words of docs/numerics.md. They are entries of the
 * table im__ops (see there for arguments and ownership); kernels are judged against them bit for bit.
 */
#ifndef IRONMULE_OPS_REFERENCE_H
#define IRONMULE_OPS_REFERENCE_H

#include "ops/ops.h"

void im__quantise_c(const im__act *act, size_t row, const float *x);
void im__rms_norm_c(float *y, const float *x, const float *w, size_t n, size_t count, float eps);
void im__rope_c(float *x, size_t heads, size_t head_dim, size_t rot_dim, const float *cosine, const float *sine, bool adjacent);
size_t im__kv_store_c(const im__kv_view *kv, size_t kv_heads, size_t head_dim, int32_t position, const float *k, const float *v);
void im__attention_c(const im__attention *a, size_t row_begin, size_t row_end, size_t kv_begin, size_t kv_end, float *scratch);
void im__glu_c(float *y, const float *gate, const float *up, size_t n, im__glu kind);
void im__add_c(float *y, const float *x, size_t n);
void im__scale_c(float *y, const float *x, size_t n, float by);
void im__softcap_c(float *y, size_t n, float cap);
int32_t im__argmax_c(const float *x, size_t n);

#endif
