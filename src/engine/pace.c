/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/pace.h"

#include <stdbool.h>

#define MARGIN 0.85   /* of the budget is planned with: estimates are not exact */
#define PART 0.15     /* of the budget is for prompts in any case */
#define FORGOTTEN 100 /* steps with prompt rows after which a size has to be tried again */

/* Of the latest `most`, as far as they are there; 0 without any. */
static double median_of(const im__pace_samples *s, size_t most)
{
    double sorted[IM__PACE_SAMPLES];
    size_t n = s->count < most ? s->count : most;
    for (size_t i = 0; i < n; i++) {
        double ms = s->ms[(s->count - 1 - i) % IM__PACE_SAMPLES];
        size_t at = i;
        for (; at > 0 && sorted[at - 1] > ms; at--) sorted[at] = sorted[at - 1];
        sorted[at] = ms;
    }
    return n == 0 ? 0 : sorted[n / 2];
}

static double median(const im__pace_samples *s) { return median_of(s, IM__PACE_SAMPLES); }

/* Rows cost more the deeper in their prompt they stand. The median of all samples is two steps behind, that of the latest three one step; the next step is two
 * further on. */
static double expected(const im__pace_samples *s)
{
    double all = median(s), late = median_of(s, 3);
    bool rises = s->count >= IM__PACE_SAMPLES && late > all;
    return rises ? late + 2 * (late - all) : all;
}

static void note(im__pace_samples *s, double ms, size_t now)
{
    s->ms[s->count++ % IM__PACE_SAMPLES] = ms;
    s->last = now;
}

static size_t size_of(size_t rows)
{
    size_t i = 0;
    while (i + 1 < IM__PACE_SIZES && rows >= (size_t)IM__PACE_TILE << (i + 1)) i++;
    return i;
}

static bool known(const im__pace *p, size_t i)
{
    return i < IM__PACE_SIZES && p->row[i].count > 0 && p->prompts - p->row[i].last < FORGOTTEN;
}

void im__pace_note(im__pace *p, size_t decode_rows, size_t prompt_rows, double ms)
{
    if (prompt_rows == 0) {
        note(&p->decode, ms, 0);
        return;
    }
    if (prompt_rows < IM__PACE_LEAST) return; /* the end of a prompt: says nothing of larger steps */
    double rest = decode_rows > 0 ? median(&p->decode) : 0;
    im__pace_samples *s = &p->row[size_of(prompt_rows)];
    p->prompts++;
    if (!known(p, size_of(prompt_rows))) s->count = 0;
    note(s, ms > rest ? (ms - rest) / (double)prompt_rows : 0, p->prompts);
}

double im__pace_decode(const im__pace *p) { return median(&p->decode); }

/* Rows of size i, or a part of it, that the time suffices for; up to the next size, which is tried when nothing is known of it. */
static double fitting(const im__pace *p, size_t i, double left, double row)
{
    double most = (double)((size_t)IM__PACE_TILE << (i + 1)) - (known(p, i + 1) ? 1 : 0);
    return row * most > left ? left / row : most;
}

size_t im__pace_rows(const im__pace *p, double budget_ms)
{
    double left = budget_ms * MARGIN - median(&p->decode), row = 0, rows = 0;
    bool any = false;
    if (left < budget_ms * PART) left = budget_ms * PART;
    for (size_t i = 0; i < IM__PACE_SIZES; i++) {
        if (!known(p, i)) continue;
        any = true;
        if (expected(&p->row[i]) > row) row = expected(&p->row[i]);
        double fit = fitting(p, i, left, row);
        if (fit > rows) rows = fit; /* of fewer rows one costs no more: so many fit in any case */
        if (fit < (double)((size_t)IM__PACE_TILE << i)) break;
    }
    if (!any) return IM__PACE_TILE;
    if (rows >= IM__PACE_TILE) return (size_t)rows / IM__PACE_TILE * IM__PACE_TILE;
    return rows > IM__PACE_LEAST ? (size_t)rows : IM__PACE_LEAST;
}
