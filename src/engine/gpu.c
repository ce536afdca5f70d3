/* SPDX-License-Identifier: Apache-2.0
 *
 * What the library says of this machine's GPUs.
 */
#include "backend/cuda/cuda_check.h"
#include "backend/cuda/driver.h"
#include "backend/cuda/fatbin.h"

#include <ironmule/ironmule.h>
#include <stdio.h>

/* All that is missing is said at once. */
im_status im_gpu_count(int *count, im_error *err)
{
    im_error driver, kernels;
    if (count == NULL) return im__fail(err, IM_ERR_ARGUMENT, "a NULL argument");
    im_status found = im__cuda_device_count(count, &driver), made = im__cuda_kernels(&kernels);
    if (found != IM_OK && made != IM_OK) return im__fail(err, found, "%.300s; and %s", driver.message, kernels.message);
    if (found != IM_OK) return im__fail(err, found, "%s", driver.message);
    if (made != IM_OK)
        return im__fail(err, made, "the driver finds %d CUDA device%s, but %s", *count, *count == 1 ? "" : "s", kernels.message);
    return IM_OK;
}

im_status im_gpu_get_info(int n, im_gpu_info *out, im_error *err)
{
    im__cuda_device_info d;
    if (out == NULL) return im__fail(err, IM_ERR_ARGUMENT, "a NULL argument");
    IM__TRY(im__cuda_device_get(n, &d, err));
    *out = (im_gpu_info){.capability = d.capability,
                         .driver = d.driver,
                         .processors = d.processors,
                         .memory_bytes = d.memory,
                         .read_bytes_per_s = d.bytes_per_s};
    snprintf(out->name, sizeof out->name, "%s", d.name);
    return IM_OK;
}

im_status im_gpu_self_check(int n, size_t *checked, im_error *err) { return im__cuda_self_check(n, checked, err); }

const char *im_gpu_architectures(void) { return im__cuda_architectures(); }
