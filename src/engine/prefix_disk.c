/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/prefix_disk.h"

#include "base/machine.h"
#include "base/thread.h"
#include "engine/page_folder.h"
#include "engine/page_shelf.h"

#include <stdio.h>
#include <string.h>

#define MOST_CLOSING_MS 5000

struct im__disk {
    im__disk_options o;
    im__folder *folder; /* NULL: none */
    im__shelf *shelf;   /* NULL: none */
    void *file;         /* one file as bytes */
    size_t file_bytes;

    pthread_t thread;
    bool started;
    pthread_mutex_t lock; /* of what follows, and of the folder's list */
    pthread_cond_t wake;
    im__disk_job *loads, *stores, *finished;
    bool closing;
    double until; /* closing: time to store what is left */
    im__disk_counts count;
    bool warned;
};

/* ---- one page --------------------------------------------------------------------------------------------------------------------------- */

static im__page_key key_of(const im__disk *d, const im__disk_job *job, im__pool_kind k, size_t i)
{
    im__page_key key = {.pool = k, .name = job->name[i], .ids = job->ids, .pages = (uint32_t)i + 1, .bytes = d->o.page_bytes[k]};
    memcpy(key.fingerprint, d->o.fingerprint, sizeof key.fingerprint);
    return key;
}

static void add(im__disk *d, uint64_t *count, uint64_t n)
{
    pthread_mutex_lock(&d->lock);
    *count += n;
    pthread_mutex_unlock(&d->lock);
}

static void say(im__disk *d, im_log_level level, const char *what, const char *why)
{
    char line[IM_ERROR_MESSAGE_MAX + 128];
    if (d->o.log == NULL) return;
    snprintf(line, sizeof line, "prefix cache on disk: %s%s%s", what, why[0] != 0 ? ": " : "", why);
    d->o.log(d->o.user, level, line);
}

/* A disk that is full is said once, until a file can be written again. */
static void could_not_write(im__disk *d, const im_error *err)
{
    if (!d->warned) say(d, IM_LOG_WARNING, "pages are not kept", err->message);
    d->warned = true;
}

static const void *find_on_shelf(im__disk *d, const im__page_key *key, size_t n)
{
    const void *file = d->shelf == NULL ? NULL : im__shelf_get(d->shelf, key->pool, &key->name, n);
    return file == NULL ? NULL : im__page_file_check(key, file, n);
}

static bool put_on_shelf(im__disk *d, const im__disk_job *job, const im__page_key *key, size_t n)
{
    if (d->shelf == NULL || !im__shelf_put(d->shelf, key->pool, &key->name, d->file, n, job->since)) return false;
    add(d, &d->count.host_writes, 1);
    return true;
}

static const void *find_in_folder(im__disk *d, const im__disk_job *job, const im__page_key *key, size_t n)
{
    im__pool_kind k = key->pool;
    if (d->folder == NULL || !im__folder_has(d->folder, k, &key->name))
        return NULL; /* it had to make room since it was looked for */
    bool read = im__folder_read(d->folder, k, &key->name, d->file, n);
    const void *page = read ? im__page_file_check(key, d->file, n) : NULL;
    if (page != NULL) {
        put_on_shelf(d, job, key, n);
        return page;
    }
    im__folder_drop(d->folder, k, &key->name);
    add(d, &d->count.dropped, 1);
    say(d, IM_LOG_DEBUG, "a file was damaged or another's, and dropped", "");
    return NULL;
}

static bool load_page(im__disk *d, const im__disk_job *job, im__pool_kind k, size_t i)
{
    im__page_key key = key_of(d, job, k, i);
    size_t n = im__page_file_size(&key);
    const void *page = find_on_shelf(d, &key, n);
    uint64_t *hits = page != NULL ? &d->count.host_hits : &d->count.hits;
    if (page == NULL) page = find_in_folder(d, job, &key, n);
    if (page == NULL || !d->o.backend->page_write(d->o.backend, k, job->page[k][i], page)) return false;
    add(d, hits, 1);
    return true;
}

