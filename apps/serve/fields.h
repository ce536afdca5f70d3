/* SPDX-License-Identifier: Apache-2.0
 *
 * What a request for text asks, read from its JSON: every field checked, every problem named after its field. The same reader serves chat and completions; the
 * table of fields in fields.c says which belongs to which. Runs on the workers' threads.
 *
 * A field with the value null is as good as absent. Fields that ask for something that is not served are problems; other unknown ones are harmless and listed.
 */
#ifndef IRONMULE_SERVE_FIELDS_H
#define IRONMULE_SERVE_FIELDS_H

#include "body_json.h"

#include <ironmule/ironmule.h>

enum { FIELDS_MAX_STOPS = 16, FIELDS_MAX_TOP = 20 };

/* What of the server the checks need. */
typedef struct fields_rules {
    const char *const *models; /* names that requests may use; NULL-terminated */
    bool any_model;
    uint32_t vocabulary;
    uint32_t max_choices;
} fields_rules;

/* A prompt of /v1/completions: text, or ids. Borrowed from the document. */
typedef struct fields_prompt {
    const char *text;
    size_t text_len;
    int32_t *ids; /* owned */
    size_t count;
} fields_prompt;

typedef struct fields {
    json_t *doc; /* owned; texts below point into it */
    bool chat;
    bool stream, include_usage;
    json_t *messages;       /* chat; borrowed */
    json_t *variables;      /* further variables of the template; NULL: none; borrowed */
    fields_prompt *prompts; /* completions */
    size_t prompt_count;
    uint32_t n;          /* answers for each prompt */
    uint64_t max_tokens; /* 0: not said */
    im_sampling sampling;
    im_logit_bias *bias;
    bool seeded;
    const char *stop[FIELDS_MAX_STOPS + 1]; /* NULL-terminated */
    bool logprobs;
    uint32_t top_logprobs;
    bool ignore_eos, parse_special, no_cache;
    bool extras; /* an "ironmule" object came with the request */
    bool want_hash, want_timings, want_ids;
    json_t *ignored; /* names of fields without effect; NULL: none */
    /* inside */
    const fields_rules *rules;
    problem *problem;
    bool max_completion, stream_options, top_given;
} fields;

/* Takes `doc`. false: a problem. Free with fields_free in either case. */
bool fields_read(fields *f, json_t *doc, bool chat, const fields_rules *rules, problem *p);
void fields_free(fields *f);

/* Lets go of the document and of everything that it was copied into: a body of a megabyte may take a hundred as a document. The scalars and `ignored` stay. */
void fields_release(fields *f);

/* The checks of "model" alone, for the other routes. */
bool fields_model(const json_t *value, const fields_rules *rules, problem *p);

/* The checks of "messages": a list of objects, each with a known role and with text only. What the template thinks of it is for later. */
bool fields_messages(const json_t *value, problem *p);

/* The forms of a completion's prompt. */
bool fields_prompts(fields *f, json_t *value);

#endif
