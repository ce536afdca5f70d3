/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/logprob.h"

#include "num/log_exp.h"

#include <stdbool.h>

im__log_norm im__log_norm_of(const float *logits, size_t n, float max)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += im__exp_double((double)logits[i] - (double)max);
    return (im__log_norm){.max = (double)max, .log_sum = im__log_double(sum)};
}

float im__logprob(const im__log_norm *norm, float logit) { return (float)((double)logit - norm->max - norm->log_sum); }

/* Heap of ids with the least likely on top. */
typedef struct heap {
    const float *logits;
    int32_t id[IM__MOST_TOP];
    size_t count;
} heap;

static bool less(const heap *h, int32_t a, int32_t b)
{
    return h->logits[a] < h->logits[b] || (h->logits[a] == h->logits[b] && a > b);
}

static void swap(heap *h, size_t a, size_t b)
{
    int32_t id = h->id[a];
    h->id[a] = h->id[b];
    h->id[b] = id;
}

static void sink(heap *h, size_t i)
{
    for (size_t child; (child = 2 * i + 1) < h->count; i = child) {
        if (child + 1 < h->count && less(h, h->id[child + 1], h->id[child])) child++;
        if (!less(h, h->id[child], h->id[i])) return;
        swap(h, i, child);
    }
}

static void add(heap *h, int32_t id)
{
    size_t i = h->count++;
    h->id[i] = id;
    for (; i > 0 && less(h, h->id[i], h->id[(i - 1) / 2]); i = (i - 1) / 2) swap(h, i, (i - 1) / 2);
}

size_t im__top_tokens(const im__log_norm *norm, const float *logits, size_t n, size_t most, im_top_token *top)
{
    heap h = {.logits = logits};
    if (most == 0) return 0;
    for (size_t i = 0; i < n; i++) {
        if (h.count < most) {
            add(&h, (int32_t)i);
        } else if (logits[i] > logits[h.id[0]]) { /* an equal one has a higher id */
            h.id[0] = (int32_t)i;
            sink(&h, 0);
        }
    }
    size_t count = h.count;
    while (h.count > 0) {
        int32_t id = h.id[0];
        swap(&h, 0, --h.count);
        sink(&h, 0);
        top[h.count] = (im_top_token){id, im__logprob(norm, logits[id])};
    }
    return count;
}
