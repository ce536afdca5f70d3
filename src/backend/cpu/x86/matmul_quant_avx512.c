/* SPDX-License-Identifier: Apache-2.0
 *
 * Products of quantised weights and quantised rows, AVX-512 with VNNI, all types.
 *
 * Layout and lanes: backend/cpu/pack.h. A line is one register: lane o of vpdpbusd adds the 4 products of output o's quad; the row's quad (4
 * bytes) is broadcast from memory. Codes are unsigned bytes, activations signed; vpdpbusd adds in int32 without saturation, so any code fits.
 *
 * Delicate clause: the chain of section 2. Per group and lane p = fma(s * d, isum, p), then p = fma(m * d, sum, p) where there is a
 * minimum; a new p for every 256 elements; y = p0, y = y + p1, ...; the bias last. isum is an integer below 2^24, exact in any order: the
 * accumulator starts at -offset * sum, which makes codes into weights.
 *
 * Two paths. One row: codes are unpacked in registers, the limit is memory (one stream of packed bytes, read once). More rows: a chunk of up to
 * 4 panels is unpacked into 24 KiB of stack, then tiles of up to 8 rows run over it from registers (8 lines + 8 chains). Limit of a tile: the two
 * vector ports; a group of 32 costs 8 vpdpbusd + 3 float operations (5 with a minimum), so 73 % (62 %) of the vpdpbusd rate; of 16: 57 % (44 %).
 */
#include "backend/cpu/matmul_list.h"

#include <immintrin.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

enum { TILE = 8, PANELS = 4, BLOCK = 128, RECORDS = IM__CHUNK / IM__RECORD };

/* Packed bytes are asked for this far ahead: hardware prefetch alone stops at each page. */
enum { AHEAD = 4096 };

/* One chunk of a panel: a line for each quad, and the scales of each group. */
typedef struct chunk {
    __m512i line[IM__CHUNK / 4];
    __m512 s[IM__CHUNK / 16], m[IM__CHUNK / 16];
} chunk;

/* One chunk of up to TILE rows, side by side so that every value lies at a fixed distance from one pointer. */
typedef struct rows {
    __m512i q[TILE][IM__CHUNK / 64];
    float d[TILE][RECORDS];
    int32_t start[TILE][IM__CHUNK / 16]; /* -offset * sum, of each group */
    float sum[TILE][IM__CHUNK / 16];
} rows;

/* ---- unpacking ---- */

INLINE __m512i load(const uint8_t *p) { return _mm512_loadu_si512(p); }

INLINE void fetch_ahead(im__form f, const uint8_t *record)
{
    for (int i = 0; i < f.bits; i++) _mm_prefetch((const char *)record + AHEAD + i * IM__LINE, _MM_HINT_T1);
}

/* Bits of `source`, moved by `left` (or right when negative), where `mask` has ones; the other bits of `low`. */
INLINE __m512i with_bits(__m512i low, __m512i source, int left, int mask)
{
    __m512i moved = left > 0   ? _mm512_slli_epi16(source, (unsigned)left)
                    : left < 0 ? _mm512_srli_epi16(source, (unsigned)-left)
                               : source;
    return _mm512_ternarylogic_epi64(low, moved, _mm512_set1_epi8((char)mask), 0xf8); /* low | (moved & mask) */
}

INLINE void unpack_nibbles(const uint8_t *p, __m512i *line)
{
    const __m512i mask = _mm512_set1_epi8(15);
    for (int j = 0; j < 4; j++) {
        __m512i v = load(p + j * IM__LINE);
        line[2 * j] = _mm512_and_si512(v, mask);
        line[2 * j + 1] = _mm512_and_si512(_mm512_srli_epi16(v, 4), mask);
    }
}

/* Two lines of pairs, each pair put at bit `bit` of its code (0 or 4). */
INLINE void add_pairs(const uint8_t *p, int bit, __m512i *line)
{
    for (int q = 0; q < 8; q++) line[q] = with_bits(line[q], load(p + q / 4 * IM__LINE), bit - q % 4 * 2, 3 << bit);
}

