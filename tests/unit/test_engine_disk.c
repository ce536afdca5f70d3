/* SPDX-License-Identifier: Apache-2.0
 *
 * The prefix cache's tier on disk in the engine: restarts, damage, other models, a full disk, kills. Whatever is in the folder, answers have their bits.
 */
#include "base/mem.h"
#include "engine_fixture.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { CONTEXT = 512, VOCABULARY = 389, TEXTS = 4, TOKENS = 12 };

static char windowed[64], folder[64];

typedef struct answer {
    uint64_t hash;
    size_t cached;
} answer;

static im_engine *open_with(const char *path, const char *dir, uint64_t disk)
{
    im_engine *e = NULL;
    im_error err = {IM_OK, ""};
    im_engine_options o = sized(1, 64, CONTEXT, 4);
    o.cache_ram = dir == NULL ? 0 : 8 << 20;
    o.cache_dir = dir;
    o.cache_disk = disk;
    if (im_engine_open(&e, path, &o, &err) != IM_OK) fail_msg("%s", err.message);
    return e;
}

/* Texts of 300 ids; the first 200 are common to pairs of them. */
static answer ask(im_engine *e, uint32_t which)
{
    int32_t text[300];
    im_request *r = NULL;
    im_result result;
    im_error err = {IM_OK, ""};
    im_request_options o;
    im_request_options_defaults(&o);
    make_prompt(text, 300, which / 2, VOCABULARY);
    make_prompt(text + 200, 100, 100 + which, VOCABULARY);
    o.prompt = text;
    o.prompt_len = 300;
    o.max_tokens = TOKENS;
    o.ignore_eos = true;
    if (im_request_submit(e, &o, &r, &err) != IM_OK || im_request_wait(r, &result, &err) != IM_OK) fail_msg("%s", err.message);
    answer a = {result.logits_hash, result.cached_tokens};
    im_request_free(r);
    return a;
}

static uint64_t want[2][TEXTS]; /* of the model without windows, and of that with */

static im_engine_stats stats_of(im_engine *e)
{
    im_engine_stats s;
    im_engine_get_stats(e, &s);
    return s;
}

static const char *model(int m) { return m == 0 ? TINY_MODEL : windowed; }

static void make_folder(void)
{
    strcpy(folder, "/tmp/ironmule-disk-XXXXXX");
    assert_non_null(mkdtemp(folder));
}

static void remove_folder(void)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    assert_int_equal(system(command), 0);
}

/* An engine that leaves all texts in the folder. */
static void fill(int m)
{
    im_engine *e = open_with(model(m), folder, 1 << 28);
    for (uint32_t i = 0; i < TEXTS; i++) assert_true(ask(e, i).hash == want[m][i]);
    im_engine_close(e);
}

typedef void file_visitor(const char *path, void *user);

static size_t each_file(file_visitor *visit, void *user)
{
    size_t n = 0;
    char path[400];
    struct dirent **list;
    int all = scandir(folder, &list, NULL, alphasort);
    for (int i = 0; i < all; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, list[i]->d_name);
        if (strstr(path, ".kvpage") != NULL) {
            n++;
            if (visit != NULL) visit(path, user);
        }
        free(list[i]);
    }
    free(list);
    return n;
}

/* ---- restarts --------------------------------------------------------------------------------------------------------------------------- */

static void answers_survive_a_restart(void **state)
{
    (void)state;
    for (int m = 0; m < 2; m++) {
        make_folder();
        fill(m);
        assert_true(each_file(NULL, NULL) >= 10);
        im_engine *e = open_with(model(m), folder, 1 << 28);
        for (uint32_t i = TEXTS; i-- > 0;) {
            answer a = ask(e, i);
            assert_true(a.hash == want[m][i]);
            assert_int_equal(a.cached, 256);
        }
        im_engine_stats s = stats_of(e);
        assert_true(s.disk_hits >= 10 && s.disk_dropped == 0 && s.disk_bytes > 0);
        assert_true(s.cached_tokens == TEXTS * 256 && s.cache_hits == TEXTS);
        im_engine_close(e);
        remove_folder();
    }
}

