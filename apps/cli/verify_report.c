/* SPDX-License-Identifier: Apache-2.0 */
#include "verify.h"

#include <inttypes.h>
#include <string.h>

/* ---- identity ------------------------------------------------------------------------------------------------------------------------------ */

static json_t *model_identity(const im_model *model)
{
    im_model_info info;
    char fingerprint[20] = "";
    im_model_get_info(model, &info);
    im_model_fingerprint(model, fingerprint, NULL);
    return json_pack("{s:o, s:s, s:s, s:I, s:I, s:s}", "name", json_text(info.name, strlen(info.name)), "architecture",
                     info.architecture, "quantisation", info.quantisation, "parameters", (json_int_t)info.parameters, "file_bytes",
                     (json_int_t)info.file_bytes, "fingerprint", fingerprint);
}

static json_t *list_gpus(void)
{
    int count = 0;
    json_t *list = json_array();
    if (im_gpu_count(&count, NULL) != IM_OK) return list;
    for (int i = 0; i < count; i++) {
        im_gpu_info info;
        if (im_gpu_get_info(i, &info, NULL) != IM_OK) continue;
        json_array_append_new(list, json_pack("{s:o, s:f, s:i}", "name", json_text(info.name, strlen(info.name)),
                                              "compute_capability", info.capability / 10.0, "driver_cuda", info.driver));
    }
    return list;
}

static json_t *list_levels(void)
{
    json_t *list = json_array();
    for (const char *const *level = im_cpu_levels(); *level != NULL; level++) json_array_append_new(list, json_string(*level));
    return list;
}

json_t *verify_report_begin(const im_model *model, bool full)
{
    return json_pack("{s:s, s:s, s:i, s:o, s:s, s:o, s:o, s:[], s:[], s:[]}", "report", "ironmule verify", "version", im_version(),
                     "numerics", im_numerics_version(), "model", model_identity(model), "extent", full ? "full" : "quick",
                     "cpu_levels", list_levels(), "gpus", list_gpus(), "left_out", "prompts", "arms");
}

void verify_report_left_out(json_t *report, const char *device)
{
    json_array_append_new(json_object_get(report, "left_out"), json_string(device));
}

static json_t *list_ids(const int32_t *ids, size_t n)
{
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++) json_array_append_new(list, json_integer(ids[i]));
    return list;
}

void verify_report_prompts(json_t *report, const verify_prompts *prompts)
{
    for (size_t i = 0; i < prompts->count; i++) {
        const verify_prompt *p = &prompts->item[i];
        json_array_append_new(json_object_get(report, "prompts"),
                              json_pack("{s:s, s:o, s:o, s:o}", "name", p->name, "prompt_ids", list_ids(p->ids, p->n), "ids",
                                        list_ids(p->answer, p->tokens), "logits_hash", json_hex64(p->hash)));
    }
}

/* ---- arms ----------------------------------------------------------------------------------------------------------------------------------- */

static json_t *difference_report(const verify_difference *d, const char *arm, const char *prompt)
{
    char got[9], want[9];
    if (d->ids)
        return json_pack("{s:s, s:s, s:I, s:I, s:I}", "arm", arm, "prompt", prompt, "step", (json_int_t)d->step, "token",
                         (json_int_t)(int32_t)d->got, "reference_token", (json_int_t)(int32_t)d->want);
    snprintf(got, sizeof got, "%08" PRIx32, d->got);
    snprintf(want, sizeof want, "%08" PRIx32, d->want);
    return json_pack("{s:s, s:s, s:I, s:I, s:s, s:s}", "arm", arm, "prompt", prompt, "step", (json_int_t)d->step, "row",
                     (json_int_t)d->row, "bits", got, "reference_bits", want);
}

void verify_report_table_head(void)
{
    printf("%-10s %8s %8s %-14s %-5s %-10s %-16s %9s  %s\n", "computed", "threads", "chunk", "batch", "cache", "prompt",
           "hash of logits", "tokens/s", "");
}

static void print_row(const verify_arm *arm, const char *prompt, const verify_outcome *o)
{
    char threads[16] = "-", chunk[16] = "default", company[32] = "alone", hash[17] = "tokens only";
    bool is_gpu = arm->level[0] == '-';
    if (!is_gpu) snprintf(threads, sizeof threads, "%d", arm->threads);
    if (arm->chunk > 0) snprintf(chunk, sizeof chunk, "%u", arm->chunk);
    if (arm->batch > 1) snprintf(company, sizeof company, "%d %s", arm->batch, arm->beside ? "beside" : "neighbours");
    if (!arm->tokens_only) snprintf(hash, sizeof hash, "%016" PRIx64, o->hash);
    printf("%-10s %8s %8s %-14s %-5s %-10s %-16s %9.1f  %s\n", is_gpu ? arm->device : arm->level, threads, chunk, company,
           arm->warm ? "warm" : "cold", prompt, hash, o->tokens_per_s, o->same ? "same" : "DIFFERENT");
}

static void report_outcome(json_t *report, json_t *results, const verify_arm *arm, const verify_prompt *p, const verify_outcome *o)
{
    char name[120];
    json_array_append_new(results, json_pack("{s:s, s:o, s:b, s:f, s:I}", "prompt", p->name, "logits_hash",
                                             arm->tokens_only ? json_null() : json_hex64(o->hash), "same", o->same, "tokens_per_s",
                                             o->tokens_per_s, "cached_tokens", (json_int_t)o->cached));
    if (o->same || json_object_get(report, "difference") != NULL) return;
    verify_arm_print(arm, name, sizeof name);
    json_object_set_new(report, "difference", difference_report(&o->difference, name, p->name));
}

void verify_report_arm(json_t *report, const verify_arm *arm, const im_engine *e, const verify_prompts *prompts,
                       const verify_outcome *outcome, bool table)
{
    im_engine_info info;
    im_engine_get_info(e, &info);
    json_t *results = json_array();
    for (size_t i = 0; i < prompts->count; i++) {
        if (!outcome[i].ran) continue;
        report_outcome(report, results, arm, &prompts->item[i], &outcome[i]);
        if (table) print_row(arm, prompts->item[i].name, &outcome[i]);
    }
    json_array_append_new(json_object_get(report, "arms"),
                          json_pack("{s:s, s:s, s:i, s:i, s:i, s:s, s:b, s:s, s:o}", "device", arm->device, "cpu_level", arm->level,
                                    "threads", arm->threads, "chunk", (int)info.chunk, "batch", arm->batch, "company",
                                    arm->batch == 1 ? "none"
                                    : arm->beside   ? "requests"
                                                    : "neighbours",
                                    "warm", arm->warm, "fingerprint", info.fingerprint, "results", results));
}
