/* SPDX-License-Identifier: Apache-2.0 */
#ifndef IRONMULE_ENGINE_BUILD_ID_H
#define IRONMULE_ENGINE_BUILD_ID_H

#include <stddef.h>

/* Identity of the program or library that holds this code, as the linker wrote it (GNU build id): *n bytes that live as long as the process. NULL where it wrote none. */
const void *im__build_id(size_t *n);

#endif
