/* SPDX-License-Identifier: Apache-2.0
 *
 * cuda_images.h is made by the build: IMAGES(X) with X(identifier, "path of the fat binary"), ARCHITECTURES, and
 * MISSING, why there are none.
 */
#include "backend/cuda/fatbin.h"

#include <cuda_images.h>

static const im__cuda_image *replacement;
static size_t replacements;

/* The assembler reads the file; sixteen bytes of alignment are what the driver asks of an image. */
#define EMBED(identifier, path)                                                                                                    \
    __asm__(".pushsection .rodata\n"                                                                                               \
            ".balign 16\n"                                                                                                         \
            "im__cuda_image_" #identifier ":\n"                                                                                    \
            ".incbin \"" path "\"\n"                                                                                               \
            "im__cuda_image_end_" #identifier ":\n"                                                                                \
            ".byte 0\n"                                                                                                            \
            ".popsection\n");                                                                                                      \
    extern const char im__cuda_image_##identifier[], im__cuda_image_end_##identifier[];
IMAGES(EMBED)

const im__cuda_image *im__cuda_images(size_t *count)
{
    static im__cuda_image list[] = {
#define IMAGE(identifier, path) {#identifier, im__cuda_image_##identifier, 0},
        IMAGES(IMAGE){NULL, NULL, 0}};
    static const char *const end[] = {
#define END(identifier, path) im__cuda_image_end_##identifier,
        IMAGES(END) NULL};
    if (replacement != NULL) {
        *count = replacements;
        return replacement;
    }
    *count = sizeof list / sizeof *list - 1;
    for (size_t i = 0; i < *count; i++) list[i].bytes = (size_t)(end[i] - (const char *)list[i].data);
    return list;
}

const char *im__cuda_architectures(void) { return ARCHITECTURES; }

im_status im__cuda_kernels(im_error *err)
{
    size_t count;
    im__cuda_images(&count);
    if (count > 0) return IM_OK;
    return im__fail(err, IM_ERR_UNSUPPORTED,
                    "this build has no CUDA kernels: " MISSING "; with the CUDA toolkit (nvcc 12.0 or later) ./start makes them, "
                    "or cmake --preset release -DIRONMULE_CUDA=ON");
}

void im__cuda_images_replace(const im__cuda_image *images, size_t count)
{
    replacement = images;
    replacements = count;
}
