/* SPDX-License-Identifier: Apache-2.0
 *
 * Products of quantised weights and many quantised rows, AMX int8 tiles with AVX-512, types with groups of 32. Few rows go to the
 * AVX-512 kernel, so do types with groups of 16: for them tiles bring nothing.
 *
 * Layout: backend/cpu/pack.h. The 8 lines of a group are the rows of a tile as they are; 16 rows' bytes of the group are the other
 * tile. One tdpbssd gives the 16 x 16 sums of the group, 16 outputs to a row. Codes lose their offset when they are unpacked, so
 * they are weights: signed bytes.
 *
 * Delicate clause: the chain of section 2. No sum may go past its group, so tiles are used at half their depth, and each tile of
 * sums is stored and read back as vectors, one lane an output: p = fma(s * d, isum, p), then p = fma(m * d, sum, p) where there is a
 * minimum; a new p for every 256 elements; y = p0, y = y + p1, ...; the bias last. isum is an integer below 2^24, exact in any order.
 *
 * Order of work: blocks of rows, in them chunks, whose rows are copied side by side once for all outputs; in them panels, unpacked
 * once for the block, past which tiles of 16 rows go: all sums of a chunk, then the 16 chains in registers.
 *
 * Limits, measured on a Xeon of model 207: tdpbssd takes 16 cycles whatever its depth and storing a tile 15, together 22 when each
 * is stored three products later (35 at once). The float steps of a tile are 48 vector operations for 8192 products (80 with a
 * minimum), 24 (40) cycles on two ports; but beside any instruction of tiles vectors get one port alone, so nothing is gained by
 * doing both at once. vpdpbusd alone would take 64 cycles.
 *
 * Tile registers: shapes are set on entry and all is released on return, so a thread keeps no state of tiles.
 */
#include "unpack_avx512.h"

#include "backend/cpu/matmul_list.h"

#include "tiles_amx.h"

#include <string.h>

#ifdef __clang__
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

/* A product of fewer rows than FEWEST is faster without tiles. */
enum { ROWS = 16, TILES = 8, BLOCK = ROWS * TILES, FEWEST = 10, DELAY = 3 };

/* One chunk of a tile's rows. */
typedef struct tile {
    _Alignas(64) int8_t q[ROWS][IM__CHUNK];
    float d[ROWS][RECORDS];
    float sum[ROWS][RECORDS];
} tile;

typedef int32_t sums[ROWS][IM__PANEL];

/* ---- rows ---- */

/* Elements k .. of row `index` become row r. */
INLINE void gather_row(im__form f, const im__act *a, size_t index, size_t k, size_t records, tile *to, size_t r)
{
    const size_t at = index * a->n + k;
    if (f.has_min) {
        const __m256i sum16 = _mm256_maskz_loadu_epi16((__mmask16)((1u << (2 * records)) - 1), a->sum + at / 16);
        _mm256_storeu_ps(to->sum[r], _mm256_cvtepi32_ps(_mm256_madd_epi16(sum16, _mm256_set1_epi16(1))));
    }
    _mm256_storeu_ps(to->d[r], _mm256_maskz_loadu_ps((__mmask8)((1u << records) - 1), a->d + at / IM__ACT_GROUP));
    for (size_t i = 0; i < 4; i++) {
        __mmask16 mask = (__mmask16)(2 * i + 2 <= records ? 0xffff : 2 * i + 1 <= records ? 0x00ff : 0);
        _mm512_storeu_si512(to->q[r] + 64 * i, _mm512_maskz_loadu_epi32(mask, a->q + at + 64 * i));
    }
}

/* ---- arithmetic: sums are in tiles 0 to 3, rows in 4 and 5, weights in 6 and 7 ---- */

INLINE void set_shapes(void)
{
    static const tile_shapes shapes = {
        .palette = 1, .row_bytes = {64, 64, 64, 64, 32, 32, 64, 64}, .rows = {16, 16, 16, 16, 16, 16, 8, 8}};
    _tile_loadconfig(&shapes);
}

#define MULTIPLY(sums, rows, weights)                                                                                              \
    _tile_zero(sums);                                                                                                              \
    _tile_loadd(rows, t->q[0] + g * IM__RECORD, IM__CHUNK);                                                                        \
    _tile_loadd(weights, c->line + g * QUADS, IM__LINE);                                                                           \
    _tile_dpbssd(sums, rows, weights)

INLINE void multiply(const chunk *c, const tile *t, size_t g)
{
    switch (g % 4) {
    case 0: MULTIPLY(0, 4, 6); break;
    case 1: MULTIPLY(1, 5, 7); break;
    case 2: MULTIPLY(2, 4, 6); break;
    default: MULTIPLY(3, 5, 7); break;
    }
}

INLINE void keep(size_t g, sums *to)
{
    switch (g % 4) {
    case 0: _tile_stored(0, to, IM__LINE); break;
    case 1: _tile_stored(1, to, IM__LINE); break;
    case 2: _tile_stored(2, to, IM__LINE); break;
    default: _tile_stored(3, to, IM__LINE); break;
    }
}

/* The integer part of all groups. */
INLINE void make_sums(const chunk *c, const tile *t, size_t groups, sums *isum)
{
    for (size_t g = 0; g < groups + DELAY; g++) {
        if (g < groups) multiply(c, t, g);
        if (g >= DELAY) keep(g - DELAY, &isum[g - DELAY]);
    }
}

