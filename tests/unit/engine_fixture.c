/* SPDX-License-Identifier: Apache-2.0 */
#include "engine_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

void make_prompt(int32_t *ids, size_t n, uint32_t seed, uint32_t vocabulary)
{
    for (size_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        ids[i] = (int32_t)((seed >> 8) % vocabulary);
    }
}

im_engine_options sized(int threads, uint32_t chunk, uint32_t context, uint32_t sequences)
{
    im_engine_options o;
    im_engine_options_defaults(&o);
    o.threads = threads;
    o.chunk = chunk;
    o.context = context;
    o.max_sequences = sequences;
    return o;
}

static void unpack(char *bytes, size_t room, size_t *n)
{
    FILE *tar = popen("tar -xJOf " IM_TEST_DATA "/zoo/arch.tar.xz arch-gemma2.gguf", "r");
    assert_non_null(tar);
    *n = fread(bytes, 1, room, tar);
    assert_int_equal(pclose(tar), 0);
}

void make_windowed_model(char *path, uint32_t window)
{
    static const char key[] = "gemma2.attention.sliding_window";
    size_t room = 8 << 20, n;
    char *bytes = malloc(room);
    unpack(bytes, room, &n);
    char *at = memmem(bytes, n, key, sizeof key - 1);
    assert_non_null(at);
    memcpy(at + sizeof key - 1 + 4, &window, 4); /* behind the name of the type */
    strcpy(path, "/tmp/ironmule-windowed-XXXXXX");
    int file = mkstemp(path);
    assert_true(file >= 0 && write(file, bytes, n) == (ssize_t)n);
    close(file);
    free(bytes);
}

im_engine *open_tiny(const im_engine_options *options)
{
    im_engine *engine = NULL;
    im_error err = {IM_OK, ""};
    if (im_engine_open(&engine, TINY_MODEL, options, &err) != IM_OK) fail_msg("%s", err.message);
    return engine;
}

im_request *submit_prompt(im_engine *engine, size_t n, uint32_t seed, im_request_options o)
{
    im_model_info info;
    im_error err = {IM_OK, ""};
    im_request *request = NULL;
    int32_t *ids = calloc(n, sizeof *ids);
    im_model_get_info(im_engine_model(engine), &info);
    make_prompt(ids, n, seed, info.vocabulary);
    o.prompt = ids;
    o.prompt_len = n;
    if (im_request_submit(engine, &o, &request, &err) != IM_OK) fail_msg("%s", err.message);
    free(ids);
    return request;
}

uint64_t generate_hash(im_engine *engine, size_t n, uint32_t seed, uint32_t tokens, int neighbours)
{
    im_request_options o;
    im_result result;
    im_error err = {IM_OK, ""};
    im_request_options_defaults(&o);
    o.max_tokens = tokens;
    o.ignore_eos = true;
    o.neighbours = neighbours;
    im_request *request = submit_prompt(engine, n, seed, o);
    if (im_request_wait(request, &result, &err) != IM_OK) fail_msg("%s", err.message);
    assert_int_equal(result.count, tokens);
    uint64_t hash = result.logits_hash;
    im_request_free(request);
    return hash;
}
