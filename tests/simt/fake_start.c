/* SPDX-License-Identifier: Apache-2.0
 *
 * Gives the program a fake GPU before it begins, when the environment asks for one:
 *
 *     IM_FAKE_GPU="100 1024 1"          compute capability, MiB of memory, devices
 *     IM_FAKE_LOSE="launch 300 700"     the entry of the driver, its call and the result from which on the device is lost
 */
#include "emulated_kernels.h"

#include <stdio.h>
#include <stdlib.h>

__attribute__((constructor)) static void start(void)
{
    static char entry[64];
    const char *gpu = getenv("IM_FAKE_GPU"), *lose = getenv("IM_FAKE_LOSE");
    fake_device device = {.processors = 2};
    long n, result;
    size_t count;
    if (gpu == NULL || sscanf(gpu, "%d %zu %d", &device.capability, &device.memory, &device.devices) != 3) return;
    device.memory <<= 20;
    const fake_kernel *kernels = emulated_kernels(&count);
    fake_driver_start(kernels, count, device);
    if (lose != NULL && sscanf(lose, "%63s %ld %ld", entry, &n, &result) == 3) fake_driver_lose(entry, n, (im__cuda_result)result);
}