INLINE void add_bits(const uint8_t *p, int bit, __m512i *line)
{
    for (int q = 0; q < 8; q++) line[q] = with_bits(line[q], load(p), bit - q, 1 << bit);
}

INLINE void unpack_record(im__form f, const uint8_t *p, __m512i line[8])
{
    if (f.bits == 8) {
        for (int q = 0; q < 8; q++) line[q] = load(p + q * IM__LINE);
    } else if (f.bits < 4) {
        for (int q = 0; q < 8; q++) line[q] = _mm512_setzero_si512();
        add_pairs(p, 0, line);
        if (f.bits == 3) add_bits(p + 2 * IM__LINE, 2, line);
    } else {
        unpack_nibbles(p, line);
        if (f.bits == 5) add_bits(p + 4 * IM__LINE, 4, line);
        if (f.bits == 6) add_pairs(p + 4 * IM__LINE, 4, line);
    }
    if (f.table != IM__TABLE_NONE) {
        const __m512i table = _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)im__form_table(f.table)));
        for (int q = 0; q < 8; q++) line[q] = _mm512_shuffle_epi8(table, line[q]);
    }
}

INLINE __m512 load_half(const uint8_t *p) { return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p)); }
INLINE __m128i load_bytes(const uint8_t *p) { return _mm_loadu_si128((const __m128i *)p); }
INLINE __m512 float_of_unsigned(__m128i bytes) { return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(bytes)); }

/* 2^(e - 128); the two smallest are subnormal. */
INLINE __m512 power_of(const uint8_t *exponents)
{
    __m512i e = _mm512_cvtepu8_epi32(load_bytes(exponents)), one = _mm512_set1_epi32(1);
    __m512i normal = _mm512_slli_epi32(_mm512_sub_epi32(e, one), 23), small = _mm512_sllv_epi32(_mm512_set1_epi32(0x00200000), e);
    return _mm512_castsi512_ps(_mm512_mask_blend_epi32(_mm512_cmple_epu32_mask(e, one), normal, small));
}

/* Scale and minimum of group g of a chunk with `groups` groups. The products are exact: 11 bits times at most 8. */
INLINE void unpack_scale(im__form f, const uint8_t *p, size_t groups, size_t g, __m512 *s, __m512 *m)
{
    const __m128i low = _mm_set1_epi8(15);
    *m = _mm512_setzero_ps();
    switch (f.scales) {
    case IM__SCALES_HALF: *s = load_half(p + 32 * g); break;
    case IM__SCALES_HALF_MIN:
        *s = load_half(p + 64 * g);
        *m = load_half(p + 64 * g + 32);
        break;
    case IM__SCALES_EXPONENT: *s = power_of(p + 16 * g); break;
    case IM__SCALES_SUPER:
        *s = _mm512_mul_ps(load_half(p), _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(load_bytes(p + 32 + 16 * g))));
        break;
    case IM__SCALES_SUPER_MIN:
        *s = _mm512_mul_ps(load_half(p), float_of_unsigned(load_bytes(p + 64 + 16 * g)));
        *m = _mm512_mul_ps(load_half(p + 32), float_of_unsigned(load_bytes(p + 64 + 16 * (groups + g))));
        break;
    case IM__SCALES_SUPER_NIBBLE: {
        __m128i both = load_bytes(p + 64 + 16 * g);
        *s = _mm512_mul_ps(load_half(p), float_of_unsigned(_mm_and_si128(both, low)));
        *m = _mm512_mul_ps(load_half(p + 32), float_of_unsigned(_mm_and_si128(_mm_srli_epi16(both, 4), low)));
        break;
    }
    }
}

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

/* Where a panel's results go. */
typedef struct target {
    float *y; /* first output of the panel, first row */
    size_t stride;
    const float *bias; /* of the panel, NULL: none */
    __mmask16 mask;    /* outputs that exist */
    bool first, last;  /* chunk of the row */
} target;

INLINE void put(const target *t, size_t r, __m512 p)
{
    float *y = t->y + r * t->stride;
    if (!t->first) p = _mm512_add_ps(_mm512_maskz_loadu_ps(t->mask, y), p);
    if (t->last && t->bias) p = _mm512_add_ps(p, _mm512_maskz_loadu_ps(t->mask, t->bias));
    _mm512_mask_storeu_ps(y, t->mask, p);
}

