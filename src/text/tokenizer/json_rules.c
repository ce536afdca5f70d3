/* SPDX-License-Identifier: Apache-2.0
 *
 * What happens to a text around the merges: normaliser, pre-tokeniser and post-processor of a tokenizer.json.
 */
#include "text/tokenizer/json_build.h"

#include <string.h>

#define LONGEST_EDIT 64 /* bytes that an edit puts in */

static im_status too_many(im__json_build *b, const char *what)
{
    return im__fail(b->err, IM_ERR_UNSUPPORTED, "%s: %s has more than %d steps", b->name, what, IM__EDITS_MAX);
}

static im_status short_bytes(im__json_build *b, im__json v, const char *what, bool may_be_empty, im__bytes *out)
{
    IM__TRY(im__json_bytes(b, v, what, out));
    if (out->len <= LONGEST_EDIT && (may_be_empty || out->len > 0)) return IM_OK;
    return im__fail(b->err, IM_ERR_UNSUPPORTED, "%s: %s is %zu bytes long; 1 to %d are possible", b->name, what, out->len,
                    LONGEST_EDIT);
}

/* The string or the regular expression that "pattern" names. */
static im_status read_pattern(im__json_build *b, im__json v, im__json *string, im__json *regex)
{
    const im__json_field field[] = {{"String", string}, {"Regex", regex}, {0}};
    IM__TRY(im__json_fields(b, v, "a pattern", field));
    if ((string->len > 0) != (regex->len > 0)) return IM_OK;
    return im__fail(b->err, IM_ERR_FORMAT, "%s: a pattern must be a String or a Regex", b->name);
}

/* The list of steps of a Sequence; another object is a list of one. */
typedef struct steps {
    im__json_items items;
    im__json only;
} steps;

static im_status steps_of(im__json_build *b, im__json v, const char *what, const char *member, steps *out)
{
    im__json type, list;
    *out = (steps){.only = {NULL, 0}};
    if (im__json_absent(v)) return IM_OK;
    IM__TRY(im__json_type(b, v, what, &type));
    if (!im__json_is(type, "Sequence")) {
        out->only = v;
        return IM_OK;
    }
    const im__json_field field[] = {{"type", NULL}, {member, &list}, {0}};
    IM__TRY(im__json_fields(b, v, what, field));
    out->items = im__json_items_of(list);
    if (im__json_kind_of(list) == IM__JSON_ARRAY) return IM_OK;
    return im__fail(b->err, IM_ERR_FORMAT, "%s: the Sequence of %s has no list", b->name, what);
}

static bool next_step(steps *s, im__json *out)
{
    if (s->only.len == 0) return im__json_next(&s->items, NULL, out);
    *out = s->only;
    s->only = (im__json){NULL, 0};
    return true;
}

/* ---- normaliser ---- */

static im_status read_replace(im__json_build *b, im__json v, im__edit *edit)
{
    im__json pattern, content, string, regex;
    const im__json_field field[] = {{"type", NULL}, {"pattern", &pattern}, {"content", &content}, {0}};
    IM__TRY(im__json_fields(b, v, "the normaliser", field));
    IM__TRY(read_pattern(b, pattern, &string, &regex));
    if (regex.len > 0) return im__json_unknown(b, "the regular expression of the normaliser", regex);
    edit->kind = IM__EDIT_REPLACE;
    IM__TRY(short_bytes(b, string, "the pattern of a Replace", false, &edit->from));
    return short_bytes(b, content, "the content of a Replace", true, &edit->to);
}

static im_status read_prepend(im__json_build *b, im__json v, im__edit *edit)
{
    im__json prepend;
    const im__json_field field[] = {{"type", NULL}, {"prepend", &prepend}, {0}};
    IM__TRY(im__json_fields(b, v, "the normaliser", field));
    edit->kind = IM__EDIT_PREPEND;
    return short_bytes(b, prepend, "what a Prepend puts in front", false, &edit->to);
}

static im_status read_normal_step(im__json_build *b, im__json v, im__edit *edit)
{
    im__json type;
    const im__json_field bare[] = {{"type", NULL}, {0}};
    IM__TRY(im__json_type(b, v, "the normaliser", &type));
    if (im__json_is(type, "Replace")) return read_replace(b, v, edit);
    if (im__json_is(type, "Prepend")) return read_prepend(b, v, edit);
    if (!im__json_is(type, "NFC")) return im__json_unknown(b, "the normaliser", type);
    edit->kind = IM__EDIT_NFC;
    return im__json_fields(b, v, "the normaliser", bare);
}

