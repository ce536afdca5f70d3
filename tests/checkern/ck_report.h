/* SPDX-License-Identifier: Apache-2.0
 *
 * What the harness says: lines for people, or one JSON object.
 *
 *     {"seed": 1, "repeat": 1, "levels": {"avx2": "run", "avx512": "lacking"}, "failed": 0,
 *      "kernels": [{"name": ..., "family": ..., "level": ..., "verdict": "ok" | "failed" | "not run", "cases": n, "failures": n, "first": ...,
 *                   "timings": [{"case": ..., "ns": ..., "spread": ..., "gb_per_s": ..., "gop_per_s": ..., "ratio": ...}]}]}
 */
#ifndef CK_REPORT_H
#define CK_REPORT_H

#include "checkern.h"

typedef struct ck_report {
    bool json;
    size_t kernels, failed, lacking; /* lacking: kernels of levels that this machine cannot run */
    bool ran[IM__CPU_LEVELS], lacks[IM__CPU_LEVELS];
} ck_report;

void ck_report_begin(ck_report *r, uint64_t seed, unsigned repeat);
void ck_report_kernel(ck_report *r, const ck_subject *s, const ck_result *result);
void ck_report_lacking(ck_report *r, const ck_subject *s);
void ck_report_end(ck_report *r);

#endif
