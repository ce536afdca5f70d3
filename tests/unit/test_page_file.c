/* SPDX-License-Identifier: Apache-2.0
 *
 * Files of KV pages: the layout, every way to be wrong, and the folder that they lie in.
 */
#include "base/bytes.h"
#include "base/mem.h"
#include "engine/page_file.h"
#include "engine/page_folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

enum { PAGES = 2, BYTES = 300, SIZE = IM__PAGE_FILE_HEADER + PAGES * IM__PAGE * 4 + BYTES };

static int32_t text[PAGES * IM__PAGE];

static im__page_key make_key(void)
{
    im__page_key key = {
        .pool = IM__POOL_WINDOW, .name = {0x1122334455667788u, 0x99aabbccddeeff00u}, .ids = text, .pages = PAGES, .bytes = BYTES};
    memset(key.fingerprint, 0x5a, sizeof key.fingerprint);
    for (int i = 0; i < PAGES * IM__PAGE; i++) text[i] = i * 77777;
    return key;
}

static void make_file(const im__page_key *key, unsigned char *file)
{
    for (int i = 0; i < BYTES; i++) file[SIZE - BYTES + i] = (unsigned char)(i * 7);
    im__page_file_seal(key, file);
}

static void the_layout(void **state)
{
    (void)state;
    unsigned char f[SIZE];
    im__page_key key = make_key();
    assert_int_equal(im__page_file_size(&key), SIZE);
    make_file(&key, f);
    assert_memory_equal(f, "IMKVPAGE", 8);
    assert_true(im__load_u32(f + 8) == 1 && im__load_u32(f + 12) == IM__POOL_WINDOW && f[16] == 0x5a && f[31] == 0x5a);
    assert_true(im__load_u64(f + 32) == key.name.low && im__load_u64(f + 40) == key.name.high);
    assert_true(im__load_u32(f + 48) == PAGES && im__load_u32(f + 52) == 0 && im__load_u64(f + 56) == BYTES);
    for (int i = 0; i < PAGES * IM__PAGE; i++) assert_int_equal((int32_t)im__load_u32(f + 80 + 4 * i), text[i]);
    assert_ptr_equal(im__page_file_check(&key, f, SIZE), f + SIZE - BYTES);
}

static void any_other_byte_or_length(void **state)
{
    (void)state;
    unsigned char f[SIZE + 1] = {0};
    im__page_key key = make_key();
    make_file(&key, f);
    for (size_t i = 0; i < SIZE; i++)
        for (int bit = 0; bit < 8; bit += 7) {
            f[i] ^= (unsigned char)(1 << bit);
            assert_null(im__page_file_check(&key, f, SIZE));
            f[i] ^= (unsigned char)(1 << bit);
        }
    for (size_t n = 0; n < SIZE; n++) assert_null(im__page_file_check(&key, f, n));
    assert_null(im__page_file_check(&key, f, SIZE + 1));
    assert_non_null(im__page_file_check(&key, f, SIZE));
}

/* Whole files, but of something else. */
static void any_other_key(void **state)
{
    (void)state;
    unsigned char f[SIZE];
    int32_t other_text[PAGES * IM__PAGE];
    im__page_key key = make_key(), other;
    make_file(&key, f);
    memcpy(other_text, text, sizeof text);
    other_text[3]++;
    other = key, other.pool = IM__POOL_FULL, assert_null(im__page_file_check(&other, f, SIZE));
    other = key, other.name.high++, assert_null(im__page_file_check(&other, f, SIZE));
    other = key, other.fingerprint[15]++, assert_null(im__page_file_check(&other, f, SIZE));
    other = key, other.ids = other_text, assert_null(im__page_file_check(&other, f, SIZE));
    other = key, other.pages--, other.bytes += IM__PAGE * 4, assert_null(im__page_file_check(&other, f, SIZE));
}

/* ---- the folder ------------------------------------------------------------------------------------------------------------------------- */

static char folder[64];
static const unsigned char us[16] = "us", them[16] = "them";

static im__folder *open_folder(uint64_t limit, const unsigned char *owner, size_t want_dropped)
{
    im__folder *f = NULL;
    size_t dropped = 99;
    im_error err;
    if (im__folder_open(&f, folder, limit, owner, &dropped, &err) != IM_OK) fail_msg("%s", err.message);
    assert_int_equal(dropped, want_dropped);
    return f;
}

