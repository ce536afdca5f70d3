/* SPDX-License-Identifier: Apache-2.0
 *
 * Command-line options as data: one table a command serves parsing, --help and error messages alike. Long options take "--name value" or
 * "--name=value"; options and other arguments may be mixed; "--" ends the options; "-" alone is an argument (standard input). Every command
 * takes its first argument, the model, as "--model MODEL" too. An option that the command line does not give may come from the settings.
 */
#ifndef IRONMULE_CLI_ARGS_H
#define IRONMULE_CLI_ARGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum arg_kind {
    ARG_FLAG,   /* bool: becomes true */
    ARG_STRING, /* const char * */
    ARG_INT,    /* int64_t, within lo .. hi */
    ARG_NUMBER, /* double, within lo .. hi */
    ARG_LIST    /* arg_list: may be given several times */
} arg_kind;

typedef struct arg_list {
    const char *item[17]; /* NULL-terminated: at most 16 */
    size_t count;
} arg_list;

typedef struct arg_option {
    const char *name; /* without dashes; NULL ends the table */
    char letter;      /* of the short form; 0: none */
    arg_kind kind;
    void *to;
    const char *value; /* what help calls the value: "N"; NULL for flags */
    const char *help;
    double lo, hi; /* of ARG_INT and ARG_NUMBER */
} arg_option;

typedef struct arg_command {
    const char *name;
    const char *summary;  /* one line */
    const char *usage;    /* what stands behind the options: "MODEL [PROMPT]" */
    const char *details;  /* paragraphs below the options; NULL: none */
    const char *examples; /* lines; NULL: none */
    size_t least, most;   /* number of arguments that are no options */
    bool no_model;        /* the first of them is no model */
} arg_command;

typedef struct arg_rest {
    const char *item[8];
    size_t count;
} arg_rest;

/* Parses argv[0 .. argc). Returns -1 to go on, or the exit code: 0 after --help (printed to stdout), 2 after a message about wrong usage on stderr. */
int args_parse(const arg_command *command, const arg_option *options, int argc, char **argv, arg_rest *rest);

/* What the settings say for an option of a command: *value stays NULL when they say nothing, *where is for messages. Returns false after a message: they
 * cannot be read. NULL (at first): no settings. */
extern bool (*args_setting)(const char *command, const char *option, const char **value, const char **where);

/* When set, args_parse parses nothing: it shows the command to the observer and returns 0. So completion and manual see the tables that commands really have. */
extern void (*args_observer)(const arg_command *command, const arg_option *options);

/* Does this command take its model as --model too? */
bool args_takes_model(const arg_command *command);

/* Prints "ironmule COMMAND: MESSAGE" and how to get help; returns 2. */
int args_wrong(const arg_command *command, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The name of `known` (NULL-terminated) that is nearest to `given`, or NULL when none is near. */
const char *args_nearest(const char *given, const char *const *known);

#endif