/* One chunk of `n` rows (a constant up to TILE) against one panel. */
INLINE void run_tile(im__form f, int n, const chunk *c, const rows *a, size_t records, const target *t)
{
    __m512 p[TILE];
    for (int r = 0; r < n; r++) p[r] = _mm512_setzero_ps();
    const size_t per_record = IM__RECORD / f.group;
    const int8_t *q = (const int8_t *)a->q;
    for (size_t g = 0; g < records * per_record; g++, q += f.group) {
        const __m512i *line = c->line + g * f.group / 4;
        const __m512 s = c->s[g], m = c->m[g];
        __m512i isum[TILE];
        for (int r = 0; r < n; r++) isum[r] = _mm512_set1_epi32(a->start[r][g]);
        for (int i = 0; i < f.group / 4; i++)
            for (int r = 0; r < n; r++) isum[r] = dot(isum[r], line[i], q + r * IM__CHUNK + 4 * i);
        for (int r = 0; r < n; r++) p[r] = step(f, p[r], s, m, a->d[r][g / per_record], isum[r], a->sum[r][g]);
    }
    for (int r = 0; r < n; r++) put(t, (size_t)r, p[r]);
}

/* ---- rows ---- */

/* What one row of a chunk contributes besides q: sums of groups as start values and as floats. */
INLINE void sums_of_row(im__form f, const int16_t *sum16, size_t records, int32_t *start, float *sum)
{
    __m256i pairs = _mm256_maskz_loadu_epi16((__mmask16)((1u << (2 * records)) - 1), sum16);
    if (f.group == 32) {
        __m256i sums = _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
        _mm256_storeu_si256((__m256i *)start, _mm256_mullo_epi32(sums, _mm256_set1_epi32(-f.offset)));
        if (f.has_min) _mm256_storeu_ps(sum, _mm256_cvtepi32_ps(sums));
    } else {
        __m512i sums = _mm512_cvtepi16_epi32(pairs);
        _mm512_storeu_si512(start, _mm512_mullo_epi32(sums, _mm512_set1_epi32(-f.offset)));
        if (f.has_min) _mm512_storeu_ps(sum, _mm512_cvtepi32_ps(sums));
    }
}

INLINE const int8_t *q_at(const im__act *a, size_t row, size_t k) { return a->q + row * a->n + k; }
INLINE const float *d_at(const im__act *a, size_t row, size_t k) { return a->d + (row * a->n + k) / IM__ACT_GROUP; }
INLINE const int16_t *sum_at(const im__act *a, size_t row, size_t k) { return a->sum + (row * a->n + k) / 16; }

INLINE void gather_rows(im__form f, const im__act *a, size_t row, size_t n, size_t k, size_t records, rows *to)
{
    for (size_t r = 0; r < n; r++) {
        sums_of_row(f, sum_at(a, row + r, k), records, to->start[r], to->sum[r]);
        _mm256_storeu_ps(to->d[r], _mm256_maskz_loadu_ps((__mmask8)((1u << records) - 1), d_at(a, row + r, k)));
        const int8_t *q = q_at(a, row + r, k);
        for (size_t i = 0; i < 4; i++) {
            __mmask16 mask = (__mmask16)(2 * i + 2 <= records ? 0xffff : 2 * i + 1 <= records ? 0x00ff : 0);
            to->q[r][i] = _mm512_maskz_loadu_epi32(mask, q + 64 * i);
        }
    }
}

/* ---- kernels ---- */

INLINE size_t records_at(size_t n_in, size_t k) { return (n_in - k < IM__CHUNK ? n_in - k : IM__CHUNK) / IM__RECORD; }
INLINE __mmask16 mask_of(size_t outs) { return (__mmask16)(outs >= IM__PANEL ? 0xffff : (1u << outs) - 1); }

