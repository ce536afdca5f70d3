/* SPDX-License-Identifier: Apache-2.0 */
#include "hub/hub_cache.h"
#include "hub/hub_job.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

enum { AT_ONCE = 4 };

typedef struct fetch {
    const hub_env *env;
    const hub_hooks *hooks;
    CURLM *multi;
    hub_job *job;
    size_t count;
    hub_progress p;
    double sampled; /* when the rate was last renewed */
    uint64_t sample;
} fetch;

/* ---- progress ------------------------------------------------------------------------------------------------------------------------------- */

static void tell(fetch *f)
{
    double now = job_clock(), passed = now - f->sampled;
    f->p.done = f->p.fetched = 0;
    f->p.files_done = 0;
    f->p.waiting = false;
    for (size_t i = 0; i < f->count; i++) {
        const hub_job *j = &f->job[i];
        f->p.done += j->have;
        f->p.fetched += j->fetched;
        f->p.files_done += j->state == JOB_DONE;
        f->p.waiting = f->p.waiting || j->state == JOB_LOCKED;
    }
    if (passed >= 0.5) {
        double rate = (double)(f->p.fetched - f->sample) / passed;
        f->p.rate = f->p.rate > 0 ? 0.8 * f->p.rate + 0.2 * rate : rate;
        f->sampled = now;
        f->sample = f->p.fetched;
    }
    f->hooks->progress(f->hooks->user, &f->p);
}

/* ---- the disk --------------------------------------------------------------------------------------------------------------------------------- */

static im_status check_space(const fetch *f, im_error *err)
{
    struct statvfs fs;
    char need_text[32], free_text[32];
    uint64_t need = 0;
    for (size_t i = 0; i < f->count; i++) need += f->job[i].file->size - f->job[i].have;
    if (need == 0 || statvfs(f->env->cache, &fs) != 0) return IM_OK;
    uint64_t room = (uint64_t)fs.f_bavail * fs.f_frsize;
    if (need <= room) return IM_OK;
    return hub_fail(err, IM_ERR_IO, "%s: %s are needed, and %s are free there; HF_HUB_CACHE names another place", f->env->cache,
                    hub_bytes(need_text, sizeof need_text, need), hub_bytes(free_text, sizeof free_text, room));
}

/* ---- the loop ---------------------------------------------------------------------------------------------------------------------------------- */

static size_t running(const fetch *f)
{
    size_t n = 0;
    for (size_t i = 0; i < f->count; i++) n += job_is_running(&f->job[i]);
    return n;
}

/* Moves every job on; *idle: nothing to do until libcurl or the clock has news. False: one has failed. */
static bool step_all(fetch *f, bool *idle)
{
    *idle = true;
    for (size_t i = 0; i < f->count; i++) {
        hub_job *j = &f->job[i];
        job_state before = j->state;
        if (job_is_over(j) || before == JOB_FETCHING) continue;
        job_step(j, running(f) < AT_ONCE);
        if (j->state == JOB_FAILED) return false;
        if (j->state == JOB_FETCHING) curl_multi_add_handle(f->multi, j->transfer.easy);
        if (j->state == JOB_READING || j->state == JOB_READY || (j->state == JOB_DONE && before != JOB_DONE)) *idle = false;
    }
    return true;
}

static hub_job *job_of(fetch *f, const CURL *easy)
{
    for (size_t i = 0; i < f->count; i++)
        if (f->job[i].transfer.easy == easy) return &f->job[i];
    return NULL;
}

static bool collect(fetch *f, bool *idle)
{
    int left;
    CURLMsg *m;
    while ((m = curl_multi_info_read(f->multi, &left)) != NULL) {
        CURLcode code = m->data.result;
        hub_job *j = job_of(f, m->easy_handle);
        curl_multi_remove_handle(f->multi, m->easy_handle);
        *idle = false;
        if (j != NULL) job_ended(j, code);
        if (j != NULL && j->state == JOB_FAILED) return false;
    }
    return true;
}

static im_status first_failure(const fetch *f)
{
    for (size_t i = 0; i < f->count; i++)
        if (f->job[i].state == JOB_FAILED) return f->job[i].status;
    return IM_ERR_INTERNAL;
}

static im_status run_all(fetch *f, im_error *err)
{
    for (;;) {
        int active;
        bool idle = true;
        if (!step_all(f, &idle)) return first_failure(f);
        curl_multi_perform(f->multi, &active);
        if (!collect(f, &idle)) return first_failure(f);
        tell(f);
        if (f->p.files_done == f->count) return IM_OK;
        if (f->hooks->stop(f->hooks->user))
            return hub_fail(err, IM_ERR_CANCELLED, "interrupted; the same command goes on where it stopped");
        if (idle) curl_multi_poll(f->multi, NULL, 0, 50, NULL);
    }
}

static im_status open_jobs(fetch *f, const hub_id *id, const hub_listing *l, const hub_choice *c, im_error *err)
{
    f->job = calloc(c->count + 1, sizeof *f->job);
    f->multi = curl_multi_init();
    if (f->job == NULL || f->multi == NULL) return hub_no_memory(err);
    f->p.total = c->bytes;
    f->p.files = c->count;
    f->sampled = job_clock();
    for (size_t i = 0; i < c->count; i++) {
        f->count++;
        im_status status = job_open(&f->job[i], f->env, id, l, &l->file[c->index[i]], f->hooks, err);
        if (status != IM_OK) return status;
    }
    return check_space(f, err);
}

static void close_jobs(fetch *f)
{
    for (size_t i = 0; i < f->count; i++) {
        if (f->job[i].state == JOB_FETCHING) curl_multi_remove_handle(f->multi, f->job[i].transfer.easy);
        job_close(&f->job[i]);
    }
    curl_multi_cleanup(f->multi);
    free(f->job);
}

static im_status publish(const hub_env *e, const hub_id *id, const hub_listing *l, const hub_choice *c, im_error *err)
{
    im_status status = IM_OK;
    for (size_t i = 0; status == IM_OK && i < c->count; i++)
        status = hub_cache_link(e->cache, id, l->commit, &l->file[c->index[i]], err);
    return status == IM_OK ? hub_cache_set_ref(e->cache, id, l->commit, err) : status;
}

im_status hub_fetch(const hub_env *e, const hub_id *id, const hub_listing *l, const hub_choice *c, const hub_hooks *h,
                    im_error *err)
{
    char inside[4096];
    im_error unheard;
    fetch f = {.env = e, .hooks = h};
    if (err == NULL) err = &unheard;
    if (e->offline) return hub_fail(err, IM_ERR_IO, "%s: nothing is fetched while HF_HUB_OFFLINE is set", id->name);
    snprintf(inside, sizeof inside, "%s/x", e->cache);
    im_status status = hub_make_folders(inside, err);
    if (status == IM_OK) status = open_jobs(&f, id, l, c, err);
    if (status == IM_OK) status = run_all(&f, err);
    close_jobs(&f);
    return status == IM_OK ? publish(e, id, l, c, err) : status;
}
