/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernels' machine code, embedded into the library: one fat binary for each file of kernels/, with code for all architectures it was built for.
 */
#ifndef IRONMULE_CUDA_KERNELS_H
#define IRONMULE_CUDA_KERNELS_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>

typedef struct im__cuda_image {
    const char *name; /* of the file, without its ending */
    const void *data;
    size_t bytes;
} im__cuda_image;

/* *count 0: the library was built without a CUDA compiler. */
const im__cuda_image *im__cuda_images(size_t *count);

/* "75 90": the architectures that the code is for; "" when built without. */
const char *im__cuda_architectures(void);

/* IM_ERR_UNSUPPORTED when there is no code: why, and how to come to some. */
im_status im__cuda_kernels(im_error *err);

/* For tests: other images from now on; NULL: the library's own. */
void im__cuda_images_replace(const im__cuda_image *images, size_t count);

#endif
