/* SPDX-License-Identifier: Apache-2.0 */
#include "args.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool (*args_setting)(const char *command, const char *option, const char **value, const char **where);
void (*args_observer)(const arg_command *command, const arg_option *options);

bool args_takes_model(const arg_command *c) { return c->most > 0 && !c->no_model; }

/* ---- help ---------------------------------------------------------------------------------------------------------------------------- */

static void print_option(const arg_option *o)
{
    char left[64];
    snprintf(left, sizeof left, "%s%c%s --%s%s%s", o->letter ? "-" : " ", o->letter ? o->letter : ' ', o->letter ? "," : " ",
             o->name, o->value == NULL ? "" : " ", o->value == NULL ? "" : o->value);
    printf("  %-28s %s\n", left, o->help);
}

static void print_help(const arg_command *c, const arg_option *options)
{
    printf("ironmule %s - %s\n\nUsage: ironmule %s [options] %s\n\nOptions:\n", c->name, c->summary, c->name, c->usage);
    for (const arg_option *o = options; o->name != NULL; o++) print_option(o);
    if (args_takes_model(c)) printf("  %-28s %s\n", "    --model MODEL", "MODEL as an option in place of the argument");
    printf("  %-28s %s\n", "-h, --help", "this text");
    if (c->details != NULL) printf("\n%s\n", c->details);
    if (c->examples != NULL) printf("\nExamples:\n%s\n", c->examples);
}

int args_wrong(const arg_command *c, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fprintf(stderr, "ironmule %s: ", c->name);
    vfprintf(stderr, format, args);
    fprintf(stderr, "\nTry 'ironmule %s --help'.\n", c->name);
    va_end(args);
    return 2;
}

/* Edit distance, for names of at most 31 letters. */
static size_t distance(const char *a, const char *b)
{
    size_t row[32], n = strlen(b);
    if (n > 31) return n;
    for (size_t j = 0; j <= n; j++) row[j] = j;
    for (size_t i = 0; a[i] != 0; i++) {
        size_t diagonal = row[0]++;
        for (size_t j = 0; j < n; j++) {
            size_t change = diagonal + (a[i] != b[j]), drop = row[j + 1] + 1, insert = row[j] + 1;
            diagonal = row[j + 1];
            row[j + 1] = change < drop ? (change < insert ? change : insert) : (drop < insert ? drop : insert);
        }
    }
    return row[n];
}

const char *args_nearest(const char *given, const char *const *known)
{
    const char *best = NULL;
    size_t least = 3;
    for (; *known != NULL; known++) {
        size_t d = distance(given, *known);
        if (d < least && d < strlen(*known)) {
            least = d;
            best = *known;
        }
    }
    return best;
}

/* The known names that begin with what was given, as "--a, --b"; false: none does. */
static bool longer_names(const char *given, const char *const *known, char *out, size_t size)
{
    size_t n = 0;
    for (; *known != NULL && n < size; known++)
        if (strncmp(*known, given, strlen(given)) == 0)
            n += (size_t)snprintf(out + n, size - n, "%s--%s", n > 0 ? ", " : "", *known);
    return n > 0;
}

/* ---- parsing ---------------------------------------------------------------------------------------------------------------------------- */

static int unknown(const arg_command *c, const arg_option *options, const char *option)
{
    const char *names[64];
    char given[64], longer[256];
    size_t n = 0;
    snprintf(given, sizeof given, "%.*s", (int)strcspn(option, "="), option);
    for (const arg_option *o = options; o->name != NULL && n < 61; o++) names[n++] = o->name;
    if (args_takes_model(c)) names[n++] = "model";
    names[n++] = "help";
    names[n] = NULL;
    if (strlen(given) > 2 && longer_names(given, names, longer, sizeof longer))
        return args_wrong(c, "unknown option --%s; did you mean %s?", given, longer);
    const char *near = args_nearest(given, names);
    if (near != NULL) return args_wrong(c, "unknown option --%s; did you mean --%s?", given, near);
    return args_wrong(c, "unknown option --%s", given);
}

static int set_number(const arg_command *c, const arg_option *o, const char *text)
{
    char *end;
    errno = 0;
    double number = o->kind == ARG_INT ? (double)strtoll(text, &end, 10) : strtod(text, &end);
    if (end == text || *end != 0)
        return args_wrong(c, "--%s: \"%s\" is no %s", o->name, text, o->kind == ARG_INT ? "whole number" : "number");
    if (errno == ERANGE || !(number >= o->lo && number <= o->hi))
        return args_wrong(c, "--%s: %s is outside %.10g .. %.10g", o->name, text, o->lo, o->hi);
    if (o->kind == ARG_INT)
        *(int64_t *)o->to = strtoll(text, NULL, 10);
    else
        *(double *)o->to = number;
    return -1;
}

