/* SPDX-License-Identifier: Apache-2.0 */
#include "store/facts.h"

#include "hub/hub_cache.h"
#include "store/home.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

static bool is_folder(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

static bool ends_in(const char *path, const char *ending)
{
    size_t n = strlen(path), m = strlen(ending);
    return n >= m && strcasecmp(path + n - m, ending) == 0;
}

/* ---- what the library says ------------------------------------------------------------------------------------------------------------------- */

static void judge_memory(model_facts *f, const im_model *model)
{
    im_error err;
    im_memory_plan plan;
    im_engine_options o;
    im_engine_options_defaults(&o);
    o.context = f->context;
    o.device = "cpu";
    if (im_engine_plan(model, &o, &plan, &err) != IM_OK) {
        snprintf(f->why, sizeof f->why, "%s", err.message);
        return;
    }
    f->need = plan.weights + plan.kv + plan.workspace;
    f->available = plan.available;
    f->runs = plan.available == 0 || f->need <= plan.available;
    char need[32], available[32];
    if (!f->runs)
        snprintf(f->why, sizeof f->why, "%s of memory are needed, %s are available", hub_bytes(need, sizeof need, f->need),
                 hub_bytes(available, sizeof available, f->available));
}

static void take_info(model_facts *f, const im_model *model)
{
    im_model_info info;
    im_model_get_info(model, &info);
    snprintf(f->family, sizeof f->family, "%s", info.architecture);
    snprintf(f->quantisation, sizeof f->quantisation, "%s", info.quantisation);
    snprintf(f->licence, sizeof f->licence, "%s", info.licence);
    f->bytes = info.file_bytes;
    f->parameters = info.parameters;
    f->made_for = info.context;
    if (f->context == 0) f->context = info.context < 4096 ? info.context : 4096;
}

/* ---- what the files say when it cannot be opened ----------------------------------------------------------------------------------------------- */

static void take_config(model_facts *f, const json_t *config)
{
    const json_t *quantisation = json_object_get(config, "quantization"), *text = json_object_get(config, "text_config");
    const char *type = json_string_value(json_object_get(config, "model_type"));
    const char *stored = json_string_value(json_object_get(config, "torch_dtype"));
    if (stored == NULL) stored = json_string_value(json_object_get(config, "dtype"));
    const json_t *made_for = json_object_get(json_is_object(text) ? text : config, "max_position_embeddings");
    if (type != NULL) snprintf(f->family, sizeof f->family, "%s", type);
    if (json_is_object(quantisation))
        snprintf(f->quantisation, sizeof f->quantisation, "%lld-bit, groups of %lld",
                 json_integer_value(json_object_get(quantisation, "bits")),
                 json_integer_value(json_object_get(quantisation, "group_size")));
    else if (stored != NULL)
        snprintf(f->quantisation, sizeof f->quantisation, "%s", stored);
    if (json_is_integer(made_for) && json_integer_value(made_for) > 0 && json_integer_value(made_for) < INT32_MAX)
        f->made_for = (uint32_t)json_integer_value(made_for);
}

static void read_config(model_facts *f, const char *folder)
{
    char path[4096], *text;
    size_t n;
    if (snprintf(path, sizeof path, "%s/config.json", folder) >= (int)sizeof path) return;
    if (store_read(&text, &n, path, NULL) != IM_OK || text == NULL) return;
    json_t *config = json_loadb(text, n, 0, NULL);
    if (json_is_object(config)) take_config(f, config);
    json_decref(config);
    free(text);
}

static void measure(model_facts *f, const char *path)
{
    struct stat st;
    hub_listing l;
    if (!is_folder(path)) {
        if (stat(path, &st) == 0) f->bytes = (uint64_t)st.st_size;
        hub_quantisation(f->quantisation, sizeof f->quantisation, path);
        return;
    }
    if (hub_cache_files(&l, path, NULL) != IM_OK) return;
    for (size_t i = 0; i < l.count; i++)
        if (ends_in(l.file[i].path, ".safetensors")) f->bytes += l.file[i].size;
    hub_listing_free(&l);
    read_config(f, path);
}

void model_facts_read(model_facts *out, const char *path, uint32_t context)
{
    im_error err;
    im_model *model;
    *out = (model_facts){.format = is_folder(path) ? "safetensors" : "gguf", .context = context};
    if (im_model_open(&model, path, NULL, &err) != IM_OK) {
        measure(out, path);
        snprintf(out->why, sizeof out->why, "%s", err.message);
    } else {
        take_info(out, model);
        judge_memory(out, model);
        im_model_close(model);
    }
    char *const told[] = {out->family, out->quantisation, out->licence, out->why};
    for (size_t i = 0; i < sizeof told / sizeof *told; i++) hub_clean(told[i]);
}

static json_t *text(const char *s)
{
    json_t *out = s[0] == 0 ? json_null() : json_string(s);
    return out == NULL ? json_null() : out; /* bytes of the file that are no UTF-8 */
}

static json_t *number(uint64_t n) { return n == 0 ? json_null() : json_integer((json_int_t)n); }

void model_facts_json(json_t *to, const model_facts *f)
{
    json_object_set_new(to, "format", json_string(f->format));
    json_object_set_new(to, "family", text(f->family));
    json_object_set_new(to, "quantisation", text(f->quantisation));
    json_object_set_new(to, "licence", text(f->licence));
    json_object_set_new(to, "bytes", json_integer((json_int_t)f->bytes));
    json_object_set_new(to, "parameters", number(f->parameters));
    json_object_set_new(to, "made_for", number(f->made_for));
    json_object_set_new(to, "context", number(f->context));
    json_object_set_new(to, "needs_bytes", number(f->need));
    json_object_set_new(to, "available_bytes", number(f->available));
    json_object_set_new(to, "runs", json_boolean(f->runs));
    json_object_set_new(to, "why_not", text(f->why));
}
