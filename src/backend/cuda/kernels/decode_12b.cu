/* SPDX-License-Identifier: Apache-2.0
 *
 * The persistent decoder for Gemma 3 12B.
 */
#define DECODER_WIDTH 3840
#include "decode_instances.cuh"