static im__page_name name_of(uint64_t i) { return (im__page_name){i * 0x9e3779b97f4a7c15u, i}; }

static im_status put(im__folder *f, uint64_t i, size_t n)
{
    static char bytes[10000];
    im__page_name name = name_of(i);
    memset(bytes, (int)i, n);
    return im__folder_write(f, i % 2 == 0 ? IM__POOL_FULL : IM__POOL_WINDOW, &name, bytes, n, NULL);
}

static bool has(im__folder *f, uint64_t i)
{
    im__page_name name = name_of(i);
    return im__folder_has(f, i % 2 == 0 ? IM__POOL_FULL : IM__POOL_WINDOW, &name);
}

static bool touch(im__folder *f, uint64_t i)
{
    im__page_name name = name_of(i);
    return im__folder_touch(f, i % 2 == 0 ? IM__POOL_FULL : IM__POOL_WINDOW, &name);
}

static bool get(im__folder *f, uint64_t i, size_t n)
{
    static char bytes[10000];
    im__page_name name = name_of(i);
    if (!im__folder_read(f, i % 2 == 0 ? IM__POOL_FULL : IM__POOL_WINDOW, &name, bytes, n)) return false;
    for (size_t k = 0; k < n; k++) assert_int_equal((unsigned char)bytes[k], (unsigned char)i);
    return true;
}

static size_t files(uint64_t *bytes)
{
    size_t n = 0;
    DIR *d = opendir(folder);
    *bytes = 0;
    for (struct dirent *e; (e = readdir(d)) != NULL;) {
        struct stat about;
        if (strstr(e->d_name, ".kvpage") == NULL) continue;
        assert_int_equal(fstatat(dirfd(d), e->d_name, &about, AT_SYMLINK_NOFOLLOW), 0);
        assert_int_equal(about.st_mode & 0777, 0600);
        *bytes += (uint64_t)about.st_size;
        n++;
    }
    closedir(d);
    return n;
}

static void make_path(void)
{
    strcpy(folder, "/tmp/ironmule-folder-XXXXXX");
    assert_non_null(mkdtemp(folder));
    strcat(folder, "/pages");
}

static void remove_all(void)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%.*s'", (int)(strlen(folder) - 6), folder);
    assert_int_equal(system(command), 0);
}

static void what_is_written_is_there(void **state)
{
    (void)state;
    struct stat about;
    uint64_t bytes;
    make_path();
    im__folder *f = open_folder(1 << 20, us, 0);
    assert_int_equal(stat(folder, &about), 0);
    assert_int_equal(about.st_mode & 0777, 0700);
    for (uint64_t i = 0; i < 200; i++) assert_int_equal(put(f, i, 100 + i), IM_OK);
    for (int round = 0; round < 2; round++) {
        for (uint64_t i = 0; i < 200; i++)
            assert_true(has(f, i) && get(f, i, 100 + i) && !get(f, i, 99 + i) && !get(f, i, 101 + i));
        assert_false(has(f, 200) || touch(f, 200) || get(f, 200, 300));
        assert_int_equal(files(&bytes), 200);
        assert_true(bytes == im__folder_bytes(f) && bytes == 200 * 100 + 199 * 100);
        im__folder_close(f);
        f = open_folder(1 << 20, us, 0); /* and after a restart */
    }
    im__page_name name = name_of(7);
    im__folder_drop(f, IM__POOL_FULL, &name); /* of the other pool */
    assert_true(has(f, 7));
    im__folder_drop(f, IM__POOL_WINDOW, &name);
    assert_false(has(f, 7) || get(f, 7, 107));
    im__folder_close(f);
    remove_all();
}

static void the_least_recently_used_goes(void **state)
{
    (void)state;
    uint64_t bytes;
    make_path();
    im__folder *f = open_folder(10000, us, 0);
    for (uint64_t i = 0; i < 10; i++) assert_int_equal(put(f, i, 1000), IM_OK);
    assert_true(touch(f, 0) && touch(f, 1));
    assert_int_equal(put(f, 10, 1500), IM_OK); /* 2 and 3 go */
    assert_true(has(f, 0) && has(f, 1) && !has(f, 2) && !has(f, 3) && has(f, 4) && has(f, 10));
    im__folder_close(f);
    f = open_folder(5000, us, 0); /* the order survives; the limit holds at once */
    assert_true(files(&bytes) == 4 && bytes == 4500);
    assert_true(has(f, 0) && has(f, 1) && has(f, 9) && has(f, 10) && !has(f, 8));
    assert_int_equal(put(f, 11, 5001), IM_ERR_IO);
    assert_true(has(f, 0)); /* nothing goes for what cannot fit */
    im__folder_close(f);
    remove_all();
}

