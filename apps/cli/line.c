/* SPDX-License-Identifier: Apache-2.0 */
#include "line.h"

#include <histedit.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <wchar.h>

struct line_reader {
    const char *prompt;
    bool terminal, continuing;
    EditLine *el;
    History *history;
    struct sigaction before; /* what SIGINT did until line_open */
    char *plain;             /* of getline */
    size_t plain_size;
    char *text; /* the whole, perhaps continued line */
};

static volatile sig_atomic_t interrupted_here, reading;
static sigjmp_buf out_of_read;

static void on_interrupt(int number)
{
    (void)number;
    interrupted_here = 1;
    if (!reading) return;
    reading = 0;
    siglongjmp(out_of_read, 1);
}

static char *show_prompt(EditLine *el)
{
    line_reader *r = NULL;
    static char more[] = "... ";
    el_get(el, EL_CLIENTDATA, (void **)&r);
    return r->continuing ? more : (char *)r->prompt;
}

/* An interrupt ends the read whenever it comes. EINTR alone would miss one that comes just before; the terminal throws its input away at an interrupt, so
 * that what was there a moment ago may not be there to be read. */
static ssize_t read_byte(char *byte)
{
    if (sigsetjmp(out_of_read, 1) != 0) return -1;
    reading = 1;
    ssize_t got = interrupted_here ? -1 : read(STDIN_FILENO, byte, 1);
    reading = 0;
    return got;
}

static int read_key(EditLine *el, wchar_t *key)
{
    mbstate_t state = {0};
    char byte;
    (void)el;
    for (;;) {
        ssize_t got = read_byte(&byte);
        if (got <= 0) return (int)got;
        size_t n = mbrtowc(key, &byte, 1, &state);
        if (n == (size_t)-2) continue; /* a character of several bytes */
        if (n == (size_t)-1) *key = L'?';
        return 1;
    }
}

static void catch_interrupts(line_reader *r)
{
    struct sigaction mine = {.sa_handler = on_interrupt, .sa_flags = SA_RESTART};
    sigemptyset(&mine.sa_mask);
    sigaction(SIGINT, &mine, &r->before);
}

static bool open_terminal(line_reader *r)
{
    HistEvent event;
    r->el = el_init("ironmule", stdin, stdout, stderr);
    r->history = history_init();
    if (r->el == NULL || r->history == NULL) return false;
    history(r->history, &event, H_SETSIZE, 1000);
    el_set(r->el, EL_CLIENTDATA, r);
    el_set(r->el, EL_PROMPT, show_prompt);
    el_set(r->el, EL_EDITOR, "emacs");
    el_set(r->el, EL_HIST, history, r->history);
    el_set(r->el, EL_BIND, "^R", "em-inc-search-prev", NULL);
    el_set(r->el, EL_GETCFN, read_key);
    catch_interrupts(r);
    return true;
}

line_reader *line_open(const char *prompt)
{
    line_reader *r = calloc(1, sizeof *r);
    if (r == NULL) return NULL;
    r->prompt = prompt;
    r->terminal = isatty(STDIN_FILENO);
    if (!r->terminal || open_terminal(r)) return r;
    line_close(r);
    return NULL;
}

void line_close(line_reader *r)
{
    if (r == NULL) return;
    if (r->history != NULL && r->el != NULL) sigaction(SIGINT, &r->before, NULL);
    if (r->history != NULL) history_end(r->history);
    if (r->el != NULL) el_end(r->el);
    free(r->plain);
    free(r->text);
    free(r);
}

bool line_is_terminal(const line_reader *r) { return r->terminal; }

static const char *read_plain(line_reader *r) { return getline(&r->plain, &r->plain_size, stdin) < 0 ? NULL : r->plain; }

/* One physical line; SIGINT throws away what was typed. */
static line_status read_physical(line_reader *r, const char **text)
{
    int count = 0;
    interrupted_here = 0;
    *text = r->terminal ? el_gets(r->el, &count) : read_plain(r);
    if (r->terminal && interrupted_here) {
        el_reset(r->el);
        putchar('\n');
        return LINE_INTERRUPTED;
    }
    return *text == NULL ? LINE_END : LINE_READ;
}

static bool append(line_reader *r, const char *piece, size_t n)
{
    size_t have = r->text == NULL ? 0 : strlen(r->text);
    char *grown = realloc(r->text, have + n + 1);
    if (grown == NULL) return false;
    memcpy(grown + have, piece, n);
    grown[have + n] = 0;
    r->text = grown;
    return true;
}

static void remember(line_reader *r)
{
    HistEvent event;
    if (r->terminal && r->text[0] != 0) history(r->history, &event, H_ENTER, r->text);
}

line_status line_read(line_reader *r, const char **text)
{
    free(r->text);
    r->text = NULL;
    r->continuing = false;
    for (;;) {
        const char *piece;
        line_status status = read_physical(r, &piece);
        if (status == LINE_INTERRUPTED || (status == LINE_END && r->text == NULL)) return status;
        size_t n = status == LINE_END ? 0 : strcspn(piece, "\r\n");
        r->continuing = r->terminal && n > 0 && piece[n - 1] == '\\';
        if (!append(r, status == LINE_END ? "" : piece, r->continuing ? n - 1 : n)) return LINE_END;
        if (!r->continuing) break;
        if (!append(r, "\n", 1)) return LINE_END;
    }
    remember(r);
    *text = r->text;
    return LINE_READ;
}
