/* SPDX-License-Identifier: Apache-2.0
 *
 * Small pieces of float arithmetic whose bits tell whether the compiler kept its hands off them. The same source is compiled
 * under several sets of flags (tests/unit/CMakeLists.txt), each time with another name for PROBE.
 */
#ifndef IRONMULE_TESTS_FLOAT_PROBE_H
#define IRONMULE_TESTS_FLOAT_PROBE_H

typedef struct float_probe {
    float (*multiply_add)(float a, float b, float c); /* a * b + c in two roundings */
    float (*sum)(const float *x, int n);              /* left to right */
    float (*quotient)(float a, float b);              /* correctly rounded */
    float (*halve)(float a);                          /* a subnormal stays one */
    float (*cancel)(float a, float b);                /* (a + b) - a */
} float_probe;

extern const float_probe float_probe_house, float_probe_contracted, float_probe_reassociated;

#endif
