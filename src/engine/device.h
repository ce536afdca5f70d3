/* SPDX-License-Identifier: Apache-2.0 */
#ifndef IRONMULE_ENGINE_DEVICE_H
#define IRONMULE_ENGINE_DEVICE_H

#include "backend/backend.h"

/* What may be tried: CUDA first, then the processor. */
typedef struct im__device_choice {
    bool cpu, cuda;
    bool named;  /* by the caller; else what is there is taken */
    int ordinal; /* of the CUDA device */
} im__device_choice;

/* "auto" or NULL, "cpu", "cuda", "cuda:N"; fallback: "cpu" or NULL. IM_ERR_UNSUPPORTED for other names. */
im_status im__device_parse(const char *name, const char *fallback, im__device_choice *out, im_error *err);

/* plan->available is filled in for either. */
im_status im__device_plan(bool cuda, const im__program *p, const im__backend_options *b, im__memory_plan *plan, im_error *err);
im_status im__device_open(bool cuda, im__backend **out, const im__program *p, const im__backend_options *b, im_error *err);

#endif
