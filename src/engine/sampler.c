/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/sampler.h"

#include "num/real.h"

#include <math.h>

void im__philox4x32(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
{
    uint32_t k[2] = {key[0], key[1]}, c[4] = {counter[0], counter[1], counter[2], counter[3]};
    for (int round = 0; round < 10; round++) {
        uint64_t a = (uint64_t)0xd2511f53u * c[0], b = (uint64_t)0xcd9e8d57u * c[2];
        uint32_t next[4] = {(uint32_t)(b >> 32) ^ c[1] ^ k[0], (uint32_t)b, (uint32_t)(a >> 32) ^ c[3] ^ k[1], (uint32_t)a};
        for (int i = 0; i < 4; i++) c[i] = next[i];
        k[0] += 0x9e3779b9u;
        k[1] += 0xbb67ae85u;
    }
    for (int i = 0; i < 4; i++) out[i] = c[i];
}

uint32_t im__philox(uint64_t key, uint64_t counter)
{
    uint32_t c[4] = {(uint32_t)counter, (uint32_t)(counter >> 32), 0, 0}, k[2] = {(uint32_t)key, (uint32_t)(key >> 32)}, out[4];
    im__philox4x32(c, k, out);
    return out[0];
}

/* The more likely one; among equals the lower id. */
static int before(const im__candidate *a, const im__candidate *b) { return a->p > b->p || (a->p == b->p && a->id < b->id); }

static void sift_down(im__candidate *heap, size_t n, size_t i)
{
    for (;;) {
        size_t best = i, left = 2 * i + 1;
        if (left < n && before(&heap[left], &heap[best])) best = left;
        if (left + 1 < n && before(&heap[left + 1], &heap[best])) best = left + 1;
        if (best == i) return;
        im__candidate swap = heap[i];
        heap[i] = heap[best];
        heap[best] = swap;
        i = best;
    }
}

/* Candidates in falling order, sorted only as far as somebody looks: the heap shrinks from work[0 .. left) and what was taken off it stands
 * behind, the most likely one last. */
typedef struct ranking {
    im__candidate *work;
    size_t all, left;
} ranking;

static const im__candidate *ranked(ranking *r, size_t i)
{
    while (r->all - r->left <= i) {
        im__candidate top = r->work[0];
        r->work[0] = r->work[--r->left];
        r->work[r->left] = top;
        sift_down(r->work, r->left, 0);
    }
    return &r->work[r->all - 1 - i];
}

/* Fills the heap with the relative probabilities; 0 when a logit is NaN or the largest is not finite. */
static size_t fill(const float *logits, size_t n, float temperature, im__candidate *heap, double *total)
{
    float max = logits[0];
    size_t count = 0;
    for (size_t i = 0; i < n; i++) {
        if (isnan(logits[i])) return 0;
        if (logits[i] > max) max = logits[i];
    }
    if (isinf(max)) return 0;
    *total = 0;
    for (size_t i = 0; i < n; i++) {
        float p = im__exp((logits[i] - max) / temperature);
        if (!(p > 0)) continue;
        heap[count++] = (im__candidate){p, (int32_t)i};
        *total += (double)p;
    }
    for (size_t i = count / 2; i-- > 0;) sift_down(heap, count, i);
    return count;
}

int32_t im__sample(const float *logits, size_t n, const im_sampling *s, uint64_t index, im__candidate *work)
{
    double mass = 0, sum = 0, run = 0, u = ((double)im__philox(s->seed, index) + 0.5) * 0x1p-32;
    size_t all = fill(logits, n, s->temperature, work, &mass), kept = 0;
    ranking r = {.work = work, .all = all, .left = all};
    if (all == 0) return -1;
    size_t limit = s->top_k > 0 && (size_t)s->top_k < all ? (size_t)s->top_k : all;
    bool filtered = limit < all || s->top_p < 1 || s->min_p > 0;
    if (limit < all) {
        mass = 0;
        for (size_t i = 0; i < limit; i++) mass += (double)ranked(&r, i)->p;
    }
    /* top_p counts within what top_k left. The most likely token has p = 1, so min_p is compared as it is. */
    while (kept < limit && (kept == 0 || ((s->top_p >= 1 || sum < (double)s->top_p * mass) && ranked(&r, kept)->p >= s->min_p))) {
        sum += (double)ranked(&r, kept++)->p;
        if (!filtered && sum > u * mass) break; /* the draw falls here: no need to rank the rest */
    }
    double target = u * (filtered ? sum : mass);
    for (size_t i = 0; i < kept; i++) {
        run += (double)ranked(&r, i)->p;
        if (run > target) return ranked(&r, i)->id;
    }
    return ranked(&r, kept - 1)->id;
}
