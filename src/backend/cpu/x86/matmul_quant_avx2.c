/* SPDX-License-Identifier: Apache-2.0
 *
 * Products of quantised weights and quantised rows, AVX2 with FMA and F16C, all types.
 *
 * Layout and lanes: backend/cpu/pack.h. A line is two registers: `half` 0 holds outputs 0 .. 7, half 1 outputs 8 .. 15; lane o of a half holds the
 * quad of one output, the row's quad (4 bytes) is broadcast.
 *
 * Integers. Narrow codes (at most `top` = 63): vpmaddubsw multiplies unsigned codes by signed bytes and adds pairs in int16; `fitting_quads`
 * of them are added before vpmaddwd with ones widens to int32. Nothing saturates: activations lie in -127 .. 127, so n quads reach at most
 * n * 2 * top * 127, and 8 * 2 * 15 * 127 = 30,480, 4 * 2 * 31 * 127 = 31,496, 2 * 2 * 63 * 127 = 32,004 are below 32,768. Wide codes (8
 * bits, or through the IQ4 table): widened to int16, vpmaddwd adds pairs in int32; elements 0 and 2 of a quad are one pair, 1 and 3 the other.
 *
 * Delicate clause: the chain of section 2. Per group and lane p = fma(s * d, isum, p), then p = fma(m * d, sum, p) where there is a
 * minimum; a new p for every 256 elements; y = p0, y = y + p1, ...; the bias last. isum is an integer below 2^24, exact in any order; it
 * starts at -offset * sum, which makes codes into weights.
 *
 * Two paths. One row: codes are unpacked in registers, the limit is memory. More rows: a chunk of up to 4 panels is unpacked into stack,
 * then each group's lines stay in registers while up to 16 rows pass by; their chains p live in the first-level cache. Limit: vector ports; on three of them
 * (two that multiply) a group of 32 4-bit codes takes 20 operations for 8 outputs, 80 % of the integer rate alone; 8-bit codes 67 %.
 */
#include "backend/cpu/matmul_list.h"

#include <immintrin.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

enum { TILE = 16, PANELS = 4, BLOCK = 128, RECORDS = IM__CHUNK / IM__RECORD, QUADS = IM__RECORD / 4, LANES = 8 };

/* Packed bytes are asked for this far ahead: hardware prefetch alone stops at each page. */
enum { AHEAD = 4096 };

/* One chunk of a panel: a line for each quad, and the scales of each group. */
typedef struct chunk {
    __m256i line[IM__CHUNK / 4][2];
    __m256 s[IM__CHUNK / 16][2], m[IM__CHUNK / 16][2];
} chunk;

/* One chunk of one row. */
typedef struct row {
    __m256 p[2];
    __m256i isum;                    /* of the first half of a group of wide codes */
    int32_t quad[IM__CHUNK / 4 * 2]; /* narrow: [q] four bytes; wide: [2q], [2q + 1] pairs of int16 */
    float d[RECORDS];
    int32_t start[IM__CHUNK / 16]; /* -offset * sum, of each group */
    float sum[IM__CHUNK / 16];
} row;

INLINE bool is_wide(im__form f) { return f.top > 63; }

/* How many quads' products (two per int16 lane each) an int16 holds. */
INLINE int fitting_quads(im__form f) { return f.top <= 15 ? 8 : f.top <= 31 ? 4 : 2; }

/* ---- unpacking: one half of a record; p points at that half of its first line ---- */

INLINE __m256i load(const uint8_t *p) { return _mm256_loadu_si256((const __m256i *)p); }

INLINE void fetch_ahead(im__form f, const uint8_t *record)
{
    for (int i = 0; i < f.bits; i++) _mm_prefetch((const char *)record + AHEAD + i * IM__LINE, _MM_HINT_T1);
}

