/* SPDX-License-Identifier: Apache-2.0
 *
 * The engine on a GPU that fails, with the emulated kernels on a fake driver: whatever step the device is lost in, the processor goes on with the same bits if the caller
 * allowed it, and else every request is told.
 */
#include "../unit/engine_fixture.h"
#include "backend/cuda/fatbin.h"
#include "emulated_kernels.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { CONTEXT = 256, TOKENS = 6, PROMPT = 80, MANY = 3 };

static const fake_device fine = {100, 2, (size_t)1 << 30, 1};

typedef struct journal {
    pthread_mutex_t lock;
    char lines[16][700];
    size_t count;
    im_engine *engine; /* whose counts are looked at when it says that it moves */
    im_engine_stats on_the_way;
} journal;

static void write_line(void *user, im_log_level level, const char *line)
{
    journal *j = user;
    pthread_mutex_lock(&j->lock);
    if ((level == IM_LOG_WARNING || strstr(line, "GB/s") != NULL) && j->count < 16)
        snprintf(j->lines[j->count++], sizeof j->lines[0], "%s", line);
    pthread_mutex_unlock(&j->lock);
    if (j->engine != NULL && strstr(line, "takes over") != NULL) im_engine_get_stats(j->engine, &j->on_the_way);
}

static size_t said(journal *j, const char *what)
{
    size_t n = 0;
    pthread_mutex_lock(&j->lock);
    for (size_t i = 0; i < j->count; i++) n += strstr(j->lines[i], what) != NULL;
    pthread_mutex_unlock(&j->lock);
    return n;
}

static void start(fake_device device)
{
    size_t count;
    const fake_kernel *kernels = emulated_kernels(&count);
    fake_driver_start(kernels, count, device);
}

static im_engine_options options_of(const char *device, const char *fallback, journal *j)
{
    im_engine_options o = sized(1, 48, CONTEXT, MANY + 1);
    o.device = device;
    o.device_fallback = fallback;
    o.cache_ram = 1 << 20;
    o.log = j == NULL ? NULL : write_line;
    o.log_user = j;
    return o;
}

static im_engine *open_with(const char *device, const char *fallback, journal *j)
{
    const im_engine_options o = options_of(device, fallback, j);
    return open_tiny(&o);
}

typedef struct heard {
    uint32_t next;
    bool good;
} heard;

/* Each token once, in order. */
static bool on_token(void *user, const im_token_event *event)
{
    heard *h = user;
    h->good = h->good && event->index == h->next;
    h->next++;
    return true;
}

static im_request *ask(im_engine *e, size_t prompt, uint32_t seed, uint32_t tokens, heard *h)
{
    im_request_options o;
    im_request_options_defaults(&o);
    *h = (heard){.good = true};
    o.max_tokens = tokens;
    o.ignore_eos = true;
    o.on_token = on_token;
    o.user = h;
    return submit_prompt(e, prompt, seed, o);
}

/* Several requests at once; hash[i] of each. Expects all to succeed. */
static void run_many(im_engine *e, uint64_t hash[MANY])
{
    im_request *r[MANY];
    heard h[MANY];
    im_result result;
    im_error err = {IM_OK, ""};
    for (int i = 0; i < MANY; i++) r[i] = ask(e, PROMPT - 9 * (size_t)i, (uint32_t)i / 2, TOKENS + (uint32_t)i, &h[i]);
    for (int i = 0; i < MANY; i++) {
        if (im_request_wait(r[i], &result, &err) != IM_OK) fail_msg("request %d: %s", i, err.message);
        assert_int_equal(result.count, TOKENS + i);
        assert_int_equal(h[i].next, TOKENS + i);
        assert_true(h[i].good);
        assert_true(result.cached_tokens < result.prompt_tokens);
        hash[i] = result.logits_hash;
        im_request_free(r[i]);
    }
}

static void truth(uint64_t hash[MANY])
{
    im_engine *e = open_with("cpu", NULL, NULL);
    run_many(e, hash);
    im_engine_close(e);
}

static im_engine_stats stats_of(im_engine *e)
{
    im_engine_stats s;
    im_engine_get_stats(e, &s);
    return s;
}

static bool device_is(const im_engine *e, const char *name, char *fingerprint)
{
    im_engine_info info;
    im_engine_get_info(e, &info);
    if (fingerprint != NULL) snprintf(fingerprint, 20, "%s", info.fingerprint);
    return strcmp(info.device, name) == 0;
}

