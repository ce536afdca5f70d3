/* SPDX-License-Identifier: Apache-2.0 */
#include "model/families.h"

#include <string.h>

static const im__family family[] = {
    {"gemma2", im__family_gemma2}, {"gemma3", im__family_gemma3}, {"llama", im__family_llama},
    {"qwen2", im__family_qwen2},   {"qwen3", im__family_qwen3},
};
#define FAMILIES (sizeof family / sizeof *family)

const im__family *im__family_find(const char *arch, size_t n)
{
    for (size_t i = 0; i < FAMILIES; i++)
        if (strlen(family[i].arch) == n && memcmp(family[i].arch, arch, n) == 0) return &family[i];
    return NULL;
}

void im__family_names(im__buf *out)
{
    for (size_t i = 0; i < FAMILIES; i++) im__buf_printf(out, "%s%s", i == 0 ? "" : ", ", family[i].arch);
}

static im_status refuse(const im__source *s, im__bytes arch, im_error *err)
{
    im__buf names = {0};
    im__family_names(&names);
    im_status status = im__fail(err, IM_ERR_UNSUPPORTED, "%s: architecture \"%.*s\" is not supported; known are %s", s->path,
                                (int)(arch.len > 40 ? 40 : arch.len), arch.ptr, names.data == NULL ? "" : names.data);
    im__buf_free(&names);
    return status;
}

im_status im__program_read(const im__source *s, im__program *out, im_error *err)
{
    im__params params;
    const im__family *f = im__family_find(s->architecture.ptr, s->architecture.len);
    if (s->architecture.ptr != NULL && f == NULL) return refuse(s, s->architecture, err);
    IM__TRY(s->kind->params(s, &params, err)); /* says what is wrong with an architecture that is no name */
    *out = (im__program){0};
    im_status status = f->build(out, s, &params, err);
    im__params_clear(&params);
    if (status != IM_OK) im__program_clear(out);
    return status;
}
