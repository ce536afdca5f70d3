/* SPDX-License-Identifier: Apache-2.0 */
#include "hub/hub_listing.h"

#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

void hub_choice_free(hub_choice *c)
{
    free(c->index);
    *c = (hub_choice){.index = NULL};
}

static const char *name_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash == NULL ? path : slash + 1;
}

static bool ends_in(const char *path, const char *ending)
{
    size_t n = strlen(path), m = strlen(ending);
    return n >= m && strcasecmp(path + n - m, ending) == 0;
}

static void take(hub_choice *c, const hub_listing *l, size_t i)
{
    c->index[c->count++] = i;
    c->bytes += l->file[i].size;
}

/* ---- GGUF ------------------------------------------------------------------------------------------------------------------------------ */

/* Language models only: projectors of images and matrices of importance are no models by themselves. */
static bool is_model(const char *path)
{
    const char *name = name_of(path);
    return ends_in(path, ".gguf") && strncasecmp(name, "mmproj", 6) != 0 && strcasestr(name, "imatrix") == NULL;
}

/* For "NAME-00002-of-00003.gguf" 2, with the length of NAME in *stem; 0: not split. */
static unsigned shard(const char *path, size_t *stem)
{
    unsigned no, of;
    int used = 0;
    size_t n = strlen(path);
    *stem = n;
    if (n < 20 || sscanf(path + n - 20, "-%5u-of-%5u.gguf%n", &no, &of, &used) != 2 || used != 20) return 0;
    *stem = n - 20;
    return no;
}

/* Files of one model: the same file, or shards with the same beginning. */
static bool belong_together(const char *a, const char *b)
{
    size_t n, m;
    if (shard(a, &n) == 0 || shard(b, &m) == 0) return strcmp(a, b) == 0;
    return n == m && strncmp(a, b, n) == 0;
}

/* The first file of its model in the list. */
static bool leads(const hub_listing *l, size_t i)
{
    for (size_t j = 0; j < i; j++)
        if (is_model(l->file[j].path) && belong_together(l->file[j].path, l->file[i].path)) return false;
    return true;
}

static uint64_t group_bytes(const hub_listing *l, size_t lead)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < l->count; i++)
        if (belong_together(l->file[i].path, l->file[lead].path)) sum += l->file[i].size;
    return sum;
}

static void take_group(hub_choice *c, const hub_listing *l, size_t lead)
{
    size_t stem;
    c->model = lead;
    for (size_t i = 0; i < l->count; i++) {
        if (!belong_together(l->file[i].path, l->file[lead].path)) continue;
        take(c, l, i);
        if (shard(l->file[i].path, &stem) == 1) c->model = i;
    }
}

/* Says what there is, so that one can be named. */
static im_status say_candidates(const hub_listing *l, const hub_id *id, im_error *err)
{
    char list[800] = "", label[64], size[32];
    size_t n = 0;
    for (size_t i = 0; i < l->count && n < sizeof list - 1; i++) {
        if (!is_model(l->file[i].path) || !leads(l, i) || (id->tag[0] != 0 && !hub_tag_matches(l->file[i].path, id->tag))) continue;
        hub_quantisation(label, sizeof label, l->file[i].path);
        bool told = id->tag[0] == 0 && label[0] != 0;
        int wrote = snprintf(list + n, sizeof list - n, "%s%s (%s)", n > 0 ? ", " : "", told ? label : l->file[i].path,
                             hub_bytes(size, sizeof size, group_bytes(l, i)));
        n += wrote < 0 ? 0 : (size_t)wrote;
    }
    if (id->tag[0] != 0) return hub_fail(err, IM_ERR_ARGUMENT, "%s:%s fits several models: %s", id->name, id->tag, list);
    return hub_fail(err, IM_ERR_ARGUMENT, "%s holds several models; choose one as %s:NAME: %s", id->name, id->name, list);
}