static void a_fake_gpu_has_the_bits_of_the_processor(void **state)
{
    (void)state;
    uint64_t expected[MANY], got[MANY];
    truth(expected);
    start(fine);
    journal j = {.lock = PTHREAD_MUTEX_INITIALIZER};
    im_engine *e = open_with("cuda", "cpu", &j);
    assert_true(device_is(e, "cuda", NULL));
    assert_true(said(&j, "Fake 40: driver ") == 1 && j.count == 1); /* what loading took */
    run_many(e, got);
    assert_memory_equal(got, expected, sizeof got);
    assert_int_equal(stats_of(e).device_failures, 0);
    im_engine_close(e);
    assert_int_equal(fake_driver_live(), 0);
    fake_driver_stop();
}

/* Whether or not the entry is called so often. */
static void lose(const char *entry, long n, const uint64_t expected[MANY], long *failures)
{
    journal j = {.lock = PTHREAD_MUTEX_INITIALIZER};
    uint64_t got[MANY];
    char before[20], after[20];
    start(fine);
    im_engine *e = open_with("cuda", "cpu", &j);
    assert_true(device_is(e, "cuda", before));
    j.engine = e;
    fake_driver_lose(entry, n, IM__CUDA_ERROR_ILLEGAL_ADDRESS);
    run_many(e, got);
    for (int i = 0; i < MANY; i++)
        if (got[i] != expected[i]) fail_msg("%s %ld: request %d has other bits", entry, n, i);
    im_engine_stats s = stats_of(e);
    *failures += s.device_failures;
    assert_int_equal(s.device_fallbacks, s.device_failures);
    assert_int_equal(said(&j, "the GPU has failed"), s.device_failures);
    assert_int_equal(said(&j, "takes over"), s.device_failures);
    assert_int_equal(s.finished, MANY);
    assert_int_equal(s.prompt_tokens, 3 * PROMPT - 27); /* each once, though some were read twice */
    assert_int_equal(j.on_the_way.device_failures, 0);  /* it is not lost while it moves */
    assert_true(device_is(e, s.device_failures > 0 ? "cpu" : "cuda", after));
    assert_int_equal(strcmp(before, after) != 0, s.device_failures > 0);
    run_many(e, got); /* and all that come later, some of whom may be the first to meet it */
    assert_memory_equal(got, expected, sizeof got);
    assert_true(stats_of(e).device_failures >= s.device_failures && stats_of(e).device_failures <= 1);
    im_engine_close(e);
    assert_int_equal(fake_driver_live(), 0);
    fake_driver_stop();
}

static void whatever_step_loses_it_the_processor_goes_on(void **state)
{
    (void)state;
    uint64_t expected[MANY];
    long failures = 0, tried = 0;
    truth(expected);
    const struct {
        const char *entry;
        long first, step, end;
    } points[] = {
        {"launch", 1, 97, 500}, {"stream_wait", 1, 2, 9}, {"copy_out", 2, 3, 9}, {"copy_in", 1, 4, 6}, {"context_set", 2, 3, 6}};
    for (size_t p = 0; p < sizeof points / sizeof *points; p++)
        for (long n = points[p].first; n < points[p].end; n += points[p].step, tried++)
            lose(points[p].entry, n, expected, &failures);
    assert_true(failures > tried / 2);
}

/* ---- without leave ---------------------------------------------------------------------------------------------------------------- */

static void without_leave_every_request_is_told(void **state)
{
    (void)state;
    journal j = {.lock = PTHREAD_MUTEX_INITIALIZER};
    im_error err;
    im_result result;
    heard h;
    start(fine);
    im_engine *e = open_with("cuda", NULL, &j);
    fake_driver_lose("stream_wait", 3, IM__CUDA_ERROR_ILLEGAL_ADDRESS);
    for (int i = 0; i < 3; i++) {
        im_request *r = ask(e, PROMPT, 1, TOKENS, &h);
        assert_int_equal(im_request_wait(r, &result, &err), IM_ERR_DEVICE);
        assert_true(strlen(err.message) > 30);
        im_request_free(r);
    }
    im_engine_stats s = stats_of(e);
    assert_int_equal(s.device_failures, 1);
    assert_int_equal(s.device_fallbacks, 0);
    assert_int_equal(s.failed, 3);
    assert_int_equal(said(&j, "the GPU has failed"), 1);
    assert_int_equal(said(&j, "was not asked for"), 1);
    assert_true(device_is(e, "cuda", NULL));
    im_engine_close(e);
    assert_int_equal(fake_driver_live(), 0);
    fake_driver_stop();
}

/* ---- at the start ------------------------------------------------------------------------------------------------------------------- */

