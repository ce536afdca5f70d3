/* SPDX-License-Identifier: Apache-2.0
 *
 * Model files made in memory: keys and tensors one after the other, then a reader on them. Mistakes of the test fail it.
 */
#ifndef IRONMULE_TESTS_GGUF_MAKE_H
#define IRONMULE_TESTS_GGUF_MAKE_H

#include "base/mem.h"
#include "format/gguf.h"

typedef struct gguf_make {
    im__buf keys, tensors, data, file;
    uint64_t key_count, tensor_count;
} gguf_make; /* begin with {0} */

void make_u32(gguf_make *m, const char *key, uint32_t value);
void make_i32(gguf_make *m, const char *key, int32_t value);
void make_f32(gguf_make *m, const char *key, float value);
void make_bool(gguf_make *m, const char *key, bool value);
void make_string(gguf_make *m, const char *key, const char *value);
void make_u32s(gguf_make *m, const char *key, const uint32_t *values, size_t n);
void make_f32s(gguf_make *m, const char *key, const float *values, size_t n);
void make_strings(gguf_make *m, const char *key, const char *const *values, size_t n);

/* Zeros but for what float types get: small numbers of a fixed stream. rows 0: a vector. */
void make_tensor(gguf_make *m, const char *name, uint32_t dtype, uint64_t n, uint64_t rows);

/* A reader; the bytes belong to `m`. Close it first. */
im__gguf *make_open(gguf_make *m);
void make_clear(gguf_make *m);

#endif
