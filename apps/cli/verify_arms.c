/* SPDX-License-Identifier: Apache-2.0 */
#include "verify.h"

#include <stdlib.h>
#include <string.h>

/* Plain C is some hundred times slower than kernels: models up to so many parameters are computed with it, and with --full larger ones for their shortest prompt. */
enum { TINY_MODEL = 8000000, SMALL_MODEL = 400000000 };

static bool add(verify_arms *arms, verify_arm arm)
{
    if ((arms->count & (arms->count - 1)) == 0) {
        verify_arm *more = realloc(arms->item, (arms->count == 0 ? 1 : 2 * arms->count) * sizeof *more);
        if (more == NULL) return false;
        arms->item = more;
    }
    arms->item[arms->count++] = arm;
    return true;
}

/* `arm` in the companies that follow, each alone, beside others, and after it is in the cache. */
static bool add_companies(verify_arms *arms, verify_arm arm, const char *companies)
{
    for (const char *c = companies; *c != 0; c += 2) {
        arm.batch = c[0] - '0';
        arm.beside = c[1] == 'b' || c[1] == 'B';
        arm.warm = c[1] == 'N' || c[1] == 'B';
        arm.tokens_only = c[1] == 't';
        if (!add(arms, arm)) return false;
    }
    return true;
}

/* Companies: a digit, sequences in the steps; n: neighbours, b: requests beside each other, in capitals with a warm cache; t: nobody looks at the logits. */
static const char every_company[] = "1n2n5n8n2b5b8b1N2N5N8N2B5B8B1t";

static size_t longest_of(const verify_prompts *prompts)
{
    size_t most = 0;
    for (size_t i = 0; i < prompts->count; i++)
        if (prompts->item[i].n > most) most = prompts->item[i].n;
    return most;
}

/* ---- processor --------------------------------------------------------------------------------------------------------------------------- */

static const char *best_level(void)
{
    const char *const *level = im_cpu_levels();
    while (level[1] != NULL) level++;
    return *level;
}

static bool add_quick(verify_arms *arms, const verify_plan *plan, const verify_prompts *prompts)
{
    size_t longest = longest_of(prompts), usual = prompts->usual, shortest = prompts->shortest;
    const char *best = best_level();
    int all = plan->threads;
    verify_arm arm = {.device = "cpu", .level = best, .threads = 1, .most = longest};
    bool good = add_companies(arms, arm, "1n");
    arm.most = usual;
    good = good && add_companies(arms, arm, "5b");
    arm.threads = all;
    arm.most = longest;
    good = good && add_companies(arms, arm, "1n");
    arm.most = usual;
    good = good && add_companies(arms, arm, "8n1N2b1t");
    arm.chunk = 7;
    good = good && add_companies(arms, arm, "2n8B");
    arm.chunk = 1;
    arm.most = shortest;
    good = good && add_companies(arms, arm, "1n2b");
    arm.chunk = 64;
    for (const char *const *level = im_cpu_levels(); *level != NULL && good; level++) {
        bool plain = strcmp(*level, "c") == 0;
        if (strcmp(*level, best) == 0 || (plain && plan->parameters > TINY_MODEL)) continue;
        arm.level = *level;
        arm.most = usual;
        good = add_companies(arms, arm, "1n");
        arm.most = shortest;
        good = good && add_companies(arms, arm, plain ? "2b" : "5b");
    }
    return good;
}

/* Everything that one level is asked to do with these threads and chunk. */
static bool add_full_way(verify_arms *arms, const verify_plan *plan, const verify_prompts *prompts, verify_arm arm)
{
    bool plain = strcmp(arm.level, "c") == 0, costly = plain && plan->parameters > TINY_MODEL;
    if (costly && (plan->parameters > SMALL_MODEL || arm.threads == 1 || arm.chunk == 1 || arm.chunk == 64)) return true;
    arm.most = costly ? prompts->shortest : arm.chunk == 1 ? prompts->usual : longest_of(prompts);
    return add_companies(arms, arm, costly ? "1n2b" : every_company);
}

static const uint32_t chunks[] = {0, 64, 7, 1};
enum { CHUNKS = sizeof chunks / sizeof *chunks };

static bool add_full(verify_arms *arms, const verify_plan *plan, const verify_prompts *prompts)
{
    size_t levels = 0;
    while (im_cpu_levels()[levels] != NULL) levels++;
    for (size_t l = levels; l-- > 0;)
        for (int t = 0; t < 2; t++)
            for (size_t c = 0; c < CHUNKS; c++) {
                verify_arm arm = {
                    .device = "cpu", .level = im_cpu_levels()[l], .threads = t == 0 ? 1 : plan->threads, .chunk = chunks[c]};
                if (!add_full_way(arms, plan, prompts, arm)) return false;
            }
    return true;
}

/* ---- GPUs ----------------------------------------------------------------------------------------------------------------------------------- */

static bool add_gpu(verify_arms *arms, const verify_plan *plan, const verify_prompts *prompts, const char *device)
{
    verify_arm arm = {.level = "-", .threads = plan->threads, .most = longest_of(prompts)};
    snprintf(arm.device, sizeof arm.device, "%s", device);
    for (size_t c = 0; plan->full && c < CHUNKS; c++) {
        arm.chunk = chunks[c];
        if (!add_companies(arms, arm, every_company)) return false;
    }
    if (plan->full) return true;
    if (!add_companies(arms, arm, "1n5n1N2b8b1t")) return false;
    arm.chunk = 7;
    return add_companies(arms, arm, "1n8B");
}

static bool add_gpus(verify_arms *arms, const verify_plan *plan, const verify_prompts *prompts)
{
    int count;
    char device[16];
    if (plan->device != NULL) return strcmp(plan->device, "cpu") == 0 || add_gpu(arms, plan, prompts, plan->device);
    if (im_gpu_count(&count, NULL) != IM_OK) return true;
    for (int i = 0; i < count; i++) {
        snprintf(device, sizeof device, "cuda:%d", i);
        if (!add_gpu(arms, plan, prompts, device)) return false;
    }
    return true;
}

/* ---- all ------------------------------------------------------------------------------------------------------------------------------------ */

bool verify_arms_make(verify_arms *arms, const verify_plan *plan, const verify_prompts *prompts)
{
    *arms = (verify_arms){0};
    return (plan->full ? add_full : add_quick)(arms, plan, prompts) && add_gpus(arms, plan, prompts);
}

void verify_arms_free(verify_arms *arms) { free(arms->item); }

bool verify_arms_share_engine(const verify_arm *a, const verify_arm *b)
{
    return strcmp(a->device, b->device) == 0 && strcmp(a->level, b->level) == 0 && a->threads == b->threads && a->chunk == b->chunk;
}

void verify_arm_print(const verify_arm *arm, char *out, size_t size)
{
    char how[48], chunk[32] = "default chunk", company[32] = "alone";
    snprintf(how, sizeof how, "%s", arm->device);
    if (arm->level[0] != '-')
        snprintf(how, sizeof how, "cpu %s, %d thread%s", arm->level, arm->threads, arm->threads == 1 ? "" : "s");
    if (arm->chunk > 0) snprintf(chunk, sizeof chunk, "chunk %u", arm->chunk);
    if (arm->batch > 1) snprintf(company, sizeof company, "%d %s", arm->batch, arm->beside ? "beside" : "neighbours");
    snprintf(out, size, "%s, %s, %s, %s%s", how, chunk, company, arm->warm ? "warm" : "cold",
             arm->tokens_only ? ", tokens only" : "");
}
