/* SPDX-License-Identifier: Apache-2.0
 *
 * The persistent decoder for Gemma 3 270M.
 */
#define DECODER_WIDTH 640
#include "decode_instances.cuh"
