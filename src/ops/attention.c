/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention (section 4): blocks of 64 keys at absolute positions, merged in order inside spans of 1024 keys, the spans merged in order.
 * A NaN score makes the row NaN: it never wins a maximum, and its weight exp(NaN - m) is NaN.
 */
#include "num/real.h"
#include "ops/reference.h"

#include <math.h>
#include <string.h>

#define MAX_HEAD_DIM 512
#define DOT_CHUNK 64

/* What has been seen of the keys so far: the largest score, the sum of the weights and the weighted values relative to it. */
typedef struct state {
    float m, l, o[MAX_HEAD_DIM];
} state;

static const state nothing_seen = {.m = -INFINITY};

static size_t min_size(size_t a, size_t b) { return a < b ? a : b; }

static const uint16_t *page_of(const im__kv_view *kv, size_t block)
{
    return kv->base + (size_t)kv->table[block] * kv->page_stride;
}

/* q . k over the head dimension, for key `j` of a transposed block. */
static float score(const float *q, const uint16_t *keys, size_t j, size_t head_dim)
{
    float y = 0;
    for (size_t begin = 0; begin < head_dim; begin += DOT_CHUNK) {
        float p = 0;
        for (size_t d = begin; d < min_size(begin + DOT_CHUNK, head_dim); d++)
            p = im__fma(q[d], im__f32_of_f16(keys[d * IM__PAGE + j]), p);
        y = begin == 0 ? p : y + p;
    }
    return y;
}

/* The keys begin <= j < end of one block, at least one. */
static void attend_block(const im__attention *a, const float *q, const uint16_t *keys, const uint16_t *values, size_t begin,
                         size_t end, state *block)
{
    float s[IM__PAGE], p[IM__PAGE] = {0};
    *block = nothing_seen;
    for (size_t j = begin; j < end; j++) {
        s[j] = score(q, keys, j, a->head_dim);
        if (a->softcap != 0) s[j] = im__softcap(s[j], a->softcap);
        if (s[j] > block->m) block->m = s[j];
    }
    for (size_t j = begin; j < end; j++) p[j] = im__exp(s[j] - block->m);
    block->l = im__lane_sum(p, IM__PAGE);
    for (size_t j = begin; j < end; j++)
        for (size_t d = 0; d < a->head_dim; d++)
            block->o[d] = im__fma(p[j], im__f32_of_f16(values[j * a->head_dim + d]), block->o[d]);
}

/* into = into and then b. */
static void merge(state *into, const state *b, size_t head_dim)
{
    float m = b->m > into->m ? b->m : into->m;
    float alpha = im__exp(into->m - m), beta = im__exp(b->m - m);
    into->l = im__fma(into->l, alpha, b->l * beta);
    for (size_t d = 0; d < head_dim; d++) into->o[d] = im__fma(into->o[d], alpha, b->o[d] * beta);
    into->m = m;
}

/* One row, one query head: visible are the positions begin <= j < end. */
static void attend(const im__attention *a, const float *q_row, size_t kv_head, size_t begin, size_t end, float *out)
{
    float q[MAX_HEAD_DIM];
    for (size_t d = 0; d < a->head_dim; d++) q[d] = q_row[d] * a->scale;

    state all = nothing_seen, span = nothing_seen, block;
    for (size_t b = begin / IM__PAGE; b * IM__PAGE < end; b++) {
        size_t base = b * IM__PAGE, first = begin > base ? begin - base : 0, last = min_size(end - base, IM__PAGE);
        const uint16_t *page = page_of(&a->kv, b) + kv_head * a->head_dim * IM__PAGE;
        attend_block(a, q, page + a->kv.k_offset, page + a->kv.v_offset, first, last, &block);
        merge(&span, &block, a->head_dim);
        if ((base + IM__PAGE) % IM__SPAN != 0 && base + IM__PAGE < end) continue;
        merge(&all, &span, a->head_dim);
        span = nothing_seen;
    }
    for (size_t d = 0; d < a->head_dim; d++) out[d] = all.o[d] / all.l;
}

void im__attention_c(const im__attention *a, size_t row_begin, size_t row_end, size_t kv_begin, size_t kv_end, float *scratch)
{
    (void)scratch;
    size_t sharing = a->heads / a->kv_heads;
    for (size_t r = row_begin; r < row_end; r++) {
        size_t end = (size_t)a->position[r] + 1, begin = a->window != 0 && end > a->window ? end - a->window : 0;
        for (size_t h = kv_begin * sharing; h < kv_end * sharing; h++)
            attend(a, a->q + r * a->q_stride + h * a->head_dim, h / sharing, begin, end,
                   a->out + r * a->out_stride + h * a->head_dim);
    }
}

/* ---- storing ---- */

/* The stored form of x; *clamped counts values beyond the finite range. NaN stays NaN. */
static uint16_t to_cache(float x, size_t *clamped)
{
    const float largest = 65504.0f;
    if (x > largest || x < -largest) {
        ++*clamped;
        x = x > 0 ? largest : -largest;
    }
    return im__f16_of_f32(x);
}

size_t im__kv_store_c(const im__kv_view *kv, size_t kv_heads, size_t head_dim, int32_t position, const float *k, const float *v)
{
    size_t clamped = 0, j = (size_t)position % IM__PAGE;
    uint16_t *page = kv->base + (size_t)kv->table[position / IM__PAGE] * kv->page_stride;
    for (size_t h = 0; h < kv_heads; h++) {
        uint16_t *keys = page + kv->k_offset + h * head_dim * IM__PAGE, *values = page + kv->v_offset + h * head_dim * IM__PAGE;
        for (size_t d = 0; d < head_dim; d++) {
            keys[d * IM__PAGE + j] = to_cache(k[h * head_dim + d], &clamped);
            values[j * head_dim + d] = to_cache(v[h * head_dim + d], &clamped);
        }
    }
    return clamped;
}
