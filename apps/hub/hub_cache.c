/* SPDX-License-Identifier: Apache-2.0 */
#include "hub/hub_cache.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { DEEPEST = 8 };

char *hub_cache_path(const char *root, const char *name, const char *rest)
{
    char *out;
    const char *slash = strchr(name, '/');
    int half = slash == NULL ? 0 : (int)(slash - name);
    int n = asprintf(&out, "%s/models--%.*s%s%s%s%s", root, half, name, slash == NULL ? "" : "--", slash == NULL ? name : slash + 1,
                     rest[0] == 0 ? "" : "/", rest);
    return n < 0 ? NULL : out;
}

/* ---- revisions --------------------------------------------------------------------------------------------------------------------- */

/* The first line of a small file without the blanks around it; "" when there is none. */
static void read_word(char *out, size_t size, const char *path)
{
    out[0] = 0;
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC); /* a pipe of this name is not waited for */
    ssize_t n = fd < 0 ? -1 : read(fd, out, size - 1);
    if (fd >= 0) close(fd);
    out[n > 0 ? n : 0] = 0;
    out[strcspn(out, " \t\r\n")] = 0;
}

static bool is_folder(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

static char *joined(const char *folder, const char *name)
{
    char *out;
    return asprintf(&out, "%s/%s", folder, name) < 0 ? NULL : out;
}

/* Commits that are here, for a message. */
static void list_snapshots(char *out, size_t size, const char *repo)
{
    size_t n = 0;
    char *folder = joined(repo, "snapshots");
    DIR *dir = folder == NULL ? NULL : opendir(folder);
    snprintf(out, size, "none");
    for (struct dirent *e; dir != NULL && (e = readdir(dir)) != NULL && n + 45 < size;)
        if (hub_is_commit(e->d_name)) n += (size_t)snprintf(out + n, size - n, "%s%s", n > 0 ? ", " : "", e->d_name);
    if (dir != NULL) closedir(dir);
    free(folder);
}

static im_status not_here(const char *root, const char *repo, const hub_id *id, im_error *err)
{
    char commits[300];
    if (!is_folder(repo))
        return hub_fail(err, IM_ERR_IO, "%s is not in the cache %s; 'ironmule models add %s --download' fetches it", id->name, root,
                        id->name);
    list_snapshots(commits, sizeof commits, repo);
    return hub_fail(err, IM_ERR_IO,
                    "%s is in the cache %s, but not its revision \"%s\"; commits there: %s (ask for one as %s@COMMIT)", id->name,
                    root, id->revision, commits, id->name);
}

im_status hub_cache_snapshot(char **folder, char commit[41], const char *root, const hub_id *id, im_error *err)
{
    char word[64];
    char *repo = hub_cache_path(root, id->name, ""), *ref = NULL, *found = NULL;
    if (repo == NULL || asprintf(&ref, "%s/refs/%s", repo, id->revision) < 0) {
        free(repo);
        return hub_no_memory(err);
    }
    snprintf(word, sizeof word, "%.40s", hub_is_commit(id->revision) ? id->revision : "");
    if (word[0] == 0) read_word(word, sizeof word, ref);
    if (hub_is_commit(word) && asprintf(&found, "%s/snapshots/%s", repo, word) < 0) found = NULL;
    im_status status = found != NULL && is_folder(found) ? IM_OK : not_here(root, repo, id, err);
    if (status == IM_OK) {
        memcpy(commit, word, 41);
        *folder = found;
    } else {
        free(found);
    }
    free(repo);
    free(ref);
    return status;
}

/* ---- files of a snapshot ------------------------------------------------------------------------------------------------------------- */

static im_status add_folder(hub_listing *out, const char *root, const char *inside, int depth, im_error *err);

static im_status add_entry(hub_listing *out, const char *root, const char *path, int depth, im_error *err)
{
    struct stat st;
    char *whole = joined(root, path);
    if (whole == NULL) return hub_no_memory(err);
    bool there = stat(whole, &st) == 0;
    free(whole);
    if (there && S_ISDIR(st.st_mode) && depth < DEEPEST) return add_folder(out, root, path, depth + 1, err);
    return there && S_ISREG(st.st_mode) ? hub_listing_add(out, path, (uint64_t)st.st_size, "", err) : IM_OK;
}

static im_status add_folder(hub_listing *out, const char *root, const char *inside, int depth, im_error *err)
{
    im_status status = IM_OK;
    char *folder = inside[0] == 0 ? strdup(root) : joined(root, inside);
    DIR *dir = folder == NULL ? NULL : opendir(folder);
    if (dir == NULL && depth == 0) status = hub_fail(err, IM_ERR_IO, "%s: %s", root, strerror(errno));
    for (struct dirent *e; status == IM_OK && dir != NULL && (e = readdir(dir)) != NULL;) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) continue;
        char *path = inside[0] == 0 ? strdup(e->d_name) : joined(inside, e->d_name);
        status = path == NULL ? hub_no_memory(err) : add_entry(out, root, path, depth, err);
        free(path);
    }
    if (dir != NULL) closedir(dir);
    free(folder);
    return status;
}

