/* SPDX-License-Identifier: Apache-2.0 */
#include "common.h"
#include "defaults.h"

#include <locale.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

const command commands[] = {
    {"start", "one step to a chat: settings, a model, the server, the chat page", cmd_start},
    {"generate", "one answer to standard output, streamed", cmd_generate},
    {"chat", "a conversation in the terminal", cmd_chat},
    {"serve", "an HTTP server with an OpenAI-compatible API and a chat page", cmd_serve},
    {"models", "models on this machine: list, show, add and download, remove", cmd_models},
    {"setup", "writes the settings", cmd_setup},
    {"tokenize", "token ids and pieces of a text", cmd_tokenize},
    {"template", "a conversation as the model's chat template renders it", cmd_template},
    {"perplexity", "how well a model predicts a text", cmd_perplexity},
    {"benchmark", "speed of prompts and answers", cmd_benchmark},
    {"verify", "proves that a model gives one answer, however it is computed", cmd_verify},
    {"doctor", "checks this machine: features, kernels, memory, bandwidth", cmd_doctor},
    {"info", "version, build, kernel levels; a model's metadata and program", cmd_info},
    {"completion", "completion of commands for bash, zsh and fish", cmd_completion},
    {"manual", "manual pages", cmd_manual},
    {NULL, NULL, NULL},
};
#define COMMANDS (sizeof commands / sizeof *commands - 1)

static int help(FILE *f)
{
    fprintf(f,
            "ironmule %s - runs language models on this machine, with one answer\n\nUsage: ironmule COMMAND [options] "
            "...\n\nCommands:\n",
            im_version());
    for (size_t i = 0; i < COMMANDS; i++) fprintf(f, "  %-12s %s\n", commands[i].name, commands[i].summary);
    fprintf(
        f,
        "\n'ironmule COMMAND --help' describes a command. MODEL is a GGUF file, any shard of a split one, or a folder; or a name\n"
        "of 'ironmule models list', or an id like ORG/NAME:Q4_K_M of a model in the local Hugging Face cache.\n"
        "Results go to standard output, messages to standard error. Exit codes: 0 done, 1 failed, 2 wrong usage, 3 verify "
        "found a difference, 130 interrupted.\n");
    return f == stdout ? EXIT_DONE : EXIT_USAGE;
}

static int unknown(const char *name)
{
    const char *names[COMMANDS + 1] = {NULL};
    for (size_t i = 0; i < COMMANDS; i++) names[i] = commands[i].name;
    const char *near = args_nearest(name, names);
    fprintf(stderr, "ironmule: unknown command \"%s\"%s%s%s\nTry 'ironmule --help'.\n", name, near ? "; did you mean \"" : "",
            near ? near : "", near ? "\"?" : "");
    return EXIT_USAGE;
}

static int run(const char *name, int argc, char **argv)
{
    for (size_t i = 0; i < COMMANDS; i++)
        if (strcmp(commands[i].name, name) == 0) return commands[i].run(argc, argv);
    return unknown(name);
}

/* 'help' alone, or 'help COMMAND', which is 'COMMAND --help'. */
static int help_on(const char *name)
{
    static char option[] = "--help";
    char *argv[] = {option, NULL};
    return name == NULL ? help(stdout) : run(name, 1, argv);
}

static int dispatch(int argc, char **argv)
{
    if (argc < 2) return help(stderr);
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) return help(stdout);
    if (strcmp(argv[1], "help") == 0) return help_on(argv[2]);
    if (strcmp(argv[1], "--version") == 0) {
        printf("ironmule %s (numerics %d)\n", im_version(), im_numerics_version());
        return EXIT_DONE;
    }
    return run(argv[1], argc - 2, argv + 2);
}

int main(int argc, char **argv)
{
    /* For line editing, in UTF-8 wherever that is possible; numbers stay in the C locale. */
    if (setlocale(LC_CTYPE, "") == NULL || MB_CUR_MAX == 1) setlocale(LC_CTYPE, "C.UTF-8");
    signal(SIGPIPE, SIG_DFL);
    args_setting = defaults_setting;
    int code = dispatch(argc, argv);
    bool written = fflush(stdout) == 0 && !ferror(stdout);
    return written || code == EXIT_USAGE ? code : say("", "standard output cannot be written");
}