/* low | (source moved by `left` (or right when negative) & mask) */
INLINE __m256i with_bits(__m256i low, __m256i source, int left, int mask)
{
    __m256i moved = left > 0 ? _mm256_slli_epi16(source, left) : left < 0 ? _mm256_srli_epi16(source, -left) : source;
    return _mm256_or_si256(low, _mm256_and_si256(moved, _mm256_set1_epi8((char)mask)));
}

INLINE void unpack_nibbles(const uint8_t *p, __m256i *line)
{
    const __m256i mask = _mm256_set1_epi8(15);
    for (int j = 0; j < 4; j++) {
        __m256i v = load(p + j * IM__LINE);
        line[2 * j] = _mm256_and_si256(v, mask);
        line[2 * j + 1] = _mm256_and_si256(_mm256_srli_epi16(v, 4), mask);
    }
}

/* Two lines of pairs, each pair put at bit `bit` of its code (0 or 4). */
INLINE void add_pairs(const uint8_t *p, int bit, __m256i *line)
{
    for (int q = 0; q < QUADS; q++) line[q] = with_bits(line[q], load(p + q / 4 * IM__LINE), bit - q % 4 * 2, 3 << bit);
}

INLINE void add_bits(const uint8_t *p, int bit, __m256i *line)
{
    for (int q = 0; q < QUADS; q++) line[q] = with_bits(line[q], load(p), bit - q, 1 << bit);
}

INLINE void unpack_half(im__form f, const uint8_t *p, __m256i line[QUADS])
{
    if (f.bits == 8) {
        for (int q = 0; q < QUADS; q++) line[q] = load(p + q * IM__LINE);
    } else if (f.bits < 4) {
        for (int q = 0; q < QUADS; q++) line[q] = _mm256_setzero_si256();
        add_pairs(p, 0, line);
        if (f.bits == 3) add_bits(p + 2 * IM__LINE, 2, line);
    } else {
        unpack_nibbles(p, line);
        if (f.bits == 5) add_bits(p + 4 * IM__LINE, 4, line);
        if (f.bits == 6) add_pairs(p + 4 * IM__LINE, 4, line);
    }
    if (f.table != IM__TABLE_NONE) {
        const __m256i table = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)im__form_table(f.table)));
        for (int q = 0; q < QUADS; q++) line[q] = _mm256_shuffle_epi8(table, line[q]);
    }
}

INLINE __m256 load_half(const uint8_t *p) { return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p)); }
INLINE __m128i load_bytes(const uint8_t *p) { return _mm_loadl_epi64((const __m128i *)p); }
INLINE __m256 float_of_unsigned(__m128i bytes) { return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes)); }

/* 2^(e - 128); the two smallest are subnormal. */
INLINE __m256 power_of(const uint8_t *exponents)
{
    __m256i e = _mm256_cvtepu8_epi32(load_bytes(exponents)), one = _mm256_set1_epi32(1);
    __m256i normal = _mm256_slli_epi32(_mm256_sub_epi32(e, one), 23), small = _mm256_sllv_epi32(_mm256_set1_epi32(0x00200000), e);
    return _mm256_castsi256_ps(_mm256_blendv_epi8(small, normal, _mm256_cmpgt_epi32(e, one)));
}

/* Scale and minimum of group g of a chunk with `groups` groups, one half. The products are exact: 11 bits times at most 8. */
INLINE void unpack_scale(im__form f, const uint8_t *p, size_t groups, size_t g, size_t half, __m256 *s, __m256 *m)
{
    const uint8_t *halves = p + half * 16, *bytes = p + half * LANES;
    *m = _mm256_setzero_ps();
    switch (f.scales) {
    case IM__SCALES_HALF: *s = load_half(halves + 32 * g); break;
    case IM__SCALES_HALF_MIN:
        *s = load_half(halves + 64 * g);
        *m = load_half(halves + 64 * g + 32);
        break;
    case IM__SCALES_EXPONENT: *s = power_of(bytes + 16 * g); break;
    case IM__SCALES_SUPER:
        *s = _mm256_mul_ps(load_half(halves), _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(load_bytes(bytes + 32 + 16 * g))));
        break;
    case IM__SCALES_SUPER_MIN:
        *s = _mm256_mul_ps(load_half(halves), float_of_unsigned(load_bytes(bytes + 64 + 16 * g)));
        *m = _mm256_mul_ps(load_half(halves + 32), float_of_unsigned(load_bytes(bytes + 64 + 16 * (groups + g))));
        break;
    case IM__SCALES_SUPER_NIBBLE: {
        __m128i both = load_bytes(bytes + 64 + 16 * g), low = _mm_set1_epi8(15);
        *s = _mm256_mul_ps(load_half(halves), float_of_unsigned(_mm_and_si128(both, low)));
        *m = _mm256_mul_ps(load_half(halves + 32), float_of_unsigned(_mm_and_si128(_mm_srli_epi16(both, 4), low)));
        break;
    }
    }
}

