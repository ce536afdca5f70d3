/* SPDX-License-Identifier: Apache-2.0 */
#include "hub/hub_job.h"

#include "hub/hub_cache.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { READ_AT_ONCE = 8 << 20, MOST_IGNORED = 1 << 20 };

double job_clock(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void fail(hub_job *j, im_status status)
{
    j->state = JOB_FAILED;
    j->status = status;
}

static void fail_system(hub_job *j, const char *path) { fail(j, hub_fail(j->err, IM_ERR_IO, "%s: %s", path, strerror(errno))); }

static void note(const hub_job *j, const char *format, double seconds)
{
    char line[400];
    snprintf(line, sizeof line, format, j->file->path, seconds);
    j->hooks->note(j->hooks->user, line);
}

/* ---- opening and closing --------------------------------------------------------------------------------------------------------------------- */

static im_status open_transfer(hub_job *j, im_error *err)
{
    char *path = hub_escape(j->file->path, true), *url = NULL;
    if (path == NULL || asprintf(&url, "%s/%s/resolve/%s/%s", j->env->endpoint, j->id->name, j->listing->commit, path) < 0)
        url = NULL;
    im_status status = url == NULL ? hub_no_memory(err) : hub_transfer_open(&j->transfer, j->env, j->id, j->file->path, url, err);
    free(path);
    free(url);
    return status;
}

static bool has_size(const char *path, uint64_t *size)
{
    struct stat st;
    bool there = stat(path, &st) == 0 && S_ISREG(st.st_mode);
    *size = there ? (uint64_t)st.st_size : 0;
    return there;
}

/* The blob is there: its name was given when its digest was right. */
static bool is_here(const hub_job *j)
{
    uint64_t size;
    return has_size(j->blob, &size) && size == j->file->size;
}

im_status job_open(hub_job *j, const hub_env *e, const hub_id *id, const hub_listing *l, const hub_file *f, const hub_hooks *h,
                   im_error *err)
{
    char rest[100];
    *j = (hub_job){.env = e, .id = id, .listing = l, .file = f, .hooks = h, .err = err, .lock = -1, .fd = -1};
    snprintf(rest, sizeof rest, "blobs/%s", f->etag);
    j->blob = hub_cache_path(e->cache, id->name, rest);
    if (j->blob == NULL || asprintf(&j->partial, "%s.incomplete", j->blob) < 0) return hub_no_memory(err);
    if (is_here(j)) j->state = JOB_DONE;
    if (j->state == JOB_DONE)
        j->have = f->size;
    else if (has_size(j->partial, &j->have) && j->have > f->size)
        j->have = 0;
    return open_transfer(j, err);
}

static void close_fd(int *fd)
{
    if (*fd >= 0) close(*fd);
    *fd = -1;
}

void job_close(hub_job *j)
{
    hub_transfer_close(&j->transfer);
    hub_digest_free(j->digest);
    j->digest = NULL;
    free(j->blob);
    free(j->partial);
    j->blob = j->partial = NULL;
    close_fd(&j->fd);
    close_fd(&j->lock);
}

/* ---- the file --------------------------------------------------------------------------------------------------------------------------------- */

/* Nothing on disk is worth keeping. */
static bool begin_anew(hub_job *j)
{
    hub_digest_free(j->digest);
    j->digest = hub_digest_begin(j->file->etag, j->file->size);
    j->have = j->read = 0;
    j->begun_earlier = false;
    return j->digest != NULL && ftruncate(j->fd, 0) == 0 && lseek(j->fd, 0, SEEK_SET) == 0;
}

static void open_file(hub_job *j)
{
    struct stat st;
    if (hub_make_folders(j->partial, j->err) != IM_OK) {
        fail(j, j->err->status);
        return;
    }
    /* What an earlier run left is one file with one name; a second name means somebody else's file. */
    if (lstat(j->partial, &st) == 0 && (!S_ISREG(st.st_mode) || st.st_nlink != 1)) unlink(j->partial);
    j->fd = open(j->partial, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    j->digest = j->fd < 0 ? NULL : hub_digest_begin(j->file->etag, j->file->size);
    if (j->digest == NULL || fstat(j->fd, &st) != 0) {
        fail_system(j, j->partial);
        return;
    }
    j->have = j->most = (uint64_t)st.st_size;
    j->read = 0;
    j->begun_earlier = j->have > 0;
    j->state = JOB_READING;
    if (j->have > j->file->size && !begin_anew(j)) fail_system(j, j->partial);
}

static void take_lock(hub_job *j)
{
    im_error why;
    im_status status = hub_cache_lock(&j->lock, j->env->cache, j->id->name, j->file->etag, &why);
    if (status == IM_ERR_BUSY) {
        j->state = JOB_LOCKED;
        j->resume = job_clock() + 0.2;
        j->lock = -1;
        return;
    }
    if (status != IM_OK) {
        j->lock = -1;
        if (j->err != NULL) *j->err = why;
        fail(j, status);
    } else if (is_here(j)) { /* another process has brought it meanwhile */
        close_fd(&j->lock);
        j->have = j->file->size;
        j->state = JOB_DONE;
    } else {
        open_file(j);
    }
}

/* The digest is of the whole file, so what is there already is read once. */
static void read_some(hub_job *j)
{
    static char buffer[1 << 16];
    for (uint64_t end = j->read + READ_AT_ONCE; j->read < j->have && j->read < end;) {
        ssize_t n = pread(j->fd, buffer, sizeof buffer, (off_t)j->read);
        if (n <= 0 || !hub_digest_add(j->digest, buffer, (size_t)n)) {
            fail_system(j, j->partial);
            return;
        }
        j->read += (uint64_t)n;
    }
    if (j->read < j->have) return;
    if (lseek(j->fd, (off_t)j->have, SEEK_SET) < 0)
        fail_system(j, j->partial);
    else
        j->state = JOB_READY;
}

static void give_name(hub_job *j)
{
    if (fdatasync(j->fd) != 0 || rename(j->partial, j->blob) != 0) {
        fail_system(j, j->partial);
        return;
    }
    close_fd(&j->fd);
    close_fd(&j->lock);
    j->state = JOB_DONE;
}

/* All bytes are there. A wrong digest of a file that an earlier run began gets a second chance. */
static void finish(hub_job *j)
{
    if (hub_digest_matches(j->digest, j->file->etag)) {
        give_name(j);
    } else if (j->begun_earlier) {
        note(j, "%s: what an earlier run left was wrong; beginning anew", 0);
        if (begin_anew(j))
            j->state = JOB_READY;
        else
            fail_system(j, j->partial);
    } else {
        unlink(j->partial);
        fail(j, hub_fail(j->err, IM_ERR_FORMAT, "%s: %s arrived with another digest than the hub's metadata says; it was removed",
                         j->id->name, j->file->path));
    }
}

/* ---- the network ---------------------------------------------------------------------------------------------------------------------------- */

/* Looks at the head of the answer before its first byte is taken. False: the byte does not belong where the file ends. */
static bool accept_answer(hub_job *j, long status)
{
    j->accepted = true;
    if (status == 206) return j->transfer.ranged && j->transfer.range_from == j->have;
    return j->have == 0 || begin_anew(j); /* 200: the server sends all of it */
}

static bool write_all(int fd, const char *data, size_t n)
{
    while (n > 0) {
        ssize_t wrote = write(fd, data, n);
        if (wrote < 0 && errno == EINTR) continue;
        if (wrote <= 0) return false;
        data += wrote;
        n -= (size_t)wrote;
    }
    return true;
}

static size_t sink(char *data, size_t one, size_t n, void *user)
{
    hub_job *j = user;
    long status = 0;
    n *= one;
    curl_easy_getinfo(j->transfer.easy, CURLINFO_RESPONSE_CODE, &status);
    if (status != 200 && status != 206) { /* the text of a redirect or an error */
        j->ignored += n;
        return j->ignored <= MOST_IGNORED ? n : 0;
    }
    if (!j->accepted && !accept_answer(j, status)) {
        j->trouble = IM_ERR_FORMAT;
        return 0;
    }
    if (n > j->file->size - j->have) {
        j->trouble = IM_ERR_ARGUMENT;
        return 0;
    }
    if (!write_all(j->fd, data, n) || !hub_digest_add(j->digest, data, n)) {
        j->trouble = IM_ERR_IO;
        fail_system(j, j->partial);
        return 0;
    }
    j->have += n;
    j->read = j->have;
    j->fetched += n;
    /* A server that begins anew each time and never ends is a failure, however many bytes it sends. */
    if (j->have > j->most) {
        j->most = j->have;
        j->transfer.failures = 0;
    }
    return n;
}

static void start(hub_job *j)
{
    j->accepted = false;
    j->ignored = 0;
    j->trouble = IM_OK;
    if (hub_transfer_prepare(&j->transfer, j->have, sink, j, j->err) == IM_OK)
        j->state = JOB_FETCHING;
    else
        fail(j, IM_ERR_MEMORY);
}

/* The sink refused bytes. */
static void judge_trouble(hub_job *j)
{
    if (j->trouble == IM_ERR_IO) return; /* said already */
    unlink(j->partial);
    if (j->trouble == IM_ERR_FORMAT)
        fail(j, hub_fail(j->err, IM_ERR_IO, "%s: the server sends another part of %s than it was asked for", j->id->name,
                         j->file->path));
    else
        fail(j, hub_fail(j->err, IM_ERR_FORMAT, "%s: more bytes of %s arrive than the hub's metadata says; it was removed",
                         j->id->name, j->file->path));
}

static void pause_job(hub_job *j)
{
    j->state = JOB_PAUSED;
    j->resume = job_clock() + j->transfer.wait;
    if (j->transfer.wait >= 4) note(j, "%s: trying again in %.0f seconds", j->transfer.wait);
}

void job_ended(hub_job *j, CURLcode code)
{
    if (j->trouble != IM_OK) {
        judge_trouble(j);
        return;
    }
    switch (hub_transfer_judge(&j->transfer, code, j->err)) {
    case HUB_FOLLOW: j->state = JOB_READY; return;
    case HUB_RETRY: pause_job(j); return;
    case HUB_REFUSED: fail(j, j->err->status); return;
    case HUB_RESTART:
        if (begin_anew(j))
            j->state = JOB_READY;
        else
            fail_system(j, j->partial);
        return;
    case HUB_COMPLETE: break;
    }
    if (j->have == j->file->size) {
        finish(j);
    } else { /* the server thinks that it has sent all */
        j->transfer.wait = 0.5;
        if (++j->short_ends > 3)
            fail(j, hub_fail(j->err, IM_ERR_FORMAT, "%s: %s has fewer bytes at the server than the hub's metadata says",
                             j->id->name, j->file->path));
        else
            pause_job(j);
    }
}

void job_step(hub_job *j, bool may_start)
{
    if (j->state == JOB_NEW && may_start) take_lock(j);
    if (j->state == JOB_LOCKED && job_clock() >= j->resume) take_lock(j);
    if (j->state == JOB_READING) read_some(j);
    if (j->state == JOB_PAUSED && job_clock() >= j->resume) j->state = JOB_READY;
    if (j->state != JOB_READY) return;
    if (j->have == j->file->size) finish(j);
    if (j->state == JOB_READY) start(j);
}
