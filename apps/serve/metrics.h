/* SPDX-License-Identifier: Apache-2.0
 *
 * Counters in Prometheus's text format (version 0.0.4). Kept by the event loop alone; what the engine counts is asked of it when the page is written.
 */
#ifndef IRONMULE_SERVE_METRICS_H
#define IRONMULE_SERVE_METRICS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct evbuffer;
struct server;

enum { METRIC_BUCKETS = 16, METRIC_SERIES = 192 };

typedef struct histogram {
    uint64_t bucket[METRIC_BUCKETS + 1], count; /* the last: above all bounds */
    double sum;                                 /* seconds */
} histogram;

/* A counter with a label of its own: answers by route and status, refusals by reason. Both texts are static. */
typedef struct metric_series {
    const char *name, *label;
    int status; /* 0: none */
    uint64_t count;
} metric_series;

typedef struct metrics {
    histogram first_token, per_token, request, queue;
    metric_series series[METRIC_SERIES];
    size_t series_count;
    uint64_t accepted;
} metrics;

void histogram_add(histogram *h, double seconds);

/* Adds one to a counter; `name` is one of those that metrics.c describes, `label` a static text. */
void metrics_count(metrics *m, const char *name, const char *label, int status);

extern const char METRIC_ANSWERS[], METRIC_REFUSALS[], METRIC_DROPPED[];

void metrics_write(const struct server *s, struct evbuffer *out);

#endif
