/* SPDX-License-Identifier: Apache-2.0
 *
 * Names of models on the Hugging Face Hub: ORGANISATION/NAME, with @REVISION behind it (a branch, a tag, refs/pr/1, a commit; "main" when
 * none is given) and :TAG (which GGUF file: "Q4_K_M", or a file's name).
 */
#ifndef IRONMULE_HUB_ID_H
#define IRONMULE_HUB_ID_H

#include <stdbool.h>
#include <stddef.h>

typedef struct hub_id {
    char name[200];     /* "org/name" */
    char revision[200]; /* "main" */
    char tag[200];      /* "": none */
} hub_id;

/* False when `text` is no such name; *out is then undefined. */
bool hub_id_parse(hub_id *out, const char *text);

/* May this stand behind a folder as a path? Relative, without "..", ".", empty parts, backslashes and control characters. */
bool hub_path_is_safe(const char *path);

bool hub_is_hex(const char *text, size_t digits); /* exactly so many lower-case hexadecimal digits */
static inline bool hub_is_commit(const char *text) { return hub_is_hex(text, 40); }

/* The quantisation that a file's name speaks of ("Q4_K_M", "BF16"), or "". */
void hub_quantisation(char *out, size_t size, const char *path);

/* Does the file's name carry this tag between two marks ("-", "." ...)? Case does not matter; the whole name, with or without .gguf, does too. */
bool hub_tag_matches(const char *path, const char *tag);

#endif
