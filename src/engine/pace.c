/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/pace.h"

#define MARGIN 0.85   /* of the budget is planned with: estimates are not exact */
#define FORGOTTEN 100 /* steps with prompt rows after which a size has to be tried again */

/* Of what is there; 0 without any. */
static double median(const im__pace_samples *s)
{
    double sorted[IM__PACE_SAMPLES];
    size_t n = s->count < IM__PACE_SAMPLES ? s->count : IM__PACE_SAMPLES;
    for (size_t i = 0; i < n; i++) {
        size_t at = i;
        for (; at > 0 && sorted[at - 1] > s->ms[i]; at--) sorted[at] = sorted[at - 1];
        sorted[at] = s->ms[i];
    }
    return n == 0 ? 0 : sorted[n / 2];
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

static int known(const im__pace *p, size_t i)
{
    return i < IM__PACE_SIZES && p->row[i].count > 0 && p->prompts - p->row[i].last < FORGOTTEN;
}

void im__pace_note(im__pace *p, size_t decode_rows, size_t prompt_rows, double ms)
{
    if (prompt_rows == 0) {
        note(&p->decode, ms, 0);
        return;
    }
    if (prompt_rows < IM__PACE_TILE) return; /* the end of a prompt: says nothing of larger steps */
    double rest = decode_rows > 0 ? median(&p->decode) : 0;
    im__pace_samples *s = &p->row[size_of(prompt_rows)];
    p->prompts++;
    if (!known(p, size_of(prompt_rows))) s->count = 0;
    note(s, ms > rest ? (ms - rest) / (double)prompt_rows : 0, p->prompts);
}

size_t im__pace_rows(const im__pace *p, double budget_ms)
{
    double left = budget_ms * MARGIN - median(&p->decode), row = 0, rows = IM__PACE_TILE;
    for (size_t i = 0; i < IM__PACE_SIZES && left > 0; i++) {
        double least = (double)((size_t)IM__PACE_TILE << i), here = median(&p->row[i]);
        if (!known(p, i)) continue;
        if (here > row) row = here;
        /* Of fewer rows one costs no more: so many fit in any case. */
        double fit = row > 0 ? left / row : 2 * least;
        if (fit > 2 * least) fit = 2 * least;
        if (fit > rows) rows = fit;
        if (fit < least) break;
    }
    return rows > IM__PACE_TILE ? (size_t)rows / IM__PACE_TILE * IM__PACE_TILE : IM__PACE_TILE;
}