static int by_path(const void *a, const void *b) { return strcmp(((const hub_file *)a)->path, ((const hub_file *)b)->path); }

im_status hub_cache_files(hub_listing *out, const char *folder, im_error *err)
{
    *out = (hub_listing){.file = NULL};
    im_status status = add_folder(out, folder, "", 0, err);
    if (status != IM_OK)
        hub_listing_free(out);
    else if (out->count > 0)
        qsort(out->file, out->count, sizeof *out->file, by_path);
    return status;
}

im_status hub_cache_find(char **path, char commit[41], const char *root, const hub_id *id, im_error *err)
{
    hub_listing l = {.file = NULL};
    hub_choice c = {.index = NULL};
    char *folder = NULL;
    im_status status = hub_cache_snapshot(&folder, commit, root, id, err);
    if (status == IM_OK) status = hub_cache_files(&l, folder, err);
    if (status == IM_OK) status = hub_choose(&c, &l, id, NULL, err);
    if (status == IM_OK) {
        *path = c.model == SIZE_MAX ? strdup(folder) : joined(folder, l.file[c.model].path);
        if (*path == NULL) status = hub_no_memory(err);
    }
    hub_choice_free(&c);
    hub_listing_free(&l);
    free(folder);
    return status;
}

/* ---- walking --------------------------------------------------------------------------------------------------------------------------- */

/* Adds the names of refs below `inside` that hold this commit. */
static void refs_of(char *out, size_t size, const char *refs, const char *inside, const char *commit, int depth)
{
    char word[64];
    char *folder = inside[0] == 0 ? strdup(refs) : joined(refs, inside);
    DIR *dir = folder == NULL ? NULL : opendir(folder);
    for (struct dirent *e; dir != NULL && (e = readdir(dir)) != NULL;) {
        if (e->d_name[0] == '.') continue;
        char *name = inside[0] == 0 ? strdup(e->d_name) : joined(inside, e->d_name),
             *path = name == NULL ? NULL : joined(refs, name);
        if (path != NULL && is_folder(path) && depth < DEEPEST) {
            refs_of(out, size, refs, name, commit, depth + 1);
        } else if (path != NULL) {
            read_word(word, sizeof word, path);
            size_t n = strlen(out);
            if (strcmp(word, commit) == 0 && n + strlen(name) + 2 < size)
                snprintf(out + n, size - n, "%s%s", n > 0 ? " " : "", name);
        }
        free(name);
        free(path);
    }
    if (dir != NULL) closedir(dir);
    free(folder);
}

static void walk_repo(const char *root, const char *entry, hub_cache_visit *visit, void *user)
{
    char name[256], refs[400];
    const char *half = strstr(entry + 8, "--");
    snprintf(name, sizeof name, "%.*s%s%s", half == NULL ? (int)strlen(entry + 8) : (int)(half - entry - 8), entry + 8,
             half == NULL ? "" : "/", half == NULL ? "" : half + 2);
    char *repo = joined(root, entry), *folder = repo == NULL ? NULL : joined(repo, "snapshots"),
         *ref_folder = repo == NULL ? NULL : joined(repo, "refs");
    DIR *dir = folder == NULL || ref_folder == NULL ? NULL : opendir(folder);
    for (struct dirent *e; dir != NULL && (e = readdir(dir)) != NULL;) {
        char *snapshot = hub_is_commit(e->d_name) ? joined(folder, e->d_name) : NULL;
        if (snapshot != NULL && is_folder(snapshot)) {
            refs[0] = 0;
            refs_of(refs, sizeof refs, ref_folder, "", e->d_name, 0);
            visit(user, name, e->d_name, refs, snapshot);
        }
        free(snapshot);
    }
    if (dir != NULL) closedir(dir);
    free(repo);
    free(folder);
    free(ref_folder);
}

void hub_cache_walk(const char *root, hub_cache_visit *visit, void *user)
{
    struct dirent **entry;
    int n = scandir(root, &entry, NULL, alphasort);
    for (int i = 0; i < n; i++) {
        if (strncmp(entry[i]->d_name, "models--", 8) == 0) walk_repo(root, entry[i]->d_name, visit, user);
        free(entry[i]);
    }
    if (n >= 0) free(entry);
}
