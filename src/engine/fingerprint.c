/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/build_id.h"
#include "engine/internal.h"

#include <stdio.h>
#include <string.h>
#include <xxhash.h>

enum { SAMPLE = 64 };

static void add(XXH3_state_t *h, const void *data, size_t n) { XXH3_128bits_update(h, data, n); }
static void add_number(XXH3_state_t *h, uint64_t n) { add(h, &n, sizeof n); }
static void add_text(XXH3_state_t *h, const char *s) { add(h, s, strlen(s) + 1); }

/* Training again changes nearly all weights, so bytes from the ends and the middle of each tensor tell models of one shape apart without reading them. */
static void add_sample(XXH3_state_t *h, const uint8_t *data, size_t bytes)
{
    size_t n = bytes < SAMPLE ? bytes : SAMPLE;
    add(h, data, n);
    add(h, data + (bytes - n) / 2, n);
    add(h, data + bytes - n, n);
}

static void add_data(XXH3_state_t *h, const im__tensor *t, const uint8_t *data, size_t bytes, bool whole)
{
    if (whole)
        add(h, data, bytes);
    else
        add_sample(h, data, bytes);
    if (!t->made) im__file_release(data, bytes); /* a few bytes touched bring up to 2 MB into memory */
}

static void add_model(XXH3_state_t *h, const im_model *m, bool whole)
{
    add_number(h, m->info.program_digest);
    for (size_t i = 0; i < m->source->tensor_count; i++) {
        const im__tensor *t = &m->source->tensor[i];
        add(h, t->name, strlen(t->name));
        add(h, t->dim, sizeof t->dim);
        add_number(h, t->dtype);
        add_data(h, t, t->data, t->bytes, whole);
        if (t->scale_bytes > 0) add_data(h, t, t->split.scale, t->scale_bytes, whole);
        if (t->bias_bytes > 0) add_data(h, t, t->split.bias, t->bias_bytes, whole);
    }
}

static void add_build(XXH3_state_t *h)
{
    size_t n;
    const void *id = im__build_id(&n);
    add_text(h, im_version());
    add_text(h, __VERSION__);
    add_number(h, (uint64_t)im_numerics_version());
    if (id != NULL) add(h, id, n);
}

static void add_plan(XXH3_state_t *h, const im_engine *e)
{
    const im_engine_options *o = &e->options;
    const uint64_t plan[] = {(uint64_t)o->threads, o->context, o->chunk, o->max_sequences, o->kv_tokens};
    add_text(h, e->backend->name);
    add_text(h, e->backend->describe(e->backend));
    add(h, plan, sizeof plan);
}

static im_status begin(XXH3_state_t **h, im_error *err)
{
    *h = XXH3_createState();
    if (*h == NULL) return im__fail(err, IM_ERR_MEMORY, "out of memory");
    XXH3_128bits_reset(*h);
    return IM_OK;
}

im_status im__fingerprint(const im_engine *e, char out[20], im_error *err)
{
    XXH3_state_t *h;
    IM__TRY(begin(&h, err));
    add_model(h, e->model, false);
    add_build(h);
    add_plan(h, e);
    snprintf(out, 20, "im-%016llx", (unsigned long long)XXH3_128bits_digest(h).low64);
    XXH3_freeState(h);
    return IM_OK;
}

im_status im_model_fingerprint(const im_model *model, char out[20], im_error *err)
{
    XXH3_state_t *h;
    if (model == NULL || out == NULL) return im__fail(err, IM_ERR_ARGUMENT, "a NULL argument");
    IM__TRY(begin(&h, err));
    add_model(h, model, false);
    snprintf(out, 20, "im-%016llx", (unsigned long long)XXH3_128bits_digest(h).low64);
    XXH3_freeState(h);
    return IM_OK;
}

im_status im__fingerprint_pages(const im_engine *e, unsigned char out[16], im_error *err)
{
    XXH3_state_t *h;
    XXH128_canonical_t sum;
    IM__TRY(begin(&h, err));
    add_model(h, e->model, true);
    add_build(h);
    for (int k = 0; k < IM__POOLS; k++) add_number(h, im__kv_page_bytes(&e->model->program, (im__pool_kind)k));
    XXH128_canonicalFromHash(&sum, XXH3_128bits_digest(h));
    memcpy(out, sum.digest, sizeof sum.digest);
    XXH3_freeState(h);
    return IM_OK;
}
