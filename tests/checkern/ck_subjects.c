/* SPDX-License-Identifier: Apache-2.0 */
#include "checkern.h"

#include "num/dtype.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

typedef void any_fn(void);

/* Every entry of the table; a new one must be named here and get a family, else this file does not compile. */
static const struct {
    const char *name;
    size_t offset;
} entries[] = {
    {"quantise", offsetof(im__ops, quantise)}, {"rms_norm", offsetof(im__ops, rms_norm)},   {"rope", offsetof(im__ops, rope)},
    {"kv_store", offsetof(im__ops, kv_store)}, {"attention", offsetof(im__ops, attention)}, {"glu", offsetof(im__ops, glu)},
    {"add", offsetof(im__ops, add)},           {"scale", offsetof(im__ops, scale)},         {"softcap", offsetof(im__ops, softcap)},
    {"argmax", offsetof(im__ops, argmax)},
};
#define ENTRIES (sizeof entries / sizeof entries[0])
_Static_assert(ENTRIES * sizeof(any_fn *) == sizeof(im__ops), "an entry of im__ops has no family");

static void (*const entry_cases[ENTRIES])(ck_test *) = {
    ck_quantise, ck_rms_norm, ck_rope, ck_kv_store, ck_attention, ck_glu, ck_add, ck_scale, ck_softcap, ck_argmax,
};

static ck_family families[ENTRIES + 5 + IM__DTYPE_END];
static size_t family_count;

static void family_add(const char *name, void (*cases)(ck_test *), uint32_t dtype)
{
    ck_family *f = &families[family_count++];
    snprintf(f->name, sizeof f->name, "%s%s", name, cases == ck_matmul ? im__dtype_get(dtype)->name : "");
    for (char *c = f->name; *c; c++) *c = (char)tolower((unsigned char)*c);
    f->cases = cases;
    f->dtype = dtype;
}

const ck_family *ck_families(size_t *count)
{
    if (family_count == 0) {
        family_add("num_exp", ck_num_exp, 0);
        family_add("num_rope_angle", ck_num_rope_angle, 0);
        family_add("num_dequantise", ck_num_dequantise, 0);
        family_add("num_dequantise_affine", ck_num_dequantise_affine, 0);
        family_add("num_quantise_rest", ck_num_quantise_rest, 0);
        for (size_t i = 0; i < ENTRIES; i++) family_add(entries[i].name, entry_cases[i], 0);
        for (uint32_t type = 0; type < IM__DTYPE_END; type++) {
            if (im__dtype_get(type)->runs) family_add("matmul_", ck_matmul, type);
        }
    }
    *count = family_count;
    return families;
}

const ck_family *ck_family_find(const char *name)
{
    size_t count;
    const ck_family *all = ck_families(&count);
    for (size_t i = 0; i < count; i++)
        if (strcmp(all[i].name, name) == 0) return &all[i];
    return NULL;
}

static const ck_family *family_of_weights(uint32_t dtype)
{
    size_t count;
    const ck_family *all = ck_families(&count);
    for (size_t i = 0; i < count; i++)
        if (all[i].cases == ck_matmul && all[i].dtype == dtype) return &all[i];
    return NULL;
}

ck_subject ck_reference(const ck_family *family)
{
    ck_subject s = {.family = family, .is_reference = true, .level = IM__CPU_C};
    snprintf(s.name, sizeof s.name, "%s_c", family->name);
    im__ops_c(&s.ops);
    return s;
}

bool ck_level_of_this_architecture(im__cpu_level level)
{
#if defined(__x86_64__)
    return level >= IM__CPU_AVX2 && level <= IM__CPU_AMX;
#elif defined(__aarch64__)
    return level == IM__CPU_NEON || level == IM__CPU_I8MM;
#else
    (void)level;
    return false;
#endif
}

static any_fn *entry_get(const im__ops *ops, size_t i)
{
    any_fn *f;
    memcpy(&f, (const char *)ops + entries[i].offset, sizeof f);
    return f;
}

static ck_subject entry_subject(size_t i, im__cpu_level level, any_fn *f)
{
    ck_subject s = ck_reference(ck_family_find(entries[i].name));
    s.is_reference = false;
    s.level = level;
    snprintf(s.name, sizeof s.name, "%s_%s", entries[i].name, im__cpu_level_name(level));
    memcpy((char *)&s.ops + entries[i].offset, &f, sizeof f);
    return s;
}

/* The mask sweep: the table is filled for one level more each time; an entry that changes is a new kernel. */
static size_t find_entries(ck_subject *out)
{
    size_t count = 0;
    im__ops last, ops;
    im__ops_c(&last);
    for (int level = IM__CPU_C + 1; level < IM__CPU_LEVELS; level++) {
        if (!ck_level_of_this_architecture((im__cpu_level)level)) continue;
        im__ops_c(&ops);
        im__ops_cpu(&ops, (im__cpu_level)level);
        for (size_t i = 0; i < ENTRIES; i++)
            if (entry_get(&ops, i) != entry_get(&last, i))
                out[count++] = entry_subject(i, (im__cpu_level)level, entry_get(&ops, i));
        last = ops;
    }
    return count;
}

size_t ck_subjects_find(ck_subject *out)
{
    size_t count = find_entries(out);
    for (const im__matmul_kernel *const *k = im__matmul_kernels(); *k != NULL && count < CK_SUBJECTS; k++) {
        ck_subject *s = &out[count++];
        *s = ck_reference(family_of_weights((*k)->dtype));
        s->is_reference = false;
        s->level = (*k)->level;
        s->kernel = *k;
        snprintf(s->name, sizeof s->name, "%s", (*k)->name);
    }
    return count;
}
