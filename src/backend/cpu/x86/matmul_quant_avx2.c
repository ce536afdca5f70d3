/* SPDX-License-Identifier: Apache-2.0
 *
 * Products of quantised weights and quantised rows, AVX2 with FMA and F16C, all types.
 *
 * Layout and lanes: backend/cpu/pack.h. A line is two registers: `half` 0 holds outputs 0 .. 7, half 1 outputs 8 .. 15; lane o of a
 * half holds the quad of one output, the row's quad (4 bytes) is broadcast.
 *
 * Integers. Narrow codes (at most `top` = 63): vpmaddubsw multiplies unsigned codes by signed bytes and adds pairs in int16;
 * `fitting_quads` of them are added before vpmaddwd with ones widens to int32. Nothing saturates: activations lie in -127 .. 127,
 * so n quads reach at most n * 2 * top * 127, and 8 * 2 * 15 * 127 = 30,480, 4 * 2 * 31 * 127 = 31,496, 2 * 2 * 63 * 127 = 32,004
 * are below 32,768. Wide codes (8 bits, or through the IQ4 table): widened to int16, vpmaddwd adds pairs in int32; elements 0 and 2
 * of a quad are one pair, 1 and 3 the other.
 *
 * Delicate clause: the chain of section 2. Per group and lane p = fma(s * d, isum, p), then p = fma(m * d, sum, p) where there is a
 * minimum; a new p for every 256 elements; y = p0, y = y + p1, ...; the bias last. isum is an integer below 2^24, exact in any
 * order; it starts at -offset * sum, which makes codes into weights.
 *
 * Order of work: blocks of rows, in them groups of panels, in them chunks, in them tiles of rows. A chunk of a tile's rows is
 * copied side by side; then for each panel a part, 4 quads of both halves (2 of wide codes), is unpacked into 8 registers, past
 * which the rows of the tile go, so that each broadcast word serves two products; sums between parts and chains p live in the
 * first-level cache. Limits: one row, memory (packed bytes are read once, in order). Many rows: three vector ports, two of which
 * multiply; a group of 32 4-bit codes takes 20 operations for 8 outputs, 80 % of the integer rate alone, 8-bit codes 67 % of the
 * 8-bit rate.
 */
#include "backend/cpu/matmul_list.h"

#include <immintrin.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

enum { TILE = 32, PANELS = 8, BLOCK = 128, RECORDS = IM__CHUNK / IM__RECORD, QUADS = IM__RECORD / 4, LANES = 8 };

/* Packed bytes are asked for this far ahead: hardware prefetch alone stops at each page. */
enum { AHEAD = 4096 };

/* One chunk of one row. */
typedef struct row {
    __m256 p[2];
    __m256i isum[2];                 /* of the parts of a group so far */
    int32_t word[IM__CHUNK / 4 * 2]; /* narrow: [q] the bytes of quad q; wide: [2q], [2q + 1] its pairs of int16 */
    float d[RECORDS];
    int32_t start[IM__CHUNK / 16]; /* -offset * sum, of each group */
    float sum[IM__CHUNK / 16];
} row;

INLINE bool is_wide(im__form f) { return f.top > 63; }

/* How many quads' products (two per int16 lane each) an int16 holds. */
INLINE int fitting_quads(im__form f) { return f.top <= 15 ? 8 : f.top <= 31 ? 4 : 2; }

/* ---- unpacking: quads first .. first + 3 (first is 0 or 4) of one half of a record; p points at that half of its first line ---- */

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

INLINE void unpack_nibbles(const uint8_t *p, int first, __m256i line[4])
{
    const __m256i mask = _mm256_set1_epi8(15);
    for (int j = 0; j < 2; j++) {
        __m256i v = load(p + (first / 2 + j) * IM__LINE);
        line[2 * j] = _mm256_and_si256(v, mask);
        line[2 * j + 1] = _mm256_and_si256(_mm256_srli_epi16(v, 4), mask);
    }
}

/* A line of pairs, each put at bit `bit` of its code (0 or 4). */
INLINE void add_pairs(const uint8_t *p, int first, int bit, __m256i line[4])
{
    for (int q = 0; q < 4; q++) line[q] = with_bits(line[q], load(p + first / 4 * IM__LINE), bit - q * 2, 3 << bit);
}

