/* SPDX-License-Identifier: Apache-2.0 */
#include "checkern.h"

#include "num/dtype.h"

#include <stdio.h>

/* All quantised types that run: none falls to plain C on a machine with vectors. */
static const uint32_t hot[] = {IM__Q4_0,      IM__Q4_1,      IM__Q5_0,      IM__Q5_1,     IM__Q8_0,    IM__Q2_K,      IM__Q3_K,
                               IM__Q4_K,      IM__Q5_K,      IM__Q6_K,      IM__IQ4_NL,   IM__IQ4_XS,  IM__MXFP4,     IM__AFFINE2,
                               IM__AFFINE3,   IM__AFFINE4,   IM__AFFINE5,   IM__AFFINE6,  IM__AFFINE8, IM__AFFINE2_F, IM__AFFINE3_F,
                               IM__AFFINE4_F, IM__AFFINE5_F, IM__AFFINE6_F, IM__AFFINE8_F};

/* Tiles of AMX serve what they are better at than AVX-512, which serves the rest. */
static im__cpu_level level_below(im__cpu_level level) { return level == IM__CPU_AMX ? IM__CPU_AVX512 : level; }

static bool has_kernel(const ck_subject *subjects, size_t count, uint32_t dtype, im__cpu_level level)
{
    for (size_t i = 0; i < count; i++)
        if (subjects[i].kernel != NULL && subjects[i].kernel->dtype == dtype &&
            (subjects[i].level == level || subjects[i].level == level_below(level)))
            return true;
    return false;
}

static size_t list_level(const ck_subject *subjects, size_t count, im__cpu_level level)
{
    size_t missing = 0;
    printf("%s%s\n", im__cpu_level_name(level), im__cpu_has(level) ? "" : " (this machine lacks it)");
    for (size_t i = 0; i < count; i++)
        if (subjects[i].level == level) printf("  %-28s %s\n", subjects[i].name, subjects[i].family->name);
    for (size_t i = 0; i < sizeof hot / sizeof hot[0]; i++) {
        if (has_kernel(subjects, count, hot[i], level)) continue;
        printf("  MISSING: a matmul kernel for %s\n", im__dtype_get(hot[i])->name);
        missing++;
    }
    return missing;
}

size_t ck_list(const ck_subject *subjects, size_t count)
{
    size_t missing = 0;
    for (int level = IM__CPU_C + 1; level < IM__CPU_LEVELS; level++)
        if (ck_level_of_this_architecture((im__cpu_level)level)) missing += list_level(subjects, count, (im__cpu_level)level);
    return missing;
}
