/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/page_folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define ENDING ".kvpage"
#define WRITING "writing" ENDING
enum { NAME_LENGTH = 32 + 2 + sizeof ENDING }; /* with the zero behind it */

typedef struct entry {
    im__page_name name;
    im__pool_kind pool;
    uint64_t bytes;
    int64_t used; /* nanoseconds */
} entry;

struct im__folder {
    int folder, lock_file;
    uint64_t limit, bytes;
    pthread_mutex_t lock; /* of the list */
    entry *list;
    size_t count, room;
    int32_t *bucket; /* [buckets] index into the list + 1, or 0; open addressing */
    size_t buckets;
    int64_t latest;
};

/* ---- names of files ---------------------------------------------------------------------------------------------------------------------- */

static void file_name(char out[NAME_LENGTH], im__pool_kind pool, const im__page_name *n)
{
    snprintf(out, NAME_LENGTH, "%016llx%016llx-%c" ENDING, (unsigned long long)n->high, (unsigned long long)n->low,
             pool == IM__POOL_FULL ? 'f' : 'w');
}

static bool hex(const char *s, uint64_t *out)
{
    *out = 0;
    for (int i = 0; i < 16; i++) {
        const char *digit = s[i] == 0 ? NULL : strchr("0123456789abcdef", s[i]);
        if (digit == NULL) return false;
        *out = *out << 4 | (uint64_t)(digit - "0123456789abcdef");
    }
    return true;
}

static bool parse_name(const char *s, im__pool_kind *pool, im__page_name *n)
{
    char again[NAME_LENGTH];
    if (strlen(s) != NAME_LENGTH - 1 || !hex(s, &n->high) || !hex(s + 16, &n->low)) return false;
    *pool = s[33] == 'f' ? IM__POOL_FULL : IM__POOL_WINDOW;
    file_name(again, *pool, n);
    return strcmp(s, again) == 0;
}

/* ---- the list ---------------------------------------------------------------------------------------------------------------------------- */

static size_t first_bucket(const im__folder *f, im__pool_kind pool, const im__page_name *n)
{
    return (n->low + (size_t)pool * 0x9e3779b9u) & (f->buckets - 1);
}

static size_t find_bucket(const im__folder *f, im__pool_kind pool, const im__page_name *n)
{
    size_t at = first_bucket(f, pool, n);
    for (; f->bucket[at] != 0; at = (at + 1) & (f->buckets - 1)) {
        const entry *e = &f->list[f->bucket[at] - 1];
        if (e->pool == pool && e->name.low == n->low && e->name.high == n->high) break;
    }
    return at;
}

static entry *find(const im__folder *f, im__pool_kind pool, const im__page_name *n)
{
    int32_t i = f->buckets == 0 ? 0 : f->bucket[find_bucket(f, pool, n)];
    return i == 0 ? NULL : &f->list[i - 1];
}

static void fill_buckets(im__folder *f)
{
    memset(f->bucket, 0, f->buckets * sizeof *f->bucket);
    for (size_t i = 0; i < f->count; i++) f->bucket[find_bucket(f, f->list[i].pool, &f->list[i].name)] = (int32_t)i + 1;
}

/* Room for one more entry. */
static bool grow(im__folder *f)
{
    if (f->count < f->room) return true;
    size_t room = f->room == 0 ? 64 : 2 * f->room;
    int32_t *bucket = im__calloc(2 * room, sizeof *bucket);
    entry *list = bucket == NULL ? NULL : im__realloc(f->list, room, sizeof *list);
    if (list == NULL) {
        im__free(bucket);
        return false;
    }
    im__free(f->bucket);
    f->list = list;
    f->bucket = bucket;
    f->room = room;
    f->buckets = 2 * room;
    fill_buckets(f);
    return true;
}

static bool list_add(im__folder *f, const entry *e)
{
    pthread_mutex_lock(&f->lock);
    bool good = grow(f);
    if (good) {
        f->list[f->count++] = *e;
        f->bucket[find_bucket(f, e->pool, &e->name)] = (int32_t)f->count;
        f->bytes += e->bytes;
    }
    pthread_mutex_unlock(&f->lock);
    return good;
}

static void list_remove(im__folder *f, entry *e)
{
    pthread_mutex_lock(&f->lock);
    f->bytes -= e->bytes;
    *e = f->list[--f->count];
    fill_buckets(f);
    pthread_mutex_unlock(&f->lock);
}

bool im__folder_has(im__folder *f, im__pool_kind pool, const im__page_name *name)
{
    pthread_mutex_lock(&f->lock);
    bool there = find(f, pool, name) != NULL;
    pthread_mutex_unlock(&f->lock);
    return there;
}