static bool store_page(im__disk *d, const im__disk_job *job, im__pool_kind k, size_t i)
{
    im_error err;
    im__page_key key = key_of(d, job, k, i);
    size_t n = im__page_file_size(&key);
    bool on_shelf = d->shelf == NULL || im__shelf_touch(d->shelf, k, &key.name),
         in_folder = d->folder == NULL || im__folder_touch(d->folder, k, &key.name);
    if (on_shelf && in_folder) return true;
    if (!d->o.backend->page_read(d->o.backend, k, job->page[k][i], (char *)d->file + n - key.bytes)) return false;
    im__page_file_seal(&key, d->file);
    bool kept = on_shelf || put_on_shelf(d, job, &key, n);
    if (in_folder) return kept || d->folder != NULL; /* on a shelf that is full of this text there is no place for its end */
    if (im__folder_write(d->folder, k, &key.name, d->file, n, &err) != IM_OK) {
        could_not_write(d, &err);
        return false;
    }
    d->warned = false;
    add(d, &d->count.writes, 1);
    return true;
}

/* ---- jobs ------------------------------------------------------------------------------------------------------------------------------- */

static bool one(im__disk *d, const im__disk_job *job, size_t i)
{
    for (int k = 0; k < IM__POOLS; k++) {
        if (job->page[k][i] < 0 || d->o.page_bytes[k] == 0) continue;
        bool good = job->load ? load_page(d, job, (im__pool_kind)k, i) : store_page(d, job, (im__pool_kind)k, i);
        if (!good) return false;
    }
    return true;
}

static bool gives_up(im__disk *d, im__disk_job *job)
{
    pthread_mutex_lock(&d->lock);
    bool late = d->closing && (job->load || im__now_ms() > d->until);
    pthread_mutex_unlock(&d->lock);
    return late || atomic_load(&job->cancel);
}

static im__disk_job *take_first(im__disk_job **list)
{
    im__disk_job *job = *list;
    if (job != NULL) *list = job->next;
    return job;
}

static void append(im__disk_job **list, im__disk_job *job)
{
    while (*list != NULL) list = &(*list)->next;
    job->next = NULL;
    *list = job;
}

/* The beginning of a text is used whenever its end is: it becomes the latest, so that ends go first. */
static void touch(im__disk *d, const im__disk_job *job)
{
    im__disk_use(d, job->name, job->done);
    for (size_t i = job->done; d->folder != NULL && i-- > 0;)
        for (int k = 0; k < IM__POOLS; k++) im__folder_touch(d->folder, (im__pool_kind)k, &job->name[i]);
}

void im__disk_use(im__disk *d, const im__page_name *name, size_t end)
{
    for (size_t i = end; d->shelf != NULL && i-- > 0;)
        for (int k = 0; k < IM__POOLS; k++) im__shelf_touch(d->shelf, (im__pool_kind)k, &name[i]);
}

static void begin(const im__disk *d, im__disk_job *job)
{
    if (d->shelf != NULL) job->since = im__shelf_now(d->shelf);
}

static void finish(im__disk *d, im__disk_job *job)
{
    touch(d, job);
    pthread_mutex_lock(&d->lock);
    append(&d->finished, job);
    pthread_mutex_unlock(&d->lock);
    d->o.news(d->o.user);
}

static void load(im__disk *d)
{
    for (;;) {
        pthread_mutex_lock(&d->lock);
        im__disk_job *job = take_first(&d->loads);
        pthread_mutex_unlock(&d->lock);
        if (job == NULL) return;
        begin(d, job);
        while (job->done < job->end && !gives_up(d, job) && one(d, job, job->done)) job->done++;
        finish(d, job);
    }
}

static void store(im__disk *d, im__disk_job *job)
{
    begin(d, job);
    while (job->done < job->end && !gives_up(d, job) && one(d, job, job->done)) {
        job->done++;
        load(d);
    }
    finish(d, job);
}

