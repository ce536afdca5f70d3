/* SPDX-License-Identifier: Apache-2.0 */
#include "hub/hub_cache.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static im_status failed(im_error *err, const char *path) { return hub_fail(err, IM_ERR_IO, "%s: %s", path, strerror(errno)); }

im_status hub_make_folders(const char *path, im_error *err)
{
    char *folder = strdup(path);
    im_status status = folder == NULL ? hub_no_memory(err) : IM_OK;
    for (char *c = folder == NULL ? NULL : folder + 1; status == IM_OK && (c = strchr(c, '/')) != NULL; c++) {
        *c = 0;
        if (mkdir(folder, 0777) != 0 && errno != EEXIST) status = failed(err, folder);
        *c = '/';
    }
    free(folder);
    return status;
}

/* ---- locks -------------------------------------------------------------------------------------------------------------------------------- */

/* The lock may have been taken on a file that its last owner removed meanwhile. */
static bool is_still_there(int fd, const char *path)
{
    struct stat mine, named;
    return fstat(fd, &mine) == 0 && stat(path, &named) == 0 && mine.st_ino == named.st_ino && mine.st_dev == named.st_dev;
}

static im_status lock_file(int *fd, const char *path, im_error *err)
{
    for (int attempt = 0; attempt < 100; attempt++) {
        *fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0664);
        if (*fd < 0) return failed(err, path);
        errno = 0;
        if (flock(*fd, LOCK_EX | LOCK_NB) == 0 && is_still_there(*fd, path)) return IM_OK;
        bool taken = errno == EWOULDBLOCK;
        close(*fd);
        if (taken) break;
    }
    return hub_fail(err, IM_ERR_BUSY, "%s: another process has it", path);
}

im_status hub_cache_lock(int *fd, const char *root, const char *name, const char *etag, im_error *err)
{
    char locks[4096];
    if (snprintf(locks, sizeof locks, "%s/.locks", root) >= (int)sizeof locks)
        return hub_fail(err, IM_ERR_ARGUMENT, "%s: too long", root);
    char *folder = hub_cache_path(locks, name, ""), *path = NULL;
    if (folder == NULL || asprintf(&path, "%s/%s.lock", folder, etag) < 0) {
        free(folder);
        return hub_no_memory(err);
    }
    im_status status = hub_make_folders(path, err);
    if (status == IM_OK) status = lock_file(fd, path, err);
    free(folder);
    free(path);
    return status;
}

/* ---- links and refs ----------------------------------------------------------------------------------------------------------------------- */

/* Does the name in the snapshot mean the blob? A file of the same size is not enough: its digest was never held against this one. */
static bool is_linked(const char *path, const char *blob)
{
    struct stat named, st;
    return stat(path, &named) == 0 && stat(blob, &st) == 0 && named.st_ino == st.st_ino && named.st_dev == st.st_dev;
}

/* The link appears under its name at once. */
static im_status place_link(const char *target, const char *path, im_error *err)
{
    char *fresh;
    if (asprintf(&fresh, "%s.%ld.new", path, (long)getpid()) < 0) return hub_no_memory(err);
    unlink(fresh);
    im_status status = symlink(target, fresh) != 0 || rename(fresh, path) != 0 ? failed(err, path) : IM_OK;
    if (status != IM_OK) unlink(fresh);
    free(fresh);
    return status;
}

im_status hub_cache_link(const char *root, const hub_id *id, const char *commit, const hub_file *f, im_error *err)
{
    char rest[1200], inside[100], target[4200] = "../../"; /* a path of 1000 bytes has at most 500 folders */
    for (const char *c = f->path; *c != 0; c++)
        if (*c == '/') strncat(target, "../", sizeof target - strlen(target) - 1);
    strncat(target, "blobs/", sizeof target - strlen(target) - 1);
    strncat(target, f->etag, sizeof target - strlen(target) - 1);
    snprintf(rest, sizeof rest, "snapshots/%s/%s", commit, f->path);
    snprintf(inside, sizeof inside, "blobs/%s", f->etag);
    char *path = hub_cache_path(root, id->name, rest), *blob = hub_cache_path(root, id->name, inside);
    im_status status = path == NULL || blob == NULL ? hub_no_memory(err) : IM_OK;
    if (status == IM_OK && !is_linked(path, blob)) {
        status = hub_make_folders(path, err);
        if (status == IM_OK) status = place_link(target, path, err);
    }
    free(path);
    free(blob);
    return status;
}

