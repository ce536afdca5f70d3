/* SPDX-License-Identifier: Apache-2.0
 *
 * What the commands share: the options that every computing command takes, opening with progress, reading inputs, Ctrl-C, messages.
 * Results go to stdout, everything else to stderr.
 */
#ifndef IRONMULE_CLI_COMMON_H
#define IRONMULE_CLI_COMMON_H

#include "args.h"

#include <ironmule/ironmule.h>
#include <jansson.h>
#include <stdio.h>

/* Exit codes */
enum { EXIT_DONE = 0, EXIT_FAILED = 1, EXIT_USAGE = 2, EXIT_INTERRUPTED = 130 };

/* One command: gets the arguments behind its name, returns the exit code. */
typedef struct command {
    const char *name, *summary;
    int (*run)(int argc, char **argv);
} command;

int cmd_generate(int argc, char **argv);
int cmd_chat(int argc, char **argv);
int cmd_serve(int argc, char **argv);
int cmd_tokenize(int argc, char **argv);
int cmd_template(int argc, char **argv);
int cmd_perplexity(int argc, char **argv);
int cmd_verify(int argc, char **argv);
int cmd_doctor(int argc, char **argv);
int cmd_info(int argc, char **argv);
int cmd_benchmark(int argc, char **argv);
int cmd_models(int argc, char **argv);
int cmd_setup(int argc, char **argv);
int cmd_start(int argc, char **argv);
int cmd_completion(int argc, char **argv);
int cmd_manual(int argc, char **argv);

/* All of them, ended by one without a name; those of `models`. */
extern const command commands[], models_commands[];

/* Shows each command's table, those of sub-commands too, to the observer (args.h). */
void observe_commands(void (*observer)(const arg_command *command, const arg_option *options));

/* ---- messages ---- */

/* "ironmule NAME: message" on stderr ("ironmule: message" when the name is empty); returns EXIT_FAILED. */
int say_failed(const char *who, const im_error *err);
int say(const char *who, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Colours on this stream: it is a terminal, and neither NO_COLOR nor TERM=dumb asks for plain text. */
bool use_colour(FILE *f);

/* A progress line on stderr, drawn only when stderr is a terminal, at most ten times a second. progress_end clears it. */
typedef struct progress {
    const char *label;
    double drawn; /* when, ms */
    bool shown;
} progress;
void progress_draw(progress *p, double fraction, const char *detail);
void progress_end(progress *p);

/* ---- options of commands that compute ---- */

typedef struct run_options {
    int64_t threads, chunk, context;
    const char *cpu, *device, *device_fallback;
} run_options;

#define RUN_OPTIONS(o)                                                                                                             \
    {"threads", 't', ARG_INT, &(o).threads, "N", "threads that compute (default: one a physical core)", 1, 1024},                  \
        {"context", 'c', ARG_INT, &(o).context, "N", "positions for prompt and answer", 2, 16777216},                              \
        {"chunk", 0, ARG_INT, &(o).chunk, "N", "prompt rows computed in one step (default 256)", 1, 4096},                         \
        {"cpu", 0, ARG_STRING, &(o).cpu, "LEVEL", "kernels up to this level: c, avx2, avxvnni, avx512, amx, neon, i8mm", 0, 0},    \
        {"device", 0, ARG_STRING, &(o).device, "NAME", "auto, cpu, cuda or cuda:N (default auto)", 0, 0},                          \
    {                                                                                                                              \
        "device-fallback", 0, ARG_STRING, &(o).device_fallback, "NAME", "cpu: go on there when the GPU fails", 0, 0                \
    }

typedef struct sampling_options {
    double temperature, top_p, min_p; /* start with top_p = 1 */
    int64_t top_k, seed;
} sampling_options;

#define SAMPLING_OPTIONS(o)                                                                                                        \
    {"temperature", 0, ARG_NUMBER, &(o).temperature, "X", "0: greedy (default)", 0, 100},                                          \
        {"top-k", 0, ARG_INT, &(o).top_k, "N", "keep the N most likely tokens (0: off)", 0, INT32_MAX},                            \
        {"top-p", 0, ARG_NUMBER, &(o).top_p, "X", "keep the most likely tokens that reach this probability", 1e-9, 1},             \
        {"min-p", 0, ARG_NUMBER, &(o).min_p, "X", "keep tokens at least this likely, relative to the best", 0, 0.999999},          \
    {                                                                                                                              \
        "seed", 0, ARG_INT, &(o).seed, "N", "of the random draws (default 0)", 0, 9e18                                             \
    }

/* Says so when options of random choice were given, but the choice is greedy. */
im_sampling sampling_of(const char *who, const sampling_options *o);

/* Opens the model (a path, a registered name, or an id in the local cache of the Hub), or says why not (NULL). `vocabulary_only`: no weights. `pre` may be NULL. A file that is cut short while it is in use ends the program with
 * a message. */
im_model *open_model(const char *who, const char *model, bool vocabulary_only, const char *pre);

/* Says so when the user asks for more positions than the model was made for. */
void warn_context(const char *who, const im_model *model, int64_t context);

/* Opens an engine on the model with a progress bar; NULL after a message. `context` is used when the user gave none (0: the library's default);
 * conversation: what was computed is kept for the next turn. */
im_engine *open_engine(const char *who, im_model *model, const run_options *o, uint32_t context, uint32_t sequences,
                       bool conversation);

/* ---- inputs ---- */

/* The whole file, or standard input for "-"; NULL after a message. Terminated; *n is its length. Free with free. */
char *read_file(const char *who, const char *path, size_t *n);

/* A JSON list of token ids from a file or "-"; NULL after a message. Free with free. */
int32_t *read_ids(const char *who, const char *path, size_t *n);

/* ---- Ctrl-C ---- */

/* From interrupt_set to interrupt_clear the first SIGINT cancels the request (NULL: only makes `interrupted` true), and a second one ends the program.
 * The two come in pairs; what SIGINT did before, it does again afterwards. */
void interrupt_set(im_request *r);
void interrupt_clear(void);
bool interrupted(void); /* since the last interrupt_set */

/* ---- JSON ---- */

/* Text as a JSON string; bytes that are no UTF-8 become U+FFFD. */
json_t *json_text(const char *s, size_t n);
json_t *json_hex64(uint64_t v); /* "0123456789abcdef" */
/* Names out of files and of files, as a terminal may see them: control characters are question marks, long ones are cut. Valid until the fourth call after. */
const char *shown(const char *text);
int print_json(json_t *document); /* takes ownership; main reports when stdout cannot be written */

#endif
