/* SPDX-License-Identifier: Apache-2.0
 *
 * The same answer alone and in a crowd: crowd_run MODEL.gguf
 * Prompts of 1 to 700 tokens (beyond the sliding window of Gemma 3), greedy and seeded, each alone on an engine without a cache; then on one with a prefix cache in memory and on disk: cold, warm, all at once
 * among others, after 100 other requests, and on another engine that finds the disk. Text, stop reason and hash of all logits must be those of the first time.
 * Exit 0; 1 when an answer differs; 2 when it could not run.
 */
#include <ironmule/ironmule.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LENGTHS = 4, CASES = 2 * LENGTHS, CROWD = 24, OTHERS = 100, TOKENS = 16, LONGEST = 700 };

static const size_t length[LENGTHS] = {1, 64, 150, LONGEST};

typedef struct run {
    const char *model;
    im_engine *engine;
    int32_t *text;
    char *want_text[CASES];
    uint64_t want_hash[CASES];
    im_stop_reason want_stop[CASES];
    int wrong;
    size_t cached;
} run;

static void must(im_status status, const im_error *err)
{
    if (status == IM_OK) return;
    fprintf(stderr, "%s\n", err->message);
    exit(2);
}

static im_request *submit(run *u, const int32_t *ids, size_t n, uint32_t tokens, im_sampling sampling)
{
    im_request *r;
    im_error err;
    im_request_options o;
    im_request_options_defaults(&o);
    o.prompt = ids;
    o.prompt_len = n;
    o.max_tokens = tokens;
    o.sampling = sampling;
    must(im_request_submit(u->engine, &o, &r, &err), &err);
    return r;
}

static im_request *submit_case(run *u, int i)
{
    im_sampling s = {.top_p = 1, .temperature = i % 2 == 0 ? 0 : 0.8f, .seed = 1000 + (uint64_t)i};
    return submit(u, u->text, length[i / 2], TOKENS, s);
}

static void judge(run *u, int i, im_request *r, const char *when)
{
    im_result got;
    im_error err;
    must(im_request_wait(r, &got, &err), &err);
    u->cached += got.cached_tokens;
    if (when == NULL) {
        u->want_text[i] = strdup(got.text);
        u->want_hash[i] = got.logits_hash;
        u->want_stop[i] = got.stop_reason;
    } else if (strcmp(got.text, u->want_text[i]) != 0 || got.logits_hash != u->want_hash[i] || got.stop_reason != u->want_stop[i]) {
        printf("%zu tokens, %s, %s: \"%s\" in place of \"%s\"\n", length[i / 2], i % 2 == 0 ? "greedy" : "seeded", when, got.text,
               u->want_text[i]);
        u->wrong++;
    }
    im_request_free(r);
}

static void one_by_one(run *u, const char *when)
{
    for (int i = 0; i < CASES; i++) judge(u, i, submit_case(u, i), when);
}

static im_request *submit_other(run *u, int i, size_t n, uint32_t tokens)
{
    im_sampling s = {.top_p = 1, .temperature = i % 3 == 0 ? 0 : 1, .seed = (uint64_t)i};
    return submit(u, u->text + 7 + i, n, tokens, s);
}

static void in_a_crowd(run *u)
{
    im_request *r[CASES], *other[CROWD];
    for (int i = 0; i < CROWD; i++) {
        other[i] = submit_other(u, i, 5 + (size_t)i, TOKENS);
        if (i % 3 == 0) r[i / 3] = submit_case(u, i / 3);
    }
    for (int i = 0; i < CASES; i++) judge(u, i, r[i], "in a crowd");
    for (int i = 0; i < CROWD; i++) im_request_free((im_request_wait(other[i], NULL, NULL), other[i]));
}

static void many_others(run *u)
{
    im_request *r[OTHERS];
    for (int i = 0; i < OTHERS; i++) r[i] = submit_other(u, i, 8, 1);
    for (int i = 0; i < OTHERS; i++) im_request_free((im_request_wait(r[i], NULL, NULL), r[i]));
}

static void open_engine(run *u, const char *folder)
{
    im_error err;
    im_engine_options o;
    im_engine_options_defaults(&o);
    o.context = 1024;
    if (folder != NULL) {
        o.max_sequences = CASES + CROWD;
        o.kv_tokens = 8192;
        o.chunk = 100;
        o.max_step_ms = 100;
        o.cache_ram = 256 << 20;
        o.cache_dir = folder;
        o.cache_disk = (uint64_t)1 << 30;
    }
    must(im_engine_open(&u->engine, u->model, &o, &err), &err);
}

static void make_text(run *u)
{
    static const char sentence[] =
        "The mule carried iron over the mountain, slowly, and never the same way twice; at night it counted the stars. ";
    char all[60 * sizeof sentence] = "";
    size_t n;
    im_error err;
    for (int i = 0; i < 50; i++) snprintf(all + strlen(all), sizeof all - strlen(all), "%d. %s", i, sentence);
    must(im_model_encode(im_engine_model(u->engine), all, strlen(all), IM_ENCODE_DEFAULT, &u->text, &n, &err), &err);
    if (n < LONGEST + OTHERS + 40) exit(2);
}

int main(int argc, char **argv)
{
    char folder[] = "/tmp/ironmule-crowd-XXXXXX", command[64];
    run u = {.model = argc > 1 ? argv[1] : ""};
    if (argc < 2 || mkdtemp(folder) == NULL) return fprintf(stderr, "usage: crowd_run MODEL\n"), 2;
    open_engine(&u, NULL);
    make_text(&u);
    one_by_one(&u, NULL);
    im_engine_close(u.engine);
    open_engine(&u, folder);
    one_by_one(&u, "cold");
    one_by_one(&u, "warm");
    in_a_crowd(&u);
    many_others(&u);
    one_by_one(&u, "after others");
    im_engine_close(u.engine);
    size_t in_memory = u.cached;
    open_engine(&u, folder);
    one_by_one(&u, "after a restart");
    im_engine_stats s;
    im_engine_get_stats(u.engine, &s);
    im_engine_close(u.engine);
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    if (system(command) != 0) return 2;
    printf("%d wrong; %zu prompt tokens from memory, %zu after the restart, %llu pages from disk, %llu dropped\n", u.wrong,
           in_memory, u.cached - in_memory, (unsigned long long)s.disk_hits, (unsigned long long)s.disk_dropped);
    for (int i = 0; i < CASES; i++) free(u.want_text[i]);
    im_free(u.text);
    return u.wrong > 0 || in_memory < 1000 || s.disk_hits == 0;
}