/* ---- arithmetic ---- */

INLINE __m256i products(__m256i line, int32_t quad) { return _mm256_maddubs_epi16(line, _mm256_set1_epi32(quad)); }

/* start + Σ code * q over `quads` quads, narrow codes. */
INLINE __m256i dot_narrow(im__form f, const __m256i *line, int quads, __m256i start, const int32_t *quad)
{
    const int fitting = fitting_quads(f) < quads ? fitting_quads(f) : quads;
    for (int i = 0; i < quads; i += fitting) {
        __m256i sum = _mm256_add_epi16(products(line[i], quad[i]), products(line[i + 1], quad[i + 1]));
        for (int j = i + 2; j < i + fitting; j += 2)
            sum = _mm256_add_epi16(sum, _mm256_add_epi16(products(line[j], quad[j]), products(line[j + 1], quad[j + 1])));
        start = _mm256_add_epi32(start, _mm256_madd_epi16(sum, _mm256_set1_epi16(1)));
    }
    return start;
}

INLINE void widen(const __m256i *line, int quads, __m256i *pair)
{
    for (int i = 0; i < quads; i++) {
        pair[2 * i] = _mm256_and_si256(line[i], _mm256_set1_epi16(255));
        pair[2 * i + 1] = _mm256_srli_epi16(line[i], 8);
    }
}

/* The same for wide codes: two pairs for each quad. */
INLINE __m256i dot_wide(const __m256i *pair, int quads, __m256i start, const int32_t *quad)
{
    for (int i = 0; i < 2 * quads; i += 2) {
        __m256i a = _mm256_madd_epi16(pair[i], _mm256_set1_epi32(quad[i]));
        __m256i b = _mm256_madd_epi16(pair[i + 1], _mm256_set1_epi32(quad[i + 1]));
        start = _mm256_add_epi32(start, _mm256_add_epi32(a, b));
    }
    return start;
}

/* The float part of one group. */
INLINE __m256 step(im__form f, __m256 p, __m256 s, __m256 m, float d, __m256i isum, float sum)
{
    const __m256 scale = _mm256_set1_ps(d);
    p = _mm256_fmadd_ps(_mm256_mul_ps(s, scale), _mm256_cvtepi32_ps(isum), p);
    return f.has_min ? _mm256_fmadd_ps(_mm256_mul_ps(m, scale), _mm256_set1_ps(sum), p) : p;
}

/* ---- rows ---- */

/* Bytes of a record as one word per quad, or as two words of int16 pairs: elements 0 and 2, then 1 and 3. */
INLINE void spread_record(im__form f, const int8_t *q, int32_t *quad)
{
    __m256i v = load((const uint8_t *)q);
    if (!is_wide(f)) {
        _mm256_storeu_si256((__m256i *)quad, v);
        return;
    }
    __m256i even = _mm256_srai_epi16(_mm256_slli_epi16(v, 8), 8), odd = _mm256_srai_epi16(v, 8);
    __m256i low = _mm256_unpacklo_epi32(even, odd), high = _mm256_unpackhi_epi32(even, odd);
    _mm256_storeu_si256((__m256i *)quad, _mm256_permute2x128_si256(low, high, 0x20));
    _mm256_storeu_si256((__m256i *)quad + 1, _mm256_permute2x128_si256(low, high, 0x31));
}