/* A common beginning, and then a text that the folder has not. */
static void a_new_text_behind_a_known_beginning(void **state)
{
    (void)state;
    make_folder();
    fill(0);
    im_engine *e = open_with(model(0), folder, 1 << 28), *plain = open_with(model(0), NULL, 0);
    int32_t text[300];
    make_prompt(text, 300, 0, VOCABULARY);
    assert_int_equal(generate_hash(e, 290, 0, 3, 0), generate_hash(plain, 290, 0, 3, 0));
    assert_int_equal(stats_of(e).cached_tokens, 192);
    im_engine_close(plain);
    im_engine_close(e);
    remove_folder();
}

static void nothing_is_written_twice(void **state)
{
    (void)state;
    make_folder();
    fill(1);
    size_t files = each_file(NULL, NULL);
    im_engine *e = open_with(model(1), folder, 1 << 28);
    for (uint32_t i = 0; i < 3 * TEXTS; i++) ask(e, i % TEXTS);
    im_engine_close(e);
    assert_int_equal(each_file(NULL, NULL), files);
    remove_folder();
}

/* ---- damage ----------------------------------------------------------------------------------------------------------------------------- */

static uint32_t next_random(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

typedef struct damage {
    uint32_t random;
    char before[400]; /* the file before this one */
} damage;

static void flip(const char *path, uint32_t where)
{
    struct stat about;
    unsigned char byte;
    int f = open(path, O_RDWR);
    assert_true(f >= 0 && fstat(f, &about) == 0);
    off_t at = (off_t)where % about.st_size;
    assert_int_equal(pread(f, &byte, 1, at), 1);
    byte ^= (unsigned char)(1 << where % 8);
    assert_int_equal(pwrite(f, &byte, 1, at), 1);
    close(f);
}

static void exchange(const char *a, const char *b)
{
    char c[420];
    snprintf(c, sizeof c, "%s.x", a);
    assert_true(rename(a, c) == 0 && rename(b, a) == 0 && rename(c, b) == 0);
}

static void spoil(const char *path, void *user)
{
    damage *d = user;
    struct stat about;
    uint32_t r = next_random(&d->random);
    assert_int_equal(stat(path, &about), 0);
    switch (next_random(&d->random) % 8) {
    case 0: flip(path, r % 80); break; /* in the header */
    case 1: flip(path, r); break;
    case 2: assert_int_equal(truncate(path, (off_t)r % about.st_size), 0); break;
    case 3: assert_int_equal(truncate(path, about.st_size + 1 + (off_t)r % 5000), 0); break;
    case 4: /* another's page, whole */
        if (d->before[0] != 0) exchange(d->before, path);
        break;
    case 5: assert_int_equal(unlink(path), 0); return; /* gone meanwhile */
    default: break;                                    /* as it was */
    }
    strcpy(d->before, path);
}

static void damaged_files_are_never_used(void **state)
{
    (void)state;
    damage d = {.random = 1};
    uint64_t dropped = 0;
    for (int m = 0; m < 2; m++) {
        make_folder();
        for (int round = 0; round < 25; round++) {
            im_engine *e = open_with(model(m), folder, 1 << 28);
            d.before[0] = 0;
            each_file(spoil, &d); /* while it runs: its list is older */
            for (uint32_t i = 0; i < TEXTS; i++) assert_true(ask(e, i).hash == want[m][i]);
            dropped += stats_of(e).disk_dropped;
            im_engine_close(e);
        }
        remove_folder();
    }
    assert_true(dropped > 50);
}

static void put_in_place(const char *path, void *user)
{
    int *kind = user;
    assert_int_equal(unlink(path), 0);
    switch ((*kind)++ % 3) {
    case 0: assert_int_equal(mkdir(path, 0700), 0); break;
    case 1: assert_int_equal(mkfifo(path, 0600), 0); break;
    default: assert_int_equal(symlink("/dev/zero", path), 0); break;
    }
}

static void what_is_no_file(void **state)
{
    (void)state;
    int kind = 0;
    make_folder();
    fill(0);
    im_engine *e = open_with(model(0), folder, 1 << 28);
    each_file(put_in_place, &kind);
    for (uint32_t i = 0; i < TEXTS; i++) assert_true(ask(e, i).hash == want[0][i]);
    assert_int_equal(stats_of(e).disk_hits, 0);
    im_engine_close(e);
    e = open_with(model(0), folder, 1 << 28);
    for (uint32_t i = 0; i < TEXTS; i++) assert_true(ask(e, i).hash == want[0][i]);
    im_engine_close(e);
    remove_folder();
}

static void files_of_another_model(void **state)
{
    (void)state;
    make_folder();
    fill(0);
    size_t files = each_file(NULL, NULL);
    im_engine *e = open_with(windowed, folder, 1 << 28);
    assert_int_equal(each_file(NULL, NULL), 0);
    assert_true(stats_of(e).disk_dropped == files && stats_of(e).disk_bytes == 0);
    for (uint32_t i = 0; i < TEXTS; i++) assert_true(ask(e, i).hash == want[1][i]);
    assert_int_equal(stats_of(e).disk_hits, 0);
    im_engine_close(e);
    remove_folder();
}

/* ---- limits and failures ---------------------------------------------------------------------------------------------------------------- */

static void add_bytes(const char *path, void *user)
{
    struct stat about;
    assert_int_equal(stat(path, &about), 0);
    *(uint64_t *)user += (uint64_t)about.st_size;
}

static void the_limit_holds(void **state)
{
    (void)state;
    static const uint64_t limits[] = {1, 30000, 100000, 300000};
    for (size_t k = 0; k < 4; k++) {
        uint64_t bytes = 0;
        make_folder();
        im_engine *e = open_with(TINY_MODEL, folder, limits[k]);
        for (uint32_t i = 0; i < TEXTS; i++) assert_true(ask(e, i).hash == want[0][i]);
        im_engine_close(e);
        each_file(add_bytes, &bytes);
        assert_true(bytes <= limits[k] && (k < 2 || bytes > limits[k] / 2));
        e = open_with(TINY_MODEL, folder, limits[k]);
        assert_int_equal(stats_of(e).disk_bytes, bytes);
        for (uint32_t i = 0; i < TEXTS; i++) assert_true(ask(e, i).hash == want[0][i]);
        im_engine_close(e);
        remove_folder();
    }
}

typedef struct lines {
    char text[4000];
    int warnings;
} lines;

static void hear(void *user, im_log_level level, const char *line)
{
    lines *l = user;
    if (level != IM_LOG_WARNING) return;
    l->warnings++;
    strcat(strcat(l->text, line), "\n");
}

static im_engine *open_heard(const char *dir, lines *l)
{
    im_engine *e = NULL;
    im_engine_options o = sized(1, 64, CONTEXT, 1);
    *l = (lines){.warnings = 0};
    o.cache_ram = 8 << 20;
    o.cache_dir = dir;
    o.cache_disk = 1 << 28;
    o.log = hear;
    o.log_user = l;
    assert_int_equal(im_engine_open(&e, TINY_MODEL, &o, NULL), IM_OK);
    return e;
}

static void folders_that_cannot_be_used(void **state)
{
    (void)state;
    static lines l;
    make_folder();
    im_engine *first = open_heard(folder, &l);
    assert_int_equal(l.warnings, 0);
    im_engine *e = open_heard(folder, &l);
    assert_true(l.warnings == 1 && strstr(l.text, "another engine") != NULL);
    assert_true(ask(e, 1).hash == want[0][1] && ask(e, 1).cached == 299); /* in memory as ever */
    im_engine_close(e);
    im_engine_close(first);
    e = open_heard("/dev/null", &l);
    assert_true(l.warnings == 1 && ask(e, 1).hash == want[0][1]);
    im_engine_close(e);
    remove_folder();
    im_engine_options o = sized(1, 64, CONTEXT, 1);
    o.cache_dir = folder; /* but no room for it */
    l = (lines){.warnings = 0};
    o.log = hear;
    o.log_user = &l;
    assert_int_equal(im_engine_open(&e, TINY_MODEL, &o, NULL), IM_OK);
    assert_int_equal(l.warnings, 1);
    im_engine_close(e);
}

/* No file can have as many bytes as a page needs: as on a full disk. */
static void a_full_disk(void **state)
{
    (void)state;
    static lines l;
    struct rlimit whole, little;
    make_folder();
    im_engine *e = open_heard(folder, &l);
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &whole), 0);
    little = whole;
    little.rlim_cur = 1000;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &little), 0);
    for (uint32_t i = 0; i < TEXTS; i++) assert_true(ask(e, i).hash == want[0][i]);
    im_engine_close(e);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &whole), 0);
    assert_int_equal(l.warnings, 1); /* said once */
    assert_int_equal(each_file(NULL, NULL), 0);
    remove_folder();
}

