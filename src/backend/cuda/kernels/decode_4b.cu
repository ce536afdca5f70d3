/* SPDX-License-Identifier: Apache-2.0
 *
 * The persistent decoder for Gemma 3 4B.
 */
#define DECODER_WIDTH 2560
#include "decode_instances.cuh"