im_status im__json_read_normalizer(im__json_build *b)
{
    steps s;
    im__json v;
    im__json_rules *r = b->r;
    IM__TRY(steps_of(b, b->normalizer, "the normaliser", "normalizers", &s));
    while (next_step(&s, &v)) {
        if (r->normal_count == IM__EDITS_MAX) return too_many(b, "the normaliser");
        IM__TRY(read_normal_step(b, v, &r->normal[r->normal_count++]));
    }
    return IM_OK;
}

/* ---- pre-tokeniser ---- */

typedef struct pre_reader {
    im__json_build *b;
    size_t stages;
    bool letters; /* the text is written in the byte alphabet from here on */
} pre_reader;

static im_status add_stage(pre_reader *p, const im__pre_rule *stage)
{
    if (p->stages == IM__STAGES_MAX) return too_many(p->b, "the pre-tokeniser");
    p->b->r->stage[p->stages++] = stage;
    return IM_OK;
}

static im_status add_literal(pre_reader *p, im__pre_rule_kind kind, im__bytes literal)
{
    if (p->stages == IM__STAGES_MAX) return too_many(p->b, "the pre-tokeniser");
    im__pre_rule *rule = &p->b->r->literal[p->stages];
    *rule = (im__pre_rule){.kind = kind, .literal = literal};
    return add_stage(p, rule);
}

static im_status split_at_string(pre_reader *p, im__json string, im__json behavior)
{
    im__bytes literal;
    IM__TRY(short_bytes(p->b, string, "the pattern of a Split", false, &literal));
    if (im__json_is(behavior, "MergedWithPrevious")) return add_literal(p, IM__PRE_CUT_BEHIND, literal);
    if (im__json_is(behavior, "MergedWithNext")) return add_literal(p, IM__PRE_CUT_BEFORE, literal);
    if (im__json_is(behavior, "Isolated")) return add_literal(p, IM__PRE_CUT_AROUND, literal);
    return im__json_unknown(p->b, "the behavior of a Split", behavior);
}

/* Where the matches cover the text, keeping them alone ("Removed", inverted) and keeping all ("Isolated") are the same. */
static im_status split_at_regex(pre_reader *p, im__json regex, im__json behavior, bool invert)
{
    im__bytes pattern;
    bool covers = false;
    IM__TRY(im__json_bytes(p->b, regex, "the pattern of a Split", &pattern));
    const im__pre_rule *stage = im__pre_stage_find(pattern.ptr, pattern.len, &covers);
    if (stage == NULL) return im__json_unknown(p->b, "the regular expression of the pre-tokeniser", regex);
    bool isolated = im__json_is(behavior, "Isolated"), kept = im__json_is(behavior, "Removed") && invert && covers;
    return isolated || kept ? add_stage(p, stage) : im__json_unknown(p->b, "the behavior of a Split", behavior);
}

static im_status read_split(pre_reader *p, im__json v)
{
    im__json pattern, behavior, invert, string, regex;
    bool inverted;
    const im__json_field field[] = {{"type", NULL}, {"pattern", &pattern}, {"behavior", &behavior}, {"invert", &invert}, {0}};
    IM__TRY(im__json_fields(p->b, v, "a Split", field));
    IM__TRY(im__json_flag(p->b, invert, "invert", false, &inverted));
    IM__TRY(read_pattern(p->b, pattern, &string, &regex));
    if (string.len == 0) return split_at_regex(p, regex, behavior, inverted);
    return inverted ? im__json_unknown(p->b, "an inverted Split at", string) : split_at_string(p, string, behavior);
}

static im_status add_edit(pre_reader *p, im__edit edit)
{
    im__json_rules *r = p->b->r;
    if (p->stages > 0)
        return im__fail(p->b->err, IM_ERR_UNSUPPORTED, "%s: the pre-tokeniser changes the text behind a Split", p->b->name);
    if (r->prepare_count == IM__EDITS_MAX) return too_many(p->b, "the pre-tokeniser");
    r->prepare[r->prepare_count++] = edit;
    return IM_OK;
}

