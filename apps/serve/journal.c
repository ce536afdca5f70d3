/* SPDX-License-Identifier: Apache-2.0 */
#include "journal.h"

#include "memory.h"

#include <jansson.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

enum { LEVEL_ERROR = IM_LOG_WARNING + 1 };

static const char *const level_names[] = {
    [IM_LOG_DEBUG] = "debug", [IM_LOG_INFO] = "info", [IM_LOG_WARNING] = "warning", [LEVEL_ERROR] = "error"};

static void stamp(char out[40])
{
    struct timeval now;
    struct tm parts;
    char seconds[24];
    gettimeofday(&now, NULL);
    gmtime_r(&now.tv_sec, &parts);
    strftime(seconds, sizeof seconds, "%Y-%m-%dT%H:%M:%S", &parts);
    snprintf(out, 40, "%s.%03dZ", seconds, (int)(now.tv_usec / 1000));
}

/* A pipe that is ready takes PIPE_BUF bytes at least, so a line goes out whole or not at all. */
static void put(journal *j, const char *line, size_t n)
{
    struct pollfd ready = {.fd = STDERR_FILENO, .events = POLLOUT};
    if (poll(&ready, 1, 0) == 1 && (ready.revents & POLLOUT) != 0 && write(STDERR_FILENO, line, n) >= 0) return;
    atomic_fetch_add(&j->dropped, 1);
}

static void put_json(journal *j, int level, json_t *line)
{
    char now[40];
    stamp(now);
    json_object_set_new(line, "time", json_string(now));
    json_object_set_new(line, "level", json_string(level_names[level]));
    char *text = json_dumps(line, JSON_COMPACT | JSON_SORT_KEYS);
    size_t n = text == NULL ? 0 : strlen(text);
    if (n == 0 || memory_was_short()) {
        atomic_fetch_add(&j->dropped, 1);
    } else {
        text[n] = '\n'; /* over the terminating zero */
        put(j, text, n + 1);
    }
    free(text);
    json_decref(line);
}

static void put_text(journal *j, int level, const char *message)
{
    char now[40], line[2048];
    stamp(now);
    int n = snprintf(line, sizeof line, "%s %s %s\n", now, level_names[level], message);
    if (n >= (int)sizeof line) {
        n = (int)sizeof line - 1;
        line[n - 1] = '\n';
    }
    for (int i = 0; i < n - 1; i++)
        if ((unsigned char)line[i] < ' ' || line[i] == 127) line[i] = '?';
    put(j, line, (size_t)n);
}

static void put_message(journal *j, int level, const char *message)
{
    if (!j->json) {
        put_text(j, level, message);
        return;
    }
    json_t *text = json_string(message); /* NULL when it is no UTF-8 */
    put_json(j, level, json_pack("{s:o}", "message", text != NULL ? text : json_string("(not UTF-8)")));
}

void journal_say(journal *j, im_log_level level, const char *format, ...)
{
    char message[1536];
    va_list args;
    if (level == IM_LOG_DEBUG && !j->debug) return;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    put_message(j, (int)level, message);
}

void journal_fatal(journal *j, const char *what, const char *why)
{
    char message[1536];
    snprintf(message, sizeof message, "%s: %s", what, why);
    put_message(j, LEVEL_ERROR, message);
}

static void answered_json(journal *j, const journal_request *r)
{
    char method[21], path[301];
    snprintf(method, sizeof method, "%s", r->method);
    snprintf(path, sizeof path, "%s", r->path);
    json_t *line =
        json_pack("{s:s, s:s, s:s, s:s, s:s, s:i, s:f, s:s*, s:s*}", "message", "request", "id", r->id, "peer", r->peer, "method",
                  method, "path", path, "status", r->status, "ms", r->ms, "reason", r->reason, "finish", r->finish);
    if (line != NULL && r->generated) {
        json_object_set_new(line, "queue_ms", json_real(r->queue_ms));
        json_object_set_new(line, "first_token_ms", json_real(r->first_token_ms));
        json_object_set_new(line, "prompt_tokens", json_integer((json_int_t)r->prompt_tokens));
        json_object_set_new(line, "cached_tokens", json_integer((json_int_t)r->cached_tokens));
        json_object_set_new(line, "completion_tokens", json_integer((json_int_t)r->completion_tokens));
    }
    put_json(j, IM_LOG_INFO, line);
}

static void answered_text(journal *j, const journal_request *r)
{
    char message[1024], numbers[256] = "";
    if (r->generated)
        snprintf(numbers, sizeof numbers, " queue_ms=%.1f first_token_ms=%.1f prompt=%zu cached=%zu completion=%zu", r->queue_ms,
                 r->first_token_ms, r->prompt_tokens, r->cached_tokens, r->completion_tokens);
    /* What the client chose is cut, so that it cannot push out what was made of it. */
    snprintf(message, sizeof message, "request id=%s peer=%s method=%.20s path=%.300s status=%d ms=%.1f%s%s%s%s%s", r->id, r->peer,
             r->method, r->path, r->status, r->ms, r->reason ? " reason=" : "", r->reason ? r->reason : "",
             r->finish ? " finish=" : "", r->finish ? r->finish : "", numbers);
    put_text(j, IM_LOG_INFO, message);
}

void journal_answered(journal *j, const journal_request *r) { (j->json ? answered_json : answered_text)(j, r); }