INLINE void store_sums(im__form f, __m256i sums, int32_t *start, float *sum)
{
    _mm256_storeu_si256((__m256i *)start, _mm256_mullo_epi32(sums, _mm256_set1_epi32(-f.offset)));
    if (f.has_min) _mm256_storeu_ps(sum, _mm256_cvtepi32_ps(sums));
}

/* Elements k .. of row `index`. */
INLINE void gather_row(im__form f, const im__act *a, size_t index, size_t k, size_t records, row *to)
{
    const size_t at = index * a->n + k;
    __m256i sum16 = _mm256_setzero_si256();
    if (records == RECORDS) {
        sum16 = _mm256_loadu_si256((const __m256i *)(a->sum + at / 16));
        _mm256_storeu_ps(to->d, _mm256_loadu_ps(a->d + at / IM__ACT_GROUP));
    } else {
        memcpy(&sum16, a->sum + at / 16, 2 * records * sizeof(int16_t));
        memcpy(to->d, a->d + at / IM__ACT_GROUP, records * sizeof(float));
    }
    if (f.group == 32) {
        store_sums(f, _mm256_madd_epi16(sum16, _mm256_set1_epi16(1)), to->start, to->sum);
    } else {
        store_sums(f, _mm256_cvtepi16_epi32(_mm256_castsi256_si128(sum16)), to->start, to->sum);
        store_sums(f, _mm256_cvtepi16_epi32(_mm256_extracti128_si256(sum16, 1)), to->start + 8, to->sum + 8);
    }
    for (size_t i = 0; i < records; i++)
        spread_record(f, a->q + at + i * IM__RECORD, to->quad + i * (is_wide(f) ? 2 * QUADS : QUADS));
    to->p[0] = to->p[1] = _mm256_setzero_ps();
}

/* Where a panel's results go. */
typedef struct target {
    float *y; /* first output of the panel, first row */
    size_t stride;
    const float *bias; /* of the panel, NULL: none */
    size_t outs;       /* that exist; 16 or more: all */
    bool first, last;  /* chunk of the row */
} target;

INLINE void put(const target *t, float *y, const __m256 p[2])
{
    float chunk_sum[IM__PANEL];
    _mm256_storeu_ps(chunk_sum, p[0]);
    _mm256_storeu_ps(chunk_sum + LANES, p[1]);
    const size_t outs = t->outs < IM__PANEL ? t->outs : IM__PANEL;
    for (size_t o = 0; o < outs; o++) {
        float total = t->first ? chunk_sum[o] : y[o] + chunk_sum[o];
        y[o] = t->last && t->bias ? total + t->bias[o] : total;
    }
}

/* ---- one row ---- */

INLINE size_t records_at(size_t n_in, size_t k) { return (n_in - k < IM__CHUNK ? n_in - k : IM__CHUNK) / IM__RECORD; }

/* One half of record i: its lines straight from the packed bytes. */
INLINE __m256 step_record(im__form f, __m256 p, const uint8_t *scales, size_t records, const uint8_t *packed, size_t i, size_t half,
                          const row *a)
{
    const size_t per_record = IM__RECORD / f.group;
    const int quads = f.group / 4;
    __m256i line[QUADS], pair[2 * QUADS];
    unpack_half(f, packed + half * 32, line);
    if (is_wide(f)) widen(line, QUADS, pair);
    for (size_t h = 0; h < per_record; h++) {
        const size_t g = i * per_record + h;
        __m256 s, m;
        unpack_scale(f, scales, records * per_record, g, half, &s, &m);
        __m256i start = _mm256_set1_epi32(a->start[g]);
        __m256i isum = is_wide(f) ? dot_wide(pair, quads, start, a->quad + g * 16)
                                  : dot_narrow(f, line + 4 * h, quads, start, a->quad + g * (size_t)quads);
        p = step(f, p, s, m, a->d[i], isum, a->sum[g]);
    }
    return p;
}

