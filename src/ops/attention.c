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

/* Element `at` of a cache, widened. */
static float cached(const im__kv_view *kv, size_t at)
{
    return kv->type == IM__KV_F32 ? ((const float *)kv->base)[at] : im__f32_of_f16(((const uint16_t *)kv->base)[at]);
}

/* Where the page of a block begins, counted in elements from the base. */
static size_t page_of(const im__kv_view *kv, size_t block) { return (size_t)kv->table[block] * kv->page_stride; }

/* q . k over the head dimension, for the key whose first element is `key`. */
static float score(const im__kv_view *kv, const float *q, size_t key, size_t head_dim)
{
    float y = 0;
    for (size_t begin = 0; begin < head_dim; begin += DOT_CHUNK) {
        float p = 0;
        for (size_t d = begin; d < min_size(begin + DOT_CHUNK, head_dim); d++) p = im__fma(q[d], cached(kv, key + d * IM__PAGE), p);
        y = begin == 0 ? p : y + p;
    }
    return y;
}

/* The keys begin <= j < end of one block, at least one. */
static void attend_block(const im__attention *a, const float *q, size_t keys, size_t values, size_t begin, size_t end, state *block)
{
    float s[IM__PAGE], p[IM__PAGE] = {0};
    *block = nothing_seen;
    for (size_t j = begin; j < end; j++) {
        s[j] = score(&a->kv, q, keys + j, a->head_dim);
        if (a->softcap != 0) s[j] = im__softcap(s[j], a->softcap);
        if (s[j] > block->m) block->m = s[j];
    }
    for (size_t j = begin; j < end; j++) p[j] = im__exp(s[j] - block->m);
    block->l = im__lane_sum(p, IM__PAGE);
    for (size_t j = begin; j < end; j++)
        for (size_t d = 0; d < a->head_dim; d++)
            block->o[d] = im__fma(p[j], cached(&a->kv, values + j * a->head_dim + d), block->o[d]);
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
        size_t head = page_of(&a->kv, b) + kv_head * a->head_dim * IM__PAGE;
        attend_block(a, q, head + a->kv.k_offset, head + a->kv.v_offset, first, last, &block);
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

/* Stores x in binary16; *clamped counts values beyond the finite range. NaN stays NaN. */
static void put_half(uint16_t *at, float x, size_t *clamped)
{
    const float largest = 65504.0f;
    if (x > largest || x < -largest) {
        ++*clamped;
        x = x > 0 ? largest : -largest;
    }
    *at = im__f16_of_f32(x);
}

static void put(const im__kv_view *kv, size_t at, float x, size_t *clamped)
{
    if (kv->type == IM__KV_F32)
        ((float *)kv->base)[at] = x;
    else
        put_half((uint16_t *)kv->base + at, x, clamped);
}

size_t im__kv_store_c(const im__kv_view *kv, size_t kv_heads, size_t head_dim, int32_t position, const float *k, const float *v)
{
    size_t clamped = 0, j = (size_t)position % IM__PAGE, page = page_of(kv, (size_t)position / IM__PAGE);
    for (size_t h = 0; h < kv_heads; h++, k += head_dim, v += head_dim) {
        size_t head = page + h * head_dim * IM__PAGE, key = head + kv->k_offset + j, value = head + kv->v_offset + j * head_dim;
        for (size_t d = 0; d < head_dim; d++) {
            put(kv, key + d * IM__PAGE, k[d], &clamped);
            put(kv, value + d, v[d], &clamped);
        }
    }
    return clamped;
}