static im_status write_small(const char *path, const char *text, im_error *err)
{
    char *fresh;
    if (asprintf(&fresh, "%s.%ld.new", path, (long)getpid()) < 0) return hub_no_memory(err);
    unlink(fresh);
    int fd = open(fresh, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666); /* never through a link that was there */
    ssize_t n = (ssize_t)strlen(text);
    bool good = fd >= 0 && write(fd, text, (size_t)n) == n;
    if (fd >= 0) good = close(fd) == 0 && good;
    im_status status = good && rename(fresh, path) == 0 ? IM_OK : failed(err, path);
    if (status != IM_OK) unlink(fresh);
    free(fresh);
    return status;
}

/* A cache that nobody may write to is good enough while all is there. */
static bool says(const char *path, const char *text)
{
    char there[64] = "";
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, there, sizeof there);
    if (fd >= 0) close(fd);
    return n >= 0 && (size_t)n == strlen(text) && memcmp(there, text, (size_t)n) == 0;
}

im_status hub_cache_set_ref(const char *root, const hub_id *id, const char *commit, im_error *err)
{
    char rest[260];
    if (hub_is_commit(id->revision)) return IM_OK;
    snprintf(rest, sizeof rest, "refs/%s", id->revision);
    char *path = hub_cache_path(root, id->name, rest);
    if (path == NULL) return hub_no_memory(err);
    im_status status = IM_OK;
    if (!says(path, commit)) status = hub_make_folders(path, err);
    if (status == IM_OK && !says(path, commit))
        status = write_small(path, commit, err); /* without a newline: other readers take the file as it is */
    free(path);
    return status;
}

/* ---- removing -------------------------------------------------------------------------------------------------------------------------------- */

/* What removing one snapshot must know of the others: are their blobs this one's too? */
typedef struct others {
    const char *root, *name, *commit, *blob;
    bool used;
} others;

static void look_for_blob(void *user, const char *name, const char *commit, const char *refs, const char *folder)
{
    others *o = user;
    hub_listing l;
    (void)refs;
    if (o->used || strcmp(name, o->name) != 0 || strcmp(commit, o->commit) == 0 || hub_cache_files(&l, folder, NULL) != IM_OK)
        return;
    for (size_t i = 0; i < l.count && !o->used; i++) {
        char path[4096], *real;
        if (snprintf(path, sizeof path, "%s/%s", folder, l.file[i].path) >= (int)sizeof path) continue;
        real = realpath(path, NULL);
        o->used = real != NULL && strcmp(real, o->blob) == 0;
        free(real);
    }
    hub_listing_free(&l);
}

/* Does `path` (real; NULL: no) lie below the folder that `folder` means? */
static bool lies_in(const char *path, const char *folder)
{
    char *base = realpath(folder, NULL);
    size_t n = base == NULL ? 0 : strlen(base);
    bool inside = base != NULL && path != NULL && strncmp(path, base, n) == 0 && path[n] == '/';
    free(base);
    return inside;
}

/* A folder of the snapshot may be a link to somewhere else: what that holds is not ours to remove. */
static bool is_ours(const char *repo, const char *path)
{
    char *folder = strndup(path, (size_t)(strrchr(path, '/') - path)), *real = folder == NULL ? NULL : realpath(folder, NULL);
    bool ours = lies_in(real, repo);
    free(folder);
    free(real);
    return ours;
}

