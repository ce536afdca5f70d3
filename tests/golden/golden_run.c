/* SPDX-License-Identifier: Apache-2.0
 *
 * Logits of the golden prompts, several prompts in each step: golden_run MODEL.gguf VECTORS.json
 * The golden continuation is fed, so that every step can be compared. Prints {"prompts": [{"steps": [[[id, logit], ...], ...], "fixed": [[id, logit], ...],
 * "logsumexp": x}, ...]}: the TOP largest logits that choose token i, best first, and of the last prompt position the logits of the golden's fixed ids.
 * Exit 0, or 2 when it could not run.
 */
#include <ironmule/ironmule.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { AT_ONCE = 8, TOP = 8 };

typedef struct prompt_run {
    const json_t *golden;
    json_t *steps, *fixed;
    double logsumexp;
    int32_t *ids, *forced;
    size_t count, forced_count;
    im_request *request;
} prompt_run;

static int32_t *ids_of(const json_t *list, size_t *n)
{
    *n = json_array_size(list);
    int32_t *ids = calloc(*n + 1, sizeof *ids);
    for (size_t i = 0; i < *n; i++) ids[i] = (int32_t)json_integer_value(json_array_get(list, i));
    return ids;
}

static json_t *pair(size_t id, const float *logits) { return json_pack("[i, f]", (int)id, (double)logits[id]); }

/* The lowest id first among equals. */
static json_t *top(const float *logits, size_t n)
{
    size_t best[TOP], count = 0;
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++) {
        size_t at = count;
        while (at > 0 && logits[i] > logits[best[at - 1]]) at--;
        if (at == TOP) continue;
        if (count < TOP) count++;
        memmove(best + at + 1, best + at, (count - at - 1) * sizeof *best);
        best[at] = i;
    }
    for (size_t i = 0; i < count; i++) json_array_append_new(list, pair(best[i], logits));
    return list;
}

static double log_sum(const float *x, size_t n)
{
    double max = x[0], sum = 0;
    for (size_t i = 1; i < n; i++) max = x[i] > max ? x[i] : max;
    for (size_t i = 0; i < n; i++) sum += exp(x[i] - max);
    return max + log(sum);
}

static bool on_token(void *user, const im_token_event *event)
{
    prompt_run *run = user;
    json_array_append_new(run->steps, top(event->logits, event->vocabulary));
    if (event->index > 0) return true;
    const json_t *wanted = json_object_get(json_object_get(run->golden, "last_prompt_position"), "fixed"), *item;
    size_t i;
    run->logsumexp = log_sum(event->logits, event->vocabulary);
    json_array_foreach(wanted, i, item)
        json_array_append_new(run->fixed, pair((size_t)json_integer_value(json_array_get(item, 0)), event->logits));
    return true;
}

static im_status submit(im_engine *e, prompt_run *run, const json_t *golden, im_error *err)
{
    im_request_options o;
    *run = (prompt_run){.golden = golden, .steps = json_array(), .fixed = json_array()};
    run->ids = ids_of(json_object_get(golden, "ids"), &run->count);
    run->forced = ids_of(json_object_get(golden, "greedy_ids"), &run->forced_count);
    im_request_options_defaults(&o);
    o.prompt = run->ids;
    o.prompt_len = run->count;
    o.forced = run->forced;
    o.forced_len = run->forced_count;
    o.max_tokens = (uint32_t)run->forced_count;
    o.ignore_eos = o.want_logits = o.no_hash = true;
    o.on_token = on_token;
    o.user = run;
    return im_request_submit(e, &o, &run->request, err);
}

static json_t *finish(prompt_run *run, im_error *err)
{
    im_status status = im_request_wait(run->request, NULL, err);
    im_request_free(run->request);
    free(run->ids);
    free(run->forced);
    return json_pack("{s:b, s:o, s:o, s:f}", "good", (int)(status == IM_OK), "steps", run->steps, "fixed", run->fixed, "logsumexp",
                     run->logsumexp);
}

static int run_all(im_engine *e, const json_t *prompts)
{
    size_t n = json_array_size(prompts);
    im_error err = {IM_OK, ""};
    prompt_run *runs = calloc(n, sizeof *runs);
    json_t *done = json_array();
    for (size_t i = 0; i < n; i++)
        if (submit(e, &runs[i], json_array_get(prompts, i), &err) != IM_OK) return fprintf(stderr, "%s\n", err.message), 2;
    for (size_t i = 0; i < n; i++) json_array_append_new(done, finish(&runs[i], &err));
    free(runs);
    json_t *doc = json_pack("{s:o}", "prompts", done);
    json_dumpf(doc, stdout, JSON_REAL_PRECISION(9));
    json_decref(doc);
    return err.status == IM_OK ? 0 : (fprintf(stderr, "%s\n", err.message), 2);
}

int main(int argc, char **argv)
{
    im_error err;
    im_engine *e;
    im_engine_options o;
    json_t *golden = argc > 2 ? json_load_file(argv[2], 0, NULL) : NULL;
    if (golden == NULL) return fprintf(stderr, "usage: golden_run MODEL VECTORS\n"), 2;
    im_engine_options_defaults(&o);
    o.context = 2048;
    o.max_sequences = AT_ONCE;
    if (im_engine_open(&e, argv[1], &o, &err) != IM_OK) return fprintf(stderr, "%s\n", err.message), 2;
    int code = run_all(e, json_object_get(golden, "prompts"));
    im_engine_close(e);
    json_decref(golden);
    return code;
}
