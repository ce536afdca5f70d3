/* SPDX-License-Identifier: Apache-2.0
 *
 * checkern_cuda: judges the kernels on this machine's GPU, and times them. Exit status 0: all right; 1: a kernel is wrong; 77: there is no device.
 */
#include "gk_device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int usage(void)
{
    printf("checkern_cuda [--seed N] [--only TEXT] [--time]\n\n"
           "Runs the CUDA kernels on the first GPU and compares every bit with the plain C functions.\n"
           "  --seed N      other inputs (1)\n"
           "  --only TEXT   only cases whose name contains TEXT\n"
           "  --time        time kernels on shapes of real models instead\n");
    return 2;
}

int main(int argc, char **argv)
{
    gk_test t = {.seed = 1, .ok = true};
    bool timing = false;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--time") == 0)
            timing = true;
        else if (strcmp(argv[i], "--seed") == 0 && i + 1 < argc)
            t.seed = strtoull(argv[++i], NULL, 10);
        else if (strcmp(argv[i], "--only") == 0 && i + 1 < argc)
            t.only = argv[++i];
        else
            return usage();
    }
    t.machine = gk_device_open();
    if (t.machine == NULL) return 77;
    if (timing) {
        printf("%s, %u multiprocessors\n", t.machine->name, t.machine->processors);
        gk_time_rows(t.machine);
        gk_time_matmul_few(t.machine);
        return 0;
    }
    gk_rows(&t);
    gk_matmul_few(&t);
    gk_select(&t);
    gk_argmax(&t);
    gk_end(&t);
    printf("%s: %zu cases, %zu failed\n", t.machine->name, t.cases, t.failed);
    return t.failed != 0;
}
