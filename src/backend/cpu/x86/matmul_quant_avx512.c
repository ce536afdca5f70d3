/* SPDX-License-Identifier: Apache-2.0
 *
 * Products of quantised weights and quantised rows, AVX-512 with VNNI, all types.
 *
 * Layout and lanes: backend/cpu/pack.h. A line is one register: lane o of vpdpbusd adds the 4 products of output o's quad; the
 * row's quad (4 bytes) is broadcast from memory. Codes are unsigned bytes, activations signed; vpdpbusd adds in int32 without
 * saturation, so any code fits.
 *
 * Delicate clause: the chain of section 2. Per group and lane p = fma(s * d, isum, p), then p = fma(m * d, sum, p) where there is a
 * minimum; a new p for every 256 elements; y = p0, y = y + p1, ...; the bias last. isum is an integer below 2^24, exact in any
 * order: the accumulator starts at -offset * sum, which makes codes into weights.
 *
 * Order of work: blocks of rows, in them groups of panels, in them chunks, in them tiles of rows. A chunk of a tile's rows is
 * copied side by side. Fewer than 32 rows: each record is unpacked into 8 registers, past which the rows go, 8 at a time so that 8
 * sums are in flight. More: the chunks of 4 panels are unpacked into memory (24 KiB) once for the block, then 8 rows at a time go
 * over them. Limits: one row, memory (packed bytes are read once, in order). Many rows: the two vector ports; a group of 32 costs 8
 * vpdpbusd and 3 float operations (5 with a minimum) per row, so 73 % (62 %) of the vpdpbusd rate, a group of 16 57 % (44 %).
 */
#include "unpack_avx512.h"

#include "backend/cpu/matmul_list.h"

#include <string.h>

enum { EIGHT = 8, TILE = 32, PANELS = 4, BLOCK = 128, TILES_AHEAD = 2 };

/* One chunk of one row. */
typedef struct row {
    __m512i q[IM__CHUNK / 64];
    __m512 p;
    int32_t start[IM__CHUNK / 16]; /* -offset * sum, of each group */
    float sum[IM__CHUNK / 16];
    float d[RECORDS];
} row;

/* ---- arithmetic ---- */

/* The integer part of one quad: isum + Σ code * q. */
INLINE __m512i dot(__m512i isum, __m512i line, const int8_t *q)
{
    int32_t quad;
    memcpy(&quad, q, 4);
    return _mm512_dpbusd_epi32(isum, line, _mm512_set1_epi32(quad));
}

/* The float part of one group. */
INLINE __m512 step(im__form f, __m512 p, __m512 s, __m512 m, float d, __m512i isum, float sum)
{
    const __m512 scale = _mm512_set1_ps(d);
    p = _mm512_fmadd_ps(_mm512_mul_ps(s, scale), _mm512_cvtepi32_ps(isum), p);
    return f.has_min ? _mm512_fmadd_ps(_mm512_mul_ps(m, scale), _mm512_set1_ps(sum), p) : p;
}

/* Group g of the chunk, n rows (a constant up to 8). */
INLINE void run_rows(im__form f, int n, const __m512i *line, __m512 s, __m512 m, size_t g, row *a)
{
    __m512i isum[EIGHT];
    for (int r = 0; r < n; r++) isum[r] = _mm512_set1_epi32(a[r].start[g]);
    for (int i = 0; i < f.group / 4; i++)
        for (int r = 0; r < n; r++) isum[r] = dot(isum[r], line[i], (const int8_t *)a[r].q + g * f.group + 4 * i);
    for (int r = 0; r < n; r++) a[r].p = step(f, a[r].p, s, m, a[r].d[g * f.group / IM__RECORD], isum[r], a[r].sum[g]);
}

INLINE void run_group(im__form f, const __m512i *line, __m512 s, __m512 m, size_t g, row *a, size_t n)
{
    for (; n >= EIGHT; n -= EIGHT, a += EIGHT) run_rows(f, EIGHT, line, s, m, g, a);
    if (n >= 4) {
        run_rows(f, 4, line, s, m, g, a);
        n -= 4, a += 4;
    }
    if (n >= 2) {
        run_rows(f, 2, line, s, m, g, a);
        n -= 2, a += 2;
    }
    if (n) run_rows(f, 1, line, s, m, g, a);
}