static void *disk_main(void *disk)
{
    im__disk *d = disk;
    for (bool open = true; open;) {
        load(d);
        pthread_mutex_lock(&d->lock);
        while (d->loads == NULL && d->stores == NULL && !d->closing) pthread_cond_wait(&d->wake, &d->lock);
        im__disk_job *job = d->loads == NULL ? take_first(&d->stores) : NULL;
        open = !d->closing || job != NULL || d->loads != NULL;
        pthread_mutex_unlock(&d->lock);
        if (job != NULL) store(d, job);
    }
    return NULL;
}

void im__disk_submit(im__disk *d, im__disk_job *job)
{
    job->done = job->begin;
    pthread_mutex_lock(&d->lock);
    append(job->load ? &d->loads : &d->stores, job);
    pthread_cond_signal(&d->wake);
    pthread_mutex_unlock(&d->lock);
}

im__disk_job *im__disk_finished(im__disk *d)
{
    pthread_mutex_lock(&d->lock);
    im__disk_job *list = d->finished;
    d->finished = NULL;
    pthread_mutex_unlock(&d->lock);
    return list;
}

bool im__disk_has(im__disk *d, im__pool_kind pool, const im__page_name *name)
{
    return (d->shelf != NULL && im__shelf_has(d->shelf, pool, name)) ||
           (d->folder != NULL && im__folder_has(d->folder, pool, name));
}

im__disk_counts im__disk_count(im__disk *d)
{
    pthread_mutex_lock(&d->lock);
    im__disk_counts count = d->count;
    pthread_mutex_unlock(&d->lock);
    count.bytes = d->folder == NULL ? 0 : im__folder_bytes(d->folder);
    count.host_bytes = d->shelf == NULL ? 0 : im__shelf_bytes(d->shelf);
    return count;
}

/* ---- life ------------------------------------------------------------------------------------------------------------------------------- */

static im_status open_disk(im__disk *d, im_error *err)
{
    size_t dropped = 0;
    for (int k = 0; k < IM__POOLS; k++) {
        im__page_key most = {.pages = (uint32_t)d->o.most_pages, .bytes = d->o.page_bytes[k]};
        if (im__page_file_size(&most) > d->file_bytes) d->file_bytes = im__page_file_size(&most);
    }
    d->file = im__aligned_alloc(d->file_bytes);
    if (d->file == NULL) return im__fail(err, IM_ERR_MEMORY, "out of memory");
    if (d->o.folder != NULL) IM__TRY(im__folder_open(&d->folder, d->o.folder, d->o.limit, d->o.fingerprint, &dropped, err));
    if (d->o.host > 0) IM__TRY(im__shelf_new(&d->shelf, d->o.host, err));
    d->count.dropped = dropped;
    if (!im__thread_start(&d->thread, disk_main, d)) return im__fail(err, IM_ERR_MEMORY, "cannot start a thread for files");
    d->started = true;
    return IM_OK;
}

im_status im__disk_open(im__disk **out, const im__disk_options *o, im_error *err)
{
    im__disk *d = im__calloc(1, sizeof *d);
    if (d == NULL) return im__fail(err, IM_ERR_MEMORY, "out of memory");
    d->o = *o;
    pthread_mutex_init(&d->lock, NULL);
    pthread_cond_init(&d->wake, NULL);
    im_status status = open_disk(d, err);
    d->o.folder = NULL; /* the caller's string is not ours to keep */
    if (status == IM_OK)
        *out = d;
    else
        im__disk_close(d);
    return status;
}

void im__disk_stop(im__disk *d)
{
    if (d == NULL || !d->started) return;
    pthread_mutex_lock(&d->lock);
    d->closing = true;
    d->until = im__now_ms() + MOST_CLOSING_MS;
    pthread_cond_signal(&d->wake);
    pthread_mutex_unlock(&d->lock);
    pthread_join(d->thread, NULL);
    d->started = false;
}

void im__disk_close(im__disk *d)
{
    if (d == NULL) return;
    im__disk_stop(d);
    if (d->folder != NULL) im__folder_close(d->folder);
    im__shelf_free(d->shelf);
    im__aligned_free(d->file, d->file_bytes);
    pthread_mutex_destroy(&d->lock);
    pthread_cond_destroy(&d->wake);
    im__free(d);
}
