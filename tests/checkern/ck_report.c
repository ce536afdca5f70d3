/* SPDX-License-Identifier: Apache-2.0 */
#include "ck_report.h"

#include <stdio.h>

static void json_string(const char *s)
{
    putchar('"');
    for (; *s; s++) {
        if (*s == '"' || *s == '\\') putchar('\\');
        putchar((unsigned char)*s < 32 ? ' ' : *s);
    }
    putchar('"');
}

void ck_report_begin(ck_report *r, uint64_t seed, unsigned repeat)
{
    if (r->json)
        printf("{\"seed\": %llu, \"repeat\": %u, \"kernels\": [", (unsigned long long)seed, repeat);
    else
        printf("checkern: seed %llu, repeat %u\n", (unsigned long long)seed, repeat);
}

static void json_head(const ck_report *r, const ck_subject *s, const char *verdict)
{
    printf("%s\n{\"name\": \"%s\", \"family\": \"%s\", \"level\": \"%s\", \"verdict\": \"%s\"", r->kernels > 1 ? "," : "", s->name,
           s->family->name, im__cpu_level_name(s->level), verdict);
}

static void json_timing(const ck_timing *m, bool first)
{
    printf("%s{\"case\": ", first ? "" : ", ");
    json_string(m->label);
    printf(", \"ns\": %.1f, \"spread\": %.4f, \"gb_per_s\": %.3f, \"gop_per_s\": %.3f, \"ratio\": %.3f}", m->ns, m->spread,
           m->work.bytes / m->ns, m->work.ops / m->ns, m->reference_ns / m->ns);
}

static void text_timing(const ck_subject *s, const ck_timing *m)
{
    printf("%-26s %10.0f ns  +-%4.1f%%  %7.2f GB/s  %8.2f GOPS  %6.2f x  %s\n", s->name, m->ns, 100 * m->spread,
           m->work.bytes / m->ns, m->work.ops / m->ns, m->reference_ns / m->ns, m->label);
}

static void text_kernel(const ck_subject *s, const ck_result *result)
{
    for (size_t i = 0; i < result->timings; i++) text_timing(s, &result->timing[i]);
    if (result->failed > 0)
        printf("FAILED %-26s %zu of %zu cases; the first: %s\n", s->name, result->failed, result->cases, result->first);
    else if (result->timings == 0)
        printf("ok     %-26s %zu cases\n", s->name, result->cases - result->declined);
}

void ck_report_kernel(ck_report *r, const ck_subject *s, const ck_result *result)
{
    r->kernels++;
    r->failed += result->failed > 0;
    r->ran[s->level] = true;
    if (!r->json) {
        text_kernel(s, result);
        return;
    }
    json_head(r, s, result->failed > 0 ? "failed" : "ok");
    printf(", \"cases\": %zu, \"failures\": %zu, \"first\": ", result->cases - result->declined, result->failed);
    json_string(result->first);
    printf(", \"timings\": [");
    for (size_t i = 0; i < result->timings; i++) json_timing(&result->timing[i], i == 0);
    printf("]}");
}

void ck_report_lacking(ck_report *r, const ck_subject *s)
{
    r->kernels++;
    r->lacking++;
    r->lacks[s->level] = true;
    if (!r->json) return;
    json_head(r, s, "not run");
    printf("}");
}

static void json_levels(const ck_report *r)
{
    const char *separator = "";
    printf("\n], \"levels\": {");
    for (int level = IM__CPU_C + 1; level < IM__CPU_LEVELS; level++) {
        if (!r->ran[level] && !r->lacks[level]) continue;
        printf("%s\"%s\": \"%s\"", separator, im__cpu_level_name((im__cpu_level)level), r->ran[level] ? "run" : "lacking");
        separator = ", ";
    }
    printf("}, \"failed\": %zu}\n", r->failed);
}

void ck_report_end(ck_report *r)
{
    if (r->json) {
        json_levels(r);
        return;
    }
    for (int level = IM__CPU_C + 1; level < IM__CPU_LEVELS; level++)
        if (r->lacks[level]) printf("NOT RUN: level %s, which this machine lacks\n", im__cpu_level_name((im__cpu_level)level));
    printf("%zu kernels: %zu failed, %zu not run\n", r->kernels, r->failed, r->lacking);
}
