/* SPDX-License-Identifier: Apache-2.0
 *
 * Logarithm and exponential in binary64 by our own series, only + - * / and comparisons, so the same bits everywhere: for rotary frequencies and
 * for reported probabilities. What a kernel needs in binary32 is in num/real.h. Pure functions; default floating-point environment.
 */
#ifndef IRONMULE_NUM_LOG_EXP_H
#define IRONMULE_NUM_LOG_EXP_H

/* e^x with a relative error below 4e-16; 0 below -708, +inf above 709, NaN for NaN. */
double im__exp_double(double x);

/* log x of a finite x >= 2^-1022, with an error below 4e-16 of max(1, |log x|); NaN for NaN. */
double im__log_double(double x);

#endif