static void memory_may_run_out_while_opening(void **state)
{
    (void)state;
    im_model *m = NULL;
    im_engine_options o = sized(1, 64, CONTEXT, 1);
    im_status status = IM_ERR_MEMORY;
    make_folder();
    fill(0);
    o.cache_ram = 8 << 20;
    o.cache_dir = folder;
    o.cache_disk = 1 << 28;
    assert_int_equal(im_model_open(&m, TINY_MODEL, NULL, NULL), IM_OK);
    for (long n = 1; status != IM_OK; n++) {
        im_engine *e = NULL;
        im__alloc_fail_after(n);
        status = im_engine_open_model(&e, m, &o, NULL);
        im__alloc_fail_after(0);
        assert_true((status == IM_OK || status == IM_ERR_MEMORY) && (e != NULL) == (status == IM_OK) && n < 1000);
        im_engine_close(e);
    }
    im_model_close(m);
    remove_folder();
}

/* ---- kills ------------------------------------------------------------------------------------------------------------------------------ */

static void child_works(int m)
{
    im_engine_options o = sized(1, 64, CONTEXT, 2);
    im_engine *e = NULL;
    o.cache_ram = 8 << 20;
    o.cache_dir = folder;
    o.cache_disk = 400000; /* so that files go as well */
    if (im_engine_open(&e, model(m), &o, NULL) != IM_OK) _exit(1);
    for (uint32_t i = 0;; i++) ask(e, i % TEXTS);
}