INLINE void add_bits(const uint8_t *p, int first, int bit, __m256i line[4])
{
    for (int q = 0; q < 4; q++) line[q] = with_bits(line[q], load(p), bit - first - q, 1 << bit);
}

INLINE void unpack_quads(im__form f, const uint8_t *p, int first, __m256i line[4])
{
    if (f.bits == 8) {
        for (int q = 0; q < 4; q++) line[q] = load(p + (first + q) * IM__LINE);
    } else if (f.bits < 4) {
        for (int q = 0; q < 4; q++) line[q] = _mm256_setzero_si256();
        add_pairs(p, first, 0, line);
        if (f.bits == 3) add_bits(p + 2 * IM__LINE, first, 2, line);
    } else {
        unpack_nibbles(p, first, line);
        if (f.bits == 5) add_bits(p + 4 * IM__LINE, first, 4, line);
        if (f.bits == 6) add_pairs(p + 4 * IM__LINE, first, 4, line);
    }
    if (f.table != IM__TABLE_NONE) {
        const __m256i table = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)im__form_table(f.table)));
        for (int q = 0; q < 4; q++) line[q] = _mm256_shuffle_epi8(table, line[q]);
    }
}

/* Two quads of wide codes as four lines of int16 pairs. */
INLINE void widen(const __m256i quads[2], __m256i line[4])
{
    for (int q = 0; q < 2; q++) {
        line[2 * q] = _mm256_and_si256(quads[q], _mm256_set1_epi16(255));
        line[2 * q + 1] = _mm256_srli_epi16(quads[q], 8);
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

/* ---- arithmetic: a part is 4 lines of both halves, which share the row's 4 words; a group is 1, 2 or 4 parts ---- */

typedef struct part {
    __m256i line[2][4];
    size_t word; /* of the row, that meets line 0 */
} part;

INLINE int parts_of_group(im__form f) { return is_wide(f) ? 4 : f.group / 16; }

/* Sums of int16 products go on from one part to the next only where all of them fit. */
INLINE bool carries_int16(im__form f) { return !is_wide(f) && parts_of_group(f) == 2 && fitting_quads(f) == 8; }

INLINE __m256i add(im__form f, __m256i a, __m256i b) { return is_wide(f) ? _mm256_add_epi32(a, b) : _mm256_add_epi16(a, b); }

INLINE void add_products(im__form f, const part *t, int i, int32_t word, __m256i sum[2], bool first)
{
    const __m256i q = _mm256_set1_epi32(word);
    for (int half = 0; half < 2; half++) {
        const __m256i line = t->line[half][i];
        __m256i product = is_wide(f) ? _mm256_madd_epi16(line, q) : _mm256_maddubs_epi16(line, q);
        sum[half] = first ? product : add(f, sum[half], product);
    }
}

/* Part `index` of its group for one row: isum is the sum so far and becomes the sum with this part; int16 where carries_int16 and this is
 * not the last part, else int32. */
INLINE void add_part(im__form f, const part *t, int index, const row *r, __m256i isum[2])
{
    const int32_t *word = r->word + t->word;
    const __m256i one = _mm256_set1_epi16(1);
    __m256i sum[2], rest[2];
    for (int i = 0; i < 2; i++) add_products(f, t, i, word[i], sum, i == 0);
    for (int i = 2; i < 4; i++) add_products(f, t, i, word[i], rest, i == 2);
    for (int half = 0; half < 2; half++) {
        if (is_wide(f)) {
            isum[half] = _mm256_add_epi32(isum[half], _mm256_add_epi32(sum[half], rest[half]));
        } else if (carries_int16(f)) {
            sum[half] = _mm256_add_epi16(sum[half], rest[half]);
            isum[half] = index == 0 ? sum[half] : _mm256_madd_epi16(_mm256_add_epi16(isum[half], sum[half]), one);
        } else if (fitting_quads(f) >= 4) {
            isum[half] = _mm256_add_epi32(isum[half], _mm256_madd_epi16(_mm256_add_epi16(sum[half], rest[half]), one));
        } else {
            __m256i pairs = _mm256_add_epi32(_mm256_madd_epi16(sum[half], one), _mm256_madd_epi16(rest[half], one));
            isum[half] = _mm256_add_epi32(isum[half], pairs);
        }
    }
}

/* The float part of one group. */
INLINE __m256 step(im__form f, __m256 p, __m256 s, __m256 m, __m256 d, __m256i isum, __m256 sum)
{
    p = _mm256_fmadd_ps(_mm256_mul_ps(s, d), _mm256_cvtepi32_ps(isum), p);
    return f.has_min ? _mm256_fmadd_ps(_mm256_mul_ps(m, d), sum, p) : p;
}

/* Part `index` of group g for n rows. */
INLINE void run_part(im__form f, const part *t, int index, const __m256 s[2], const __m256 m[2], size_t g, row *a, size_t n)
{
    for (row *r = a; r < a + n; r++) {
        const __m256i start = _mm256_set1_epi32(f.offset ? r->start[g] : 0);
        const bool starts_last = carries_int16(f);
        __m256i isum[2] = {start, start};
        if (index > 0 || starts_last) isum[0] = r->isum[0], isum[1] = r->isum[1];
        add_part(f, t, index, r, isum);
        if (index + 1 < parts_of_group(f)) {
            r->isum[0] = isum[0], r->isum[1] = isum[1];
            continue;
        }
        const __m256 d = _mm256_set1_ps(r->d[g * f.group / IM__RECORD]), sum = _mm256_set1_ps(f.has_min ? r->sum[g] : 0);
        for (int half = 0; half < 2; half++) {
            if (starts_last && f.offset) isum[half] = _mm256_add_epi32(isum[half], start);
            r->p[half] = step(f, r->p[half], s[half], m[half], d, isum[half], sum);
        }
    }
}

/* ---- rows ---- */

/* Bytes of a record as one word per quad, or as two words of int16 pairs: elements 0 and 2, then 1 and 3. */
INLINE void spread_record(im__form f, const int8_t *q, int32_t *word)
{
    __m256i v = load((const uint8_t *)q);
    if (!is_wide(f)) {
        _mm256_storeu_si256((__m256i *)word, v);
        return;
    }
    __m256i even = _mm256_srai_epi16(_mm256_slli_epi16(v, 8), 8), odd = _mm256_srai_epi16(v, 8);
    __m256i low = _mm256_unpacklo_epi32(even, odd), high = _mm256_unpackhi_epi32(even, odd);
    _mm256_storeu_si256((__m256i *)word, _mm256_permute2x128_si256(low, high, 0x20));
    _mm256_storeu_si256((__m256i *)word + 1, _mm256_permute2x128_si256(low, high, 0x31));
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
        spread_record(f, a->q + at + i * IM__RECORD, to->word + i * (is_wide(f) ? 2 * QUADS : QUADS));
}

/* Lines of part `index` of a record, counted from its start. */
INLINE void unpack_part(im__form f, const uint8_t *record, int index, part *t)
{
    for (int half = 0; half < 2; half++) {
        if (is_wide(f)) {
            __m256i quads[4];
            unpack_quads(f, record + half * 32, index / 2 * 4, quads);
            widen(quads + index % 2 * 2, t->line[half]);
        } else {
            unpack_quads(f, record + half * 32, index * 4, t->line[half]);
        }
    }
}

/* One chunk of a panel: the p of n rows. */
INLINE void run_tile(im__form f, const uint8_t *packed, size_t records, row *a, size_t n)
{
    const size_t per_record = IM__RECORD / f.group, groups = records * per_record;
    const int parts = parts_of_group(f), words = is_wide(f) ? 2 * QUADS : QUADS;
    const uint8_t *record = packed + im__scale_bytes(f, groups);
    for (size_t r = 0; r < n; r++) a[r].p[0] = a[r].p[1] = _mm256_setzero_ps();
    for (size_t i = 0; i < records; i++, record += f.bits * IM__LINE) {
        fetch_ahead(f, record);
        for (int k = 0; k < parts * (int)per_record; k++) {
            const size_t g = i * per_record + (size_t)(k / parts);
            part t;
            __m256 s[2], m[2];
            t.word = i * (size_t)words + (size_t)k * 4;
            unpack_part(f, record, k, &t);
            for (size_t half = 0; half < 2; half++) unpack_scale(f, packed, groups, g, half, &s[half], &m[half]);
            run_part(f, &t, k % parts, s, m, g, a, n);
        }
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

/* Adds the chunk's p of n rows from row_begin on to outputs o .. of y; k: the chunk's first element. */
INLINE void put_rows(const job *j, const row *a, size_t n, size_t row_begin, size_t o, size_t k)
{
    const size_t outs = j->out_end - o < IM__PANEL ? j->out_end - o : IM__PANEL;
    const float *bias = k + IM__CHUNK >= j->w->n_in && j->bias ? j->bias + o : NULL;
    for (size_t r = 0; r < n; r++) {
        float *y = j->y + (row_begin + r) * j->y_stride + o, p[IM__PANEL];
        if (outs == IM__PANEL && !bias) {
            __m256 low = a[r].p[0], high = a[r].p[1];
            _mm256_storeu_ps(y, k == 0 ? low : _mm256_add_ps(_mm256_loadu_ps(y), low));
            _mm256_storeu_ps(y + LANES, k == 0 ? high : _mm256_add_ps(_mm256_loadu_ps(y + LANES), high));
            continue;
        }
        _mm256_storeu_ps(p, a[r].p[0]);
        _mm256_storeu_ps(p + LANES, a[r].p[1]);
        for (size_t i = 0; i < outs; i++) {
            float total = k == 0 ? p[i] : y[i] + p[i];
            y[i] = bias ? total + bias[i] : total;
        }
    }
}

/* Rows row_begin .. row_end - 1, panels from output `out` to `panels_end`. */
INLINE void run_panels(im__form f, const job *j, size_t row_begin, size_t row_end, size_t out, size_t panels_end)
{
    const size_t n_in = j->w->n_in, panel_bytes = im__panel_bytes(f, n_in);
    const uint8_t *first = (const uint8_t *)j->w->packed + out / IM__PANEL * panel_bytes;
    row a[TILE];
    for (size_t k = 0; k < n_in; k += IM__CHUNK) {
        const size_t records = (n_in - k < IM__CHUNK ? n_in - k : IM__CHUNK) / IM__RECORD;
        for (size_t r = row_begin, n; r < row_end; r += n) {
            n = row_end - r < TILE ? row_end - r : TILE;
            for (size_t i = 0; i < n; i++) gather_row(f, j->act, r + i, k, records, &a[i]);
            const uint8_t *packed = first;
            for (size_t o = out; o < panels_end; o += IM__PANEL, packed += panel_bytes) {
                if (n == 1)
                    run_tile(f, packed, records, a, 1);
                else
                    run_tile(f, packed, records, a, n);
                put_rows(j, a, n, r, o, k);
            }
        }
        first += im__chunk_bytes(f, records);
    }
}

INLINE void run(im__form f, const im__weight *w, const im__matmul_in *in, const float *bias, float *y, size_t y_stride,
                size_t out_begin, size_t out_end)
{
    const job j = {w, in->act, bias, y, y_stride, out_end};
    const size_t step_outs = (in->rows == 1 ? 1 : PANELS) * IM__PANEL;
    for (size_t r = 0; r < in->rows; r += BLOCK) {
        const size_t row_end = in->rows - r < BLOCK ? in->rows : r + BLOCK;
        for (size_t out = out_begin; out < out_end; out += step_outs)
            run_panels(f, &j, r, row_end, out, out_end - out < step_outs ? out_end : out + step_outs);
    }
}

#define KERNEL(name, dtype)                                                                                                        \
    static void run_##name(const im__weight *w, const im__matmul_in *in, const float *bias, float *y, size_t y_stride,             \
                           size_t out_begin, size_t out_end)                                                                       \
    {                                                                                                                              \
        run(im__form_of(dtype), w, in, bias, y, y_stride, out_begin, out_end);                                                     \
    }                                                                                                                              \
    IM__MATMUL_KERNEL(name, dtype, avx2, IM__CPU_AVX2, run_##name)

IM__PACKED_TYPES(KERNEL)
