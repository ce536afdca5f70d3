/* SPDX-License-Identifier: Apache-2.0 */
#include "checkern.h"
#include "ck_broken.h"

#include <stdio.h>

static ck_subject planted(const ck_plant *p)
{
    ck_subject s = ck_reference(ck_family_find(p->family));
    s.is_reference = false;
    if (p->plant != NULL) p->plant(&s.ops);
    if (p->kernel.run != NULL) s.kernel = &p->kernel;
    return s;
}

size_t ck_selftest(uint64_t seed)
{
    size_t count, wrong = 0;
    const ck_plant *all = ck_plants(&count);
    for (size_t i = 0; i < count; i++) {
        ck_result result;
        ck_subject s = planted(&all[i]);
        ck_isolate(&s, CK_CHECK, seed, &result);
        bool right = (result.failed == 0) == all[i].sound;
        wrong += !right;
        printf("%s  %-12s %s%s%s\n", right ? "ok    " : "FAILED", all[i].family, all[i].bug, result.failed > 0 ? " -> " : "",
               result.first);
    }
    printf("self-test: %zu planted kernels, %zu judged wrongly\n", count, wrong);
    return wrong;
}
