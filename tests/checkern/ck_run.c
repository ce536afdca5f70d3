/* SPDX-License-Identifier: Apache-2.0 */
#include "checkern.h"

#include "num/half.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

bool ck_case(ck_test *t, ck_work work, const char *format, ...)
{
    if (t->mode == CK_BENCH && work.bytes + work.ops == 0) return false;
    va_list args;
    va_start(args, format);
    vsnprintf(t->result->label, sizeof t->result->label, format, args);
    va_end(args);
    ck_arena_clear(&t->arena);
    t->arena.flush_begin = __builtin_parityll(t->result->cases); /* alternating, but not in step with any loop over shapes */
    t->work = work;
    t->rng = ck_rng_of(t->seed, t->result->label);
    t->result->cases++;
    return true;
}

void ck_fail(ck_test *t, const char *format, ...)
{
    ck_result *r = t->result;
    if (r->failed++ > 0) return;
    int used = snprintf(r->first, sizeof r->first, "%s: ", r->label);
    va_list args;
    va_start(args, format);
    vsnprintf(r->first + used, sizeof r->first - (size_t)used, format, args);
    va_end(args);
}

/* True while floats round to nearest even and keep subnormals: a kernel must leave it so. */
static bool float_state_intact(void)
{
    volatile float small = 0x1p-126f, one = 1.0f, less = 0x1p-24f, more = 0x1.8p-24f;
    return im__bits_of_f32(small * 0.5f) == 0x00400000 && one + less == 1.0f && -one - less == -1.0f && one + more > 1.0f;
}

static void compare(ck_test *t)
{
    char text[384];
    const char *broken = ck_arena_canaries(&t->arena);
    if (!float_state_intact()) ck_fail(t, "leaves the rounding or the handling of subnormals changed");
    if (broken != NULL) {
        ck_fail(t, "writes outside %s", broken);
        return;
    }
    for (size_t i = 0; i < t->arena.count; i++) {
        const ck_block *b = &t->arena.block[i];
        if (b->want == NULL || ck_block_equal(b, text, sizeof text)) continue;
        ck_fail(t, "%s", text);
        return;
    }
}

static void digest(ck_test *t)
{
    for (size_t i = 0; i < t->arena.count; i++)
        if (t->arena.block[i].want != NULL) t->result->digest = ck_block_digest(&t->arena.block[i], t->result->digest);
}

void ck_run(ck_test *t, ck_call *call, const void *job)
{
    if (t->mode == CK_BENCH) {
        ck_bench(t, call, job);
        return;
    }
    ck_arena_seal(&t->arena);
    ck_arena_restore(&t->arena);
    call(job, t->reference);
    ck_arena_keep(&t->arena);
    if (t->mode == CK_DIGEST) {
        digest(t);
        return;
    }
    ck_arena_restore(&t->arena);
    call(job, t->subject);
    compare(t);
}
