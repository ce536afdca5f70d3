/* SPDX-License-Identifier: Apache-2.0 */
#include "common.h"

#include <errno.h>
#include <string.h>

static const arg_command about = {
    .name = "manual",
    .summary = "manual pages",
    .usage = "[COMMAND]",
    .details = "Made from the same tables as --help. Without COMMAND: the page about the program.",
    .examples = "  ironmule manual generate | man -l -\n  ironmule manual --folder /usr/local/share/man/man1",
    .least = 0,
    .most = 2,
    .no_model = true,
};

/* What the observer needs: where pages go, and which one is wanted (NULL: all, into the folder). */
static struct {
    FILE *out;
    const char *wanted, *folder;
    bool found, failed;
} pages;

/* Text for roff: no line of it may look like a command. */
static void print_text(FILE *f, const char *text)
{
    bool begins = true;
    for (; *text != 0; text++) {
        if (begins && (*text == '.' || *text == '\'')) fputs("\\&", f);
        if (*text == '\\')
            fputs("\\e", f);
        else if (*text == '-')
            fputs("\\-", f);
        else
            putc(*text, f);
        begins = *text == '\n';
    }
}

static void print_head(FILE *f, const char *name, const char *summary)
{
    fprintf(f, ".\\\" SPDX-License-Identifier: Apache-2.0\n.TH \"");
    for (const char *c = name; *c != 0; c++) putc(*c == ' ' ? '-' : *c >= 'a' && *c <= 'z' ? *c - 32 : *c, f);
    fprintf(f, "\" 1 \"\" \"ironmule %s\" \"User Commands\"\n.SH NAME\n", im_version());
    for (const char *c = name; *c != 0; c++) fputs(*c == ' ' ? "\\-" : (char[]){*c, 0}, f);
    fputs(" \\- ", f);
    print_text(f, summary);
    putc('\n', f);
}

static void print_option(FILE *f, const arg_option *o)
{
    fputs(".TP\n", f);
    if (o->letter != 0) fprintf(f, ".B \\-%c\\fR, \\fB", o->letter);
    fprintf(f, "%s\\-\\-", o->letter != 0 ? "" : ".B ");
    print_text(f, o->name);
    if (o->value != NULL) fprintf(f, " \\fI%s", o->value);
    fputs("\\fR\n", f);
    print_text(f, o->help);
    putc('\n', f);
}

/* Lines as they are. */
static void print_lines(FILE *f, const char *title, const char *text)
{
    if (text == NULL) return;
    fprintf(f, ".SH %s\n.nf\n", title);
    print_text(f, text);
    fputs("\n.fi\n", f);
}

static void print_page(FILE *f, const arg_command *c, const arg_option *options)
{
    char name[64];
    snprintf(name, sizeof name, "ironmule %s", c->name);
    print_head(f, name, c->summary);
    fputs(".SH SYNOPSIS\n.B ", f);
    print_text(f, name);
    fputs("\n[options] ", f);
    print_text(f, c->usage);
    fputs("\n", f);
    if (c->details != NULL) {
        fputs(".SH DESCRIPTION\n", f);
        print_text(f, c->details);
        putc('\n', f);
    }
    fputs(".SH OPTIONS\n", f);
    for (const arg_option *o = options; o->name != NULL; o++) print_option(f, o);
    if (args_takes_model(c)) fputs(".TP\n.B \\-\\-model \\fIMODEL\\fR\nMODEL as an option in place of the argument\n", f);
    fputs(".TP\n.B \\-h\\fR, \\fB\\-\\-help\\fR\nthis text\n", f);
    print_lines(f, "EXAMPLES", c->examples);
    fputs(".SH SEE ALSO\n.BR ironmule (1)\n", f);
}

static void print_overview(FILE *f)
{
    print_head(f, "ironmule", "runs language models on this machine, with one answer");
    fputs(".SH SYNOPSIS\n.B ironmule\n\\fICOMMAND\\fR [options] ...\n.SH COMMANDS\n", f);
    for (const command *c = commands; c->name != NULL; c++) {
        fprintf(f, ".TP\n.B %s\n", c->name);
        print_text(f, c->summary);
        putc('\n', f);
    }
    fputs(".SH MODELS\nMODEL is a GGUF file, any shard of a split one, or a folder; or a name of \\fBironmule models list\\fR, or "
          "an id like\n"
          "ORG/NAME:Q4_K_M of a model in the local Hugging Face cache.\n"
          ".SH EXIT STATUS\n0 done, 1 failed, 2 wrong usage, 3 verify found a difference, 130 interrupted.\n",
          f);
}

static FILE *open_page(const char *name)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/ironmule%s%s.1", pages.folder, name[0] == 0 ? "" : "-", name);
    for (char *c = path + strlen(pages.folder) + 1; *c != 0; c++)
        if (*c == ' ') *c = '-';
    FILE *f = fopen(path, "w");
    if (f != NULL) return f;
    say(about.name, "%s: %s", path, strerror(errno));
    pages.failed = true;
    return NULL;
}

static void close_page(FILE *f)
{
    if (f != NULL && fclose(f) != 0) pages.failed = true;
}

static void on_command(const arg_command *c, const arg_option *options)
{
    if (pages.folder != NULL) {
        FILE *f = open_page(c->name);
        if (f != NULL) print_page(f, c, options);
        close_page(f);
    } else if (strcmp(c->name, pages.wanted) == 0) {
        pages.found = true;
        print_page(stdout, c, options);
    }
}

static int all_pages(void)
{
    FILE *f = open_page("");
    if (f != NULL) print_overview(f);
    close_page(f);
    if (!pages.failed) observe_commands(on_command);
    return pages.failed ? EXIT_FAILED : EXIT_DONE;
}

int cmd_manual(int argc, char **argv)
{
    char name[128];
    arg_rest rest;
    const arg_option options[] = {
        {"folder", 0, ARG_STRING, &pages.folder, "FOLDER", "write all pages into this folder", 0, 0},
        {NULL, 0, ARG_FLAG, NULL, NULL, NULL, 0, 0},
    };
    int code = args_parse(&about, options, argc, argv, &rest);
    if (code >= 0) return code;
    if (pages.folder != NULL) return all_pages();
    if (rest.count == 0) return print_overview(stdout), EXIT_DONE;
    snprintf(name, sizeof name, "%s%s%s", rest.item[0], rest.count > 1 ? " " : "", rest.count > 1 ? rest.item[1] : "");
    pages.wanted = name;
    observe_commands(on_command);
    return pages.found ? EXIT_DONE : args_wrong(&about, "no command \"%s\"", name);
}
