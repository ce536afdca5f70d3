/* SPDX-License-Identifier: Apache-2.0
 *
 * Stands in for libFuzzer where a target only plays its corpus: each file of the folders on the command line, whole and cut short at
 * 32 places, and the empty input. Every input lies in a block of exactly its size, so that an address sanitizer sees one byte too many.
 */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void play(const uint8_t *data, size_t size)
{
    uint8_t *exact = calloc(size > 0 ? size : 1, 1);
    if (exact == NULL) exit(2);
    if (size > 0) memcpy(exact, data, size);
    LLVMFuzzerTestOneInput(exact, size);
    free(exact);
}

static uint8_t *read_file(const char *path, size_t *size)
{
    FILE *f = fopen(path, "rb");
    long n = -1;
    if (f != NULL && fseek(f, 0, SEEK_END) == 0) n = ftell(f);
    uint8_t *data = n >= 0 ? malloc((size_t)n + 1) : NULL;
    if (data != NULL) {
        rewind(f);
        *size = fread(data, 1, (size_t)n, f);
    }
    if (f != NULL) fclose(f);
    return data;
}

static int play_file(const char *path)
{
    size_t size;
    uint8_t *data = read_file(path, &size);
    if (data == NULL) {
        fprintf(stderr, "%s: cannot be read\n", path);
        return 0;
    }
    printf("%s: %zu bytes\n", path, size);
    fflush(stdout);
    play(data, size);
    for (size_t part = 1; part < 32; part++) play(data, size * part / 32);
    if (size > 0) play(data, size - 1);
    free(data);
    return 1;
}

static int play_folder(const char *folder)
{
    struct dirent **names;
    int n = scandir(folder, &names, NULL, alphasort), played = 0;
    for (int i = 0; i < n; i++) {
        char path[4096];
        int len = snprintf(path, sizeof path, "%s/%s", folder, names[i]->d_name);
        if (names[i]->d_name[0] != '.' && len > 0 && (size_t)len < sizeof path) played += play_file(path);
        free(names[i]);
    }
    if (n >= 0) free(names);
    return played;
}

int main(int argc, char **argv)
{
    int played = 0;
    play((const uint8_t *)"", 0);
    for (int i = 1; i < argc; i++) played += play_folder(argv[i]);
    printf("%d inputs played\n", played);
    return played > 0 ? 0 : 1;
}