uint64_t im__folder_bytes(im__folder *f)
{
    pthread_mutex_lock(&f->lock);
    uint64_t bytes = f->bytes;
    pthread_mutex_unlock(&f->lock);
    return bytes;
}

/* ---- files ------------------------------------------------------------------------------------------------------------------------------- */

/* Each use is later than the one before, whatever the clock. */
static int64_t use_time(im__folder *f)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    int64_t now = (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
    f->latest = now > f->latest ? now : f->latest + 1;
    return f->latest;
}

static void set_time(const im__folder *f, const char *name, int64_t used)
{
    struct timespec t = {.tv_sec = used / 1000000000, .tv_nsec = used % 1000000000};
    struct timespec both[2] = {t, t};
    utimensat(f->folder, name, both, AT_SYMLINK_NOFOLLOW);
}

static void remove_entry(im__folder *f, entry *e)
{
    char name[NAME_LENGTH];
    file_name(name, e->pool, &e->name);
    unlinkat(f->folder, name, 0);
    list_remove(f, e);
}

static void make_room(im__folder *f, uint64_t more)
{
    while (f->count > 0 && f->bytes + more > f->limit) {
        entry *oldest = &f->list[0];
        for (size_t i = 1; i < f->count; i++)
            if (f->list[i].used < oldest->used) oldest = &f->list[i];
        remove_entry(f, oldest);
    }
}

static bool read_all(int file, void *bytes, size_t n)
{
    struct stat about;
    if (fstat(file, &about) != 0 || !S_ISREG(about.st_mode) || about.st_size < 0 || (uint64_t)about.st_size != n) return false;
    for (size_t at = 0; at < n;) {
        ssize_t got = read(file, (char *)bytes + at, n - at);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return false;
        at += (size_t)got;
    }
    return true;
}