INLINE void run_one(im__form f, const im__weight *w, const im__act *a, const float *bias, float *y, size_t out_begin,
                    size_t out_end)
{
    const size_t panel_bytes = im__panel_bytes(f, w->n_in);
    for (size_t out = out_begin; out < out_end; out += IM__PANEL) {
        const uint8_t *packed = (const uint8_t *)w->packed + out / IM__PANEL * panel_bytes;
        const target t = {y + out, 0, bias ? bias + out : NULL, out_end - out, true, true};
        __m256 total[2] = {_mm256_setzero_ps(), _mm256_setzero_ps()};
        row r;
        for (size_t k = 0; k < w->n_in; k += IM__CHUNK) {
            const size_t records = records_at(w->n_in, k);
            const uint8_t *scales = packed;
            gather_row(f, a, 0, k, records, &r);
            packed += im__scale_bytes(f, records * IM__RECORD / f.group);
            __m256 p0 = _mm256_setzero_ps(), p1 = p0;
            for (size_t i = 0; i < records; i++, packed += f.bits * IM__LINE) {
                fetch_ahead(f, packed);
                p0 = step_record(f, p0, scales, records, packed, i, 0, &r);
                p1 = step_record(f, p1, scales, records, packed, i, 1, &r);
            }
            total[0] = k == 0 ? p0 : _mm256_add_ps(total[0], p0);
            total[1] = k == 0 ? p1 : _mm256_add_ps(total[1], p1);
        }
        put(&t, y + out, total);
    }
}

/* ---- many rows ---- */

INLINE void unpack_chunk(im__form f, const uint8_t *packed, size_t records, chunk *c)
{
    const size_t groups = records * IM__RECORD / f.group;
    for (size_t half = 0; half < 2; half++) {
        const uint8_t *p = packed + im__scale_bytes(f, groups) + half * 32;
        for (size_t g = 0; g < groups; g++) unpack_scale(f, packed, groups, g, half, &c->s[g][half], &c->m[g][half]);
        for (size_t i = 0; i < records; i++, p += f.bits * IM__LINE) {
            __m256i line[QUADS];
            if (half == 0) fetch_ahead(f, p);
            unpack_half(f, p, line);
            for (size_t q = 0; q < QUADS; q++) c->line[i * QUADS + q][half] = line[q];
        }
    }
}

/* One group of narrow codes, one half of a panel, n rows. */
INLINE void tile_narrow(im__form f, const chunk *c, size_t g, size_t half, row *a, size_t n)
{
    const int quads = f.group / 4;
    __m256i line[QUADS];
    for (int i = 0; i < quads; i++) line[i] = c->line[g * (size_t)quads + (size_t)i][half];
    const __m256 s = c->s[g][half], m = c->m[g][half];
    for (row *r = a; r < a + n; r++) {
        __m256i isum = dot_narrow(f, line, quads, _mm256_set1_epi32(r->start[g]), r->quad + g * (size_t)quads);
        r->p[half] = step(f, r->p[half], s, m, r->d[g * f.group / IM__RECORD], isum, r->sum[g]);
    }
}

/* One group of 32 wide codes in two passes, since 16 registers hold the pairs of 4 quads. */
INLINE void tile_wide(im__form f, const chunk *c, size_t g, size_t half, row *a, size_t n)
{
    __m256i line[QUADS], pair[QUADS];
    for (size_t i = 0; i < QUADS; i++) line[i] = c->line[g * QUADS + i][half];
    widen(line, QUADS / 2, pair);
    for (row *r = a; r < a + n; r++) r->isum = dot_wide(pair, QUADS / 2, _mm256_set1_epi32(r->start[g]), r->quad + g * 16);
    widen(line + QUADS / 2, QUADS / 2, pair);
    const __m256 s = c->s[g][half], m = c->m[g][half];
    for (row *r = a; r < a + n; r++) {
        __m256i isum = dot_wide(pair, QUADS / 2, r->isum, r->quad + g * 16 + 8);
        r->p[half] = step(f, r->p[half], s, m, r->d[g], isum, r->sum[g]);
    }
}

