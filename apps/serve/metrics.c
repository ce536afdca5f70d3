/* SPDX-License-Identifier: Apache-2.0 */
#include "server.h"

#include <dirent.h>
#include <event2/buffer.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

const char METRIC_ANSWERS[] = "ironmule_http_answers_total", METRIC_REFUSALS[] = "ironmule_refusals_total",
           METRIC_DROPPED[] = "ironmule_connections_dropped_total";

/* Seconds: from a token of a tiny model to a prompt of a large one. */
static const double bounds[METRIC_BUCKETS] = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300};

void histogram_add(histogram *h, double seconds)
{
    size_t i = 0;
    while (i < METRIC_BUCKETS && seconds > bounds[i]) i++;
    h->bucket[i]++;
    h->count++;
    h->sum += seconds;
}

void metrics_count(metrics *m, const char *name, const char *label, int status)
{
    for (size_t i = 0; i < m->series_count; i++) {
        metric_series *s = &m->series[i];
        if (s->name != name || s->status != status || strcmp(s->label, label) != 0) continue;
        s->count++;
        return;
    }
    if (m->series_count < METRIC_SERIES) m->series[m->series_count++] = (metric_series){name, label, status, 1};
}

/* ---- writing ------------------------------------------------------------------------------------------------------------------------------ */

static void head(struct evbuffer *out, const char *name, const char *type, const char *help)
{
    evbuffer_add_printf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void write_number(struct evbuffer *out, const char *name, const char *type, const char *help, double value)
{
    head(out, name, type, help);
    evbuffer_add_printf(out, "%s %.17g\n", name, value);
}

static void write_histogram(struct evbuffer *out, const char *name, const char *help, const histogram *h)
{
    uint64_t sum = 0;
    head(out, name, "histogram", help);
    for (size_t i = 0; i < METRIC_BUCKETS; i++) {
        sum += h->bucket[i];
        evbuffer_add_printf(out, "%s_bucket{le=\"%g\"} %" PRIu64 "\n", name, bounds[i], sum);
    }
    evbuffer_add_printf(out, "%s_bucket{le=\"+Inf\"} %" PRIu64 "\n%s_sum %.9g\n%s_count %" PRIu64 "\n", name, h->count, name,
                        h->sum, name, h->count);
}

static void write_series(struct evbuffer *out, const metrics *m, const char *name, const char *label, const char *help)
{
    head(out, name, "counter", help);
    for (size_t i = 0; i < m->series_count; i++) {
        const metric_series *s = &m->series[i];
        if (s->name != name) continue;
        evbuffer_add_printf(out, "%s{%s=\"%s\"", name, label, s->label);
        if (s->status != 0) evbuffer_add_printf(out, ",status=\"%d\"", s->status);
        evbuffer_add_printf(out, "} %" PRIu64 "\n", s->count);
    }
}

/* A label's value: quotes, backslashes and line ends are escaped. */
static void write_label(struct evbuffer *out, const char *name, const char *value)
{
    evbuffer_add_printf(out, "%s=\"", name);
    for (; *value != 0; value++) {
        if (*value == '"' || *value == '\\') evbuffer_add(out, "\\", 1);
        evbuffer_add(out, *value == '\n' ? " " : value, 1);
    }
    evbuffer_add(out, "\"", 1);
}

static void write_build(struct evbuffer *out, const server *s, const im_engine_info *info)
{
    char numerics[16];
    snprintf(numerics, sizeof numerics, "%d", im_numerics_version());
    const char *const pairs[][2] = {{"version", im_version()},
                                    {"numerics", numerics},
                                    {"model", s->model_id},
                                    {"quantisation", s->model.quantisation},
                                    {"device", info->device},
                                    {"cpu_level", info->cpu_level},
                                    {"fingerprint", info->fingerprint}};
    head(out, "ironmule_build_info", "gauge", "What serves: always 1.");
    evbuffer_add_printf(out, "ironmule_build_info{");
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        if (i > 0) evbuffer_add(out, ",", 1);
        write_label(out, pairs[i][0], pairs[i][1] == NULL ? "" : pairs[i][1]);
    }
    evbuffer_add_printf(out, "} 1\n");
}

static void write_cache(struct evbuffer *out, const im_engine_stats *e)
{
    write_number(out, "ironmule_cache_hits_total", "counter", "Requests that found a part of their prompt in the cache.",
                 (double)e->cache_hits);
    head(out, "ironmule_cache_misses_total", "counter", "Requests that found less than they might have, by reason.");
    for (int i = 0; i < IM_MISS_KINDS; i++)
        evbuffer_add_printf(out, "ironmule_cache_misses_total{reason=\"%s\"} %" PRIu64 "\n", im_cache_miss_name((im_cache_miss)i),
                            e->cache_misses[i]);
    write_number(out, "ironmule_host_cache_hits_total", "counter", "Pages that came back to the GPU from the host's memory.",
                 (double)e->host_hits);
    write_number(out, "ironmule_host_cache_writes_total", "counter", "Pages copied from the GPU to the host's memory.",
                 (double)e->host_writes);
    write_number(out, "ironmule_host_cache_bytes", "gauge", "The host's memory held by pages.", (double)e->host_bytes);
    write_number(out, "ironmule_disk_cache_hits_total", "counter", "Pages read from the cache folder.", (double)e->disk_hits);
    write_number(out, "ironmule_disk_cache_writes_total", "counter", "Pages written to the cache folder.", (double)e->disk_writes);
    write_number(out, "ironmule_disk_cache_dropped_total", "counter", "Pages of the cache folder that were not usable.",
                 (double)e->disk_dropped);
    write_number(out, "ironmule_disk_cache_bytes", "gauge", "Size of the cache folder.", (double)e->disk_bytes);
}

