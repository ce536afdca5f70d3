/* SPDX-License-Identifier: Apache-2.0
 *
 * The persistent decoder of the smallest model that there is one for (im_decode_270m_4), emulated, for the fake driver.
 */
#ifndef IRONMULE_TESTS_EMULATED_DECODER_H
#define IRONMULE_TESTS_EMULATED_DECODER_H

#include "fake_driver.h"

#ifdef __cplusplus
extern "C" {
#endif

extern const fake_kernel emulated_decoder;
extern bool emulated_decoder_lost; /* from now on its blocks lose each other */

#ifdef __cplusplus
}
#endif

#endif
