/* SPDX-License-Identifier: Apache-2.0 */
#include "verify.h"

#include <stdlib.h>
#include <string.h>

static const char who[] = "verify";

/* Letters of one to four bytes, combining marks, a joined emoji, both directions: what tokenizers trip over. */
static const char unicode_text[] = "Gr\u00fc\u00dfe aus \u6771\u4eac \U0001fac6 e\u0301\u0323 \u0623\u0647\u0644\u0627 "
                                   "\U0001f469\u200d\U0001f52c \u20ac3\u00bd\n\ttwo mules, one answer";

/* Made prompts take their ids from a fixed linear congruential sequence over the vocabulary: no tokenizer and no template has a part in them. */
static bool fill(verify_prompt *p, uint32_t vocabulary)
{
    uint64_t state = p->n;
    p->ids = calloc(p->n, sizeof *p->ids);
    for (size_t i = 0; p->ids != NULL && i < p->n; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        p->ids[i] = (int32_t)((state >> 33) % vocabulary);
    }
    if (p->ids == NULL) say(who, "out of memory");
    return p->ids != NULL;
}

static verify_prompt *next(verify_prompts *all, const char *name, uint32_t tokens)
{
    verify_prompt *p = &all->item[all->count];
    snprintf(p->name, sizeof p->name, "%s", name);
    p->tokens = tokens;
    return p;
}

/* A prompt of n ids, if the model has the positions. */
static bool add_made(verify_prompts *all, const im_model_info *info, const char *name, size_t n, uint32_t tokens)
{
    if (n + tokens > info->context) return true;
    verify_prompt *p = next(all, name, tokens);
    p->n = n;
    if (!fill(p, info->vocabulary)) return false;
    all->count++;
    return true;
}

/* `given`: it must fit. Ids come from the library and are copied, so that all are freed alike. */
static bool add_text(verify_prompts *all, const im_model *model, const im_model_info *info, const char *name, const char *text,
                     uint32_t tokens, bool given)
{
    im_error err;
    int32_t *ids = NULL;
    verify_prompt *p = next(all, name, tokens);
    if (im_model_encode(model, text, strlen(text), IM_ENCODE_PLAIN, &ids, &p->n, &err) != IM_OK)
        return say_failed(who, &err), false;
    bool fits = p->n > 0 && p->n + tokens <= info->context;
    if (fits && (p->ids = calloc(p->n, sizeof *ids)) != NULL) memcpy(p->ids, ids, p->n * sizeof *ids);
    im_free(ids);
    if (fits && p->ids == NULL) return say(who, "out of memory"), false;
    if (!fits && given)
        return say(who, "%s: %zu tokens and %u more do not fit into %u positions", name, p->n, tokens, info->context), false;
    all->count += fits;
    return true;
}

/* The smallest sliding window among the model's layers; 0: none. */
static size_t window_of(const im_model *model)
{
    char *text;
    size_t least = 0;
    if (im_model_program(model, &text, NULL) != IM_OK) return 0;
    for (const char *at = text; (at = strstr(at, "window ")) != NULL; at++) {
        size_t window = (size_t)strtoul(at + 7, NULL, 10);
        if (window > 0 && (least == 0 || window < least)) least = window;
    }
    im_free(text);
    return least;
}

/* One that is short; text of all kinds; one that crosses pages of keys and values while it is read (64) and while it is answered (128); one that leaves a sliding window. */
static bool make_own(verify_prompts *all, const im_model *model, const im_model_info *info, uint32_t tokens, bool full)
{
    size_t window = window_of(model), longest = full ? 4096 : 640;
    bool good = add_made(all, info, "short", 5, tokens) && add_text(all, model, info, "unicode", unicode_text, tokens, false) &&
                add_made(all, info, "pages", 125, tokens);
    if (good && window > 100 && window + 24 <= longest) good = add_made(all, info, "window", window + 24, tokens);
    return good;
}

static bool make_given(verify_prompts *all, const im_model *model, const im_model_info *info, const char *const *texts,
                       uint32_t tokens)
{
    char name[32];
    for (size_t i = 0; texts[i] != NULL; i++) {
        snprintf(name, sizeof name, "prompt-%zu", i + 1);
        if (!add_text(all, model, info, name, texts[i], tokens, true)) return false;
    }
    return true;
}

static void measure(verify_prompts *all)
{
    for (size_t i = 0; i < all->count; i++) {
        const verify_prompt *p = &all->item[i];
        if (all->shortest == 0 || p->n < all->shortest) all->shortest = p->n;
        if (p->n > all->usual && strcmp(p->name, "window") != 0) all->usual = p->n;
        if (p->n + p->tokens > all->context) all->context = (uint32_t)p->n + p->tokens;
    }
}

static bool take_room(verify_prompts *all)
{
    for (size_t i = 0; i < all->count; i++) {
        verify_prompt *p = &all->item[i];
        p->answer = calloc(p->tokens, sizeof *p->answer);
        p->logits = calloc((size_t)p->tokens * all->vocabulary, sizeof *p->logits);
        if (p->answer == NULL || p->logits == NULL) return say(who, "out of memory"), false;
    }
    return true;
}

bool verify_prompts_make(verify_prompts *all, const im_model *model, const char *const *texts, uint32_t tokens, bool full)
{
    im_model_info info;
    im_model_get_info(model, &info);
    *all = (verify_prompts){.vocabulary = info.vocabulary};
    bool good = texts[0] != NULL ? make_given(all, model, &info, texts, tokens) : make_own(all, model, &info, tokens, full);
    if (good && all->count == 0) return say(who, "%u positions are too few for any prompt", info.context), false;
    measure(all);
    return good && take_room(all);
}

void verify_prompts_free(verify_prompts *all)
{
    for (size_t i = 0; i < VERIFY_MOST_PROMPTS; i++) {
        free(all->item[i].ids);
        free(all->item[i].answer);
        free(all->item[i].logits);
    }
}
