/* SPDX-License-Identifier: Apache-2.0 */
#include "base/control_group.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define PATH_BYTES 4096
#define NO_LIMIT UINT64_MAX

/* One folder of a hierarchy. */
typedef struct group {
    const char *root, *mount; /* "/sys/fs/cgroup", or of version 1 that with the controller */
    char path[PATH_BYTES];    /* below the mount, "" at its top */
} group;

static FILE *open_file(const group *g, const char *name)
{
    char path[3 * PATH_BYTES];
    int n = snprintf(path, sizeof path, "%s%s%s/%s", g->root, g->mount, g->path, name);
    return n < 0 || (size_t)n >= sizeof path ? NULL : fopen(path, "r");
}

/* The first one or two numbers of a file; a word in place of a number ("max") ends the list. Returns how many there are. */
static int numbers(const group *g, const char *name, int64_t out[2])
{
    FILE *f = open_file(g, name);
    int n = f == NULL ? 0 : fscanf(f, "%" SCNd64 " %" SCNd64, &out[0], &out[1]);
    if (f != NULL) fclose(f);
    return n < 0 ? 0 : n;
}

static uint64_t number(const group *g, const char *name)
{
    int64_t v[2];
    return numbers(g, name, v) > 0 && v[0] >= 0 ? (uint64_t)v[0] : NO_LIMIT;
}

/* Whether a name is in a list like "cpu,cpuacct". */
static bool is_listed(const char *list, const char *name)
{
    size_t n = strlen(name);
    for (const char *at = list; at != NULL; at = strchr(at, ',')) {
        if (*at == ',') at++;
        if (strncmp(at, name, n) == 0 && (at[n] == ',' || at[n] == 0)) return true;
    }
    return false;
}

/* Where this process stands: the path behind "0::" (version 2), or behind the controller's name (version 1). */
static bool find_path(group *g, const char *controller)
{
    char file[PATH_BYTES], line[PATH_BYTES + 128];
    bool found = false;
    snprintf(file, sizeof file, "%s/proc/self/cgroup", g->root);
    FILE *f = fopen(file, "r");
    while (f != NULL && !found && fgets(line, sizeof line, f) != NULL) {
        char *names = strchr(line, ':'), *path = names == NULL ? NULL : strchr(names + 1, ':');
        if (path == NULL) continue;
        *path++ = 0;
        path[strcspn(path, "\n")] = 0;
        found = controller == NULL ? names[1] == 0 : is_listed(names + 1, controller);
        if (found) snprintf(g->path, sizeof g->path, "%s", strcmp(path, "/") == 0 ? "" : path);
    }
    if (f != NULL) fclose(f);
    return found;
}

/* To the group above; false at the top. A path that is not there (that of the host, seen from a container) leads there as well. */
static bool go_up(group *g)
{
    char *slash = strrchr(g->path, '/');
    if (slash == NULL) return false;
    *slash = 0;
    return true;
}

/* ---- processor time ------------------------------------------------------------------------------------------------------------------ */

static int least_cores(int best, int64_t quota, int64_t period)
{
    if (quota <= 0 || period <= 0) return best;
    int64_t cores = quota / period + (quota % period != 0);
    return cores < INT32_MAX && (best == 0 || cores < best) ? (int)cores : best;
}

int im__group_cores(const char *root)
{
    group two = {.root = root, .mount = "/sys/fs/cgroup"}, one = {.root = root, .mount = "/sys/fs/cgroup/cpu"};
    int64_t v[2], period[2];
    int cores = 0;
    find_path(&two, NULL);
    do
        if (numbers(&two, "cpu.max", v) == 2) cores = least_cores(cores, v[0], v[1]);
    while (go_up(&two));
    find_path(&one, "cpu");
    do
        if (numbers(&one, "cpu.cfs_quota_us", v) > 0 && numbers(&one, "cpu.cfs_period_us", period) > 0)
            cores = least_cores(cores, v[0], period[0]);
    while (go_up(&one));
    return cores;
}

/* ---- memory --------------------------------------------------------------------------------------------------------------------------- */

/* Bytes of the lists of files that nobody has to keep. */
static uint64_t reclaimable(const group *g, const char *active, const char *inactive)
{
    char name[64];
    uint64_t value, sum = 0;
    FILE *f = open_file(g, "memory.stat");
    while (f != NULL && fscanf(f, "%63s %" SCNu64, name, &value) == 2)
        if (strcmp(name, active) == 0 || strcmp(name, inactive) == 0) sum += value;
    if (f != NULL) fclose(f);
    return sum;
}

static uint64_t left(uint64_t limit, uint64_t used, uint64_t files)
{
    if (limit == NO_LIMIT || used == NO_LIMIT) return NO_LIMIT;
    used = used > files ? used - files : 0;
    return limit > used ? limit - used : 0;
}

static uint64_t least(uint64_t a, uint64_t b) { return a < b ? a : b; }

uint64_t im__group_memory(const char *root)
{
    group two = {.root = root, .mount = "/sys/fs/cgroup"}, one = {.root = root, .mount = "/sys/fs/cgroup/memory"};
    uint64_t bytes = NO_LIMIT;
    find_path(&two, NULL);
    do {
        uint64_t limit = least(number(&two, "memory.max"), number(&two, "memory.high"));
        bytes = least(bytes, left(limit, number(&two, "memory.current"), reclaimable(&two, "active_file", "inactive_file")));
    } while (go_up(&two));
    find_path(&one, "memory");
    do
        bytes = least(bytes, left(number(&one, "memory.limit_in_bytes"), number(&one, "memory.usage_in_bytes"),
                                  reclaimable(&one, "total_active_file", "total_inactive_file")));
    while (go_up(&one));
    return bytes;
}
