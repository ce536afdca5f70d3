/* SPDX-License-Identifier: Apache-2.0
 *
 * A CUDA driver of host memory: device addresses are host addresses, kernels are functions that the test brings (the emulated ones, or none). A stream does nothing
 * before somebody waits for it, so that memory which is used again too early, or an order between streams that nobody made, shows. It knows what is allocated and refuses copies that go beyond, counts calls, and fails the one that a test wants to fail.
 */
#ifndef IRONMULE_TESTS_FAKE_DRIVER_H
#define IRONMULE_TESTS_FAKE_DRIVER_H

#include "backend/cuda/driver.h"

#include <stdbool.h>

/* What a launch of the kernel does, and the sizes of its parameters (0 ends the list). */
typedef struct fake_kernel {
    const char *name;
    void (*run)(const im__cuda_launch *launch, void **parameters);
    size_t size[5];
} fake_kernel;

typedef struct fake_device {
    int capability, processors;
    size_t memory; /* free of it */
    int devices;
} fake_device;

/* From now on the library finds this driver, and one image with these kernels (NULL: every name is found, launches do nothing). */
void fake_driver_start(const fake_kernel *kernels, size_t count, fake_device device);
void fake_driver_stop(void);

/* Call number n (1: the next) of the driver's entry `entry` ("launch") answers with `result`, and so does each one after it that can fail: the device is lost. */
void fake_driver_lose(const char *entry, long n, im__cuda_result result);

/* Call number n from now on (1: the next) answers with `result` and does nothing; 0: none does. Some calls cannot fail: error texts, and what gives things back. */
void fake_driver_fail(long n, im__cuda_result result);

long fake_driver_calls(void);   /* that can fail, so far */
long fake_driver_live(void);    /* things taken and not given back */
long fake_driver_replays(void); /* graphs launched */

#endif
