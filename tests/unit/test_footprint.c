/* SPDX-License-Identifier: Apache-2.0
 *
 * What an engine costs: the memory that its plan says, and with a real model less than 100 MB beside weights and cache and half a second to the first
 * token (the file in memory, which the first of several tries sees to).
 */
#include "engine_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static char model_path[4096];

/* A line of /proc/self/status in bytes. */
static double status_bytes(const char *name)
{
    char line[256];
    double kib = 0;
    FILE *f = fopen("/proc/self/status", "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f) != NULL)
        if (strncmp(line, name, strlen(name)) == 0) sscanf(line + strlen(name) + 1, "%lf", &kib);
    fclose(f);
    return kib * 1024;
}

/* What is planned is taken, and little else: a stack, tables. */
static void check_plan(im_engine_options o)
{
    im_engine_info info;
    double before = status_bytes("VmData");
    im_engine *e = open_tiny(&o);
    double taken = status_bytes("VmData") - before;
    im_engine_get_info(e, &info);
    double planned =
        (double)(info.memory.kv + info.memory.workspace) + (strcmp(info.cpu_level, "c") == 0 ? 0 : (double)info.memory.weights);
    /* Small blocks may come from what an earlier engine gave back to malloc. */
    if (taken < planned - 2e6 || taken > planned + 12e6) fail_msg("%.1f MB taken, %.1f planned", taken / 1e6, planned / 1e6);
    im_engine_close(e);
}

static void the_plan_is_what_is_taken(void **state)
{
    (void)state;
    check_plan(sized(1, 64, 512, 1));
    check_plan(sized(1, 64, 200000, 1));
    check_plan(sized(1, 2048, 30000, 16));
}

/* Asking takes nothing. */
static void a_plan_is_free(void **state)
{
    (void)state;
    im_model *m = NULL;
    im_memory_plan plan;
    im_engine_options o = sized(1, 512, 200000, 8);
    assert_int_equal(im_model_open(&m, TINY_MODEL, NULL, NULL), IM_OK);
    double before = status_bytes("VmData");
    assert_int_equal(im_engine_plan(m, &o, &plan, NULL), IM_OK);
    assert_true(plan.kv > 100e6 && plan.workspace > 1e6 && plan.weights > 1e5);
    assert_true(status_bytes("VmData") - before < 2e6);
    im_model_close(m);
}

static void a_real_model(void **state)
{
    (void)state;
    double fastest = 1e9;
    if (model_path[0] == 0) skip();
    for (int i = 0; i < 5; i++) {
        im_engine *e = NULL;
        im_engine_info info;
        im_error err;
        im_request_options o;
        im_result result;
        if (im_engine_open(&e, model_path, NULL, &err) != IM_OK) fail_msg("%s", err.message);
        im_request_options_defaults(&o);
        o.max_tokens = 2;
        im_request *r = submit_prompt(e, i == 0 ? 600 : 8, 1, o);
        assert_int_equal(im_request_wait(r, &result, NULL), IM_OK);
        im_engine_get_info(e, &info);
        double beside = status_bytes("VmHWM") - (double)(info.memory.weights + info.memory.kv);
        if (beside > 100e6) fail_msg("%.0f MB beside weights and cache", beside / 1e6);
        if (i > 0 && info.load_ms + result.first_token_ms < fastest) fastest = info.load_ms + result.first_token_ms;
        im_request_free(r);
        im_engine_close(e);
    }
    printf("load to first token: %.0f ms\n", fastest);
    if (fastest > 500) fail_msg("%.0f ms to the first token", fastest);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_plan_is_what_is_taken),
        cmocka_unit_test(a_plan_is_free),
        cmocka_unit_test(a_real_model),
    };
    const char *folder = getenv("IM_TEST_MODELS");
    snprintf(model_path, sizeof model_path, "%s/SmolLM2-135M-Instruct.Q4_1.gguf", folder == NULL ? "" : folder);
    if (folder == NULL || access(model_path, R_OK) != 0) model_path[0] = 0;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    if (failed != 0 || model_path[0] != 0) return failed;
    puts("SmolLM2-135M-Instruct is not here (IM_TEST_MODELS)");
    return 77;
}