/* Removes a link of the snapshot, and its blob when no other snapshot has it. Only what lies inside the model's own folder `repo` is touched. */
static im_status remove_file(const char *root, const char *repo, const hub_id *id, const char *commit, const char *path,
                             uint64_t *bytes, im_error *err)
{
    struct stat st;
    if (!is_ours(repo, path)) return IM_OK;
    char *blob = realpath(path, NULL);
    others o = {root, id->name, commit, blob, false};
    bool inside = lies_in(blob, repo);
    if (inside) hub_cache_walk(root, look_for_blob, &o);
    if (inside && !o.used && stat(blob, &st) == 0) *bytes += (uint64_t)st.st_size;
    im_status status = unlink(path) == 0 ? IM_OK : failed(err, path);
    if (status == IM_OK && inside && !o.used && unlink(blob) != 0 && errno != ENOENT) status = failed(err, blob);
    free(blob);
    return status;
}

/* Removes folders that are empty, from the deepest up. */
static void remove_empty(const char *folder, int depth)
{
    DIR *dir = opendir(folder);
    for (struct dirent *e; dir != NULL && depth < 8 && (e = readdir(dir)) != NULL;) {
        char *path;
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0 || asprintf(&path, "%s/%s", folder, e->d_name) < 0)
            continue;
        struct stat st;
        if (lstat(path, &st) == 0 && S_ISDIR(st.st_mode)) remove_empty(path, depth + 1);
        free(path);
    }
    if (dir != NULL) closedir(dir);
    rmdir(folder);
}

/* Refs that mean a snapshot that is gone. */
static void drop_refs(const char *folder, const char *commit, int depth)
{
    DIR *dir = opendir(folder);
    for (struct dirent *e; dir != NULL && depth < 8 && (e = readdir(dir)) != NULL;) {
        char *path, word[64] = "";
        struct stat st;
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0 || asprintf(&path, "%s/%s", folder, e->d_name) < 0)
            continue;
        bool known = lstat(path, &st) == 0;
        FILE *f = known && S_ISREG(st.st_mode) ? fopen(path, "r") : NULL;
        if (f != NULL && fgets(word, sizeof word, f) != NULL && strncmp(word, commit, 40) == 0) unlink(path);
        if (f != NULL) fclose(f);
        if (known && S_ISDIR(st.st_mode)) drop_refs(path, commit, depth + 1);
        free(path);
    }
    if (dir != NULL) closedir(dir);
}

/* What other tools note beside a snapshot: its list of files, and the files that it does not have. */
static void drop_notes(const char *repo, const char *commit)
{
    char *tree = NULL, *absent = NULL;
    hub_listing l;
    if (asprintf(&tree, "%s/trees/%s.json", repo, commit) < 0) tree = NULL;
    if (asprintf(&absent, "%s/.no_exist/%s", repo, commit) < 0) absent = NULL;
    if (tree != NULL) unlink(tree);
    if (absent != NULL && hub_cache_files(&l, absent, NULL) == IM_OK) {
        for (size_t i = 0; i < l.count; i++) {
            char path[4096];
            if (snprintf(path, sizeof path, "%s/%s", absent, l.file[i].path) < (int)sizeof path && is_ours(repo, path))
                unlink(path);
        }
        hub_listing_free(&l);
    }
    free(tree);
    free(absent);
}

im_status hub_cache_remove(const char *root, const hub_id *id, const char *commit, uint64_t *bytes, im_error *err)
{
    char rest[64];
    hub_listing l = {.file = NULL};
    snprintf(rest, sizeof rest, "snapshots/%s", commit);
    char *folder = hub_cache_path(root, id->name, rest), *repo = hub_cache_path(root, id->name, ""),
         *refs = hub_cache_path(root, id->name, "refs");
    im_status status = folder == NULL || repo == NULL || refs == NULL ? hub_no_memory(err) : hub_cache_files(&l, folder, err);
    *bytes = 0;
    for (size_t i = 0; status == IM_OK && i < l.count; i++) {
        char path[4096];
        if (snprintf(path, sizeof path, "%s/%s", folder, l.file[i].path) < (int)sizeof path)
            status = remove_file(root, repo, id, commit, path, bytes, err);
    }
    if (status == IM_OK) {
        drop_refs(refs, commit, 0);
        drop_notes(repo, commit);
        remove_empty(folder, 0);
        remove_empty(repo, 0);
    }
    hub_listing_free(&l);
    free(folder);
    free(repo);
    free(refs);
    return status;
}
