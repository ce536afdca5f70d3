/* SPDX-License-Identifier: Apache-2.0 */
#include "hub/hub_transfer.h"

#include <ctype.h>
#include <ironmule/ironmule.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

enum { MOST_HOPS = 10, MOST_FAILURES = 5, MOST_HEAD = 512 << 10 };
static const double longest_wait = 120;

/* ---- addresses --------------------------------------------------------------------------------------------------------------------------- */

char *hub_escape(const char *text, bool keep_slashes)
{
    char *out = malloc(3 * strlen(text) + 1), *to = out;
    for (; to != NULL && *text != 0; text++) {
        unsigned char c = (unsigned char)*text;
        if (isalnum(c) || strchr("-._~", c) != NULL || (keep_slashes && c == '/'))
            *to++ = (char)c;
        else
            to += sprintf(to, "%%%02X", c);
    }
    if (to != NULL) *to = 0;
    return out;
}

/* The part of an address, or NULL; free with curl_free. */
static char *part(const char *url, CURLUPart which, unsigned flags)
{
    char *out = NULL;
    CURLU *u = curl_url();
    if (u != NULL && curl_url_set(u, CURLUPART_URL, url, 0) == CURLUE_OK && curl_url_get(u, which, &out, flags) != CURLUE_OK)
        out = NULL;
    curl_url_cleanup(u);
    return out;
}

static bool same_part(const char *a, const char *b, CURLUPart which)
{
    char *x = part(a, which, CURLU_DEFAULT_PORT), *y = part(b, which, CURLU_DEFAULT_PORT);
    bool same = x != NULL && y != NULL && strcasecmp(x, y) == 0;
    curl_free(x);
    curl_free(y);
    return same;
}

static bool is_own(const hub_transfer *t)
{
    return same_part(t->url, t->env->endpoint, CURLUPART_SCHEME) && same_part(t->url, t->env->endpoint, CURLUPART_HOST) &&
           same_part(t->url, t->env->endpoint, CURLUPART_PORT);
}

static bool is_plain_http(const char *url) { return strncasecmp(url, "http:", 5) == 0; }

/* A token may go over an open connection only inside this machine. */
static bool is_private(const hub_env *e)
{
    char *host = part(e->endpoint, CURLUPART_HOST, 0);
    bool local = host != NULL && (strcmp(host, "localhost") == 0 || strcmp(host, "127.0.0.1") == 0 || strcmp(host, "[::1]") == 0);
    curl_free(host);
    return local || !is_plain_http(e->endpoint);
}

/* ---- an attempt ----------------------------------------------------------------------------------------------------------------------------- */

im_status hub_transfer_open(hub_transfer *t, const hub_env *e, const hub_id *id, const char *what, const char *url, im_error *err)
{
    *t = (hub_transfer){.env = e, .id = id, .what = what, .retry_after = -1};
    t->first = strdup(url);
    t->url = strdup(url);
    t->easy = curl_easy_init();
    if (t->first != NULL && t->url != NULL && t->easy != NULL) return IM_OK;
    hub_transfer_close(t);
    return hub_no_memory(err);
}

void hub_transfer_close(hub_transfer *t)
{
    curl_easy_cleanup(t->easy);
    curl_slist_free_all(t->headers);
    free(t->first);
    free(t->url);
    free(t->location);
    *t = (hub_transfer){.easy = NULL};
}

/* The value behind "Name:", as text without blanks around it; false: another header. */
static bool header(const char *line, size_t n, const char *name, char *out, size_t size)
{
    size_t m = strlen(name);
    if (n <= m || line[m] != ':' || strncasecmp(line, name, m) != 0) return false;
    const char *from = line + m + 1, *end = line + n;
    while (from < end && isspace((unsigned char)*from)) from++;
    while (end > from && isspace((unsigned char)end[-1])) end--;
    if ((size_t)(end - from) >= size) return false;
    memcpy(out, from, (size_t)(end - from));
    out[end - from] = 0;
    return true;
}

