/* SPDX-License-Identifier: Apache-2.0
 * Chat templates against renderings by transformers and Jinja, and the rules of our own. */
#include "text/chat/template.h"

#include "template_cases.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void run_file(const char *name, int at_least)
{
    char path[4096];
    template_tally sum = {0};
    snprintf(path, sizeof path, "%s/templates/%s", IM_TEST_DATA, name);
    assert_true(run_template_cases(path, getenv("IM_TEMPLATE_TEXTS"), &sum));
    printf("%s: %d cases, %d wrong, %d templates left out\n", name, sum.cases, sum.wrong, sum.left_out);
    assert_int_equal(sum.wrong, 0);
    assert_true(sum.cases >= at_least);
}

static void published_templates(void **state)
{
    (void)state;
    run_file("golden.json", 85);
}

static void snippets(void **state)
{
    (void)state;
    run_file("snippets.json", 280);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(published_templates),
        cmocka_unit_test(snippets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
