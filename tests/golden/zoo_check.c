/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs one model of the zoo and compares its logits with the golden file: zoo_check MODEL.gguf GOLDEN.json [LEVEL]
 * Per prompt: the last position's logits; the logits behind the golden greedy tokens, which are fed; the most likely token at every
 * position and the greedy run, wherever the golden margin is above twice the tolerance (they may differ elsewhere).
 * Exit 0: all within the golden's tolerance; 1: not; 2: could not run. Golden files come from an independent implementation.
 */
#include <ironmule/ironmule.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct limits {
    double max_abs, rms, kl;
} limits;

typedef struct seen {
    size_t vocab, steps;
    float *first, *last; /* logits of the last prompt position, and behind the forced tokens */
} seen;

/* One prompt of the golden file. */
typedef struct prompt_case {
    const json_t *json;
    const char *name;
    int32_t *ids, *greedy;
    size_t count, steps, vocab;
    limits lim;
} prompt_case;

static double number(const json_t *o, const char *key) { return json_number_value(json_object_get(o, key)); }

/* Float files are judged by the exact tolerance (float32 activations and cache), the others by the one for 8-bit activations. */
static limits limits_of(const json_t *golden)
{
    const json_t *loose = json_object_get(golden, "tolerance_8bit");
    if (loose == NULL) return (limits){number(golden, "tolerance_exact"), INFINITY, INFINITY};
    return (limits){number(loose, "max_abs"), number(loose, "rms"), number(loose, "kl")};
}

static int sextet(char c)
{
    const char *alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", *at = strchr(alphabet, c);
    return c == 0 || at == NULL ? 0 : (int)(at - alphabet);
}

static float *floats(const json_t *text, size_t n)
{
    const char *s = json_string_value(text);
    unsigned char *bytes = calloc(n * 4 + 3, 1);
    for (size_t i = 0, out = 0; s[i] != 0 && s[i + 1] != 0 && out < n * 4; i += 4, out += 3) {
        int word = sextet(s[i]) << 18 | sextet(s[i + 1]) << 12 | sextet(s[i + 2]) << 6 | sextet(s[i + 3]);
        bytes[out] = (unsigned char)(word >> 16);
        bytes[out + 1] = (unsigned char)(word >> 8);
        bytes[out + 2] = (unsigned char)word;
    }
    return (float *)bytes;
}

static int32_t *ids_of(const json_t *list, size_t *n)
{
    *n = json_array_size(list);
    int32_t *ids = calloc(*n + 1, sizeof *ids);
    for (size_t i = 0; i < *n; i++) ids[i] = (int32_t)json_integer_value(json_array_get(list, i));
    return ids;
}

static double log_sum(const float *x, size_t n)
{
    double max = x[0], sum = 0;
    for (size_t i = 1; i < n; i++) max = x[i] > max ? x[i] : max;
    for (size_t i = 0; i < n; i++) sum += exp(x[i] - max);
    return max + log(sum);
}

static int compare(const char *prompt, const char *where, const float *want, const float *got, size_t n, limits lim)
{
    double worst = 0, squares = 0, kl = 0, a = log_sum(want, n), b = log_sum(got, n);
    for (size_t i = 0; i < n; i++) {
        double d = fabs((double)want[i] - (double)got[i]);
        if (!(d <= worst)) worst = d;
        squares += d * d;
        kl += exp(want[i] - a) * ((want[i] - a) - (got[i] - b));
    }
    double rms = sqrt(squares / (double)n);
    int bad = !(worst <= lim.max_abs) || !(rms <= lim.rms) || !(kl <= lim.kl);
    printf("  %-5s %-6s max %.3g rms %.3g KL %.3g (limits %.3g %.3g %.3g) %s\n", prompt, where, worst, rms, kl, lim.max_abs,
           lim.rms, lim.kl, bad ? "OUTSIDE" : "ok");
    return bad;
}

static bool keep_logits(void *user, const im_token_event *event)
{
    seen *s = user;
    if (event->index == 0) memcpy(s->first, event->logits, s->vocab * sizeof(float));
    memcpy(s->last, event->logits, s->vocab * sizeof(float));
    s->steps = event->index + 1;
    return true;
}

static double entry(const json_t *p, const char *key, size_t i)
{
    return json_number_value(json_array_get(json_object_get(p, key), i));
}

