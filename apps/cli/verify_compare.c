/* SPDX-License-Identifier: Apache-2.0
 *
 * Two reports, which may have been written by anybody: each is checked as far as it is used before anything of it is shown, and of its texts
 * only those are shown that can hold nothing but letters, digits and dashes.
 */
#include "verify.h"

#include <errno.h>
#include <string.h>

static const char who[] = "verify";

typedef struct report {
    const char *path, *model;
    json_t *doc;
    const json_t *prompts;
    json_int_t numerics;
} report;

/* ---- reading ----------------------------------------------------------------------------------------------------------------------------------- */

static bool is_made_of(const char *s, size_t least, size_t most, const char *set)
{
    size_t n = s == NULL ? 0 : strlen(s);
    return s != NULL && n >= least && n <= most && strspn(s, set) == n;
}

static const char hexadecimal[] = "0123456789abcdef";

static const char *text_of(const json_t *object, const char *key) { return json_string_value(json_object_get(object, key)); }

static bool are_ids(const json_t *list)
{
    size_t i;
    const json_t *id;
    if (json_array_size(list) == 0) return false;
    json_array_foreach(list, i, id) if (!json_is_integer(id) || json_integer_value(id) < 0) return false;
    return true;
}

static bool is_prompt(const json_t *p)
{
    return is_made_of(text_of(p, "name"), 1, 31, "abcdefghijklmnopqrstuvwxyz0123456789-") &&
           is_made_of(text_of(p, "logits_hash"), 16, 16, hexadecimal) && are_ids(json_object_get(p, "prompt_ids")) &&
           are_ids(json_object_get(p, "ids"));
}

static const char *fault_of(const report *r)
{
    size_t i;
    const json_t *p;
    const char *kind = text_of(r->doc, "report");
    if (kind == NULL || strcmp(kind, "ironmule verify") != 0) return "it is no report of ironmule verify --json";
    if (r->model == NULL || strncmp(r->model, "im-", 3) != 0 || !is_made_of(r->model + 3, 16, 16, hexadecimal))
        return "the model's fingerprint is missing or damaged";
    if (r->numerics <= 0) return "the numerics version is missing or damaged";
    if (!json_is_boolean(json_object_get(r->doc, "same"))) return "its own outcome (same) is missing or damaged";
    if (json_array_size(r->prompts) == 0) return "it has no prompts";
    if (json_array_size(r->prompts) > VERIFY_MOST_PROMPTS) return "it has more prompts than a report can have";
    json_array_foreach(r->prompts, i, p) if (!is_prompt(p)) return "one of its prompts is damaged";
    return NULL;
}

/* A report of --full has some hundred KB. JSON of this size, made for it, takes some hundred MB. */
enum { MOST_BYTES = 4 << 20 };

typedef struct input {
    FILE *f;
    size_t read;
} input;

static size_t read_some(void *buffer, size_t size, void *data)
{
    input *in = data;
    size_t n = fread(buffer, 1, size, in->f);
    in->read += n;
    return ferror(in->f) || in->read > MOST_BYTES ? (size_t)-1 : n;
}

/* NULL after a message. */
static json_t *read_json(const char *path)
{
    json_error_t why;
    errno = 0;
    input in = {.f = fopen(path, "rb")};
    json_t *doc = in.f == NULL ? NULL : json_load_callback(read_some, &in, JSON_REJECT_DUPLICATES, &why);
    if (in.f == NULL || ferror(in.f))
        say(who, "%s: %s", path, strerror(errno));
    else if (in.read > MOST_BYTES)
        say(who, "%s: too large for a report", path);
    else if (doc == NULL)
        say(who, "%s: not JSON, line %d", path, why.line);
    if (in.f != NULL) fclose(in.f);
    return doc;
}

/* false after a message. Ended by json_decref of r->doc in either case. */
static bool read_report(report *r, const char *path)
{
    *r = (report){.path = path, .doc = read_json(path)};
    if (r->doc == NULL) return false;
    r->model = text_of(json_object_get(r->doc, "model"), "fingerprint");
    r->numerics = json_integer_value(json_object_get(r->doc, "numerics"));
    r->prompts = json_object_get(r->doc, "prompts");
    const char *fault = fault_of(r);
    if (fault != NULL) say(who, "%s: %s", path, fault);
    return fault == NULL;
}

/* ---- comparing --------------------------------------------------------------------------------------------------------------------------------- */

/* The same question, asked for as many tokens: answers may differ. */
static bool is_same_question(const json_t *a, const json_t *b)
{
    return json_equal(json_object_get(a, "prompt_ids"), json_object_get(b, "prompt_ids")) &&
           json_array_size(json_object_get(a, "ids")) == json_array_size(json_object_get(b, "ids"));
}

static const json_t *find(const json_t *prompts, const json_t *wanted)
{
    size_t i;
    const json_t *p;
    json_array_foreach(prompts, i, p) if (is_same_question(p, wanted)) return p;
    return NULL;
}

static bool compare_prompt(const json_t *a, const json_t *b)
{
    const char *one = text_of(a, "logits_hash"), *two = text_of(b, "logits_hash");
    bool ids = json_equal(json_object_get(a, "ids"), json_object_get(b, "ids")), same = ids && strcmp(one, two) == 0;
    printf("%-10s %s %s  %s%s\n", text_of(a, "name"), one, two, same ? "same" : "DIFFERENT", same || ids ? "" : ", other tokens");
    return same;
}

static int compare_prompts(const report *a, const report *b)
{
    size_t i, common = 0, different = 0;
    const json_t *p;
    json_array_foreach(a->prompts, i, p)
    {
        const json_t *q = find(b->prompts, p);
        if (q == NULL) continue;
        common++;
        different += !compare_prompt(p, q);
    }
    if (common == 0) return say(who, "%s and %s have no prompt in common", a->path, b->path);
    if (different > 0)
        printf("DIFFERENT: %zu of %zu common prompts\n", different, common);
    else
        printf("one answer: %zu common prompts, all with the same bits\n", common);
    return different > 0 ? EXIT_DIFFERENT : EXIT_DONE;
}

/* A report whose own arms differ proves the contrary, whatever the other one says. */
static int check_own(const report *r)
{
    if (json_is_true(json_object_get(r->doc, "same"))) return EXIT_DONE;
    printf("DIFFERENT: %s says that its own arms differ\n", r->path);
    return EXIT_DIFFERENT;
}

static int compare(const report *a, const report *b)
{
    if (a->numerics != b->numerics)
        return say(who, "%s has numerics %lld and %s numerics %lld: their bits may differ", a->path, (long long)a->numerics,
                   b->path, (long long)b->numerics);
    if (strcmp(a->model, b->model) != 0)
        return say(who, "%s is about the model %s and %s about %s: only reports of the same model can be compared", a->path,
                   a->model, b->path, b->model);
    int own = check_own(a), other = check_own(b), code = compare_prompts(a, b);
    return code != EXIT_DONE ? code : own != EXIT_DONE ? own : other;
}

int verify_compare(const char *path_a, const char *path_b)
{
    report a, b = {0};
    int code = read_report(&a, path_a) && read_report(&b, path_b) ? compare(&a, &b) : EXIT_FAILED;
    json_decref(a.doc);
    json_decref(b.doc);
    return code;
}
