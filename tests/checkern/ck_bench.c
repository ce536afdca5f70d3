/* SPDX-License-Identifier: Apache-2.0
 *
 * Timing: the call is repeated until a sample lasts long enough for the clock; the median of several samples is reported, the first
 * one dropped. In-place operations run on what the call before them left.
 */
#include "checkern.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define SAMPLES 15
#define SAMPLE_NS 2e6

static double now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e9 * (double)t.tv_sec + (double)t.tv_nsec;
}

static double sample(ck_call *call, const void *job, const ck_subject *s, size_t repeat)
{
    double start = now_ns();
    for (size_t i = 0; i < repeat; i++) call(job, s);
    return (now_ns() - start) / (double)repeat;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median_ns(ck_call *call, const void *job, const ck_subject *s, size_t samples, double *spread)
{
    double ns[SAMPLES], once = sample(call, job, s, 1);
    size_t repeat = once < SAMPLE_NS ? (size_t)(SAMPLE_NS / (once + 1)) + 1 : 1;
    for (size_t i = 0; i < samples; i++) ns[i] = sample(call, job, s, repeat);
    qsort(ns, samples, sizeof ns[0], by_value);
    double median = ns[samples / 2];
    *spread = (ns[samples * 3 / 4] - ns[samples / 4]) / 2 / median;
    return median;
}

void ck_bench(ck_test *t, ck_call *call, const void *job)
{
    ck_result *r = t->result;
    if (r->timings == CK_TIMINGS) return;
    ck_timing *out = &r->timing[r->timings++];
    double unused;
    snprintf(out->label, sizeof out->label, "%s", r->label);
    out->work = t->work;
    out->ns = median_ns(call, job, t->subject, SAMPLES, &out->spread);
    out->reference_ns = t->subject->is_reference ? out->ns : median_ns(call, job, t->reference, 3, &unused);
}
