/* SPDX-License-Identifier: Apache-2.0 */
#include "num/log_exp.h"
#include "num/real.h"
#include "num/rope_turn.h"

double im__rope_frequency(double theta, unsigned i, unsigned dim)
{
    return im__exp_double(-2.0 * (double)i / (double)dim * im__log_double(theta));
}

void im__rope_angle(int64_t position, double frequency, float *cosine, float *sine)
{
    im__rope_turn(position, frequency, cosine, sine);
}
