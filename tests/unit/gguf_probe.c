/* SPDX-License-Identifier: Apache-2.0
 *
 * Opens each path read from standard input, one a line, and prints one line for it:
 *
 *     ok DIGEST MILLISECONDS KILOBYTES            digest over all tensors, whatever their order
 *     error STATUS MILLISECONDS KILOBYTES MESSAGE  with new lines in the message shown as \n
 *
 * MILLISECONDS are of processor time (a busy machine is no fault), KILOBYTES is how much the largest resident size of the process grew.
 */
#include "format/gguf.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

static uint64_t mix(uint64_t hash, const void *data, size_t n)
{
    const uint8_t *p = data;
    for (size_t i = 0; i < n; i++) hash = (hash ^ p[i]) * UINT64_C(0x100000001b3); /* FNV-1a */
    return hash;
}

static uint64_t mix_number(uint64_t hash, uint64_t value)
{
    uint8_t bytes[8];
    for (int i = 0; i < 8; i++) bytes[i] = (uint8_t)(value >> (8 * i));
    return mix(hash, bytes, 8);
}

static uint64_t digest(const im__gguf *g)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < g->tensor_count; i++) {
        const im__gguf_tensor *t = &g->tensor[i];
        uint64_t hash = mix(UINT64_C(0xcbf29ce484222325), t->name.ptr, t->name.len);
        for (int d = 0; d < IM__GGUF_MAX_DIMS; d++) hash = mix_number(hash, t->dim[d]);
        sum += mix(mix_number(hash, t->dtype), t->data, t->bytes);
    }
    return sum;
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static long resident(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss;
}

static void print_escaped(const char *s)
{
    for (; *s != 0; s++) {
        if (*s == '\n')
            fputs("\\n", stdout);
        else
            putchar(*s);
    }
}

static void probe(const char *path)
{
    im__gguf *g;
    im_error err = {0};
    long before = resident();
    double start = now();
    im_status status = im__gguf_open(&g, path, &err);
    double spent = now() - start;
    long grown = resident() - before;
    if (status == IM_OK) {
        printf("ok %016" PRIx64 " %.3f %ld", digest(g), spent, grown);
    } else {
        printf("error %d %.3f %ld ", (int)status, spent, grown);
        print_escaped(err.message);
    }
    putchar('\n');
    fflush(stdout);
    im__gguf_close(g);
}

int main(void)
{
    char line[4096];
    while (fgets(line, sizeof line, stdin) != NULL) {
        line[strcspn(line, "\n")] = 0;
        probe(line);
    }
    return 0;
}
