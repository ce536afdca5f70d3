/* SPDX-License-Identifier: Apache-2.0 */
#include "text/tokenizer/json_build.h"

#include <string.h>

static const im__json_field *field_of(const im__json_field *field, im__json key)
{
    for (; field->name != NULL; field++) {
        if (im__json_is(key, field->name)) return field;
    }
    return NULL;
}

static int shown(im__json v) { return (int)(v.len > 80 ? 80 : v.len); }

im_status im__json_take(im__json_build *b, im__json key, im__json value, const char *what, const im__json_field *field,
                        unsigned *seen)
{
    const im__json_field *f = field_of(field, key);
    if (f == NULL)
        return im__fail(b->err, IM_ERR_UNSUPPORTED, "%s: the key %.*s of %s is not known", b->name, shown(key), key.ptr, what);
    if (*seen >> (f - field) & 1) return im__fail(b->err, IM_ERR_FORMAT, "%s: %s has the key \"%s\" twice", b->name, what, f->name);
    *seen |= 1u << (f - field);
    if (f->out != NULL) *f->out = value;
    return IM_OK;
}

im_status im__json_fields(im__json_build *b, im__json object, const char *what, const im__json_field *field)
{
    im__json key, value;
    unsigned seen = 0;
    if (im__json_kind_of(object) != IM__JSON_OBJECT)
        return im__fail(b->err, IM_ERR_FORMAT, "%s: %s is %s, not an object", b->name, what, im__json_kind_name(object));
    for (const im__json_field *f = field; f->name != NULL; f++) {
        if (f->out != NULL) *f->out = (im__json){NULL, 0};
    }
    im__json_items items = im__json_items_of(object);
    while (im__json_next(&items, &key, &value)) IM__TRY(im__json_take(b, key, value, what, field, &seen));
    return IM_OK;
}

bool im__json_absent(im__json v)
{
    im__json_kind kind = im__json_kind_of(v);
    return kind == IM__JSON_NONE || kind == IM__JSON_NULL;
}

im_status im__json_flag(im__json_build *b, im__json v, const char *what, bool absent, bool *out)
{
    *out = absent;
    if (im__json_absent(v) || im__json_bool(v, out)) return IM_OK;
    return im__fail(b->err, IM_ERR_FORMAT, "%s: %s is %s, not true or false", b->name, what, im__json_kind_name(v));
}

im_status im__json_bytes(im__json_build *b, im__json v, const char *what, im__bytes *out)
{
    size_t begin = b->arena.len;
    if (v.len >= b->arena.cap - begin) return im__json_memory(b); /* cannot be: the arena is as large as all strings of the files */
    if (!im__json_text(v, &b->arena))
        return im__fail(b->err, IM_ERR_FORMAT, "%s: %s is %s, not a string", b->name, what, im__json_kind_name(v));
    *out = (im__bytes){b->arena.data + begin, b->arena.len - begin};
    return IM_OK;
}

im_status im__json_type(im__json_build *b, im__json object, const char *what, im__json *type)
{
    if (im__json_kind_of(object) == IM__JSON_OBJECT && im__json_member(object, "type", type) == 1 &&
        im__json_kind_of(*type) == IM__JSON_STRING)
        return IM_OK;
    return im__fail(b->err, IM_ERR_FORMAT, "%s: %s has no type", b->name, what);
}

im_status im__json_unknown(im__json_build *b, const char *what, im__json name)
{
    return im__fail(b->err, IM_ERR_UNSUPPORTED, "%s: %s %.*s is not known", b->name, what, shown(name), name.ptr);
}

im_status im__json_memory(im__json_build *b)
{
    return im__fail(b->err, IM_ERR_MEMORY, "%s: not enough memory for the tables of the vocabulary", b->name);
}
