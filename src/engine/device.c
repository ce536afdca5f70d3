/* SPDX-License-Identifier: Apache-2.0
 *
 * Which device computes: what the caller may say, and which backend that is.
 */
#include "engine/device.h"

#include "base/machine.h"

#include <stdio.h>
#include <string.h>

im_status im__device_parse(const char *name, const char *fallback, im__device_choice *out, im_error *err)
{
    unsigned ordinal = 0;
    int used = 0;
    if (fallback != NULL && strcmp(fallback, "cpu") != 0)
        return im__fail(err, IM_ERR_UNSUPPORTED, "device fallback \"%s\": only cpu is known", fallback);
    *out = (im__device_choice){.cpu = true, .cuda = true};
    if (name == NULL || strcmp(name, "auto") == 0) return IM_OK;
    out->named = true;
    out->cuda = false;
    if (strcmp(name, "cpu") == 0) return IM_OK;
    out->cpu = fallback != NULL;
    out->cuda = strcmp(name, "cuda") == 0 || (sscanf(name, "cuda:%3u%n", &ordinal, &used) == 1 && name[used] == 0);
    out->ordinal = (int)ordinal;
    if (out->cuda) return IM_OK;
    return im__fail(err, IM_ERR_UNSUPPORTED, "device \"%s\": this build knows auto, cpu, cuda and cuda:N", name);
}

im_status im__device_plan(bool cuda, const im__program *p, const im__backend_options *b, im__memory_plan *plan, im_error *err)
{
    IM__TRY((cuda ? im__backend_cuda_plan : im__backend_cpu_plan)(p, b, plan, err));
    if (!cuda) plan->available = im__machine_memory();
    return IM_OK;
}

im_status im__device_open(bool cuda, im__backend **out, const im__program *p, const im__backend_options *b, im_error *err)
{
    return (cuda ? im__backend_cuda_open : im__backend_cpu_open)(out, p, b, err);
}
