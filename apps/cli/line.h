/* SPDX-License-Identifier: Apache-2.0
 *
 * One line from the user: edited with history when standard input is a terminal (libedit), plain otherwise. Nothing is written to disk.
 * While a terminal's reader is open SIGINT does not end the program: it throws the line away that is being typed.
 */
#ifndef IRONMULE_CLI_LINE_H
#define IRONMULE_CLI_LINE_H

#include <stdbool.h>

typedef struct line_reader line_reader;

typedef enum line_status { LINE_READ, LINE_INTERRUPTED, LINE_END } line_status;

line_reader *line_open(const char *prompt); /* NULL: out of memory */
void line_close(line_reader *r);
bool line_is_terminal(const line_reader *r);

/* *text is the line without its newline, valid until the next call. A backslash at the end continues on the next line. */
line_status line_read(line_reader *r, const char **text);

#endif