INLINE void run_one(im__form f, const im__weight *w, const im__act *a, const float *bias, float *y, size_t out_begin,
                    size_t out_end)
{
    const size_t panel_bytes = im__panel_bytes(f, w->n_in), per_record = IM__RECORD / f.group;
    for (size_t out = out_begin; out < out_end; out += IM__PANEL) {
        const uint8_t *packed = (const uint8_t *)w->packed + out / IM__PANEL * panel_bytes;
        target t = {y + out, 0, bias ? bias + out : NULL, mask_of(out_end - out), true, true};
        __m512 total = _mm512_setzero_ps();
        for (size_t k = 0; k < w->n_in; k += IM__CHUNK) {
            const size_t records = records_at(w->n_in, k), groups = records * per_record;
            const uint8_t *scales = packed;
            int32_t start[IM__CHUNK / 16];
            float sum[IM__CHUNK / 16];
            sums_of_row(f, sum_at(a, 0, k), records, start, sum);
            packed += im__scale_bytes(f, groups);
            __m512 p = _mm512_setzero_ps();
            for (size_t i = 0; i < records; i++, packed += f.bits * IM__LINE) {
                __m512i line[8];
                fetch_ahead(f, packed);
                unpack_record(f, packed, line);
                for (size_t h = 0; h < per_record; h++) {
                    const size_t g = i * per_record + h;
                    __m512 s, m;
                    unpack_scale(f, scales, groups, g, &s, &m);
                    const int8_t *q = q_at(a, 0, k + g * f.group);
                    __m512i isum = _mm512_set1_epi32(start[g]);
                    for (int q4 = 0; q4 < f.group / 4; q4++) isum = dot(isum, line[4 * h + q4], q + 4 * q4);
                    p = step(f, p, s, m, *d_at(a, 0, k + i * IM__RECORD), isum, sum[g]);
                }
            }
            total = k == 0 ? p : _mm512_add_ps(total, p);
        }
        put(&t, 0, total);
    }
}

INLINE void unpack_chunk(im__form f, const uint8_t *packed, size_t records, chunk *c)
{
    const size_t groups = records * IM__RECORD / f.group;
    for (size_t g = 0; g < groups; g++) unpack_scale(f, packed, groups, g, &c->s[g], &c->m[g]);
    packed += im__scale_bytes(f, groups);
    for (size_t i = 0; i < records; i++, packed += f.bits * IM__LINE) {
        fetch_ahead(f, packed);
        unpack_record(f, packed, c->line + 8 * i);
    }
}

/* Rows row_begin .. row_end - 1 against `panels` panels, chunk by chunk. */
INLINE void run_panels(im__form f, const im__weight *w, const im__act *act, size_t row_begin, size_t row_end, const uint8_t *packed,
                       size_t panels, target *t)
{
    chunk c[PANELS];
    rows a;
    const size_t panel_bytes = im__panel_bytes(f, w->n_in);
    for (size_t k = 0; k < w->n_in; k += IM__CHUNK) {
        const size_t records = records_at(w->n_in, k);
        for (size_t i = 0; i < panels; i++) {
            unpack_chunk(f, packed + i * panel_bytes, records, &c[i]);
            t[i].first = k == 0;
            t[i].last = k + IM__CHUNK >= w->n_in;
        }
        packed += im__chunk_bytes(f, records);
        for (size_t r = row_begin, n; r < row_end; r += n) {
            const size_t left = row_end - r;
            n = left >= 8 ? 8 : left >= 4 ? 4 : left >= 2 ? 2 : 1;
            gather_rows(f, act, r, n, k, records, &a);
            for (size_t i = 0; i < panels; i++) {
                target at = t[i];
                at.y += r * at.stride;
                switch (n) {
                case 8: run_tile(f, 8, &c[i], &a, records, &at); break;
                case 4: run_tile(f, 4, &c[i], &a, records, &at); break;
                case 2: run_tile(f, 2, &c[i], &a, records, &at); break;
                default: run_tile(f, 1, &c[i], &a, records, &at); break;
                }
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
            t[panels] = (target){y + o, y_stride, bias ? bias + o : NULL, mask_of(out_end - o), false, false};
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
    IM__MATMUL_KERNEL(name, dtype, avx512, IM__CPU_AVX512, run_##name)

IM__PACKED_TYPES(KERNEL)
