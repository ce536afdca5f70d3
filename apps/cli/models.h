/* SPDX-License-Identifier: Apache-2.0
 *
 * The commands behind `ironmule models`, and what `start` uses of them.
 */
#ifndef IRONMULE_CLI_MODELS_H
#define IRONMULE_CLI_MODELS_H

#include <jansson.h>
#include <stdbool.h>

int models_list(int argc, char **argv);
int models_show(int argc, char **argv);
int models_add(int argc, char **argv);
int models_registered(int argc, char **argv);
int models_remove(int argc, char **argv);

typedef struct add_options {
    const char *revision, *name; /* NULL: main, the id or the file's name */
    const char *const *patterns; /* NULL-terminated; NULL: what the model needs */
    bool download;
} add_options;

/* Registers a path or an id, fetching it first if told to. The new entry (owned by the caller), or NULL after a message and *code set. */
json_t *add_model(const char *who, const char *model, const add_options *o, int *code);

/* Asks on the terminal; the end of input counts as no. */
bool ask_yes(const char *question);

#endif