/* One chunk of one panel, n rows: their p; meanwhile as many bytes are asked for from `ahead` on. */
INLINE void run_tile(im__form f, const uint8_t *packed, const uint8_t *ahead, size_t records, row *a, size_t n)
{
    const size_t per_record = IM__RECORD / f.group, groups = records * per_record;
    const uint8_t *record = packed + im__scale_bytes(f, groups);
    fetch_lines(ahead, (size_t)(record - packed));
    for (size_t r = 0; r < n; r++) a[r].p = _mm512_setzero_ps();
    for (size_t i = 0; i < records; i++, record += f.bits * IM__LINE) {
        __m512i line[QUADS];
        fetch_lines(ahead + (record - packed), f.bits * IM__LINE);
        unpack_record(f, record, line);
        for (size_t h = 0; h < per_record; h++) {
            const size_t g = i * per_record + h;
            __m512 s, m;
            unpack_scale(f, packed, groups, g, &s, &m);
            run_group(f, line + 4 * h, s, m, g, a, n);
        }
    }
}

/* The same for EIGHT rows and an unpacked chunk, the chains in registers. */
INLINE void run_eight(im__form f, const chunk *c, size_t records, row *a)
{
    const size_t per_record = IM__RECORD / f.group;
    __m512 p[EIGHT];
    for (int r = 0; r < EIGHT; r++) p[r] = _mm512_setzero_ps();
    for (size_t g = 0; g < records * per_record; g++) {
        const __m512i *line = c->line + g * f.group / 4;
        const __m512 s = c->s[g], m = c->m[g];
        __m512i isum[EIGHT];
        for (int r = 0; r < EIGHT; r++) isum[r] = _mm512_set1_epi32(a[r].start[g]);
        for (int i = 0; i < f.group / 4; i++)
            for (int r = 0; r < EIGHT; r++) isum[r] = dot(isum[r], line[i], (const int8_t *)a[r].q + g * f.group + 4 * i);
        for (int r = 0; r < EIGHT; r++) p[r] = step(f, p[r], s, m, a[r].d[g / per_record], isum[r], a[r].sum[g]);
    }
    for (int r = 0; r < EIGHT; r++) a[r].p = p[r];
}

/* ---- rows ---- */