static double seconds_of(const char *text)
{
    char *end;
    double s = strtod(text, &end);
    if (end != text && *end == 0 && s >= 0 && isfinite(s)) return s;
    time_t date = curl_getdate(text, NULL), now = time(NULL);
    return date < 0 ? -1 : date > now ? (double)(date - now) : 0;
}

static void forget_answer(hub_transfer *t)
{
    free(t->location);
    t->location = NULL;
    t->retry_after = -1;
    t->code[0] = 0;
    t->ranged = false;
}

static size_t on_header(char *line, size_t one, size_t n, void *user)
{
    hub_transfer *t = user;
    char value[8192];
    unsigned long long from;
    n *= one;
    t->head += n;
    if (t->head > MOST_HEAD) return 0;
    if (n > 5 && strncmp(line, "HTTP/", 5) == 0) forget_answer(t);
    if (header(line, n, "location", value, sizeof value)) {
        free(t->location);
        t->location = strdup(value);
    } else if (header(line, n, "retry-after", value, sizeof value)) {
        t->retry_after = seconds_of(value);
    } else if (header(line, n, "x-error-code", value, sizeof value)) {
        snprintf(t->code, sizeof t->code, "%.47s", value);
    } else if (header(line, n, "content-range", value, sizeof value)) {
        t->ranged = sscanf(value, "bytes %llu-", &from) == 1;
        t->range_from = t->ranged ? from : 0;
    }
    return n;
}

static bool add_header(hub_transfer *t, const char *line)
{
    struct curl_slist *longer = curl_slist_append(t->headers, line);
    if (longer != NULL) t->headers = longer;
    return longer != NULL;
}

static bool set_headers(hub_transfer *t)
{
    char line[600];
    curl_slist_free_all(t->headers);
    t->headers = NULL;
    if (!add_header(t, "Accept: */*")) return false;
    if (t->env->token == NULL || !is_own(t) || !is_private(t->env)) return true;
    if (is_plain_http(t->url)) curl_easy_setopt(t->easy, CURLOPT_PROXY, ""); /* none: it may be elsewhere */
    snprintf(line, sizeof line, "Authorization: Bearer %s", t->env->token);
    return add_header(t, line);
}

/* Only what the endpoint itself speaks, or better. */
static void set_protocols(hub_transfer *t)
{
    bool open = is_plain_http(t->env->endpoint);
#if LIBCURL_VERSION_NUM >= 0x075500
    curl_easy_setopt(t->easy, CURLOPT_PROTOCOLS_STR, open ? "http,https" : "https");
#else
    curl_easy_setopt(t->easy, CURLOPT_PROTOCOLS, open ? (long)(CURLPROTO_HTTP | CURLPROTO_HTTPS) : (long)CURLPROTO_HTTPS);
#endif
}

