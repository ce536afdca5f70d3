/* SPDX-License-Identifier: Apache-2.0
 *
 * Reproducible values, ordinary and hostile. The same on every machine: integer steps and exact float operations only.
 */
#ifndef CK_VALUES_H
#define CK_VALUES_H

#include <stddef.h>
#include <stdint.h>

typedef struct ck_rng {
    uint64_t state;
} ck_rng;

ck_rng ck_rng_of(uint64_t seed, const char *label);
uint32_t ck_next(ck_rng *r);
uint32_t ck_below(ck_rng *r, uint32_t n);                    /* 0 .. n - 1 */
uint32_t ck_between(ck_rng *r, uint32_t low, uint32_t high); /* both included */
float ck_unit(ck_rng *r);                                    /* [-1, 1) */

typedef enum ck_flavour {
    CK_PLAIN,                /* bell-shaped around 0, one scale for all */
    CK_WIDE,                 /* each value with an exponent of its own, within 2^-20 .. 2^20 */
    CK_ZEROS,                /* mostly zeros of both signs */
    CK_SUBNORMAL,            /* subnormals, and normals next to them */
    CK_EXTREME,              /* any finite bit pattern, often the largest */
    CK_CANCEL,               /* neighbours that cancel but for the last bits */
    CK_SPIKES,               /* small values with a few very large ones */
    CK_FINITE,               /* number of the flavours above */
    CK_NONFINITE = CK_FINITE /* plain with infinities and NaN */
} ck_flavour;

const char *ck_flavour_name(ck_flavour f);
void ck_floats(ck_rng *r, ck_flavour f, float *x, size_t n);

/* A binary16 pattern: finite, of the given flavour (CK_PLAIN, CK_ZEROS, CK_SUBNORMAL, CK_EXTREME; others mix these). */
uint16_t ck_half(ck_rng *r, ck_flavour f);

/* One row's blocks of weights of `dtype`: bytes of all kinds (every nibble, all ones, only the lowest), scales of flavour f. */
void ck_weights(ck_rng *r, ck_flavour f, uint32_t dtype, void *row, size_t n);

#endif