/* Killed at any moment, again and again; what is left in the folder is whole. */
static void killed_at_any_moment(void **state)
{
    (void)state;
    uint32_t random = 3;
    uint64_t hits = 0;
    for (int m = 0; m < 2; m++) {
        make_folder();
        for (int round = 0; round < 12; round++) {
            int status;
            pid_t child = fork();
            assert_true(child >= 0);
            if (child == 0) child_works(m);
            usleep(20000 + next_random(&random) % 60000);
            kill(child, SIGKILL);
            assert_int_equal(waitpid(child, &status, 0), child);
            assert_true(WIFSIGNALED(status));
            if (round % 4 != 3) continue;
            im_engine *e = open_with(model(m), folder, 400000);
            for (uint32_t i = 0; i < TEXTS; i++) assert_true(ask(e, i).hash == want[m][i]);
            assert_int_equal(stats_of(e).disk_dropped, 0);
            hits += stats_of(e).disk_hits;
            im_engine_close(e);
        }
        remove_folder();
    }
    assert_true(hits > 0);
}

static int set_up(void **state)
{
    (void)state;
    make_windowed_model(windowed, 100);
    for (int m = 0; m < 2; m++) {
        im_engine *e = open_with(model(m), NULL, 0);
        for (uint32_t i = 0; i < TEXTS; i++) want[m][i] = ask(e, i).hash;
        im_engine_close(e);
    }
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    return unlink(windowed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(killed_at_any_moment), /* first: children are made before there are threads */
        cmocka_unit_test(answers_survive_a_restart),
        cmocka_unit_test(a_new_text_behind_a_known_beginning),
        cmocka_unit_test(nothing_is_written_twice),
        cmocka_unit_test(damaged_files_are_never_used),
        cmocka_unit_test(what_is_no_file),
        cmocka_unit_test(files_of_another_model),
        cmocka_unit_test(the_limit_holds),
        cmocka_unit_test(folders_that_cannot_be_used),
        cmocka_unit_test(a_full_disk),
        cmocka_unit_test(memory_may_run_out_while_opening),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
