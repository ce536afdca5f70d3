/* SPDX-License-Identifier: Apache-2.0
 *
 * What ldtilecfg reads. Compilers know only its first bytes as an input, so it must be constant data.
 */
#ifndef IRONMULE_BACKEND_CPU_X86_TILES_AMX_H
#define IRONMULE_BACKEND_CPU_X86_TILES_AMX_H

#include <stdint.h>

typedef struct tile_shapes {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} tile_shapes;

_Static_assert(sizeof(tile_shapes) == 64, "the layout of the instruction set");

#endif
