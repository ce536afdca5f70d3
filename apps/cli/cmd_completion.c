/* SPDX-License-Identifier: Apache-2.0 */
#include "common.h"

#include <string.h>

static const arg_command about = {
    .name = "completion",
    .summary = "completion of commands for bash, zsh and fish",
    .usage = "bash | zsh | fish",
    .examples = "  source <(ironmule completion bash)\n  ironmule completion zsh > ~/.zfunc/_ironmule\n"
                "  ironmule completion fish > ~/.config/fish/completions/ironmule.fish",
    .least = 1,
    .most = 1,
    .no_model = true,
};

void observe_commands(void (*observer)(const arg_command *c, const arg_option *options))
{
    args_observer = observer;
    for (const command *c = commands; c->name != NULL; c++)
        if (strcmp(c->name, "models") != 0) c->run(0, NULL);
    for (const command *c = models_commands; c->name != NULL; c++) c->run(0, NULL);
    args_observer = NULL;
}

/* In single quotes of a shell. */
static void quote(const char *text)
{
    putchar('\'');
    for (; *text != 0; text++) {
        if (*text == '\'')
            fputs("'\\''", stdout);
        else
            putchar(*text);
    }
    putchar('\'');
}

static void print_names(const command *list)
{
    for (const command *c = list; c->name != NULL; c++) printf("%s%s", c == list ? "" : " ", c->name);
}

/* ---- bash ------------------------------------------------------------------------------------------------------------------------------------ */

static void bash_case(const arg_command *c, const arg_option *options)
{
    printf("    '%s') options='--help", c->name);
    for (const arg_option *o = options; o->name != NULL; o++) printf(" --%s", o->name);
    printf("%s' ;;\n", args_takes_model(c) ? " --model" : "");
}

static void bash_values(const arg_command *c, const arg_option *options)
{
    for (const arg_option *o = options; o->name != NULL; o++)
        if (o->kind != ARG_FLAG) printf("    '%s --%s') value=yes ;;\n", c->name, o->name);
}

static void print_bash(void)
{
    printf("# bash completion of ironmule: source <(ironmule completion bash)\n"
           "_ironmule() {\n"
           "  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} name=${COMP_WORDS[1]-} options='' value=no\n"
           "  local commands='");
    print_names(commands);
    printf(" help' models='");
    print_names(models_commands);
    printf(
        "'\n  COMPREPLY=()\n"
        "  if [ \"$COMP_CWORD\" -eq 1 ]; then mapfile -t COMPREPLY < <(compgen -W \"$commands --help --version\" -- \"$word\"); "
        "return; fi\n"
        "  if [ \"$name\" = help ]; then mapfile -t COMPREPLY < <(compgen -W \"$commands\" -- \"$word\"); return; fi\n"
        "  if [ \"$name\" = models ]; then\n"
        "    if [ \"$COMP_CWORD\" -eq 2 ]; then mapfile -t COMPREPLY < <(compgen -W \"$models --help\" -- \"$word\"); return; fi\n"
        "    name=\"models ${COMP_WORDS[2]}\"\n"
        "  fi\n"
        "  case $name in\n");
    observe_commands(bash_case);
    printf("  esac\n  case \"$name $before\" in\n");
    observe_commands(bash_values);
    printf("  esac\n"
           "  if [[ $word == -* ]]; then\n"
           "    mapfile -t COMPREPLY < <(compgen -W \"$options\" -- \"$word\")\n"
           "  elif [ \"$value\" = no ] || [ \"$before\" = --model ]; then\n"
           "    local each\n"
           "    mapfile -t COMPREPLY < <(compgen -f -- \"$word\")\n"
           /* Not compgen -W: it expands its words, and names of files come from strangers. */
           "    while IFS= read -r each; do [[ $each == \"$word\"* ]] && COMPREPLY+=(\"$each\"); done "
           "< <(\"${COMP_WORDS[0]}\" models list --names 2>/dev/null)\n"
           "  else\n"
           "    mapfile -t COMPREPLY < <(compgen -f -- \"$word\")\n"
           "  fi\n"
           "}\n"
           "complete -o filenames -F _ironmule ironmule\n");
}

/* ---- zsh -------------------------------------------------------------------------------------------------------------------------------------- */