static im_status choose_gguf(hub_choice *c, const hub_listing *l, const hub_id *id, im_error *err)
{
    size_t found = 0, lead = 0;
    for (size_t i = 0; i < l->count; i++) {
        if (!is_model(l->file[i].path) || !leads(l, i) || (id->tag[0] != 0 && !hub_tag_matches(l->file[i].path, id->tag))) continue;
        found++;
        lead = i;
    }
    if (found == 1) {
        take_group(c, l, lead);
        return IM_OK;
    }
    if (found > 1) return say_candidates(l, id, err);
    hub_id any = *id;
    any.tag[0] = 0;
    im_error there = {.message = ""};
    if (say_candidates(l, &any, &there) != IM_OK && strchr(there.message, '(') != NULL)
        return hub_fail(err, IM_ERR_ARGUMENT, "no GGUF file fits \"%s\"; %s", id->tag, there.message);
    return hub_fail(err, IM_ERR_ARGUMENT, "%s holds no GGUF file; without \":%s\" its other files are taken", id->name, id->tag);
}

/* ---- folders ------------------------------------------------------------------------------------------------------------------------- */

static const char *const of_a_folder[] = {
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "tokenizer.model",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "chat_template.jinja",
    "chat_template.json",
    "model.safetensors.index.json",
    "LICENSE*",
    "NOTICE*",
    "USE_POLICY*",
    "model*.safetensors",
    "weights*.safetensors",
    NULL,
};

static bool fits_one(const char *path, const char *const *patterns)
{
    for (; *patterns != NULL; patterns++)
        if (fnmatch(*patterns, path, 0) == 0 || fnmatch(*patterns, name_of(path), 0) == 0) return true;
    return false;
}

static size_t count_of(const hub_listing *l, const char *ending)
{
    size_t n = 0;
    for (size_t i = 0; i < l->count; i++) n += strchr(l->file[i].path, '/') == NULL && ends_in(l->file[i].path, ending);
    return n;
}

static im_status choose_folder(hub_choice *c, const hub_listing *l, const hub_id *id, im_error *err)
{
    for (size_t i = 0; i < l->count; i++)
        if (strchr(l->file[i].path, '/') == NULL && fits_one(l->file[i].path, of_a_folder)) take(c, l, i);
    for (size_t i = 0; i < c->count; i++)
        if (ends_in(l->file[c->index[i]].path, ".safetensors")) return IM_OK;
    return hub_fail(err, IM_ERR_UNSUPPORTED, "%s holds neither GGUF files nor safetensors that belong to a model", id->name);
}

static im_status choose_patterns(hub_choice *c, const hub_listing *l, const hub_id *id, const char *const *patterns, im_error *err)
{
    for (size_t i = 0; i < l->count; i++)
        if (fits_one(l->file[i].path, patterns)) take(c, l, i);
    if (c->count == 0)
        return hub_fail(err, IM_ERR_ARGUMENT, "%s: none of its %zu files fits --file %s", id->name, l->count, patterns[0]);
    for (size_t i = 0; i < c->count && c->model == SIZE_MAX; i++) {
        size_t stem;
        const char *path = l->file[c->index[i]].path;
        if (is_model(path) && shard(path, &stem) <= 1) c->model = c->index[i];
    }
    return IM_OK;
}

im_status hub_choose(hub_choice *out, const hub_listing *l, const hub_id *id, const char *const *patterns, im_error *err)
{
    im_status status;
    *out = (hub_choice){.index = calloc(l->count + 1, sizeof *out->index), .model = SIZE_MAX};
    if (out->index == NULL) return hub_no_memory(err);
    size_t ggufs = 0;
    for (size_t i = 0; i < l->count; i++) ggufs += is_model(l->file[i].path);
    if (patterns != NULL && patterns[0] != NULL)
        status = choose_patterns(out, l, id, patterns, err);
    else if (id->tag[0] != 0 || (ggufs > 0 && (count_of(l, ".safetensors") == 0 || count_of(l, "config.json") == 0)))
        status = choose_gguf(out, l, id, err);
    else
        status = choose_folder(out, l, id, err);
    if (status != IM_OK) hub_choice_free(out);
    return status;
}