static void starts_on_the_processor(fake_device device, const char *entry, im__cuda_result result, const char *note)
{
    journal j = {.lock = PTHREAD_MUTEX_INITIALIZER};
    im_engine_options strict = options_of("cuda", NULL, NULL);
    im_engine *e = NULL;
    im_engine_info info;
    im_error err;
    start(device);
    if (entry != NULL) fake_driver_lose(entry, 1, result);
    im_status status = im_engine_open(&e, TINY_MODEL, &strict, &err);
    assert_true(status == IM_ERR_UNSUPPORTED || status == IM_ERR_MEMORY);
    if (strstr(err.message, note) == NULL) fail_msg("\"%s\" does not say \"%s\"", err.message, note);
    e = open_with("cuda", "cpu", &j);
    im_engine_get_info(e, &info);
    assert_string_equal(info.device, "cpu");
    assert_non_null(strstr(info.note, note));
    assert_int_equal(said(&j, "on the processor"), 1);
    generate_hash(e, 5, 1, 2, 0);
    im_engine_close(e);
    assert_int_equal(fake_driver_live(), 0);
    fake_driver_stop();
}

static void a_named_gpu_that_cannot_serve_is_an_error_unless_the_processor_may(void **state)
{
    (void)state;
    starts_on_the_processor((fake_device){100, 2, 1 << 20, 1}, NULL, 0, "MiB are needed");
    starts_on_the_processor((fake_device){100, 2, (size_t)1 << 30, 0}, NULL, 0, "no CUDA device");
    starts_on_the_processor((fake_device){70, 2, (size_t)1 << 30, 1}, NULL, 0, "capability 7.0");
    starts_on_the_processor(fine, "init", IM__CUDA_ERROR_DRIVER_MISMATCH, "older than");
    starts_on_the_processor(fine, "module_load", IM__CUDA_ERROR_NO_BINARY, "newer driver");
}

static void another_fallback_is_refused(void **state)
{
    (void)state;
    im_engine_options o = options_of("cpu", "abacus", NULL);
    im_engine *e = NULL;
    im_error err;
    assert_int_equal(im_engine_open(&e, TINY_MODEL, &o, &err), IM_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.message, "abacus"));
}

/* ---- memory of the host behind that of the device ------------------------------------------------------------------------------------- */

enum { TEXTS = 3, LENGTH = 140 };

static im_engine *open_cached(const char *path, const char *device, uint64_t ram, uint64_t host, const char *folder)
{
    im_engine *e = NULL;
    im_error err = {IM_OK, ""};
    im_engine_options o = sized(1, 64, 512, 2);
    o.device = device;
    o.cache_ram = ram;
    o.cache_host = host;
    o.cache_dir = folder;
    o.cache_disk = folder == NULL ? 0 : 1 << 28;
    if (im_engine_open(&e, path, &o, &err) != IM_OK) fail_msg("%s", err.message);
    return e;
}

/* Bytes of so many pages of a usual text. */
static uint64_t pages_of(const char *path, uint32_t pages)
{
    im_engine *e = open_cached(path, "cpu", 0, 0, NULL);
    im_engine_info info;
    im_engine_get_info(e, &info);
    im_engine_close(e);
    return info.memory.kv / (2 * 512 / 64) * pages;
}

static uint64_t ask_text(im_engine *e, uint32_t which, size_t *cached)
{
    im_request_options o;
    im_result result;
    im_error err = {IM_OK, ""};
    im_request_options_defaults(&o);
    o.max_tokens = 2;
    o.ignore_eos = true;
    im_request *r = submit_prompt(e, LENGTH, 50 + which, o);
    if (im_request_wait(r, &result, &err) != IM_OK) fail_msg("%s", err.message);
    uint64_t hash = result.logits_hash;
    *cached = result.cached_tokens;
    im_request_free(r);
    for (int i = 0; i < 200; i++) { /* what is stored is stored in its own time */
        uint64_t before = stats_of(e).host_writes;
        usleep(2000);
        if (stats_of(e).host_writes == before && i > 3) break;
    }
    return hash;
}

