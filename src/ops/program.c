/* SPDX-License-Identifier: Apache-2.0 */
#include "ops/program.h"

#include <stdio.h>
#include <string.h>

/* Room for one more element of `size` bytes behind `count` of them; arrays grow at powers of two. */
static bool grow(void **array, size_t count, size_t size)
{
    if (count != 0 && (count & (count - 1)) != 0) return true;
    void *grown = im__realloc(*array, count == 0 ? 1 : 2 * count, size);
    if (grown == NULL) return false;
    *array = grown;
    return true;
}

static void set_name(char out[IM__NAME_MAX], const char *name) { snprintf(out, IM__NAME_MAX, "%s", name); }

int im__program_op(im__program *p, im__op op)
{
    void *array = p->op;
    if (!grow(&array, p->op_count, sizeof *p->op)) return IM__NONE;
    p->op = array;
    p->op[p->op_count] = op;
    return (int)p->op_count++;
}

int im__program_value(im__program *p, const char *name, uint32_t width)
{
    void *array = p->value;
    if (!grow(&array, p->value_count, sizeof *p->value)) return IM__NONE;
    p->value = array;
    set_name(p->value[p->value_count].name, name);
    p->value[p->value_count].width = width;
    return (int)p->value_count++;
}

int im__program_matrix(im__program *p, const char *name, const im__weight *w)
{
    void *array = p->matrix;
    if (!grow(&array, p->matrix_count, sizeof *p->matrix)) return IM__NONE;
    p->matrix = array;
    set_name(p->matrix[p->matrix_count].name, name);
    p->matrix[p->matrix_count].w = *w;
    return (int)p->matrix_count++;
}

int im__program_vector(im__program *p, const char *name, float *data, uint32_t n)
{
    void *array = p->vector;
    if (!grow(&array, p->vector_count, sizeof *p->vector)) {
        im__free(data);
        return IM__NONE;
    }
    p->vector = array;
    im__vector *v = &p->vector[p->vector_count];
    set_name(v->name, name);
    v->n = n;
    v->data = data;
    return (int)p->vector_count++;
}

int im__program_rope(im__program *p, double *frequency, uint32_t rot_dim, bool adjacent)
{
    void *array = p->rope;
    if (!grow(&array, p->rope_count, sizeof *p->rope)) {
        im__free(frequency);
        return IM__NONE;
    }
    p->rope = array;
    p->rope[p->rope_count] = (im__rope){.rot_dim = rot_dim, .adjacent = adjacent, .frequency = frequency};
    return (int)p->rope_count++;
}

int im__program_kv(im__program *p, im__kv_layer layer)
{
    void *array = p->kv;
    if (!grow(&array, p->kv_count, sizeof *p->kv)) return IM__NONE;
    p->kv = array;
    p->kv[p->kv_count] = layer;
    return (int)p->kv_count++;
}

void im__program_clear(im__program *p)
{
    for (size_t i = 0; i < p->vector_count; i++) im__free(p->vector[i].data);
    for (size_t i = 0; i < p->rope_count; i++) im__free(p->rope[i].frequency);
    im__free(p->op);
    im__free(p->value);
    im__free(p->matrix);
    im__free(p->vector);
    im__free(p->rope);
    im__free(p->kv);
    *p = (im__program){0};
}