static void place(const char *name, const char *what)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(what, file);
    fclose(file);
}

static bool is_there(const char *name)
{
    char path[128];
    struct stat about;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return lstat(path, &about) == 0;
}

static void only_our_own_files(void **state)
{
    (void)state;
    static const char *const others[] = {"README", "0123456789abcdef0123456789abcdef-x.kvpage",
                                         "0123456789ABCDEF0123456789abcdef-f.kvpage", "0123456789abcdef0123456789abcde-f.kvpage",
                                         "0123456789abcdef0123456789abcdef-f.kvpage.txt"};
    static const char ours[] = "0123456789abcdef0123456789abcdef-f.kvpage", link[] = "1123456789abcdef0123456789abcdef-w.kvpage";
    char path[128];
    make_path();
    im__folder *f = open_folder(1 << 20, us, 0);
    assert_int_equal(put(f, 1, 10), IM_OK);
    im__folder_close(f);
    for (size_t i = 0; i < 5; i++) place(others[i], "mine");
    place(ours, "mine");
    place("writing.kvpage", "half");
    snprintf(path, sizeof path, "%s/%s", folder, link);
    assert_int_equal(symlink("/etc/passwd", path), 0);
    f = open_folder(1 << 20, us, 1); /* the link is none of ours */
    assert_false(is_there(link) || is_there("writing.kvpage"));
    assert_true(is_there(ours) && has(f, 1));
    im__folder_close(f);
    f = open_folder(1 << 20, them, 2);
    assert_false(is_there(ours) || has(f, 1));
    for (size_t i = 0; i < 5; i++) assert_true(is_there(others[i]));
    im__folder_close(f);
    f = open_folder(1 << 20, us, 0);
    im__folder_close(f);
    remove_all();
}

static void refused(const char *path, const char *word)
{
    im__folder *f = NULL;
    size_t dropped;
    im_error err;
    assert_int_equal(im__folder_open(&f, path, 1000, us, &dropped, &err), IM_ERR_IO);
    assert_null(f);
    if (strstr(err.message, word) == NULL) fail_msg("%s", err.message);
}

static void folders_that_cannot_be_used(void **state)
{
    (void)state;
    char path[128];
    make_path();
    refused("/tmp/ironmule-not-there/pages", "ironmule-not-there");
    im__folder *f = open_folder(1000, us, 0);
    refused(folder, "another engine");
    im__folder_close(f);
    place("file", "");
    snprintf(path, sizeof path, "%s/file", folder);
    refused(path, "file");
    assert_int_equal(chmod(folder, 0770), 0);
    refused(folder, "others may write");
    assert_int_equal(chmod(folder, 0500), 0);
    if (geteuid() != 0) refused(folder, "denied");
    assert_int_equal(chmod(folder, 0700), 0);
    remove_all();
}

static void memory_may_run_out(void **state)
{
    (void)state;
    size_t dropped;
    make_path();
    im__folder *f = open_folder(1 << 20, us, 0);
    for (uint64_t i = 0; i < 64; i++) assert_int_equal(put(f, i, 10), IM_OK);
    for (long n = 1; n <= 2; n++) { /* the list has to grow */
        im__alloc_fail_after(n);
        assert_int_equal(put(f, 64, 10), IM_ERR_MEMORY);
        im__alloc_fail_after(0);
        assert_true(has(f, 0) && has(f, 63) && !has(f, 64));
    }
    assert_int_equal(put(f, 64, 10), IM_OK);
    im__folder_close(f);
    im__alloc_fail_after(1);
    assert_int_equal(im__folder_open(&f, folder, 1000, us, &dropped, NULL), IM_ERR_MEMORY);
    im__alloc_fail_after(0);
    remove_all();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_layout),
        cmocka_unit_test(any_other_byte_or_length),
        cmocka_unit_test(any_other_key),
        cmocka_unit_test(what_is_written_is_there),
        cmocka_unit_test(the_least_recently_used_goes),
        cmocka_unit_test(only_our_own_files),
        cmocka_unit_test(folders_that_cannot_be_used),
        cmocka_unit_test(memory_may_run_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
