/* SPDX-License-Identifier: Apache-2.0 */
#include "hub/hub_transfer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST_METADATA = 64 << 20 };

typedef struct answer {
    hub_transfer t;
    const hub_hooks *hooks;
    char *data;
    size_t len, room;
    bool too_long;
} answer;

const char *hub_net_missing(void) { return NULL; }

static size_t on_body(char *data, size_t one, size_t n, void *user)
{
    answer *a = user;
    n *= one;
    a->too_long = a->len + n > MOST_METADATA;
    if (a->too_long) return 0;
    if (a->len + n >= a->room) {
        size_t room = 2 * (a->len + n) + 1;
        char *grown = realloc(a->data, room);
        if (grown == NULL) return 0;
        a->data = grown;
        a->room = room;
    }
    memcpy(a->data + a->len, data, n);
    a->len += n;
    return n;
}

static int on_tick(void *user, curl_off_t a, curl_off_t b, curl_off_t c, curl_off_t d)
{
    answer *x = user;
    (void)a;
    (void)b;
    (void)c;
    (void)d;
    return x->hooks->stop(x->hooks->user);
}

/* False: told to stop meanwhile. */
static bool sleep_watchfully(const hub_hooks *h, double seconds)
{
    for (; seconds > 0 && !h->stop(h->user); seconds -= 0.05) nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
    return !h->stop(h->user);
}

static void say_wait(const hub_hooks *h, const char *what, double seconds)
{
    char line[200];
    if (seconds < 4) return;
    snprintf(line, sizeof line, "%.120s: trying again in %.0f seconds", what, seconds);
    h->note(h->user, line);
}

/* One attempt; *again: there must be another one. */
static im_status attempt(answer *a, bool *again, im_error *err)
{
    im_status status = hub_transfer_prepare(&a->t, 0, on_body, a, err);
    *again = false;
    if (status != IM_OK) return status;
    a->len = 0;
    curl_easy_setopt(a->t.easy, CURLOPT_NOPROGRESS, 0L);
    curl_easy_setopt(a->t.easy, CURLOPT_XFERINFOFUNCTION, on_tick);
    curl_easy_setopt(a->t.easy, CURLOPT_XFERINFODATA, a);
    CURLcode code = curl_easy_perform(a->t.easy);
    if (code == CURLE_ABORTED_BY_CALLBACK) return hub_fail(err, IM_ERR_CANCELLED, "interrupted");
    if (a->too_long)
        return hub_fail(err, IM_ERR_FORMAT, "%s: the hub's list of files is longer than %d MiB", a->t.id->name,
                        MOST_METADATA >> 20);
    hub_verdict verdict = hub_transfer_judge(&a->t, code, err);
    if (verdict == HUB_REFUSED) return err->status;
    *again = verdict != HUB_COMPLETE;
    if (verdict != HUB_RETRY) return IM_OK;
    say_wait(a->hooks, a->t.id->name, a->t.wait);
    return sleep_watchfully(a->hooks, a->t.wait) ? IM_OK : hub_fail(err, IM_ERR_CANCELLED, "interrupted");
}

im_status hub_list(hub_listing *out, const hub_env *e, const hub_id *id, const hub_hooks *h, im_error *err)
{
    bool again = true;
    im_error unheard;
    answer a = {.hooks = h};
    if (err == NULL) err = &unheard;
    if (e->offline) return hub_fail(err, IM_ERR_IO, "%s: nothing is fetched while HF_HUB_OFFLINE is set", id->name);
    char *revision = hub_escape(id->revision, false), *url = NULL;
    if (revision == NULL || asprintf(&url, "%s/api/models/%s/revision/%s?blobs=true", e->endpoint, id->name, revision) < 0)
        url = NULL;
    free(revision);
    im_status status = url == NULL ? hub_no_memory(err) : hub_transfer_open(&a.t, e, id, NULL, url, err);
    while (status == IM_OK && again) status = attempt(&a, &again, err);
    if (status == IM_OK) status = hub_listing_parse(out, a.data == NULL ? "" : a.data, a.len, id, err);
    hub_transfer_close(&a.t);
    free(a.data);
    free(url);
    return status;
}
