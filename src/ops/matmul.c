/* SPDX-License-Identifier: Apache-2.0
 *
 * The dot products of section 2. One output element is one chain: chunks of 256 elements, each summed from left to right starting at
 * +0, and the chunk results added from left to right.
 */
#include "base/bytes.h"
#include "num/dtype.h"
#include "num/group.h"
#include "num/real.h"
#include "ops/reference.h"

#define CHUNK 256

static size_t min_size(size_t a, size_t b) { return a < b ? a : b; }

static int dot_integers(const int8_t *w, const int8_t *q, size_t n)
{
    int sum = 0;
    for (size_t i = 0; i < n; i++) sum += w[i] * q[i];
    return sum;
}

/* Part of a quantised row: the groups of one chunk of one weight row. */
typedef struct chunk {
    im__group group[CHUNK / 16];
    size_t groups, group_len;
    size_t begin; /* first element */
    bool has_min;
} chunk;

static float dot_quantised(const chunk *c, const im__act *act, size_t row)
{
    const int8_t *q = act->q + row * act->n + c->begin;
    const float *d = act->d + (row * act->n + c->begin) / IM__ACT_GROUP;
    const int16_t *sum = act->sum + (row * act->n + c->begin) / 16;
    float p = 0;
    for (size_t g = 0; g < c->groups; g++) {
        const im__group *w = &c->group[g];
        size_t i = g * c->group_len;
        p = im__fma(w->s * d[i / IM__ACT_GROUP], (float)dot_integers(w->w, q + i, c->group_len), p);
        if (!c->has_min) continue;
        int sum_q = c->group_len == 16 ? sum[i / 16] : sum[i / 16] + sum[i / 16 + 1];
        p = im__fma(w->m * d[i / IM__ACT_GROUP], (float)sum_q, p);
    }
    return p;
}

/* One row of weights with all rows of activations; y[r * y_stride] is the running sum of the chunks. */
static void row_quantised(const im__weight *w, size_t out, const im__matmul_in *in, float *y, size_t y_stride)
{
    uint8_t room[IM__JOINED_BYTES];
    const size_t len = im__dtype_get(w->dtype)->block_len;
    chunk c = {.group_len = im__dtype_get(w->dtype)->group_len, .has_min = im__dtype_has_min(w->dtype)};
    for (c.begin = 0; c.begin < w->n_in; c.begin += CHUNK) {
        size_t n = min_size(CHUNK, w->n_in - c.begin);
        const uint8_t *blocks = im__weight_blocks(w, out, c.begin / len, n / len, room);
        c.groups = n / c.group_len;
        for (size_t g = 0; g < c.groups; g++) im__group_read(w->dtype, blocks, g, &c.group[g]);
        for (size_t r = 0; r < in->rows; r++) {
            float p = dot_quantised(&c, in->act, r);
            y[r * y_stride] = c.begin == 0 ? p : y[r * y_stride] + p;
        }
    }
}

static float weight_float(uint32_t dtype, const void *row, size_t i)
{
    if (dtype == IM__F32) return im__f32_of_bits(im__load_u32((const uint8_t *)row + 4 * i));
    uint16_t half = im__load_u16((const uint8_t *)row + 2 * i);
    return dtype == IM__F16 ? im__f32_of_f16(half) : im__f32_of_bf16(half);
}

static float dot_float(const float *w, const float *x, size_t n)
{
    float p = 0;
    for (size_t k = 0; k < n; k++) p = im__fma(w[k], x[k], p);
    return p;
}

static void row_float(const im__weight *w, size_t out, const im__matmul_in *in, float *y, size_t y_stride)
{
    const uint8_t *weights = im__weight_row(w, out);
    float widened[CHUNK];
    for (size_t begin = 0; begin < w->n_in; begin += CHUNK) {
        size_t n = min_size(CHUNK, w->n_in - begin);
        for (size_t i = 0; i < n; i++) widened[i] = weight_float(w->dtype, weights, begin + i);
        for (size_t r = 0; r < in->rows; r++) {
            float p = dot_float(widened, in->x + r * in->x_stride + begin, n);
            y[r * y_stride] = begin == 0 ? p : y[r * y_stride] + p;
        }
    }
}

void im__matmul_c(const im__weight *w, const im__matmul_in *in, const float *bias, float *y, size_t y_stride, size_t out_begin,
                  size_t out_end)
{
    bool floats = im__dtype_is_float(w->dtype);
    for (size_t o = out_begin; o < out_end; o++) {
        if (floats)
            row_float(w, o, in, y + o, y_stride);
        else
            row_quantised(w, o, in, y + o, y_stride);
        for (size_t r = 0; bias && r < in->rows; r++) y[r * y_stride + o] += bias[o];
    }
}
