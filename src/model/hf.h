/* SPDX-License-Identifier: Apache-2.0
 *
 * Folders in the Hugging Face layout, MLX ones too: config.json, generation_config.json (end tokens alone), weights in safetensors. Inside of this room: the
 * parts that source_folder.c puts together.
 */
#ifndef IRONMULE_MODEL_HF_H
#define IRONMULE_MODEL_HF_H

#include "format/st_folder.h"
#include "model/source.h"

typedef struct im__hf {
    char *path;
    char config_path[1024], generation_path[1024]; /* for messages */
    im__file_map config_map, generation_map;
    im__json config, text, generation; /* text: of the language model; the same as config, or a part of it */
    im__st_folder *weights;
    im__params params;
    bool gemma, nested;                  /* nested: the language model of a larger one */
    bool tied;                           /* the embedding makes the logits */
    const char *prefix, *head;           /* what stored names begin with: "model." of all but the output matrix, "lm_head." */
    float divisor[IM__MAX_HEAD_DIM / 2]; /* of rotation frequencies */
    bool has_divisors;
    int32_t *end; /* [end_count] ids that end a turn */
    size_t end_count;
    char *name; /* of the repository, or of the folder */
    im__buf chat_template;
} im__hf;

/* ---- hf_params.c: what config.json says ---- */

/* Fills in text, params, gemma, nested, tied, divisor. Errors name the file and the key. */
im_status im__hf_read_config(im__hf *f, im_error *err);
/* Fills in end. */
im_status im__hf_read_ends(im__hf *f, im_error *err);

/* How the codes of the matrix with this stored stem ("model.layers.0.mlp.up_proj") are to be read. */
typedef struct im__hf_codes {
    uint32_t bits, group;
    bool mxfp4; /* else affine */
} im__hf_codes;
im_status im__hf_codes_of(const im__hf *f, const char *stem, im__hf_codes *out, im_error *err);

/* ---- hf_names.c: stored names and roles ---- */

/* Finds prefix and head among the names that are there. */
void im__hf_find_prefix(im__hf *f);
/* Part of something that the language model does not need. */
bool im__hf_ignores(const im__hf *f, const char *stored);
/* The role of a stored name; one without a role keeps its name, cut to what fits. */
void im__hf_role(const im__hf *f, const char *stored, char role[IM__ROLE_MAX]);
/* The reverse. */
const char *im__hf_label(const im__hf *f, const char *role, char out[128]);

#endif
