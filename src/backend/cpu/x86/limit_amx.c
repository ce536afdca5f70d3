/* SPDX-License-Identifier: Apache-2.0
 *
 * tdpbssd on four independent tiles of sums: 16 x 16 x 64 products an instruction.
 */
#include "backend/cpu/limits.h"

#include "tiles_amx.h"

#include <immintrin.h>

enum { ROUNDS = 10000 };

uint64_t im__burst_amx(uint32_t *sink)
{
    static const tile_shapes full = {.palette = 1, .row_bytes = {64, 64, 64, 64, 64, 64}, .rows = {16, 16, 16, 16, 16, 16}};
    uint32_t sums[16][16];
    _tile_loadconfig(&full);
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    _tile_zero(4);
    _tile_zero(5);
    for (int r = 0; r < ROUNDS; r++) {
        _tile_dpbssd(0, 4, 5);
        _tile_dpbssd(1, 4, 5);
        _tile_dpbssd(2, 4, 5);
        _tile_dpbssd(3, 4, 5);
    }
    _tile_stored(0, sums, sizeof sums[0]);
    _tile_release();
    *sink += sums[0][0];
    return (uint64_t)ROUNDS * 4 * 16 * 16 * 64 * 2;
}