static int set(const arg_command *c, const arg_option *o, const char *text)
{
    arg_list *list = o->to;
    switch (o->kind) {
    case ARG_FLAG: *(bool *)o->to = true; return -1;
    case ARG_STRING: *(const char **)o->to = text; return -1;
    case ARG_LIST:
        if (list->count == sizeof list->item / sizeof *list->item - 1)
            return args_wrong(c, "--%s: at most %zu times", o->name, list->count);
        list->item[list->count++] = text;
        return -1;
    case ARG_INT:
    case ARG_NUMBER: return set_number(c, o, text);
    }
    return -1;
}

static const arg_option *find(const arg_option *options, const char *name, size_t n, char letter)
{
    for (const arg_option *o = options; o->name != NULL; o++)
        if (letter != 0 ? o->letter == letter : strlen(o->name) == n && strncmp(o->name, name, n) == 0) return o;
    return NULL;
}

/* argv[*i] is an option; takes its value from behind "=" or from the next argument. */
static int parse_option(const arg_command *c, const arg_option *options, int argc, char **argv, int *i, const char **model)
{
    const char *arg = argv[*i], *equals = strchr(arg, '=');
    bool is_long = arg[1] == '-';
    const char *name = arg + (is_long ? 2 : 1);
    size_t n = is_long && equals != NULL ? (size_t)(equals - name) : strlen(name);
    if (!is_long && n != 1) return args_wrong(c, "\"%s\": letters cannot be joined; write them apart", arg);
    const arg_option model_option[] = {{"model", 0, ARG_STRING, model, "MODEL", NULL, 0, 0},
                                       {NULL, 0, ARG_FLAG, NULL, NULL, NULL, 0, 0}};
    const arg_option *o = find(options, name, n, is_long ? 0 : name[0]);
    if (o == NULL && is_long && args_takes_model(c)) o = find(model_option, name, n, 0);
    if (o == NULL) return is_long ? unknown(c, options, name) : args_wrong(c, "unknown option %s", arg);
    if (o->kind == ARG_FLAG) return is_long && equals != NULL ? args_wrong(c, "--%s takes no value", o->name) : set(c, o, NULL);
    if (is_long && equals != NULL) return set(c, o, equals + 1);
    if (*i + 1 >= argc) return args_wrong(c, "--%s needs a value", o->name);
    return set(c, o, argv[++*i]);
}

/* The model comes first among the arguments, whether it was given there or as an option. */
static int place_model(const arg_command *c, const char *model, arg_rest *rest)
{
    if (model != NULL) {
        memmove(rest->item + 1, rest->item, rest->count * sizeof *rest->item);
        rest->item[0] = model;
        rest->count++;
    }
    if (rest->count > c->most) return args_wrong(c, "\"%s\" is one argument too many", rest->item[c->most]);
    if (rest->count < c->least) return args_wrong(c, "an argument is missing: %s", c->usage);
    return -1;
}

static bool asks_for_help(int argc, char **argv)
{
    for (int i = 0; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) return true;
    return false;
}

/* What the settings say comes first, so that the command line can say otherwise. */
static int take_settings(const arg_command *c, const arg_option *options)
{
    for (const arg_option *o = options; args_setting != NULL && o->name != NULL; o++) {
        const char *value = NULL, *where = NULL;
        if (!args_setting(c->name, o->name, &value, &where)) return 1;
        if (value == NULL || (o->kind == ARG_FLAG && strcmp(value, "true") != 0)) continue;
        int code = set(c, o, value);
        if (code >= 0) return fprintf(stderr, "(--%s is set by %s)\n", o->name, where), code;
    }
    return -1;
}

int args_parse(const arg_command *c, const arg_option *options, int argc, char **argv, arg_rest *rest)
{
    bool only_arguments = false;
    const char *model = NULL;
    *rest = (arg_rest){.count = 0};
    if (args_observer != NULL) return args_observer(c, options), 0;
    int set_already = asks_for_help(argc, argv) ? -1 : take_settings(c, options);
    if (set_already >= 0) return set_already;
    for (int i = 0; i < argc; i++) {
        const char *arg = argv[i];
        bool option = !only_arguments && arg[0] == '-' && arg[1] != 0;
        if (option && strcmp(arg, "--") == 0) {
            only_arguments = true;
        } else if (option && (strcmp(arg, "--help") == 0 || strcmp(arg, "-h") == 0)) {
            print_help(c, options);
            return 0;
        } else if (option) {
            int code = parse_option(c, options, argc, argv, &i, &model);
            if (code >= 0) return code;
        } else if (rest->count == sizeof rest->item / sizeof *rest->item - 1) {
            return args_wrong(c, "\"%s\" is one argument too many", arg);
        } else {
            rest->item[rest->count++] = arg;
        }
    }
    return place_model(c, model, rest);
}
