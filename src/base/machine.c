/* SPDX-License-Identifier: Apache-2.0 */
#include "base/machine.h"

#include "base/control_group.h"

#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static bool read_line(const char *path, char *line, int size)
{
    FILE *f = fopen(path, "r");
    bool good = f != NULL && fgets(line, size, f) != NULL;
    if (f != NULL) fclose(f);
    return good;
}

/* A number that is the same for hyper-threads of one core, or the CPU's own number where the system does not say. */
static long core_of(int cpu)
{
    char path[96], line[64];
    long core = cpu, package = 0;
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/core_id", cpu);
    if (read_line(path, line, sizeof line)) core = strtol(line, NULL, 10);
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/physical_package_id", cpu);
    if (read_line(path, line, sizeof line)) package = strtol(line, NULL, 10);
    return package * 65536 + core;
}

static int cores_of_mask(void)
{
#if defined(__linux__)
    cpu_set_t set;
    long seen[CPU_SETSIZE];
    int count = 0;
    if (sched_getaffinity(0, sizeof set, &set) == 0) {
        for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
            if (!CPU_ISSET(cpu, &set)) continue;
            long core = core_of(cpu);
            int i = 0;
            while (i < count && seen[i] != core) i++;
            if (i == count) seen[count++] = core;
        }
        if (count > 0) return count;
    }
#endif
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online < 1 ? 1 : (int)online;
}

int im__machine_cores(void)
{
    int cores = cores_of_mask(), quota = im__group_cores("");
    return quota > 0 && quota < cores ? quota : cores;
}

static uint64_t system_available(void)
{
    char line[128];
    unsigned long long kib;
    uint64_t bytes = 0;
    FILE *f = fopen("/proc/meminfo", "r");
    if (f == NULL) return 0;
    while (bytes == 0 && fgets(line, sizeof line, f) != NULL)
        if (sscanf(line, "MemAvailable: %llu kB", &kib) == 1) bytes = (uint64_t)kib * 1024;
    fclose(f);
    return bytes;
}

uint64_t im__machine_memory(void)
{
    uint64_t available = system_available(), group = im__group_memory("");
    return group < available || (available == 0 && group != UINT64_MAX) ? group : available;
}

double im__now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}
