/* SPDX-License-Identifier: Apache-2.0
 *
 * tokenizer_ids FOLDER [parsed|plain] < texts > ids
 * The other side of test_tokenizer_differential.py: each text comes as its length (4 bytes, little-endian) and bytes; the answer is the number of ids,
 * the ids, the number of bytes that they decode to, and those. Numbers are 4 bytes in the machine's order. Says on stderr how much processor time
 * loading and encoding took.
 */
#include "text/tokenizer/tokenizer_json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static int fail(const char *message)
{
    fprintf(stderr, "%s\n", message);
    return 1;
}

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static void put(uint32_t n) { fwrite(&n, sizeof n, 1, stdout); }

static void decode(const im__tokenizer *t, const im__ids *ids, im__buf *text)
{
    im__decoder d;
    text->len = 0;
    im__decoder_init(&d, t, false);
    for (size_t i = 0; i < ids->len; i++) im__decoder_feed(&d, ids->data[i], text);
    im__decoder_finish(&d, text);
}

static bool read_text(im__buf *text)
{
    unsigned char len[4];
    text->len = 0;
    if (fread(len, 1, 4, stdin) != 4) return false;
    size_t n = len[0] | (size_t)len[1] << 8 | (size_t)len[2] << 16 | (size_t)len[3] << 24;
    char *bytes = malloc(n + 1);
    bool ok = bytes != NULL && fread(bytes, 1, n, stdin) == n;
    if (ok) im__buf_append(text, bytes, n);
    free(bytes);
    return ok && !text->failed;
}

int main(int argc, char **argv)
{
    if (argc < 2) return fail("usage: tokenizer_ids FOLDER [parsed|plain]");
    const im__encode_options options = {.parse_special = argc < 3 || strcmp(argv[2], "parsed") == 0};
    const im__tokenizer_json_options none = {0};
    im__tokenizer *t = NULL;
    im_error err = {IM_OK, ""};
    im__buf text = {0}, decoded = {0};
    im__ids ids = {0};
    double begun = now_ms(), encoding = 0;
    if (im__tokenizer_json_read(&t, NULL, argv[1], &none, &err) != IM_OK) return fail(err.message);
    double loaded = now_ms() - begun;
    while (read_text(&text)) {
        begun = now_ms();
        ids.len = 0;
        if (im__tokenizer_encode(t, text.data == NULL ? "" : text.data, text.len, &options, &ids, &err) != IM_OK)
            return fail(err.message);
        encoding += now_ms() - begun;
        decode(t, &ids, &decoded);
        put((uint32_t)ids.len);
        fwrite(ids.data, sizeof *ids.data, ids.len, stdout);
        put((uint32_t)decoded.len);
        fwrite(decoded.data, 1, decoded.len, stdout);
    }
    fprintf(stderr, "loaded in %.0f ms, encoded in %.0f ms\n", loaded, encoding);
    im__ids_free(&ids);
    im__buf_free(&text);
    im__buf_free(&decoded);
    im__tokenizer_free(t);
    return 0;
}
