/* SPDX-License-Identifier: Apache-2.0
 *
 * A model as the families see it, whatever file it comes from: tensors under the names of their roles (those of GGUF: "blk.3.attn_q.weight"), parameters,
 * a vocabulary. What a format does differently ends here: a new format is a new file that fills in an im__source (source_gguf.c, source_folder.c).
 *
 * Never changed after open: any number of threads may read one.
 */
#ifndef IRONMULE_MODEL_SOURCE_H
#define IRONMULE_MODEL_SOURCE_H

#include "base/error.h"
#include "base/mem.h"
#include "format/gguf.h"
#include "num/split.h"
#include "text/tokenizer/tokenizer.h"

#define IM__ROLE_MAX 72 /* bytes of a tensor's name with its terminating zero */

typedef struct im__tensor {
    char name[IM__ROLE_MAX];
    uint32_t dtype;
    uint64_t dim[IM__GGUF_MAX_DIMS]; /* dim[0] is the contiguous (inner) one; missing ones are 1 */
    const uint8_t *data;             /* rows of blocks, or of codes where split.scale is not NULL; any alignment */
    size_t bytes, scale_bytes, bias_bytes;
    im__split split;
    uint32_t halves;  /* order of the rows (of a vector: elements): see im__weight */
    float plus;       /* is added to each element of a vector, in binary32 */
    bool made;        /* not a part of a file */
    const char *path; /* of the file that holds it */
} im__tensor;

/* What the program builders need of the metadata, bounded. */
typedef struct im__params {
    char arch[64];
    uint32_t layers, embd, heads, head_dim, context, vocab, rot_dim;
    uint32_t *ff, *kv_heads; /* [layers] */
    uint32_t window;         /* 0: none */
    uint32_t window_every;   /* gemma: each such layer (1-based) sees everything; 0: not given */
    bool window_everywhere;  /* llama: all layers have the window */
    float eps, attention_scale /* 0: not given */, attention_cap, final_cap; /* caps below 0: not given */
    double rope_base, rope_base_swa;                                         /* 0: not given */
    double rope_factor;                                                      /* linear scaling of positions; 1: none */
} im__params;
void im__params_clear(im__params *p); /* frees the arrays */

/* Bounds far above every published model: they keep sizes free of overflow and a lying file cheap. */
enum { IM__MAX_LAYERS = 1024, IM__MAX_WIDTH = 1 << 20, IM__MAX_HEADS = 1024, IM__MAX_HEAD_DIM = 512, IM__MAX_CONTEXT = 1 << 24 };

typedef struct im__source im__source;

/* How one format answers. */
typedef struct im__source_kind {
    /* Errors: IM_ERR_FORMAT or IM_ERR_UNSUPPORTED naming the key. */
    im_status (*params)(const im__source *s, im__params *out, im_error *err);
    /* The tokenizer, which may borrow from the source. `pre`: force this pre-tokeniser (NULL: the file's). Called once. */
    im_status (*vocabulary)(im__source *s, const char *pre, im__tokenizer **out, im_error *err);
    /* What the tensor of this role is called in the file; `out` is for names that have to be made. */
    const char *(*label)(const im__source *s, const char *role, char out[128]);
    void (*close)(im__source *s); /* of `file` */
} im__source_kind;

struct im__source {
    const im__source_kind *kind;
    void *file;
    const char *path;   /* for messages */
    im__tensor *tensor; /* [tensor_count] in the order of the file */
    size_t tensor_count;
    uint32_t *by_name; /* [tensor_count] */
    size_t file_bytes;
    im__bytes architecture, name, licence; /* untrusted; {NULL, 0}: not said */
    im__bytes chat_template;               /* {NULL, 0}: none. Of folders after the vocabulary was read */
};

/* Opens a GGUF file (or what im__gguf_open takes) or a folder with weights in safetensors. On success *out is the caller's. */
im_status im__source_open(im__source **out, const char *path, im_error *err);
void im__source_close(im__source *s); /* NULL allowed */

const im__tensor *im__source_find(const im__source *s, const char *name); /* NULL when absent */

/* ---- for those who fill one in ---- */

/* Takes the file over, in every case. */
im_status im__source_of_gguf(im__source **out, im__gguf *g, im_error *err);
im_status im__source_of_folder(im__source **out, const char *path, im_error *err);

im__source *im__source_new(const im__source_kind *kind, size_t tensors); /* NULL: out of memory */
/* Once all tensors are there. A name that is there twice is IM_ERR_FORMAT. */
im_status im__source_sort(im__source *s, im_error *err);

/* The parameters of a GGUF file. */
im_status im__params_read(const im__gguf *g, im__params *out, im_error *err);

/* Reads the vocabulary of a GGUF file. *out is the caller's. Arrays made on the way live in *keep until the tokenizer is gone. */
typedef struct im__vocab_arrays {
    im__gguf_string *token, *merge;
    float *score;
    int32_t *type;
    int32_t end[2]; /* ids of the eot and eom keys */
} im__vocab_arrays;
im_status im__vocabulary_read(const im__gguf *g, const char *pre, im__tokenizer **out, im__vocab_arrays *keep, im_error *err);
void im__vocab_arrays_clear(im__vocab_arrays *a);

#endif
