/* SPDX-License-Identifier: Apache-2.0
 *
 * The persistent decoder for Gemma 3 1B.
 */
#define DECODER_WIDTH 1152
#include "decode_instances.cuh"
