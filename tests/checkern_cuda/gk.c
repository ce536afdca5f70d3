/* SPDX-License-Identifier: Apache-2.0 */
#include "gk.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BAND_BYTE = 0xa7, POISON = 0xff };

void gk_fail(gk_test *t, const char *format, ...)
{
    if (!t->ok) return;
    t->ok = false;
    va_list args;
    va_start(args, format);
    printf("FAILED %s: ", t->label);
    vprintf(format, args);
    printf("\n");
    fflush(stdout);
    va_end(args);
}

void gk_end(gk_test *t)
{
    for (size_t i = 0; i < t->blocks; i++) {
        free(t->block[i].before);
        free(t->block[i].want);
        if (t->block[i].at != 0) t->machine->give(t->machine, t->block[i].at);
    }
    for (size_t i = 0; i < t->scratches; i++) free(t->scratch[i]);
    t->failed += !t->ok;
    t->blocks = t->scratches = 0;
    t->ok = true;
}

bool gk_case(gk_test *t, const char *format, ...)
{
    gk_end(t);
    va_list args;
    va_start(args, format);
    vsnprintf(t->label, sizeof t->label, format, args);
    va_end(args);
    if (t->only != NULL && strstr(t->label, t->only) == NULL) return false;
    t->cases++;
    t->rng = ck_rng_of(t->seed, t->label);
    return true;
}

void *gk_memory(gk_test *t, size_t bytes)
{
    void *p = calloc(1, bytes + 1);
    if (p == NULL || t->scratches == sizeof t->scratch / sizeof *t->scratch) {
        fprintf(stderr, "checkern_cuda: out of memory\n");
        exit(2);
    }
    return t->scratch[t->scratches++] = p;
}

float *gk_floats(gk_test *t, ck_flavour f, size_t n)
{
    float *x = gk_memory(t, n * sizeof *x);
    ck_floats(&t->rng, f, x, n);
    return x;
}

static unsigned char *with_bands(const void *data, size_t bytes)
{
    unsigned char *p = malloc(bytes + 2 * GK_BAND);
    if (p == NULL) exit(2);
    memset(p, BAND_BYTE, bytes + 2 * GK_BAND);
    if (data != NULL)
        memcpy(p + GK_BAND, data, bytes);
    else
        memset(p + GK_BAND, POISON, bytes);
    return p;
}

uint64_t gk_inout(gk_test *t, const char *name, gk_kind kind, const void *before, const void *want, size_t bytes)
{
    if (t->blocks == GK_BLOCKS) exit(2);
    gk_block *b = &t->block[t->blocks++];
    *b = (gk_block){name, kind, bytes, with_bands(before, bytes), with_bands(want, bytes), 0};
    if (!t->machine->take(t->machine, bytes + 2 * GK_BAND, &b->at)) {
        gk_fail(t, "memory for %s: %s", name, t->machine->said);
        b->at = 0;
    }
    return b->at + GK_BAND;
}

uint64_t gk_in(gk_test *t, const char *name, const void *data, size_t bytes)
{
    return gk_inout(t, name, GK_BYTES, data, data, bytes);
}

uint64_t gk_out(gk_test *t, const char *name, gk_kind kind, const void *want, size_t bytes)
{
    return gk_inout(t, name, kind, NULL, want, bytes);
}

/* ---- comparison ---- */

static bool nan32(const unsigned char *p)
{
    uint32_t x;
    memcpy(&x, p, 4);
    return (x & 0x7fffffff) > 0x7f800000 && x != 0xffffffff; /* the poison is none */
}

static bool nan16(const unsigned char *p)
{
    uint16_t x;
    memcpy(&x, p, 2);
    return (x & 0x7fff) > 0x7c00 && x != 0xffff;
}

static size_t element(gk_kind kind) { return kind == GK_F32 ? 4 : kind == GK_F16 ? 2 : kind == GK_GROUP ? 8 : 1; }

static bool same(gk_kind kind, const unsigned char *got, const unsigned char *want)
{
    if (memcmp(got, want, element(kind)) == 0) return true;
    if (kind == GK_F32) return nan32(got) && nan32(want);
    if (kind == GK_F16) return nan16(got) && nan16(want);
    return kind == GK_GROUP && nan32(got) && nan32(want) && memcmp(got + 4, want + 4, 4) == 0;
}

static void compare(gk_test *t, const gk_block *b, const unsigned char *got, int run)
{
    for (size_t i = 0; i < GK_BAND; i++)
        if (got[i] != BAND_BYTE || got[GK_BAND + b->bytes + i] != BAND_BYTE) {
            gk_fail(t, "run %d wrote outside of %s", run, b->name);
            return;
        }
    size_t size = element(b->kind), different = 0, first = 0;
    if (memcmp(got + GK_BAND, b->want + GK_BAND, b->bytes) == 0) return;
    for (size_t i = 0; i < b->bytes / size; i++)
        if (!same(b->kind, got + GK_BAND + i * size, b->want + GK_BAND + i * size) && different++ == 0) first = i;
    if (different == 0) return;
    uint32_t g = 0, w = 0;
    memcpy(&g, got + GK_BAND + first * size, size < 4 ? size : 4);
    memcpy(&w, b->want + GK_BAND + first * size, size < 4 ? size : 4);
    gk_fail(t, "run %d: %zu of %zu elements of %s differ, the first is %zu: %08x, not %08x", run, different, b->bytes / size,
            b->name, first, g, w);
}

void gk_run(gk_test *t, const char *kernel, const gk_launch *l)
{
    gk_machine *m = t->machine;
    for (int run = 0; run < GK_RUNS && t->ok; run++) {
        for (size_t i = 0; i < t->blocks; i++)
            if (!m->in(m, t->block[i].at, t->block[i].before, t->block[i].bytes + 2 * GK_BAND)) gk_fail(t, "%s", m->said);
        if (t->ok && !m->run(m, kernel, l)) gk_fail(t, "%s: %s", kernel, m->said);
        for (size_t i = 0; i < t->blocks && t->ok; i++) {
            const gk_block *b = &t->block[i];
            unsigned char *got = malloc(b->bytes + 2 * GK_BAND);
            if (got == NULL) exit(2);
            if (m->out(m, got, b->at, b->bytes + 2 * GK_BAND))
                compare(t, b, got, run);
            else
                gk_fail(t, "%s", m->said);
            free(got);
        }
    }
}

/* ---- steps ---- */

uint64_t gk_step_in(gk_test *t, const gk_step *s)
{
    im__cuda_row *row = gk_memory(t, s->rows * sizeof *row);
    uint32_t stride = s->table * IM__CUDA_POOLS;
    for (uint32_t r = 0; r < s->rows; r++) {
        row[r] = (im__cuda_row){s->token != NULL ? s->token[r] : 0, s->position != NULL ? s->position[r] : 0, {0}};
        for (uint32_t k = 0; k < IM__CUDA_POOLS; k++) row[r].table[k] = r * stride + k * s->table;
    }
    im__cuda_step step = {.rows = s->rows, .selected = s->selected};
    step.row = gk_in(t, "step.row", row, s->rows * sizeof *row);
    if (s->source != NULL) step.source = gk_in(t, "step.source", s->source, s->selected * sizeof *s->source);
    if (s->pages != NULL) step.pages = gk_in(t, "step.pages", s->pages, s->rows * stride * sizeof *s->pages);
    return gk_in(t, "step", &step, sizeof step);
}
