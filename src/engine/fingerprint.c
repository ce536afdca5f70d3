/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/internal.h"

#include <stdio.h>
#include <string.h>
#include <xxhash.h>

enum { SAMPLE = 64 };

static void add(XXH3_state_t *h, const void *data, size_t n) { XXH3_64bits_update(h, data, n); }
static void add_number(XXH3_state_t *h, uint64_t n) { add(h, &n, sizeof n); }
static void add_text(XXH3_state_t *h, const char *s) { add(h, s, strlen(s) + 1); }

/* Training again changes nearly all weights, so bytes from the ends and the middle of each tensor tell models of one shape apart without reading them. */
static void add_tensor(XXH3_state_t *h, const im__gguf_tensor *t)
{
    size_t n = t->bytes < SAMPLE ? t->bytes : SAMPLE;
    add(h, t->name.ptr, t->name.len);
    add(h, t->dim, sizeof t->dim);
    add_number(h, t->dtype);
    add(h, t->data, n);
    add(h, t->data + (t->bytes - n) / 2, n);
    add(h, t->data + t->bytes - n, n);
}

static void add_engine(XXH3_state_t *h, const im_engine *e)
{
    const im_engine_options *o = &e->options;
    add_text(h, im_version());
    add_text(h, __VERSION__);
    add_number(h, (uint64_t)im_numerics_version());
    add_text(h, e->backend->name);
    add_text(h, e->backend->describe(e->backend));
    const uint64_t plan[] = {(uint64_t)o->threads, o->context, o->chunk, o->max_sequences, o->kv_tokens};
    add(h, plan, sizeof plan);
}

im_status im__fingerprint(const im_engine *e, char out[20], im_error *err)
{
    const im__gguf *g = e->model->file;
    XXH3_state_t *h = XXH3_createState();
    if (h == NULL) return im__fail(err, IM_ERR_MEMORY, "out of memory");
    XXH3_64bits_reset(h);
    add_number(h, e->model->info.program_digest);
    for (size_t i = 0; i < g->tensor_count; i++) add_tensor(h, &g->tensor[i]);
    add_engine(h, e);
    snprintf(out, 20, "im-%016llx", (unsigned long long)XXH3_64bits_digest(h));
    XXH3_freeState(h);
    return IM_OK;
}
