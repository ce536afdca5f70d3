/* SPDX-License-Identifier: Apache-2.0
 *
 * Tokenizers and chat templates out of a folder in the Hugging Face layout: tokenizer.json, tokenizer_config.json, special_tokens_map.json and
 * chat_template.jinja. What the files say is either done as Hugging Face's tokenizers library does it, or refused by name.
 *
 * Known are: the model BPE; the normalisers NFC, Replace (a string), Prepend; the pre-tokenisers ByteLevel, Split (a string, or a regular expression of a known
 * family: im__pre_stage_find), Digits, Punctuation, Metaspace; the post-processors ByteLevel and TemplateProcessing with at most one token on each side;
 * the decoders ByteLevel, Metaspace, and Replace, ByteFallback, Fuse, Strip in this order; Sequences of these; all flags of added tokens.
 * Not looked at: truncation and padding, clean_up_tokenization_spaces. Where it differs from the library: a special token that normalising would change
 * (flag "normalized") is not found in a stretch of text that touches a plain span; an added token decodes to its text, not to its normalised text.
 */
#ifndef IRONMULE_TEXT_TOKENIZER_JSON_H
#define IRONMULE_TEXT_TOKENIZER_JSON_H

#include "text/tokenizer/tokenizer.h"

/* What the rest of the folder says. */
typedef struct im__tokenizer_json_options {
    const int32_t *
        end; /* [end_count] further ids that end a turn (generation_config.json, config.json), borrowed for the call; NULL allowed */
    size_t end_count;
    size_t
        rows; /* rows of the embedding. The tokenizer gets exactly so many ids: unused ones behind the file's, and an added token beyond them is left out
                    (the model has no such row). 0: not known, as many as the file has */
} im__tokenizer_json_options;

/* Reads the folder. On success *out is the caller's (im__tokenizer_free) and owns all it needs: the files may go away. `chat_template` (start with {0},
 * the caller frees it, NULL: not wanted) gets the source of the template: chat_template.jinja, else the one of tokenizer_config.json (of several named ones
 * "default"); it stays empty when there is none. Errors: IM_ERR_IO (no tokenizer.json, unreadable), IM_ERR_FORMAT (damaged or impossible),
 * IM_ERR_UNSUPPORTED (a kind of tokenizer, normaliser, pre-tokeniser, post-processor or decoder that is not known, by name), IM_ERR_MEMORY;
 * messages name the file. */
im_status im__tokenizer_json_read(im__tokenizer **out, im__buf *chat_template, const char *folder,
                                  const im__tokenizer_json_options *options, im_error *err);

/* The same from texts in memory. config and special_tokens_map may be empty. `name` stands in messages in front of what is wrong in `tokenizer`. */
typedef struct im__tokenizer_json_texts {
    const char *name;
    im__bytes tokenizer;          /* tokenizer.json */
    im__bytes config;             /* tokenizer_config.json */
    im__bytes special_tokens_map; /* special_tokens_map.json */
} im__tokenizer_json_texts;
im_status im__tokenizer_json_parse(im__tokenizer **out, const im__tokenizer_json_texts *texts,
                                   const im__tokenizer_json_options *options, im_error *err);

#endif