/* Waits for the answer to a prompt; `ids` (room for steps + 1) receives it. */
static bool ask(im_engine *e, const prompt_case *g, bool forced, seen *s, int32_t *ids)
{
    im_error err;
    im_request *r;
    im_result result;
    im_request_options o;
    im_request_options_defaults(&o);
    o.prompt = g->ids;
    o.prompt_len = g->count;
    o.forced = forced ? g->greedy : NULL;
    o.forced_len = forced ? g->steps : 0;
    o.max_tokens = (uint32_t)g->steps + 1;
    o.ignore_eos = o.want_logits = true;
    o.on_token = keep_logits;
    o.user = s;
    bool good = im_request_submit(e, &o, &r, &err) == IM_OK && im_request_wait(r, &result, &err) == IM_OK;
    if (!good)
        printf("  %-5s %s\n", g->name, err.message);
    else
        memcpy(ids, result.ids, result.count * sizeof *ids);
    if (good) im_request_free(r);
    return good && s->steps == g->steps + 1;
}

static int check_logits(im_engine *e, const prompt_case *g)
{
    seen s = {.vocab = g->vocab, .first = calloc(g->vocab, sizeof(float)), .last = calloc(g->vocab, sizeof(float))};
    float *want = floats(json_object_get(g->json, "logits_last_f32le_base64"), g->vocab);
    float *after = floats(json_object_get(g->json, "logits_after_greedy_f32le_base64"), g->vocab);
    int32_t *ids = calloc(g->steps + 1, sizeof *ids);
    int bad = !ask(e, g, true, &s, ids);
    if (!bad)
        bad =
            compare(g->name, "last", want, s.first, g->vocab, g->lim) | compare(g->name, "after", after, s.last, g->vocab, g->lim);
    free(want);
    free(after);
    free(s.first);
    free(s.last);
    free(ids);
    return bad;
}

static int check_greedy(im_engine *e, const prompt_case *g)
{
    seen s = {.vocab = g->vocab, .first = calloc(g->vocab, sizeof(float)), .last = calloc(g->vocab, sizeof(float))};
    int32_t *ids = calloc(g->steps + 1, sizeof *ids);
    int bad = !ask(e, g, false, &s, ids);
    size_t i = 0;
    while (!bad && i < g->steps && ids[i] == g->greedy[i]) i++;
    if (!bad && i < g->steps && entry(g->json, "greedy_margin", i) > 2 * g->lim.max_abs) bad = 1;
    if (bad) printf("  %-5s greedy step %zu: %d, expected %d\n", g->name, i, ids[i], i < g->steps ? g->greedy[i] : -1);
    free(s.first);
    free(s.last);
    free(ids);
    return bad;
}

static int check_best(im_engine *e, const prompt_case *g)
{
    im_error err;
    float *logprob = calloc(g->count, sizeof *logprob);
    int32_t *top = calloc(g->count, sizeof *top);
    int bad = 0;
    if (g->count > 1 && im_engine_score(e, g->ids, g->count, logprob, top, NULL, NULL, NULL, &err) != IM_OK)
        bad = printf("  %-5s %s\n", g->name, err.message) > 0;
    for (size_t i = 0; !bad && i + 1 < g->count; i++)
        if (entry(g->json, "margin", i) > 2 * g->lim.max_abs && top[i] != (int32_t)entry(g->json, "argmax", i))
            bad = printf("  %-5s position %zu: most likely is %d, expected %g\n", g->name, i, top[i], entry(g->json, "argmax", i)) >
                  0;
    free(logprob);
    free(top);
    return bad;
}

static int check_prompt(im_engine *e, const json_t *p, size_t vocab, limits lim)
{
    prompt_case g = {.json = p, .name = json_string_value(json_object_get(p, "name")), .vocab = vocab, .lim = lim};
    g.ids = ids_of(json_object_get(p, "ids"), &g.count);
    g.greedy = ids_of(json_object_get(p, "greedy"), &g.steps);
    int bad = check_logits(e, &g) | check_greedy(e, &g) | check_best(e, &g);
    free(g.ids);
    free(g.greedy);
    return bad;
}

int main(int argc, char **argv)
{
    im_error err;
    im_engine *e;
    im_engine_options o;
    json_t *golden = argc > 2 ? json_load_file(argv[2], 0, NULL) : NULL;
    if (golden == NULL) return fprintf(stderr, "usage: zoo_check MODEL GOLDEN [LEVEL]\n"), 2;
    im_engine_options_defaults(&o);
    o.cpu_level = argc > 3 ? argv[3] : NULL;
    o.chunk = 37; /* several chunks for the longest prompt, none of them aligned with pages or windows */
    if (im_engine_open(&e, argv[1], &o, &err) != IM_OK) return fprintf(stderr, "%s\n", err.message), 2;
    limits lim = limits_of(golden);
    size_t vocab = (size_t)number(golden, "n_vocab"), i;
    int bad = 0;
    json_t *p;
    json_array_foreach(json_object_get(golden, "prompts"), i, p) bad |= check_prompt(e, p, vocab, lim);
    im_engine_close(e);
    json_decref(golden);
    return bad;
}