static void write_pages(struct evbuffer *out, const im_engine_stats *e)
{
    head(out, "ironmule_kv_pages", "gauge", "Pages of 64 positions: all, held by running requests, kept for later ones.");
    evbuffer_add_printf(out,
                        "ironmule_kv_pages{state=\"all\"} %" PRIu64 "\nironmule_kv_pages{state=\"running\"} %" PRIu64
                        "\nironmule_kv_pages{state=\"cached\"} %" PRIu64 "\n",
                        e->kv_pages, e->kv_pages_running, e->kv_pages_cached);
}

static void write_ends(struct evbuffer *out, const im_engine_stats *e)
{
    const struct {
        const char *how;
        uint64_t count;
    } ends[] = {{"finished", e->finished}, {"cancelled", e->cancelled}, {"timed_out", e->timed_out}, {"failed", e->failed}};
    head(out, "ironmule_generations_total", "counter", "Answers of the engine by how they ended.");
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        evbuffer_add_printf(out, "ironmule_generations_total{end=\"%s\"} %" PRIu64 "\n", ends[i].how, ends[i].count);
}

static void write_engine(struct evbuffer *out, const server *s, im_engine *engine)
{
    im_engine_info info;
    im_engine_stats e;
    im_engine_get_info(engine, &info);
    im_engine_get_stats(engine, &e);
    write_build(out, s, &info);
    write_ends(out, &e);
    write_number(out, "ironmule_prompt_tokens_total", "counter", "Tokens of prompts.", (double)e.prompt_tokens);
    write_number(out, "ironmule_cached_tokens_total", "counter", "Tokens of prompts that were not computed again.",
                 (double)e.cached_tokens);
    write_number(out, "ironmule_generated_tokens_total", "counter", "Tokens of answers.", (double)e.generated_tokens);
    write_number(out, "ironmule_steps_total", "counter", "Steps of the engine.", (double)e.steps);
    write_number(out, "ironmule_requests_queued", "gauge", "Answers that wait for their start.", e.queued);
    write_number(out, "ironmule_requests_running", "gauge", "Answers that are being computed.", e.running);
    write_number(out, "ironmule_step_seconds", "gauge", "How long the present step has been running.", e.step_ms / 1e3);
    write_number(out, "ironmule_longest_step_seconds", "gauge", "The longest step so far.", e.longest_step_ms / 1e3);
    write_number(out, "ironmule_device_failures_total", "counter", "1 once the GPU has failed.", e.device_failures);
    write_number(out, "ironmule_device_fallbacks_total", "counter", "1 once the processor has taken over from a GPU.",
                 e.device_fallbacks);
    write_pages(out, &e);
    write_cache(out, &e);
}

static size_t open_descriptors(void)
{
    size_t n = 0;
    DIR *d = opendir("/proc/self/fd");
    while (d != NULL && readdir(d) != NULL) n++;
    if (d != NULL) closedir(d);
    return n > 3 ? n - 3 : 0; /* without ".", ".." and the folder's own */
}

static double resident_bytes(void)
{
    unsigned long long total = 0, resident = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (f == NULL) return 0;
    if (fscanf(f, "%llu %llu", &total, &resident) != 2) resident = 0;
    fclose(f);
    return (double)resident * (double)sysconf(_SC_PAGESIZE);
}

void metrics_write(const server *s, struct evbuffer *out)
{
    const metrics *m = &s->metrics;
    im_engine *engine = atomic_load(&s->engine);
    if (engine != NULL) write_engine(out, s, engine);
    write_number(out, "ironmule_up", "gauge", "1 when the model is loaded and no signal to stop has come.",
                 engine != NULL && s->draining == 0);
    write_number(out, "ironmule_stuck", "gauge", "1 while a step takes longer than the watchdog allows.", s->stuck);
    write_histogram(out, "ironmule_time_to_first_token_seconds", "From arrival to the first token.", &m->first_token);
    write_histogram(out, "ironmule_time_per_token_seconds", "Mean time between the tokens of an answer.", &m->per_token);
    write_histogram(out, "ironmule_queue_seconds", "Waiting for the engine.", &m->queue);
    write_histogram(out, "ironmule_request_seconds", "From arrival to the end of an answer with text.", &m->request);
    write_series(out, m, METRIC_ANSWERS, "route", "HTTP answers by route and status.");
    write_series(out, m, METRIC_REFUSALS, "reason", "Requests that were refused, by reason.");
    write_series(out, m, METRIC_DROPPED, "reason", "Connections that the server ended, by reason.");
    write_number(out, "ironmule_connections_total", "counter", "Connections accepted.", (double)m->accepted);
    write_number(out, "ironmule_connections", "gauge", "Connections open now.", (double)s->conn_count);
    write_number(out, "ironmule_log_lines_dropped_total", "counter", "Lines that the log's reader had no room for.",
                 (double)atomic_load(&s->journal.dropped));
    write_number(out, "process_resident_memory_bytes", "gauge", "Resident memory.", resident_bytes());
    write_number(out, "process_open_fds", "gauge", "Open descriptors.", (double)open_descriptors());
    write_number(out, "process_start_time_seconds", "gauge", "Start, in seconds since 1970.", (double)s->started);
}