im_status hub_transfer_prepare(hub_transfer *t, uint64_t from, curl_write_callback sink, void *user, im_error *err)
{
    char agent[64], range[32];
    const char *authorities = getenv("SSL_CERT_FILE");
    snprintf(agent, sizeof agent, "ironmule/%s", im_version());
    curl_easy_reset(t->easy);
    forget_answer(t);
    t->head = 0;
    t->status = 0;
    if (!set_headers(t)) return hub_no_memory(err);
    curl_easy_setopt(t->easy, CURLOPT_URL, t->url);
    curl_easy_setopt(t->easy, CURLOPT_HTTPHEADER, t->headers);
    curl_easy_setopt(t->easy, CURLOPT_USERAGENT, agent);
    curl_easy_setopt(t->easy, CURLOPT_FOLLOWLOCATION, 0L); /* we look at each redirect ourselves: the token stays at home */
    curl_easy_setopt(t->easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(t->easy, CURLOPT_CONNECTTIMEOUT_MS, (long)(t->env->stall_s * 1000));
    curl_easy_setopt(t->easy, CURLOPT_LOW_SPEED_LIMIT, 1L);
    curl_easy_setopt(t->easy, CURLOPT_LOW_SPEED_TIME, (long)t->env->stall_s);
    curl_easy_setopt(t->easy, CURLOPT_BUFFERSIZE, 256L * 1024);
    curl_easy_setopt(t->easy, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(t->easy, CURLOPT_HEADERDATA, t);
    curl_easy_setopt(t->easy, CURLOPT_WRITEFUNCTION, sink);
    curl_easy_setopt(t->easy, CURLOPT_WRITEDATA, user);
    snprintf(range, sizeof range, "%llu-", (unsigned long long)from);
    /* Not CURLOPT_RESUME_FROM: with that a server that sends all of the file is an error. */
    if (from > 0) curl_easy_setopt(t->easy, CURLOPT_RANGE, range);
    if (authorities != NULL && authorities[0] != 0) curl_easy_setopt(t->easy, CURLOPT_CAINFO, authorities);
    set_protocols(t);
    return IM_OK;
}

/* ---- what came of it -------------------------------------------------------------------------------------------------------------------------- */

static const char *wanted(const hub_transfer *t) { return t->what == NULL ? "its list of files" : t->what; }

/* Why the Hub itself said no, in one sentence with the page to visit. */
static im_status explain(const hub_transfer *t, im_error *err)
{
    const char *name = t->id->name, *home = t->env->endpoint;
    const im_status status = IM_ERR_ARGUMENT;
    bool login = t->status == 401 || t->status == 403;
    if (strcmp(t->code, "GatedRepo") == 0 && t->env->token == NULL)
        return hub_fail(err, status, "%s is gated: accept its terms at %s/%s, then set HF_TOKEN to a token of that account", name,
                        home, name);
    if (strcmp(t->code, "GatedRepo") == 0)
        return hub_fail(err, status, "%s is gated, and the account of this token has no access yet: ask for it at %s/%s", name,
                        home, name);
    if (strcmp(t->code, "RevisionNotFound") == 0)
        return hub_fail(err, status, "%s has no revision \"%s\": see %s/%s/tree/main", name, t->id->revision, home, name);
    if (strcmp(t->code, "EntryNotFound") == 0 && t->what != NULL)
        return hub_fail(err, status, "%s has no file %s at this revision: see %s/%s/tree/main", name, t->what, home, name);
    if (strcmp(t->code, "DisabledRepo") == 0) return hub_fail(err, status, "%s was disabled: see %s/%s", name, home, name);
    if (login && t->env->token != NULL && !is_private(t->env))
        return hub_fail(err, status, "%s asks for a login (%ld), but a token is not sent over plain http; use https in HF_ENDPOINT",
                        home, t->status);
    if (t->status == 401 && t->env->token != NULL && t->code[0] == 0)
        return hub_fail(err, status, "%s does not accept the token (401): see %s/settings/tokens", home, home);
    if (login || strcmp(t->code, "RepoNotFound") == 0 || t->status == 404 || t->status == 410)
        return hub_fail(err, status, "%s: there is no such model, or it is private or gated (%ld): look at %s/%s%s", name,
                        t->status, home, name,
                        t->env->token == NULL ? ", and set HF_TOKEN if it needs a login" : " with the account of this token");
    return hub_fail(err, IM_ERR_IO, "%s: the hub refuses %s with status %ld", name, wanted(t), t->status);
}

/* A new address from the Location header; false: none that may be followed. */
static bool follow(hub_transfer *t)
{
    char *next = NULL;
    CURLU *u = t->location == NULL || t->hops >= MOST_HOPS ? NULL : curl_url();
    bool good = u != NULL && curl_url_set(u, CURLUPART_URL, t->url, 0) == CURLUE_OK &&
                curl_url_set(u, CURLUPART_URL, t->location, 0) == CURLUE_OK &&
                curl_url_get(u, CURLUPART_URL, &next, 0) == CURLUE_OK && (!is_plain_http(next) || is_plain_http(t->env->endpoint));
    char *copy = good ? strdup(next) : NULL;
    curl_free(next);
    curl_url_cleanup(u);
    if (copy == NULL) return false;
    free(t->url);
    t->url = copy;
    t->hops++;
    return true;
}

/* Each new attempt begins at the Hub: the address that it pointed to may have expired. */
static bool go_home(hub_transfer *t)
{
    char *copy = strdup(t->first);
    if (copy == NULL) return false;
    free(t->url);
    t->url = copy;
    t->hops = 0;
    return true;
}

/* Tries again later, unless it has been tried often enough; `why` becomes part of the last message. */
static hub_verdict later(hub_transfer *t, const char *why, im_error *err)
{
    char host_part[300] = "";
    char *host = part(t->url, CURLUPART_HOST, 0);
    snprintf(host_part, sizeof host_part, "%.250s", host == NULL ? "the hub" : host);
    curl_free(host);
    t->failures++;
    t->wait = t->retry_after >= 0 ? t->retry_after : fmin(30, 0.25 * pow(2, t->failures));
    if (t->wait > longest_wait) {
        hub_fail(err, IM_ERR_IO, "%s: %s asks to wait for %.0f seconds (%s); try again then", t->id->name, host_part, t->wait, why);
        return HUB_REFUSED;
    }
    if (t->failures > MOST_FAILURES || !go_home(t)) {
        hub_fail(err, IM_ERR_IO, "%s: %s could not be fetched from %s: %s, %d times; the same command goes on where it stopped",
                 t->id->name, wanted(t), host_part, why, t->failures);
        return HUB_REFUSED;
    }
    return HUB_RETRY;
}

/* Failures of the connection that no patience mends. */
static bool is_final(CURLcode code)
{
    return code == CURLE_UNSUPPORTED_PROTOCOL || code == CURLE_URL_MALFORMAT || code == CURLE_PEER_FAILED_VERIFICATION ||
           code == CURLE_SSL_CACERT_BADFILE || code == CURLE_SSL_CERTPROBLEM || code == CURLE_OUT_OF_MEMORY;
}

static hub_verdict judge_failure(hub_transfer *t, CURLcode code, im_error *err)
{
    if (!is_final(code)) return later(t, curl_easy_strerror(code), err);
    hub_fail(err, IM_ERR_IO, "%s: %s could not be fetched: %s", t->id->name, wanted(t), curl_easy_strerror(code));
    return HUB_REFUSED;
}

hub_verdict hub_transfer_judge(hub_transfer *t, CURLcode code, im_error *err)
{
    char why[64];
    curl_easy_getinfo(t->easy, CURLINFO_RESPONSE_CODE, &t->status);
    bool redirect = t->status == 301 || t->status == 302 || t->status == 303 || t->status == 307 || t->status == 308;
    snprintf(why, sizeof why, "status %ld", t->status);
    if (t->status == 416 && !t->restarted) return t->restarted = true, go_home(t) ? HUB_RESTART : HUB_REFUSED;
    if (t->status == 416) {
        hub_fail(err, IM_ERR_FORMAT, "%s: %s is shorter at the server than the hub's metadata says", t->id->name, wanted(t));
        return HUB_REFUSED;
    }
    if (redirect) {
        if (follow(t)) return HUB_FOLLOW;
        hub_fail(err, IM_ERR_IO, "%s: %s leads to an address that may not be followed (status %ld)", t->id->name, wanted(t),
                 t->status);
        return HUB_REFUSED;
    }
    if (t->status == 408 || t->status == 429 || t->status >= 500) return later(t, why, err);
    /* Elsewhere than at the Hub a refusal means that the address has expired. */
    if (t->status >= 400 && !is_own(t)) return later(t, why, err);
    if (t->status >= 400) return explain(t, err), HUB_REFUSED;
    if (code != CURLE_OK) return judge_failure(t, code, err);
    if (t->status == 200 || t->status == 206) return HUB_COMPLETE;
    return explain(t, err), HUB_REFUSED;
}