INLINE void run_tile(im__form f, const chunk *c, row *a, size_t n, size_t records)
{
    for (size_t r = 0; r < n; r++) a[r].p[0] = a[r].p[1] = _mm256_setzero_ps();
    for (size_t half = 0; half < 2; half++)
        for (size_t g = 0; g < records * IM__RECORD / f.group; g++) {
            if (is_wide(f))
                tile_wide(f, c, g, half, a, n);
            else
                tile_narrow(f, c, g, half, a, n);
        }
}

/* Rows row_begin .. row_end - 1 against `panels` panels, chunk by chunk. */
INLINE void run_panels(im__form f, const im__weight *w, const im__act *act, size_t row_begin, size_t row_end, const uint8_t *packed,
                       size_t panels, target *t)
{
    chunk c[PANELS];
    row a[TILE];
    const size_t panel_bytes = im__panel_bytes(f, w->n_in);
    for (size_t k = 0; k < w->n_in; k += IM__CHUNK) {
        const size_t records = records_at(w->n_in, k);
        for (size_t i = 0; i < panels; i++) {
            unpack_chunk(f, packed + i * panel_bytes, records, &c[i]);
            t[i].first = k == 0;
            t[i].last = k + IM__CHUNK >= w->n_in;
        }
        packed += im__chunk_bytes(f, records);
        for (size_t done = row_begin, n; done < row_end; done += n) {
            n = row_end - done < TILE ? row_end - done : TILE;
            for (size_t r = 0; r < n; r++) gather_row(f, act, done + r, k, records, &a[r]);
            for (size_t i = 0; i < panels; i++) {
                run_tile(f, &c[i], a, n, records);
                for (size_t r = 0; r < n; r++) put(&t[i], t[i].y + (done + r) * t[i].stride, a[r].p);
            }
        }
    }
}

/* BLOCK rows or fewer: few enough that their activations and results stay in the second-level cache. */
INLINE void run_block(im__form f, const im__weight *w, const im__act *act, size_t row_begin, size_t row_end, const float *bias,
                      float *y, size_t y_stride, size_t out_begin, size_t out_end)
{
    const size_t panel_bytes = im__panel_bytes(f, w->n_in);
    for (size_t out = out_begin; out < out_end; out += PANELS * IM__PANEL) {
        target t[PANELS];
        size_t panels = 0;
        for (; panels < PANELS && out + panels * IM__PANEL < out_end; panels++) {
            const size_t o = out + panels * IM__PANEL;
            t[panels] = (target){y + o, y_stride, bias ? bias + o : NULL, out_end - o, false, false};
        }
        run_panels(f, w, act, row_begin, row_end, (const uint8_t *)w->packed + out / IM__PANEL * panel_bytes, panels, t);
    }
}

INLINE void run(im__form f, const im__weight *w, const im__matmul_in *in, const float *bias, float *y, size_t y_stride,
                size_t out_begin, size_t out_end)
{
    if (in->rows == 1) {
        run_one(f, w, in->act, bias, y, out_begin, out_end);
        return;
    }
    for (size_t r = 0; r < in->rows; r += BLOCK)
        run_block(f, w, in->act, r, in->rows - r < BLOCK ? in->rows : r + BLOCK, bias, y, y_stride, out_begin, out_end);
}

#define KERNEL(name, dtype)                                                                                                        \
    static void run_##name(const im__weight *w, const im__matmul_in *in, const float *bias, float *y, size_t y_stride,             \
                           size_t out_begin, size_t out_end)                                                                       \
    {                                                                                                                              \
        run(im__form_of(dtype), w, in, bias, y, y_stride, out_begin, out_end);                                                     \
    }                                                                                                                              \
    IM__MATMUL_KERNEL(name, dtype, avx2, IM__CPU_AVX2, run_##name)

IM__PACKED_TYPES(KERNEL)
