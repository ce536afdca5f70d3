/* SPDX-License-Identifier: Apache-2.0
 *
 * Any bytes as a safetensors file. What is accepted keeps its promises: tensors lie behind each other in the data, cover them all, and are found by their names.
 * An input without a length in front gets the one of the text up to its last brace, so that a fuzzer need not count.
 */
#include "format/safetensors.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static volatile unsigned sink;

static void must(int promise)
{
    if (!promise) abort();
}

static size_t bytes_of(const im__st_tensor *t)
{
    size_t n = im__st_type_bytes(t->type);
    must(t->n_dims <= IM__ST_MAX_DIMS && im__st_type_name(t->type) != NULL);
    for (uint32_t i = 0; i < IM__ST_MAX_DIMS; i++) {
        must(i < t->n_dims || t->dim[i] == 1);
        n *= (size_t)t->dim[i];
    }
    return n;
}

static void check(const im__safetensors *s, const uint8_t *data, size_t size)
{
    size_t sum = 0;
    for (size_t i = 0; i < s->tensor_count; i++) {
        const im__st_tensor *t = &s->tensor[i];
        must(t->bytes == bytes_of(t) && t->name[0] != 0 && strlen(t->name) <= IM__ST_MAX_NAME);
        must(t->data >= data + 10 && t->data + t->bytes <= data + size);
        must(im__safetensors_find(s, t->name) == t && (i == 0 || strcmp(s->tensor[i - 1].name, t->name) < 0));
        for (size_t k = 0; k < t->bytes; k++) sink += t->data[k];
        sum += t->bytes;
    }
    uint64_t header = 0;
    memcpy(&header, data, 8);
    must(sum == size - 8 - header);
}

static void parse(const uint8_t *data, size_t size)
{
    im__safetensors *s;
    im_error err = {.message = ""};
    im_status status = im__safetensors_parse(&s, data, size, "fuzz", &err);
    must((status == IM_OK) == (s != NULL));
    if (s != NULL)
        check(s, data, size);
    else
        must(err.status == status && strncmp(err.message, "fuzz: ", 6) == 0 && strchr(err.message, '\n') == NULL);
    im__safetensors_close(s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0 || data[0] != '{') {
        parse(data, size);
        return 0;
    }
    uint64_t header = size;
    while (header > 0 && data[header - 1] != '}') header--;
    uint8_t *file = malloc(size + 8);
    must(file != NULL);
    memcpy(file, &header, 8);
    memcpy(file + 8, data, size);
    parse(file, size + 8);
    free(file);
    return 0;
}
