/* SPDX-License-Identifier: Apache-2.0
 *
 * What this process may use: limits of control groups read from folders that the test writes, and the real machine within reason.
 */
#include "base/control_group.h"
#include "base/machine.h"

#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static char root[64];

static int make_root(void **state)
{
    (void)state;
    strcpy(root, "/tmp/ironmule-machine-XXXXXX");
    return mkdtemp(root) == NULL;
}

static int remove_root(void **state)
{
    char command[128];
    (void)state;
    snprintf(command, sizeof command, "rm -r '%s'", root);
    return system(command);
}

/* A file below the root with its folders. */
static void file(const char *path, const char *text)
{
    char full[512];
    snprintf(full, sizeof full, "%s%s", root, path);
    for (char *slash = strchr(full + strlen(root) + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        mkdir(full, 0700);
        *slash = '/';
    }
    FILE *f = fopen(full, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void no_groups_at_all(void **state)
{
    (void)state;
    assert_int_equal(im__group_cores(root), 0);
    assert_true(im__group_memory(root) == UINT64_MAX);
}

static void version_2(void **state)
{
    (void)state;
    file("/proc/self/cgroup", "0::/user/service\n");
    file("/sys/fs/cgroup/user/service/cpu.max", "150000 100000\n");
    file("/sys/fs/cgroup/user/service/memory.max", "1000000000\n");
    file("/sys/fs/cgroup/user/service/memory.current", "600000000\n");
    file("/sys/fs/cgroup/user/service/memory.stat", "anon 1\nfile 300000000\nactive_file 100000000\ninactive_file 150000000\n");
    assert_int_equal(im__group_cores(root), 2); /* one and a half */
    assert_true(im__group_memory(root) == 650000000);
    file("/sys/fs/cgroup/user/cpu.max", "100000 100000\n"); /* the group above allows less */
    assert_int_equal(im__group_cores(root), 1);
    file("/sys/fs/cgroup/user/memory.max", "max\n");
    file("/sys/fs/cgroup/user/memory.current", "900000000\n");
    assert_true(im__group_memory(root) == 650000000);
    file("/sys/fs/cgroup/user/memory.max", "1100000000\n");
    assert_true(im__group_memory(root) == 200000000);
    file("/sys/fs/cgroup/user/service/memory.high", "500000000\n");
    assert_true(im__group_memory(root) == 150000000);
    file("/sys/fs/cgroup/user/service/memory.high", "100\n");
    assert_true(im__group_memory(root) == 0);
    file("/sys/fs/cgroup/user/service/cpu.max", "max 100000\n");
    file("/sys/fs/cgroup/user/cpu.max", "max 100000\n");
    assert_int_equal(im__group_cores(root), 0);
}

/* A container sees its own group at the top, under whatever path the host gave it. */
static void path_of_the_host(void **state)
{
    (void)state;
    file("/proc/self/cgroup", "0::/docker/0123456789abcdef\n");
    file("/sys/fs/cgroup/cpu.max", "300000 100000\n");
    file("/sys/fs/cgroup/memory.max", "5000\n");
    file("/sys/fs/cgroup/memory.current", "1000\n");
    assert_int_equal(im__group_cores(root), 3);
    assert_true(im__group_memory(root) == 4000);
}

static void version_1(void **state)
{
    (void)state;
    file("/proc/self/cgroup", "9:cpuset:/other\n7:memory:/box\n4:cpuacct,cpu:/box\n1:name=systemd:/x\n");
    file("/sys/fs/cgroup/cpu/box/cpu.cfs_quota_us", "250000\n");
    file("/sys/fs/cgroup/cpu/box/cpu.cfs_period_us", "100000\n");
    file("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
    file("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
    file("/sys/fs/cgroup/memory/box/memory.limit_in_bytes", "2000\n");
    file("/sys/fs/cgroup/memory/box/memory.usage_in_bytes", "1500\n");
    file("/sys/fs/cgroup/memory/box/memory.stat", "total_active_file 300\ntotal_inactive_file 400\nactive_file 9999\n");
    assert_int_equal(im__group_cores(root), 3);
    assert_true(im__group_memory(root) == 1200);
}

static void nonsense(void **state)
{
    (void)state;
    file("/proc/self/cgroup", "nonsense\n::\n0::/a/b\n");
    file("/sys/fs/cgroup/a/b/cpu.max", "-5 0\n");
    file("/sys/fs/cgroup/a/cpu.max", "");
    file("/sys/fs/cgroup/a/b/memory.max", "many\n");
    file("/sys/fs/cgroup/a/memory.max", "-1\n");
    assert_int_equal(im__group_cores(root), 0);
    assert_true(im__group_memory(root) == UINT64_MAX);
}

static void this_machine(void **state)
{
    (void)state;
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    assert_true(im__machine_cores() >= 1 && im__machine_cores() <= online);
    uint64_t memory = im__machine_memory(), all = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    assert_true(memory > 1 << 20 && memory <= all);
}

/* One processor in the mask is one core, whichever it is. */
static void the_mask_counts(void **state)
{
    (void)state;
    cpu_set_t before, one;
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET(cpu, &before)) continue;
        CPU_ZERO(&one);
        CPU_SET(cpu, &one);
        if (sched_setaffinity(0, sizeof one, &one) != 0) continue;
        assert_int_equal(im__machine_cores(), 1);
    }
    sched_setaffinity(0, sizeof before, &before);
}

static void the_clock_goes_on(void **state)
{
    (void)state;
    double last = im__now_ms();
    for (int i = 0; i < 1000; i++) {
        double now = im__now_ms();
        assert_true(now >= last);
        last = now;
    }
    usleep(20000);
    assert_true(im__now_ms() - last > 15);
}

int main(void)
{
#define WITH_ROOT(test) cmocka_unit_test_setup_teardown(test, make_root, remove_root)
    const struct CMUnitTest tests[] = {
        WITH_ROOT(no_groups_at_all),
        WITH_ROOT(version_2),
        WITH_ROOT(path_of_the_host),
        WITH_ROOT(version_1),
        WITH_ROOT(nonsense),
        cmocka_unit_test(this_machine),
        cmocka_unit_test(the_mask_counts),
        cmocka_unit_test(the_clock_goes_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