static im_status read_byte_level(pre_reader *p, im__json v)
{
    im__json prefix, regex;
    bool with_prefix, with_regex;
    const im__json_field field[] = {
        {"type", NULL}, {"add_prefix_space", &prefix}, {"use_regex", &regex}, {"trim_offsets", NULL}, {0}};
    IM__TRY(im__json_fields(p->b, v, "ByteLevel", field));
    IM__TRY(im__json_flag(p->b, prefix, "add_prefix_space", true, &with_prefix));
    IM__TRY(im__json_flag(p->b, regex, "use_regex", true, &with_regex));
    if (with_prefix) IM__TRY(add_edit(p, (im__edit){.kind = IM__EDIT_BEGIN_WITH, .to = {" ", 1}}));
    p->letters = true;
    return with_regex ? add_stage(p, im__pre_stage_known(IM__PRE_KNOWN_GPT2)) : IM_OK;
}

static im_status read_digits(pre_reader *p, im__json v)
{
    im__json each;
    bool alone;
    const im__json_field field[] = {{"type", NULL}, {"individual_digits", &each}, {0}};
    IM__TRY(im__json_fields(p->b, v, "Digits", field));
    IM__TRY(im__json_flag(p->b, each, "individual_digits", false, &alone));
    if (!p->letters) return add_stage(p, im__pre_stage_known(alone ? IM__PRE_KNOWN_EACH_NUMBER : IM__PRE_KNOWN_NUMBERS));
    return alone ? im__json_unknown(p->b, "individual Digits behind ByteLevel:", v)
                 : add_stage(p, im__pre_stage_known(IM__PRE_KNOWN_BYTE_NUMBERS));
}

static im_status read_punctuation(pre_reader *p, im__json v)
{
    im__json behavior;
    const im__json_field field[] = {{"type", NULL}, {"behavior", &behavior}, {0}};
    IM__TRY(im__json_fields(p->b, v, "Punctuation", field));
    if (im__json_absent(behavior) || im__json_is(behavior, "Isolated"))
        return add_stage(p, im__pre_stage_known(IM__PRE_KNOWN_EACH_SIGN));
    if (im__json_is(behavior, "Contiguous")) return add_stage(p, im__pre_stage_known(IM__PRE_KNOWN_SIGNS));
    return im__json_unknown(p->b, "the behavior of Punctuation", behavior);
}

/* Older files have add_prefix_space for prepend_scheme. */
static im_status metaspace_prefix(pre_reader *p, im__json scheme, im__json prefix, im__bytes mark)
{
    bool add;
    im__edit edit = {.kind = IM__EDIT_BEGIN_WITH, .to = mark};
    IM__TRY(im__json_flag(p->b, prefix, "add_prefix_space", true, &add));
    if (im__json_is(scheme, "never") || (im__json_absent(scheme) && !add)) return IM_OK;
    if (im__json_is(scheme, "first"))
        edit.kind = IM__EDIT_BEGIN_FIRST_WITH;
    else if (!im__json_absent(scheme) && !im__json_is(scheme, "always"))
        return im__json_unknown(p->b, "the prepend_scheme", scheme);
    return add_edit(p, edit);
}

static im_status read_metaspace(pre_reader *p, im__json v)
{
    im__json replacement, scheme, prefix, split;
    bool cut;
    im__edit edit = {.kind = IM__EDIT_REPLACE, .from = {" ", 1}};
    const im__json_field field[] = {{"type", NULL},
                                    {"replacement", &replacement},
                                    {"prepend_scheme", &scheme},
                                    {"add_prefix_space", &prefix},
                                    {"split", &split},
                                    {"str_rep", NULL},
                                    {0}};
    IM__TRY(im__json_fields(p->b, v, "Metaspace", field));
    IM__TRY(short_bytes(p->b, replacement, "the replacement of Metaspace", false, &edit.to));
    IM__TRY(im__json_flag(p->b, split, "split", true, &cut));
    IM__TRY(add_edit(p, edit));
    IM__TRY(metaspace_prefix(p, scheme, prefix, edit.to));
    return cut ? add_literal(p, IM__PRE_CUT_BEFORE, edit.to) : IM_OK;
}

/* Behind ByteLevel a step sees the letters that stand for bytes, not the text. */
static bool sees_text(const pre_reader *p, im__json v)
{
    im__json pattern, regex;
    if (!p->letters) return true;
    return im__json_member(v, "pattern", &pattern) == 1 && im__json_member(pattern, "Regex", &regex) == 1 &&
           im__json_is(regex, "[0-9][0-9][0-9]");
}

