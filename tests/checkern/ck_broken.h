/* SPDX-License-Identifier: Apache-2.0
 *
 * Kernels with one planted bug each, of the kinds that kernels really have. The harness proves itself by catching all of them.
 */
#ifndef CK_BROKEN_H
#define CK_BROKEN_H

#include "backend/cpu/kernels.h"

typedef struct ck_plant {
    const char *bug;    /* in words */
    const char *family; /* whose cases must catch it */
    void (*plant)(im__ops *ops);
    im__matmul_kernel kernel; /* of matmul families; run == NULL: none */
    bool sound;               /* no bug at all: must pass */
} ck_plant;

const ck_plant *ck_plants(size_t *count);

/* Those of matrix products, in a file of their own. */
#define CK_MATMUL_PLANTS 10
extern const ck_plant ck_matmul_plants[CK_MATMUL_PLANTS];

#endif
