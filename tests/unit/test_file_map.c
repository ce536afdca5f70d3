/* SPDX-License-Identifier: Apache-2.0 */
#include "base/file_map.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[] = "/tmp/im_file_map_XXXXXX";
static char path[64];

static int make_folder(void **state)
{
    (void)state;
    if (mkdtemp(folder) == NULL) return -1;
    snprintf(path, sizeof path, "%s/file", folder);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    return rmdir(folder);
}

static void write_file(size_t n)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    for (size_t i = 0; i < n; i++) fputc((int)(i * 7 & 255), f);
    assert_int_equal(fclose(f), 0);
}

static void a_file_is_mapped_whole(void **state)
{
    (void)state;
    im__file_map map;
    write_file(100003);
    assert_int_equal(im__file_map_open(&map, path, NULL), IM_OK);
    unlink(path);
    assert_int_equal(map.size, 100003);
    for (size_t i = 0; i < map.size; i++) assert_int_equal(map.data[i], i * 7 & 255);
    im__file_map_close(&map);
    assert_null(map.data);
    im__file_map_close(&map);
}

static void an_empty_file_has_no_data(void **state)
{
    (void)state;
    im__file_map map;
    write_file(0);
    assert_int_equal(im__file_map_open(&map, path, NULL), IM_OK);
    unlink(path);
    assert_null(map.data);
    assert_int_equal(map.size, 0);
    im__file_release(map.data, 0);
    im__file_map_close(&map);
}

static void refuse(const char *what, const char *reason)
{
    im__file_map map;
    im_error err = {0};
    assert_int_equal(im__file_map_open(&map, what, &err), IM_ERR_IO);
    assert_int_equal(err.status, IM_ERR_IO);
    assert_non_null(strstr(err.message, what));
    assert_non_null(strstr(err.message, reason));
}

static void what_is_no_file_is_refused(void **state)
{
    (void)state;
    refuse(path, "No such file");
    refuse(folder, "folder");
    assert_int_equal(mkfifo(path, 0600), 0);
    refuse(path, "not a plain file"); /* and does not wait for a writer */
    unlink(path);
}

static void released_pages_can_be_read_again(void **state)
{
    (void)state;
    im__file_map map;
    write_file(100003);
    assert_int_equal(im__file_map_open(&map, path, NULL), IM_OK);
    im__file_release(map.data + 1, 100000);
    im__file_release(map.data + 4096, 0);
    for (size_t i = 0; i < map.size; i++) assert_int_equal(map.data[i], i * 7 & 255);
    im__file_map_close(&map);
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_is_mapped_whole),
        cmocka_unit_test(an_empty_file_has_no_data),
        cmocka_unit_test(what_is_no_file_is_refused),
        cmocka_unit_test(released_pages_can_be_read_again),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