static im_status read_pre_step(pre_reader *p, im__json v)
{
    im__json type;
    IM__TRY(im__json_type(p->b, v, "the pre-tokeniser", &type));
    if (im__json_is(type, "Digits")) return read_digits(p, v);
    if (!sees_text(p, v)) return im__json_unknown(p->b, "behind ByteLevel, the pre-tokeniser", type);
    if (im__json_is(type, "ByteLevel")) return read_byte_level(p, v);
    if (im__json_is(type, "Split")) return read_split(p, v);
    if (im__json_is(type, "Metaspace")) return read_metaspace(p, v);
    if (im__json_is(type, "Punctuation")) return read_punctuation(p, v);
    return im__json_unknown(p->b, "the pre-tokeniser", type);
}

im_status im__json_read_pre_tokenizer(im__json_build *b)
{
    steps s;
    im__json v;
    pre_reader p = {.b = b};
    IM__TRY(steps_of(b, b->pre_tokenizer, "the pre-tokeniser", "pretokenizers", &s));
    while (next_step(&s, &v)) IM__TRY(read_pre_step(&p, v));
    b->t->byte_level = p.letters;
    b->t->by_rank = true;
    b->r->pre = (im__pre){.name = "tokenizer.json", .stage = b->r->stage, .ignore_merges = b->ignore_merges};
    b->t->pre = &b->r->pre;
    return IM_OK;
}

/* ---- post-processor ---- */

/* The one id of a special token of a template. */
static im_status template_token(im__json_build *b, im__json name, im__json tokens, int32_t *out)
{
    im__json key, value, ids, id, more;
    uint64_t n;
    im__json_items items = im__json_items_of(tokens);
    while (im__json_next(&items, &key, &value)) {
        if (im__json_kind_of(name) != IM__JSON_STRING || im__json_compare(key, name) != 0) continue;
        const im__json_field field[] = {{"id", NULL}, {"ids", &ids}, {"tokens", NULL}, {0}};
        IM__TRY(im__json_fields(b, value, "a token of TemplateProcessing", field));
        im__json_items list = im__json_items_of(ids);
        if (!im__json_next(&list, NULL, &id) || im__json_next(&list, NULL, &more) || !im__json_u64(id, &n) || n >= b->count) break;
        *out = (int32_t)n;
        return IM_OK;
    }
    return im__fail(b->err, IM_ERR_FORMAT, "%s: TemplateProcessing: the token %.*s is not one token of the vocabulary", b->name,
                    (int)(name.len > 80 ? 80 : name.len), name.len == 0 ? "" : name.ptr);
}

/* A template for one text: at most one token before and one behind it. */
static im_status read_template(im__json_build *b, im__json v)
{
    im__json single, tokens, item, special, sequence, name;
    bool behind = false;
    const im__json_field field[] = {{"type", NULL}, {"single", &single}, {"pair", NULL}, {"special_tokens", &tokens}, {0}};
    IM__TRY(im__json_fields(b, v, "TemplateProcessing", field));
    im__json_items items = im__json_items_of(single);
    if (im__json_kind_of(single) != IM__JSON_ARRAY) return im__json_unknown(b, "the template of TemplateProcessing", single);
    while (im__json_next(&items, NULL, &item)) {
        const im__json_field kind[] = {{"SpecialToken", &special}, {"Sequence", &sequence}, {0}};
        IM__TRY(im__json_fields(b, item, "an item of TemplateProcessing", kind));
        if (special.len == 0 && im__json_member(sequence, "id", &name) == 1 && im__json_is(name, "A") && !behind) {
            behind = true;
            continue;
        }
        int32_t *id = behind ? &b->suffix : &b->prefix;
        if (im__json_member(special, "id", &name) != 1 || *id >= 0)
            return im__json_unknown(b, "the template of TemplateProcessing", single);
        IM__TRY(template_token(b, name, tokens, id));
    }
    return behind ? IM_OK : im__json_unknown(b, "the template of TemplateProcessing", single);
}

im_status im__json_read_post_processor(im__json_build *b)
{
    steps s;
    im__json v, type;
    IM__TRY(steps_of(b, b->post_processor, "the post-processor", "processors", &s));
    while (next_step(&s, &v)) {
        IM__TRY(im__json_type(b, v, "the post-processor", &type));
        if (im__json_is(type, "ByteLevel")) continue; /* moves offsets only */
        if (!im__json_is(type, "TemplateProcessing")) return im__json_unknown(b, "the post-processor", type);
        IM__TRY(read_template(b, v));
    }
    return IM_OK;
}
