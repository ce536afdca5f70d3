/* SPDX-License-Identifier: Apache-2.0 */
#include "store/home.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST_BYTES = 16 << 20 };

static const char *set(const char *name)
{
    const char *v = getenv(name);
    return v == NULL || v[0] == 0 ? NULL : v;
}

char *store_expand(const char *path)
{
    char *out;
    const char *home = set("HOME");
    bool tilde = path[0] == '~' && (path[1] == '/' || path[1] == 0);
    return asprintf(&out, "%s%s", tilde ? home == NULL ? "." : home : "", path + (tilde ? 1 : 0)) < 0 ? NULL : out;
}

static char *path_in(const char *xdg, const char *otherwise, const char *file)
{
    char *out, *folder = NULL;
    if (set("IRONMULE_HOME") != NULL)
        folder = store_expand(set("IRONMULE_HOME"));
    else if (set(xdg) == NULL || set(xdg)[0] != '/') /* a relative one means another place in each folder: not valid */
        folder = store_expand(otherwise);
    else if (asprintf(&folder, "%s/ironmule", set(xdg)) < 0)
        folder = NULL;
    if (folder == NULL || asprintf(&out, "%s/%s", folder, file) < 0) out = NULL;
    free(folder);
    return out;
}

char *store_config_path(const char *file) { return path_in("XDG_CONFIG_HOME", "~/.config/ironmule", file); }
char *store_state_path(const char *file) { return path_in("XDG_STATE_HOME", "~/.local/state/ironmule", file); }

static im_status failed(im_error *err, const char *path) { return hub_fail(err, IM_ERR_IO, "%s: %s", path, strerror(errno)); }

im_status store_read(char **text, size_t *n, const char *path, im_error *err)
{
    struct stat st;
    *text = NULL;
    *n = 0;
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC); /* a pipe of this name is not waited for */
    FILE *f = fd < 0 ? NULL : fdopen(fd, "rb");
    if (f == NULL) return errno == ENOENT || errno == ENOTDIR ? IM_OK : failed(err, path);
    bool good = fstat(fileno(f), &st) == 0 && S_ISREG(st.st_mode) && st.st_size <= MOST_BYTES;
    char *data = good ? malloc((size_t)st.st_size + 1) : NULL;
    im_status status = !good          ? hub_fail(err, IM_ERR_IO, "%s: no file that could be ours", path)
                       : data == NULL ? hub_no_memory(err)
                                      : IM_OK;
    if (status == IM_OK) {
        *n = fread(data, 1, (size_t)st.st_size, f);
        data[*n] = 0;
        *text = data;
        if (ferror(f)) status = failed(err, path);
    }
    fclose(f);
    return status;
}

/* All folders above `path`; those that are missing become private. */
static im_status make_folders(const char *path, im_error *err)
{
    char *folder = strdup(path);
    im_status status = folder == NULL ? hub_no_memory(err) : IM_OK;
    for (char *c = folder == NULL ? NULL : folder + 1; status == IM_OK && (c = strchr(c, '/')) != NULL; c++) {
        *c = 0;
        if (mkdir(folder, 0700) != 0 && errno != EEXIST) status = failed(err, folder);
        *c = '/';
    }
    free(folder);
    return status;
}

static bool write_and_close(int fd, const char *text)
{
    size_t n = strlen(text), done = 0;
    bool good = fd >= 0;
    while (good && done < n) {
        ssize_t wrote = write(fd, text + done, n - done);
        if (wrote < 0 && errno == EINTR) continue;
        good = wrote > 0;
        done += good ? (size_t)wrote : 0;
    }
    good = good && fsync(fd) == 0;
    if (fd >= 0 && close(fd) != 0) good = false;
    return good;
}

static im_status replace(const char *path, const char *text, im_error *err)
{
    char *fresh;
    im_status status = IM_OK;
    if (asprintf(&fresh, "%s.XXXXXX", path) < 0) return hub_no_memory(err);
    int fd = mkstemp(fresh); /* 0600 */
    if (!write_and_close(fd, text) || rename(fresh, path) != 0) {
        status = failed(err, path);
        if (fd >= 0) unlink(fresh);
    }
    free(fresh);
    return status;
}

/* Where the name is a link, as of settings that are kept elsewhere, what it leads to is replaced and the link stays. */
im_status store_write(const char *path, const char *text, im_error *err)
{
    im_status status = make_folders(path, err);
    if (status != IM_OK) return status;
    char *real = realpath(path, NULL);
    status = replace(real == NULL ? path : real, text, err);
    free(real);
    return status;
}

im_status store_lock(int *fd, const char *path, im_error *err)
{
    char *name;
    im_status status = make_folders(path, err);
    if (status != IM_OK) return status;
    if (asprintf(&name, "%s.lock", path) < 0) return hub_no_memory(err);
    *fd = open(name, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    while (*fd >= 0 && flock(*fd, LOCK_EX) != 0)
        if (errno != EINTR) break;
    status = *fd < 0 ? failed(err, name) : IM_OK;
    free(name);
    return status;
}
