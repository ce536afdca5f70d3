/* SPDX-License-Identifier: Apache-2.0 */
#include "memory.h"

#include <event2/event.h>
#include <jansson.h>
#include <stdatomic.h>
#include <stdlib.h>

enum { RESERVE = 1 << 18 };

static _Thread_local bool was_short;
static _Atomic(void *) reserve;

/* Neither library looks at each of its allocations. Giving up the reserve lets them end what they are at; was_short ends what it was for. */
static bool give_up_reserve(void)
{
    void *held = atomic_exchange(&reserve, NULL);
    was_short = true;
    free(held);
    return held != NULL;
}

static void *take(size_t n)
{
    size_t some = n > 0 ? n : 1;
    void *p = malloc(some);
    return p != NULL || !give_up_reserve() ? p : malloc(some);
}

static void *change(void *old, size_t n)
{
    size_t some = n > 0 ? n : 1;
    void *p = realloc(old, some);
    return p != NULL || !give_up_reserve() ? p : realloc(old, some);
}

static void restore_reserve(void)
{
    void *none = NULL, *held = atomic_load(&reserve) == NULL ? malloc(RESERVE) : NULL;
    if (held != NULL && !atomic_compare_exchange_strong(&reserve, &none, held)) free(held);
}

void memory_watch(void)
{
    json_set_alloc_funcs(take, free);
    event_set_mem_functions(take, change, free);
    restore_reserve();
}

void memory_lacked(void) { was_short = true; }

bool memory_was_short(void)
{
    bool was = was_short;
    was_short = false;
    if (was) restore_reserve();
    return was;
}

bool memory_is_short(void)
{
    restore_reserve();
    return atomic_load(&reserve) == NULL;
}

void memory_unwatch(void) { give_up_reserve(); }