bool im__folder_read(im__folder *f, im__pool_kind pool, const im__page_name *n, void *bytes, size_t size)
{
    char name[NAME_LENGTH];
    file_name(name, pool, n);
    int file = openat(f->folder, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    if (file < 0) return false;
    bool good = read_all(file, bytes, size);
    close(file);
    return good;
}

static bool write_all(int file, const void *bytes, size_t n)
{
    for (size_t at = 0; at < n;) {
        ssize_t put = write(file, (const char *)bytes + at, n - at);
        if (put < 0 && errno == EINTR) continue;
        if (put <= 0) return false;
        at += (size_t)put;
    }
    return true;
}

/* A file that is whole or not there. Its time is ours: the system's clock for files may stand still between two of them. */
static im_status write_file(im__folder *f, const char *name, const void *bytes, size_t n, int64_t used, im_error *err)
{
    int file = openat(f->folder, WRITING, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (file < 0) return im__fail(err, IM_ERR_IO, "a file cannot be made: %s", strerror(errno));
    bool good = write_all(file, bytes, n) && fsync(file) == 0;
    int why = errno;
    good = close(file) == 0 && good;
    if (good) set_time(f, WRITING, used);
    if (good && renameat(f->folder, WRITING, f->folder, name) == 0) return IM_OK;
    if (good) why = errno;
    unlinkat(f->folder, WRITING, 0);
    return im__fail(err, IM_ERR_IO, "%zu bytes cannot be written: %s", n, strerror(why));
}

im_status im__folder_write(im__folder *f, im__pool_kind pool, const im__page_name *n, const void *bytes, size_t size, im_error *err)
{
    char name[NAME_LENGTH];
    entry e = {.name = *n, .pool = pool, .bytes = size, .used = use_time(f)};
    if (size > f->limit) return im__fail(err, IM_ERR_IO, "a page of %zu bytes exceeds the limit of the folder", size);
    make_room(f, size);
    file_name(name, pool, n);
    IM__TRY(write_file(f, name, bytes, size, e.used, err));
    if (list_add(f, &e)) return IM_OK;
    unlinkat(f->folder, name, 0);
    return im__fail(err, IM_ERR_MEMORY, "out of memory");
}

bool im__folder_touch(im__folder *f, im__pool_kind pool, const im__page_name *n)
{
    char name[NAME_LENGTH];
    entry *e = find(f, pool, n); /* only this thread changes the list */
    if (e == NULL) return false;
    e->used = use_time(f);
    file_name(name, pool, n);
    set_time(f, name, e->used);
    return true;
}

void im__folder_drop(im__folder *f, im__pool_kind pool, const im__page_name *n)
{
    entry *e = find(f, pool, n);
    if (e != NULL) remove_entry(f, e);
}

/* ---- opening ------------------------------------------------------------------------------------------------------------------------------ */

static im_status open_folder(im__folder *f, const char *path, im_error *err)
{
    struct stat about;
    if (mkdir(path, 0700) != 0 && errno != EEXIST) return im__fail(err, IM_ERR_IO, "%s: cannot be made: %s", path, strerror(errno));
    f->folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (f->folder < 0 || fstat(f->folder, &about) != 0) return im__fail(err, IM_ERR_IO, "%s: %s", path, strerror(errno));
    if (about.st_uid != geteuid()) return im__fail(err, IM_ERR_IO, "%s: belongs to another user", path);
    if ((about.st_mode & 022) != 0) return im__fail(err, IM_ERR_IO, "%s: others may write into it", path);
    if (faccessat(f->folder, ".", W_OK | X_OK, AT_EACCESS) != 0) return im__fail(err, IM_ERR_IO, "%s: %s", path, strerror(errno));
    f->lock_file = openat(f->folder, "lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (f->lock_file < 0) return im__fail(err, IM_ERR_IO, "%s/lock: %s", path, strerror(errno));
    if (flock(f->lock_file, LOCK_EX | LOCK_NB) != 0) return im__fail(err, IM_ERR_IO, "%s: another engine uses it", path);
    return IM_OK;
}

/* Whose files are these? The lock file says; if they are another's they will not be of use. */
static bool same_owner(im__folder *f, const unsigned char fingerprint[16])
{
    unsigned char owner[16];
    if (pread(f->lock_file, owner, sizeof owner, 0) == sizeof owner && memcmp(owner, fingerprint, sizeof owner) == 0) return true;
    return false;
}

static void take_note(im__folder *f, const char *file, bool ours, size_t *dropped)
{
    struct stat about;
    entry e = {.used = 0};
    if (!parse_name(file, &e.pool, &e.name) || fstatat(f->folder, file, &about, AT_SYMLINK_NOFOLLOW) != 0) return;
    e.bytes = (uint64_t)about.st_size;
    e.used = (int64_t)about.st_mtim.tv_sec * 1000000000 + about.st_mtim.tv_nsec;
    if (ours && S_ISREG(about.st_mode) && list_add(f, &e)) {
        if (e.used > f->latest) f->latest = e.used;
        return;
    }
    unlinkat(f->folder, file, 0);
    ++*dropped;
}

static im_status scan(im__folder *f, bool ours, size_t *dropped, im_error *err)
{
    int copy = dup(f->folder);
    DIR *dir = copy < 0 ? NULL : fdopendir(copy);
    if (dir == NULL) {
        int why = errno;
        if (copy >= 0) close(copy);
        return im__fail(err, IM_ERR_IO, "the folder cannot be read: %s", strerror(why));
    }
    for (struct dirent *at; (at = readdir(dir)) != NULL;) take_note(f, at->d_name, ours, dropped);
    closedir(dir);
    return IM_OK;
}

static im_status open_all(im__folder *f, const char *path, const unsigned char fingerprint[16], size_t *dropped, im_error *err)
{
    IM__TRY(open_folder(f, path, err));
    unlinkat(f->folder, WRITING, 0);
    bool ours = same_owner(f, fingerprint);
    IM__TRY(scan(f, ours, dropped, err));
    if (!ours && pwrite(f->lock_file, fingerprint, 16, 0) != 16)
        return im__fail(err, IM_ERR_IO, "%s/lock: %s", path, strerror(errno));
    make_room(f, 0);
    return IM_OK;
}

im_status im__folder_open(im__folder **out, const char *path, uint64_t limit, const unsigned char fingerprint[16], size_t *dropped,
                          im_error *err)
{
    im__folder *f = im__calloc(1, sizeof *f);
    if (f == NULL) return im__fail(err, IM_ERR_MEMORY, "out of memory");
    *dropped = 0;
    f->folder = f->lock_file = -1;
    f->limit = limit;
    pthread_mutex_init(&f->lock, NULL);
    im_status status = open_all(f, path, fingerprint, dropped, err);
    if (status == IM_OK)
        *out = f;
    else
        im__folder_close(f);
    return status;
}

void im__folder_close(im__folder *f)
{
    if (f == NULL) return;
    if (f->lock_file >= 0) close(f->lock_file);
    if (f->folder >= 0) close(f->folder);
    pthread_mutex_destroy(&f->lock);
    im__free(f->list);
    im__free(f->bucket);
    im__free(f);
}