/* Texts that do not fit into the device's cache together, again and again. */
static void round_trip(const char *path, uint32_t pages, uint64_t host, const char *folder, bool comes_back)
{
    const uint64_t ram = pages_of(path, pages);
    uint64_t expected[TEXTS];
    size_t cached, found = 0;
    im_engine *cpu = open_cached(path, "cpu", 0, 0, NULL);
    for (uint32_t i = 0; i < TEXTS; i++) expected[i] = ask_text(cpu, i, &cached);
    im_engine_close(cpu);
    start(fine);
    im_engine *e = open_cached(path, "cuda", ram, host, folder);
    for (uint32_t n = 0; n < 2 * TEXTS; n++) {
        if (ask_text(e, n % TEXTS, &cached) != expected[n % TEXTS]) fail_msg("text %u has other bits", n);
        if (n >= TEXTS) found += cached;
    }
    im_engine_stats s = stats_of(e);
    im_engine_info info;
    im_engine_get_info(e, &info);
    assert_true(info.memory.host > host && info.memory.host < host + (1 << 20));
    assert_true(s.host_bytes <= host);
    if (comes_back != (found == TEXTS * 128))
        fail_msg("%s: %zu tokens were found, %llu pages came back", path, found, (unsigned long long)s.host_hits);
    assert_int_equal(s.host_hits > 0, comes_back);
    assert_int_equal(s.host_writes > 0, host > 0);
    im_engine_close(e);
    assert_int_equal(fake_driver_live(), 0);
    fake_driver_stop();
}

static void pages_come_back_from_the_host(void **state)
{
    (void)state;
    char windowed[64], folder[] = "/tmp/ironmule-host-XXXXXX", command[64];
    make_windowed_model(windowed, 100);
    round_trip(TINY_MODEL, 3, 0, NULL, false);
    round_trip(TINY_MODEL, 3, 1 << 26, NULL, true);
    round_trip(TINY_MODEL, 3, 40000, NULL, false); /* a page or two */
    round_trip(windowed, 4, 1 << 26, NULL, true);
    assert_non_null(mkdtemp(folder));
    round_trip(TINY_MODEL, 3, 1 << 26, folder, true);
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    assert_int_equal(system(command), 0);
    unlink(windowed);
}

static void more_than_the_host_has_is_refused(void **state)
{
    (void)state;
    const uint64_t sizes[] = {(uint64_t)1 << 50, UINT64_MAX - 4096, UINT64_MAX};
    start(fine);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        im_engine_options o = options_of("cuda", NULL, NULL);
        im_engine *e = NULL;
        im_error err;
        o.cache_host = sizes[i];
        assert_int_equal(im_engine_open(&e, TINY_MODEL, &o, &err), IM_ERR_MEMORY);
        assert_non_null(strstr(err.message, "of the host's memory"));
    }
    fake_driver_stop();
}

static void the_processor_has_no_memory_behind_it(void **state)
{
    (void)state;
    im_engine *e = open_cached(TINY_MODEL, "cpu", 1 << 20, 1 << 20, NULL);
    im_engine_info info;
    size_t cached;
    im_engine_get_info(e, &info);
    assert_int_equal(info.memory.host, 0);
    ask_text(e, 1, &cached);
    assert_int_equal(stats_of(e).host_writes, 0);
    im_engine_close(e);
}

/* ---- what is missing ---------------------------------------------------------------------------------------------------------------- */

static void expect_gpus(int devices, size_t images, im_status status, const char *driver, const char *kernels)
{
    static const im__cuda_image image = {"fake", "fake", 4};
    im_error err = {IM_OK, ""};
    int count;
    start((fake_device){90, 2, (size_t)1 << 30, devices});
    im__cuda_images_replace(&image, images);
    assert_int_equal(im_gpu_count(&count, &err), status);
    if (strstr(err.message, driver) == NULL || strstr(err.message, kernels) == NULL) fail_msg("%s", err.message);
    fake_driver_stop();
}

static void each_thing_that_is_missing_is_said(void **state)
{
    (void)state;
    expect_gpus(2, 1, IM_OK, "", "");
    expect_gpus(0, 1, IM_ERR_UNSUPPORTED, "finds no CUDA device", "");
    expect_gpus(2, 0, IM_ERR_UNSUPPORTED, "finds 2 CUDA devices", "no CUDA kernels: ");
    expect_gpus(0, 0, IM_ERR_UNSUPPORTED, "finds no CUDA device; and", "no CUDA kernels: ");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_fake_gpu_has_the_bits_of_the_processor),
        cmocka_unit_test(whatever_step_loses_it_the_processor_goes_on),
        cmocka_unit_test(without_leave_every_request_is_told),
        cmocka_unit_test(a_named_gpu_that_cannot_serve_is_an_error_unless_the_processor_may),
        cmocka_unit_test(another_fallback_is_refused),
        cmocka_unit_test(pages_come_back_from_the_host),
        cmocka_unit_test(more_than_the_host_has_is_refused),
        cmocka_unit_test(the_processor_has_no_memory_behind_it),
        cmocka_unit_test(each_thing_that_is_missing_is_said),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
