/* SPDX-License-Identifier: Apache-2.0
 *
 * The functions of the numeric contract (docs/numerics.md, section 6): our own polynomials in a fixed order of steps, so that every
 * backend gets the same bits. A fused multiply-add happens exactly where the code says im__fma. Vector kernels repeat these steps lane by lane.
 */
#ifndef IRONMULE_NUM_REAL_H
#define IRONMULE_NUM_REAL_H

#include <stddef.h>
#include <stdint.h>

/* The correctly rounded fused multiply-add a * b + c of IEEE 754. */
float im__fma(float a, float b, float c);

/* e^x: exactly 1 at 0, exactly 0 below -64 ln 2 (and at -inf), +inf above the range, NaN for NaN; error below 2 ulp elsewhere. */
float im__exp(float x);

/* x * sigmoid(x) = x / (1 + e^-x) */
float im__silu(float x);

/* GELU, tanh form: x / (1 + e^(-2u)), u = sqrt(2/pi) (x + 0.044715 x^3), in the order of steps that the body shows. */
float im__gelu(float x);

/* cap * tanh(x / cap), tanh through im__exp. */
float im__softcap(float x, float cap);

/* The lane rule (section 3): 128 virtual lanes, halving tree. Sum of x[0..n), and of their squares. */
float im__lane_sum(const float *x, size_t n);
float im__lane_sum_squares(const float *x, size_t n);

/* cos and sin of position * theta^(-2 i / dim) / divisor by our own double-precision routine, rounded to binary32. */
void im__rope_angle(int64_t position, double frequency, float *cosine, float *sine);
double im__rope_frequency(double theta, unsigned i, unsigned dim);

#endif
