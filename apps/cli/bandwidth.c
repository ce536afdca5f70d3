/* SPDX-License-Identifier: Apache-2.0 */
#include "bandwidth.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { BYTES_A_THREAD = 192 << 20, PASSES = 4, MOST_READERS = 64 };

typedef struct reader {
    pthread_t thread;
    uint64_t *data;
    uint64_t sum;
} reader;

static void *read_all(void *argument)
{
    reader *r = argument;
    uint64_t sum[8] = {0};
    for (size_t i = 0; i + 8 <= BYTES_A_THREAD / sizeof(uint64_t); i += 8)
        for (size_t k = 0; k < 8; k++) sum[k] += r->data[i + k];
    r->sum = sum[0] + sum[1] + sum[2] + sum[3] + sum[4] + sum[5] + sum[6] + sum[7];
    return NULL;
}

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static double one_pass(reader *r, int threads)
{
    double begin = seconds();
    for (int i = 0; i < threads; i++)
        if (pthread_create(&r[i].thread, NULL, read_all, &r[i]) != 0) return 0;
    for (int i = 0; i < threads; i++) pthread_join(r[i].thread, NULL);
    return (double)threads * BYTES_A_THREAD / (seconds() - begin);
}

double read_bandwidth(int threads)
{
    reader r[MOST_READERS] = {{0}};
    double best = 0;
    if (threads > MOST_READERS) threads = MOST_READERS;
    bool good = true;
    for (int i = 0; i < threads; i++) {
        r[i].data = malloc(BYTES_A_THREAD);
        good = good && r[i].data != NULL;
        if (r[i].data != NULL) memset(r[i].data, 1, BYTES_A_THREAD);
    }
    for (int pass = 0; good && pass < PASSES; pass++) {
        double rate = one_pass(r, threads);
        if (rate > best) best = rate;
    }
    for (int i = 0; i < threads; i++) free(r[i].data);
    return best;
}
