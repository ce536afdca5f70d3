/* SPDX-License-Identifier: Apache-2.0
 *
 * The parts of reading a tokenizer.json. Each takes what it knows out of its part of the file and refuses by name what it does not know.
 */
#ifndef IRONMULE_TEXT_JSON_BUILD_H
#define IRONMULE_TEXT_JSON_BUILD_H

#include "text/tokenizer/tokenizer_inside.h"
#include "text/tokenizer/tokenizer_json.h"

#include "base/json.h"

/* An entry of "added_tokens". */
typedef struct im__json_added {
    im__bytes text;
    int32_t id;
    bool special, normalized, single_word, lstrip, rstrip;
} im__json_added;

typedef struct im__json_build {
    const char *name; /* for messages: path of the file */
    im_error *err;
    im__tokenizer *t;
    im__json_rules *r; /* that of t */
    const im__tokenizer_json_options *options;
    im__buf arena;   /* strings; never grows, so that they stay where they are */
    size_t capacity; /* ids below it have room in r->token and r->type */
    size_t count;    /* ids in use: the largest and one */

    im__json added_tokens, normalizer, pre_tokenizer, post_processor, decoder; /* parts of the file */
    im__json vocab, merges;
    im__json config, special_tokens_map;

    bool byte_fallback, ignore_merges, decodes_bytes; /* the last: the decoder knows byte tokens */
    bool merges_strange;                              /* byte tokens or unknown characters merge */
    im__json unk_token;
    im__json_added *added;
    size_t added_count, added_cap;
    int32_t prefix, suffix; /* tokens that the post-processor puts around a text, -1: none */
} im__json_build;

/* ---- json_fields.c ---- */

/* A member that is known, and where its value goes; a list of them ends in {0}. */
typedef struct im__json_field {
    const char *name;
    im__json *out; /* NULL: known, and of no effect here */
} im__json_field;

/* Takes the members of an object; absent ones become no value. Refuses unknown and repeated ones. `what` is the object's name in messages. */
im_status im__json_fields(im__json_build *b, im__json object, const char *what, const im__json_field *field);

/* The same for one member. *seen: 0 before the first. */
im_status im__json_take(im__json_build *b, im__json key, im__json value, const char *what, const im__json_field *field,
                        unsigned *seen);

im_status im__json_flag(im__json_build *b, im__json v, const char *what, bool absent, bool *out); /* null is absent */
im_status im__json_bytes(im__json_build *b, im__json v, const char *what, im__bytes *out);        /* a string, kept in the arena */
im_status im__json_type(im__json_build *b, im__json object, const char *what, im__json *type);    /* its member "type" */
im_status im__json_unknown(im__json_build *b, const char *what, im__json name);                   /* IM_ERR_UNSUPPORTED */
im_status im__json_memory(im__json_build *b);                                                     /* IM_ERR_MEMORY */
bool im__json_absent(im__json v);                                                                 /* no value, or null */

/* ---- the parts, in the order in which they are called ---- */

im_status im__json_read_model(im__json_build *b, im__json_items *members);
im_status im__json_read_vocab(im__json_build *b);
im_status im__json_read_added(im__json_build *b);
im_status im__json_read_added_config(im__json_build *b); /* those of tokenizer_config.json */
im_status im__json_close_vocab(im__json_build *b);       /* fills the tables of pieces */
im_status im__json_read_normalizer(im__json_build *b);
im_status im__json_read_pre_tokenizer(im__json_build *b);
im_status im__json_read_decoder(im__json_build *b);
im_status im__json_read_post_processor(im__json_build *b);
im_status im__json_read_config(im__json_build *b); /* tokens that begin and end a text */
im_status im__json_read_merges(im__json_build *b);
im_status im__json_index_added(im__json_build *b); /* makes the two lists of tokens that are cut out of a text */

/* The token written <0xHH>, -1: there is none. */
int32_t im__json_byte_token(const im__json_build *b, unsigned byte);

/* Adds a token to the added ones, after a look whether its id is free or holds the same text. */
im_status im__json_add(im__json_build *b, const im__json_added *token);

#endif