static void zsh_option(const char *name, const char *help, const char *value)
{
    char text[400];
    size_t n = 0;
    for (const char *c = help; *c != 0 && n < sizeof text - 3; c++) {
        if (strchr("[]:\\", *c) != NULL) text[n++] = '\\';
        text[n++] = *c;
    }
    text[n] = 0;
    char whole[600];
    snprintf(whole, sizeof whole, "--%s[%s]%s%s%s", name, text, value == NULL ? "" : ":", value == NULL ? "" : value,
             value == NULL ? "" : ":_files");
    fputs(" \\\n        ", stdout);
    quote(whole);
}

static void zsh_case(const arg_command *c, const arg_option *options)
{
    printf("    '%s') _arguments", c->name);
    zsh_option("help", "describes the command", NULL);
    for (const arg_option *o = options; o->name != NULL; o++) zsh_option(o->name, o->help, o->value);
    if (args_takes_model(c)) zsh_option("model", "the model", "MODEL");
    printf(" \\\n        '*:model or file:_ironmule_models' ;;\n");
}

static void print_zsh(void)
{
    printf("#compdef ironmule\n"
           "_ironmule_models() { local -a names; names=(${(f)\"$(ironmule models list --names 2>/dev/null)\"}); compadd -a names; "
           "_files }\n"
           "_ironmule() {\n"
           "  local name=$words[2]\n"
           "  if (( CURRENT == 2 )); then compadd ");
    print_names(commands);
    printf(" help; return; fi\n"
           "  if [[ $name == help ]]; then compadd ");
    print_names(commands);
    printf("; return; fi\n"
           "  if [[ $name == models ]]; then\n"
           "    if (( CURRENT == 3 )); then compadd ");
    print_names(models_commands);
    printf("; return; fi\n"
           "    name=\"models $words[3]\"\n"
           "    shift words; (( CURRENT-- ))\n"
           "  fi\n"
           "  shift words; (( CURRENT-- ))\n"
           "  case $name in\n");
    observe_commands(zsh_case);
    printf("  esac\n}\n[[ $funcstack[1] == _ironmule ]] && _ironmule || compdef _ironmule ironmule\n");
}

/* ---- fish ------------------------------------------------------------------------------------------------------------------------------------- */

static void fish_options(const arg_command *c, const arg_option *options)
{
    char when[200];
    bool sub = strncmp(c->name, "models ", 7) == 0;
    snprintf(when, sizeof when, "%s__fish_seen_subcommand_from %s", sub ? "__fish_seen_subcommand_from models; and " : "",
             c->name + (sub ? 7 : 0));
    for (const arg_option *o = options; o->name != NULL; o++) {
        printf("complete -c ironmule -n '%s' -l %s", when, o->name);
        if (o->letter != 0) printf(" -s %c", o->letter);
        printf("%s -d ", o->kind == ARG_FLAG ? "" : " -r");
        quote(o->help);
        putchar('\n');
    }
    if (args_takes_model(c)) {
        printf("complete -c ironmule -n '%s' -l model -r -d 'the model'\n", when);
        printf("complete -c ironmule -n '%s' -a '(ironmule models list --names 2>/dev/null)'\n", when);
    }
}

static void print_fish(void)
{
    printf("# fish completion of ironmule\n");
    for (const command *c = commands; c->name != NULL; c++) {
        printf("complete -c ironmule -n __fish_use_subcommand -f -a %s -d ", c->name);
        quote(c->summary);
        putchar('\n');
    }
    for (const command *c = models_commands; c->name != NULL; c++) {
        printf("complete -c ironmule -n '__fish_seen_subcommand_from models; and not __fish_seen_subcommand_from ");
        print_names(models_commands);
        printf("' -f -a %s -d ", c->name);
        quote(c->summary);
        putchar('\n');
    }
    observe_commands(fish_options);
}

int cmd_completion(int argc, char **argv)
{
    arg_rest rest;
    const arg_option options[] = {{NULL, 0, ARG_FLAG, NULL, NULL, NULL, 0, 0}};
    int code = args_parse(&about, options, argc, argv, &rest);
    if (code >= 0) return code;
    const char *shell = rest.item[0];
    if (strcmp(shell, "bash") == 0)
        print_bash();
    else if (strcmp(shell, "zsh") == 0)
        print_zsh();
    else if (strcmp(shell, "fish") == 0)
        print_fish();
    else
        return args_wrong(&about, "\"%s\": bash, zsh or fish", shell);
    return EXIT_DONE;
}