/* Elements k .. of row `index`. */
INLINE void gather_row(im__form f, const im__act *a, size_t index, size_t k, size_t records, row *to)
{
    const size_t at = index * a->n + k;
    const __m256i sum16 = _mm256_maskz_loadu_epi16((__mmask16)((1u << (2 * records)) - 1), a->sum + at / 16);
    if (f.group == 32) {
        __m256i sums = _mm256_madd_epi16(sum16, _mm256_set1_epi16(1));
        _mm256_storeu_si256((__m256i *)to->start, _mm256_mullo_epi32(sums, _mm256_set1_epi32(-f.offset)));
        if (f.has_min) _mm256_storeu_ps(to->sum, _mm256_cvtepi32_ps(sums));
    } else {
        __m512i sums = _mm512_cvtepi16_epi32(sum16);
        _mm512_storeu_si512(to->start, _mm512_mullo_epi32(sums, _mm512_set1_epi32(-f.offset)));
        if (f.has_min) _mm512_storeu_ps(to->sum, _mm512_cvtepi32_ps(sums));
    }
    _mm256_storeu_ps(to->d, _mm256_maskz_loadu_ps((__mmask8)((1u << records) - 1), a->d + at / IM__ACT_GROUP));
    for (size_t i = 0; i < 4; i++) {
        __mmask16 mask = (__mmask16)(2 * i + 2 <= records ? 0xffff : 2 * i + 1 <= records ? 0x00ff : 0);
        to->q[i] = _mm512_maskz_loadu_epi32(mask, a->q + at + 64 * i);
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
INLINE void put_rows(const job *j, const row *a, size_t n, size_t row_begin, size_t o, size_t k)
{
    const size_t outs = j->out_end - o;
    const __mmask16 mask = (__mmask16)(outs >= IM__PANEL ? 0xffff : (1u << outs) - 1);
    const bool first = k == 0, bias = k + IM__CHUNK >= j->w->n_in && j->bias != NULL;
    for (size_t r = 0; r < n; r++) {
        float *y = j->y + (row_begin + r) * j->y_stride + o;
        __m512 total = first ? a[r].p : _mm512_add_ps(_mm512_maskz_loadu_ps(mask, y), a[r].p);
        if (bias) total = _mm512_add_ps(total, _mm512_maskz_loadu_ps(mask, j->bias + o));
        _mm512_mask_storeu_ps(y, mask, total);
    }
}

/* Where the chunk lies that is read after the next one: panel i of `count` reads the chunk at p, `next` is the chunk that panel 0 reads after all have
 * read theirs. */
INLINE const uint8_t *tile_ahead(const uint8_t *p, const uint8_t *next, size_t i, size_t count, size_t panel_bytes)
{
    if (count < TILES_AHEAD) return p + AHEAD;
    return i + TILES_AHEAD < count ? p + TILES_AHEAD * panel_bytes : next + (i + TILES_AHEAD - count) * panel_bytes;
}

/* Rows row_begin .. row_end - 1, panels from output `out` to `panels_end`. */
INLINE void run_panels(im__form f, const job *j, size_t row_begin, size_t row_end, size_t out, size_t panels_end)
{
    const size_t n_in = j->w->n_in, panel_bytes = im__panel_bytes(f, n_in);
    const size_t count = (panels_end - out + IM__PANEL - 1) / IM__PANEL;
    const uint8_t *first = (const uint8_t *)j->w->packed + out / IM__PANEL * panel_bytes, *behind = first + count * panel_bytes;
    row a[TILE];
    for (size_t k = 0; k < n_in; k += IM__CHUNK) {
        const size_t records = (n_in - k < IM__CHUNK ? n_in - k : IM__CHUNK) / IM__RECORD;
        for (size_t r = row_begin, n; r < row_end; r += n) {
            n = row_end - r < TILE ? row_end - r : TILE;
            for (size_t i = 0; i < n; i++) gather_row(f, j->act, r + i, k, records, &a[i]);
            const uint8_t *packed = first, *next = k + IM__CHUNK < n_in ? first + im__chunk_bytes(f, records) : behind;
            for (size_t i = 0; i < count; i++, packed += panel_bytes) {
                const uint8_t *ahead = tile_ahead(packed, next, i, count, panel_bytes);
                if (n == 2)
                    run_tile(f, packed, ahead, records, a, 2);
                else
                    run_tile(f, packed, ahead, records, a, n);
                put_rows(j, a, n, r, out + i * IM__PANEL, k);
            }
        }
        first += im__chunk_bytes(f, records);
    }
}

/* The same for many rows: the chunks of all panels are unpacked first, then tiles of 8 rows pass over them. */
INLINE void run_panels_unpacked(im__form f, const job *j, size_t row_begin, size_t row_end, size_t out, size_t panels_end)
{
    const size_t n_in = j->w->n_in, panel_bytes = im__panel_bytes(f, n_in);
    const uint8_t *packed = (const uint8_t *)j->w->packed + out / IM__PANEL * panel_bytes;
    chunk c[PANELS];
    row a[EIGHT];
    for (size_t k = 0; k < n_in; k += IM__CHUNK) {
        const size_t records = (n_in - k < IM__CHUNK ? n_in - k : IM__CHUNK) / IM__RECORD;
        for (size_t o = out, i = 0; o < panels_end; o += IM__PANEL, i++)
            unpack_chunk(f, false, packed + i * panel_bytes, records, &c[i]);
        for (size_t r = row_begin; r < row_end; r += EIGHT) {
            for (size_t i = 0; i < EIGHT; i++) gather_row(f, j->act, r + i, k, records, &a[i]);
            for (size_t o = out; o < panels_end; o += IM__PANEL) {
                run_eight(f, &c[(o - out) / IM__PANEL], records, a);
                put_rows(j, a, EIGHT, r, o, k);
            }
        }
        packed += im__chunk_bytes(f, records);
    }
}

INLINE void run(im__form f, const im__weight *w, const im__matmul_in *in, const float *bias, float *y, size_t y_stride,
                size_t out_begin, size_t out_end)
{
    const job j = {w, in->act, bias, y, y_stride, out_end};
    const size_t step = (in->rows == 1 ? 1 : PANELS) * IM__PANEL;
    for (size_t r = 0; r < in->rows; r += BLOCK) {
        const size_t row_end = in->rows - r < BLOCK ? in->rows : r + BLOCK;
        const size_t many_end = row_end - r < TILE ? r : row_end - (row_end - r) % EIGHT;
        for (size_t out = out_begin; out < out_end; out += step) {
            const size_t panels_end = out_end - out < step ? out_end : out + step;
            if (r < many_end) run_panels_unpacked(f, &j, r, many_end, out, panels_end);
            if (many_end < row_end) run_panels(f, &j, many_end, row_end, out, panels_end);
        }
    }
}

#define KERNEL(name, dtype)                                                                                                        \
    static void run_##name(const im__weight *w, const im__matmul_in *in, const float *bias, float *y, size_t y_stride,             \
                           size_t out_begin, size_t out_end)                                                                       \
    {                                                                                                                              \
        run(im__form_of(dtype), w, in, bias, y, y_stride, out_begin, out_end);                                                     \
    }                                                                                                                              \
    IM__MATMUL_KERNEL(name, dtype, avx512, IM__CPU_AVX512, run_##name)

IM__PACKED_TYPES(KERNEL)
