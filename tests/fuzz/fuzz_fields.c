/* SPDX-License-Identifier: Apache-2.0
 *
 * Bodies of requests. The first byte says for which route. A body is read, or refused with a problem that is whole: a status, a message in valid UTF-8, a short name.
 */
#include "fields.h"

#include "base/utf8.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_problem(const problem *p)
{
    if (p->status != 400 && p->status != 404 && p->status != 503) abort();
    if (p->message[0] == 0 || !im__utf8_valid(p->message, strlen(p->message))) abort();
    if (!im__utf8_valid(p->param, strlen(p->param))) abort();
}

static void check_fields(const fields *f)
{
    if (f->chat ? f->messages == NULL : f->prompts == NULL) abort();
    if (f->n < 1 || f->n > 8 || f->n * f->prompt_count > 8 || f->top_logprobs > FIELDS_MAX_TOP) abort();
    if (!(f->sampling.temperature >= 0 && f->sampling.temperature <= 2)) abort();
    for (size_t i = 0; f->stop[i] != NULL; i++)
        if (i >= FIELDS_MAX_STOPS || f->stop[i][0] == 0) abort();
    for (size_t i = 0; i < f->sampling.bias_count; i++)
        if (f->sampling.bias[i].id < 0 || f->sampling.bias[i].id >= 1000) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const models[] = {"tiny", NULL};
    const fields_rules rules = {.models = models, .vocabulary = 1000, .max_choices = 8};
    problem p = {.status = 0};
    fields f;
    if (size < 1) return 0;
    json_t *doc = body_object((const char *)data + 1, size - 1, &p);
    if (doc == NULL) {
        check_problem(&p);
        return 0;
    }
    if (fields_read(&f, doc, (data[0] & 1) != 0, &rules, &p))
        check_fields(&f);
    else
        check_problem(&p);
    fields_free(&f);
    return 0;
}
