/* SPDX-License-Identifier: Apache-2.0
 *
 * For each path read from standard input, one a line: opens an engine on it, lets it write a few tokens, and prints one line:
 *
 *     ok HASH MILLISECONDS KILOBYTES              hash of the logits
 *     error STATUS MILLISECONDS KILOBYTES MESSAGE  from opening, or from the request
 *
 * MILLISECONDS of processor time is what opening took, KILOBYTES how much the largest resident size of the process grew by it.
 */
#include <ironmule/ironmule.h>

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

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

static im_status write_tokens(im_engine *engine, uint64_t *hash, im_error *err)
{
    static const int32_t prompt[] = {5, 300, 17, 301, 302, 2};
    im_request_options o;
    im_request *request;
    im_result result;
    im_request_options_defaults(&o);
    o.prompt = prompt;
    o.prompt_len = sizeof prompt / sizeof *prompt;
    o.max_tokens = 4;
    o.ignore_eos = true;
    im_status status = im_request_submit(engine, &o, &request, err);
    if (status != IM_OK) return status;
    status = im_request_wait(request, &result, err);
    *hash = result.logits_hash;
    im_request_free(request);
    return status;
}

static void print_message(const char *s)
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
    im_engine *engine = NULL;
    im_engine_options o;
    im_error err = {IM_OK, ""};
    uint64_t hash = 0;
    im_engine_options_defaults(&o);
    o.threads = 1;
    o.context = 64;
    long before = resident();
    double start = now();
    im_status status = im_engine_open(&engine, path, &o, &err);
    double spent = now() - start;
    long grown = resident() - before;
    if (status == IM_OK) status = write_tokens(engine, &hash, &err);
    if (status == IM_OK) {
        printf("ok %016" PRIx64 " %.3f %ld", hash, spent, grown);
    } else {
        printf("error %d %.3f %ld ", (int)status, spent, grown);
        print_message(err.message);
    }
    putchar('\n');
    fflush(stdout);
    im_engine_close(engine);
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
