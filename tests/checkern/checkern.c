/* SPDX-License-Identifier: Apache-2.0
 *
 * The program. Exit status: 0 when every kernel that was asked for passed, 1 when one failed, 2 for a wrong command line, 77 when this
 * machine lacks what was asked for.
 */
#include "ck_report.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const char usage[] = "checkern [options]: compares every kernel, bit for bit, with the plain C function\n"
                            "  --list               the kernels by level; fails when a hot weight type lacks one\n"
                            "  --test NAME          only this family (attention, matmul_q4_k, ...)\n"
                            "  --kernel NAME        only this kernel\n"
                            "  --level NAME         only kernels of this level; exit 77 when the machine lacks it\n"
                            "  --seed N             of all values (1; 0: from the clock)\n"
                            "  --repeat N           with N seeds one after the other (1)\n"
                            "  --bench              times the larger cases instead\n"
                            "  --json               one JSON object instead of lines\n"
                            "  --digest             one hash per family of what the plain C functions give with seed 1\n"
                            "  --check-digest FILE  compares these hashes with a file\n"
                            "  --self-test          planted broken kernels must be caught\n";

typedef enum action { RUN, LIST, DIGEST, SELF_TEST } action;

typedef struct options {
    action action;
    const char *test, *kernel, *digest_file;
    im__cpu_level level; /* IM__CPU_C: all */
    uint64_t seed;
    unsigned repeat;
    bool bench, json;
} options;

static void die(const char *what, const char *value)
{
    fprintf(stderr, "checkern: %s %s\n%s", what, value, usage);
    exit(2);
}

static unsigned long long number(const char *text)
{
    char *end;
    unsigned long long n = strtoull(text, &end, 0);
    if (*text == 0 || *end != 0) die("not a number:", text);
    return n;
}

static void parse_value(options *o, char c)
{
    switch (c) {
    case 't':
        o->test = optarg;
        if (ck_family_find(optarg) == NULL) die("no such test:", optarg);
        break;
    case 'k': o->kernel = optarg; break;
    case 'l':
        if (!im__cpu_level_parse(optarg, &o->level)) die("no such level:", optarg);
        break;
    case 's': o->seed = number(optarg); break;
    case 'r': o->repeat = (unsigned)number(optarg); break;
    default: o->action = DIGEST, o->digest_file = optarg; break;
    }
}

static options parse(int argc, char **argv)
{
    static const struct option table[] = {
        {"list", no_argument, NULL, 'L'},
        {"test", required_argument, NULL, 't'},
        {"kernel", required_argument, NULL, 'k'},
        {"level", required_argument, NULL, 'l'},
        {"seed", required_argument, NULL, 's'},
        {"repeat", required_argument, NULL, 'r'},
        {"bench", no_argument, NULL, 'B'},
        {"json", no_argument, NULL, 'J'},
        {"digest", no_argument, NULL, 'D'},
        {"self-test", no_argument, NULL, 'S'},
        {"check-digest", required_argument, NULL, 'c'},
        {NULL, 0, NULL, 0},
    };
    options o = {.seed = 1, .repeat = 1};
    for (int c; (c = getopt_long(argc, argv, "", table, NULL)) != -1;) {
        switch (c) {
        case 'L': o.action = LIST; break;
        case 'D': o.action = DIGEST; break;
        case 'S': o.action = SELF_TEST; break;
        case 'B': o.bench = true; break;
        case 'J': o.json = true; break;
        case '?': die("wrong option", ""); break;
        default: parse_value(&o, (char)c);
        }
    }
    if (optind < argc) die("what is", argv[optind]);
    if (o.seed == 0) o.seed = (uint64_t)time(NULL);
    return o;
}

static bool wanted(const options *o, const ck_subject *s)
{
    if (o->test != NULL && strcmp(o->test, s->family->name) != 0) return false;
    if (o->kernel != NULL && strcmp(o->kernel, s->name) != 0) return false;
    return o->level == IM__CPU_C || o->level == s->level;
}

static void run_one(const options *o, const ck_subject *s, ck_report *report)
{
    ck_result result = {0}, one;
    for (unsigned i = 0; i < (o->bench ? 1 : o->repeat); i++) {
        ck_isolate(s, o->bench ? CK_BENCH : CK_CHECK, o->seed + i, &one);
        size_t cases = result.cases + one.cases, declined = result.declined + one.declined;
        result = one;
        result.cases = cases, result.declined = declined;
        if (one.failed == 0) continue;
        if (!o->json) printf("seed %llu: ", (unsigned long long)(o->seed + i));
        break;
    }
    ck_report_kernel(report, s, &result);
}

static int run(const options *o, const ck_subject *subjects, size_t count)
{
    ck_report report = {.json = o->json};
    ck_report_begin(&report, o->seed, o->repeat);
    for (size_t i = 0; i < count; i++) {
        if (!wanted(o, &subjects[i])) continue;
        if (im__cpu_has(subjects[i].level))
            run_one(o, &subjects[i], &report);
        else
            ck_report_lacking(&report, &subjects[i]);
    }
    ck_report_end(&report);
    if (report.failed > 0) return 1;
    if (report.kernels == 0) fputs("checkern: no such kernel in this build\n", stderr);
    if (report.kernels == 0 && (o->level == IM__CPU_C || ck_level_of_this_architecture(o->level))) return 1;
    return report.lacking == report.kernels ? 77 : 0;
}

static bool expected(FILE *file, const char *family, unsigned long long digest)
{
    char line[128], name[64];
    unsigned long long want = 0;
    rewind(file);
    while (fgets(line, sizeof line, file) != NULL)
        if (sscanf(line, "%63s %llx", name, &want) == 2 && strcmp(name, family) == 0) break;
    if (feof(file))
        printf("FAILED %s: not in the file\n", family);
    else if (want != digest)
        printf("FAILED %s: %016llx, wanted %016llx\n", family, digest, want);
    return !feof(file) && want == digest;
}

static int digest(const options *o)
{
    size_t count, wrong = 0;
    const ck_family *all = ck_families(&count);
    FILE *file = o->digest_file != NULL ? fopen(o->digest_file, "r") : NULL;
    if (o->digest_file != NULL && file == NULL) die("cannot read", o->digest_file);
    for (size_t i = 0; i < count; i++) {
        if (o->test != NULL && strcmp(o->test, all[i].name) != 0) continue;
        ck_result result;
        ck_subject s = ck_reference(&all[i]);
        ck_isolate(&s, CK_DIGEST, 1, &result);
        if (result.failed > 0) printf("FAILED %s: %s\n", all[i].name, result.first);
        wrong += result.failed > 0;
        if (file == NULL)
            printf("%-18s %016llx\n", all[i].name, (unsigned long long)result.digest);
        else
            wrong += !expected(file, all[i].name, (unsigned long long)result.digest);
    }
    if (file != NULL) fclose(file);
    if (file != NULL) printf("%zu digests: %zu wrong\n", count, wrong);
    return wrong > 0;
}

int main(int argc, char **argv)
{
    static ck_subject subjects[CK_SUBJECTS];
    options o = parse(argc, argv);
    size_t count = ck_subjects_find(subjects);
    switch (o.action) {
    case LIST: return ck_list(subjects, count) > 0;
    case DIGEST: return digest(&o);
    case SELF_TEST: return ck_selftest(o.seed) > 0;
    case RUN: break;
    }
    return run(&o, subjects, count);
}