/* The float part of group g. */
INLINE void step(im__form f, const chunk *c, const tile *t, size_t g, const sums *isum, __m512 p[ROWS])
{
    const __m512 s = c->s[g], m = c->m[g];
    UNROLL for (size_t r = 0; r < ROWS; r++)
    {
        const __m512 d = _mm512_set1_ps(t->d[r][g]);
        p[r] = _mm512_fmadd_ps(_mm512_mul_ps(s, d), _mm512_cvtepi32_ps(_mm512_load_si512((*isum)[r])), p[r]);
        if (f.has_min) p[r] = _mm512_fmadd_ps(_mm512_mul_ps(m, d), _mm512_set1_ps(t->sum[r][g]), p[r]);
    }
}

/* ---- the order of work ---- */

typedef struct job {
    const im__weight *w;
    const im__act *act;
    const float *bias;
    float *y;
    size_t y_stride, out_end;
} job;

/* Adds the chunk's p of n rows from `row` on to outputs o .. of y; k: the chunk's first element. */
INLINE void put_rows(const job *j, const __m512 p[ROWS], size_t n, size_t row, size_t o, size_t k)
{
    const size_t outs = j->out_end - o;
    const __mmask16 mask = (__mmask16)(outs >= IM__PANEL ? 0xffff : (1u << outs) - 1);
    const bool first = k == 0, bias = k + IM__CHUNK >= j->w->n_in && j->bias != NULL;
    UNROLL for (size_t r = 0; r < ROWS; r++)
    {
        if (r >= n) continue;
        float *y = j->y + (row + r) * j->y_stride + o;
        __m512 total = first ? p[r] : _mm512_add_ps(_mm512_maskz_loadu_ps(mask, y), p[r]);
        if (bias) total = _mm512_add_ps(total, _mm512_maskz_loadu_ps(mask, j->bias + o));
        _mm512_mask_storeu_ps(y, mask, total);
    }
}

/* An unpacked chunk and the n rows from `row` on, which lie in `t`. */
INLINE void run_panel(im__form f, const job *j, const chunk *c, const tile *t, size_t groups, size_t n, size_t row, size_t o,
                      size_t k)
{
    _Alignas(64) sums isum[RECORDS];
    for (size_t done = 0; done < n; done += ROWS, t++) {
        __m512 p[ROWS];
        make_sums(c, t, groups, isum);
        UNROLL for (size_t r = 0; r < ROWS; r++) p[r] = _mm512_setzero_ps();
        for (size_t g = 0; g < groups; g++) step(f, c, t, g, &isum[g], p);
        put_rows(j, p, n - done, row + done, o, k);
    }
}

/* Rows row .. row + n - 1, at most BLOCK. */
INLINE void run_block(im__form f, const job *j, size_t row, size_t n, size_t out_begin)
{
    const size_t n_in = j->w->n_in, panel_bytes = im__panel_bytes(f, n_in);
    const uint8_t *first = (const uint8_t *)j->w->packed + out_begin / IM__PANEL * panel_bytes;
    tile t[TILES];
    chunk c;
    if (n % ROWS != 0) memset(&t[n / ROWS], 0, sizeof t[0]);
    for (size_t k = 0; k < n_in; k += IM__CHUNK) {
        const size_t records = (n_in - k < IM__CHUNK ? n_in - k : IM__CHUNK) / IM__RECORD;
        const uint8_t *packed = first;
        for (size_t r = 0; r < n; r++) gather_row(f, j->act, row + r, k, records, &t[r / ROWS], r % ROWS);
        for (size_t o = out_begin; o < j->out_end; o += IM__PANEL, packed += panel_bytes) {
            unpack_chunk(f, true, packed, records, &c);
            __asm__ volatile("" ::: "memory"); /* compilers do not know what loading a tile reads */
            if (records == RECORDS)
                run_panel(f, j, &c, t, RECORDS, n, row, o, k);
            else
                run_panel(f, j, &c, t, records, n, row, o, k);
        }
        first += im__chunk_bytes(f, records);
    }
}

/* Rows row .. row + n - 1 by the kernel for few of them. */
INLINE void run_few(im__matmul_fn *few, const job *j, size_t row, size_t n, size_t out_begin)
{
    const im__act *all = j->act;
    const im__act act = {.n = all->n,
                         .q = all->q + row * all->n,
                         .d = all->d + row * (all->n / IM__ACT_GROUP),
                         .sum = all->sum + row * (all->n / IM__ACT_GROUP) * 2};
    const im__matmul_in in = {.act = &act, .rows = n};
    few(j->w, &in, j->bias, j->y + row * j->y_stride, j->y_stride, out_begin, j->out_end);
}

INLINE void run(im__form f, im__matmul_fn *few, const im__weight *w, const im__matmul_in *in, const float *bias, float *y,
                size_t y_stride, size_t out_begin, size_t out_end)
{
    const job j = {w, in->act, bias, y, y_stride, out_end};
    size_t row = 0;
    if (in->rows >= FEWEST) {
        set_shapes();
        for (size_t n; in->rows - row >= FEWEST; row += n) {
            n = in->rows - row < BLOCK ? in->rows - row : BLOCK;
            run_block(f, &j, row, n, out_begin);
        }
        _tile_release();
    }
    if (row < in->rows) run_few(few, &j, row, in->rows - row, out_begin);
}

#define KERNEL(name, dtype)                                                                                                        \
    static void run_##name(const im__weight *w, const im__matmul_in *in, const float *bias, float *y, size_t y_stride,             \
                           size_t out_begin, size_t out_end)                                                                       \
    {                                                                                                                              \
        run(im__form_of(dtype), im__matmul_##name##_avx512.run, w, in, bias, y, y_stride, out_begin, out_end);                     \
    }                                                                                                                              \
    IM__MATMUL_KERNEL(name, dtype, amx, IM__CPU_AMX, run_##name)

IM__GROUP_32_TYPES(KERNEL)
