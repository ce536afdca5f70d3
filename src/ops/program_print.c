/* SPDX-License-Identifier: Apache-2.0 */
#include "num/dtype.h"
#include "ops/program.h"

static const char *const kind_name[] = {
    [IM__OP_EMBED] = "embed",       [IM__OP_NORM] = "norm",           [IM__OP_MATMUL] = "matmul", [IM__OP_ROPE] = "rope",
    [IM__OP_KV_STORE] = "kv_store", [IM__OP_ATTENTION] = "attention", [IM__OP_GLU] = "glu",       [IM__OP_ADD] = "add",
    [IM__OP_SCALE] = "scale",       [IM__OP_SOFTCAP] = "softcap",     [IM__OP_SELECT] = "select",
};

static const char *const kv_type_name[] = {[IM__KV_F16] = "f16", [IM__KV_F32] = "f32"};

static const char *value_name(const im__program *p, int v) { return v == IM__NONE ? "-" : p->value[v].name; }

static void print_matrix(const im__program *p, const im__op *op, im__buf *out)
{
    const im__matrix *m = &p->matrix[op->weight];
    im__buf_printf(out, " %s[%zu x %zu %s]", m->name, m->w.n_out, m->w.n_in, im__dtype_get(m->w.dtype)->name);
}

static void print_parameters(const im__program *p, const im__op *op, im__buf *out)
{
    if (op->kind == IM__OP_EMBED || op->kind == IM__OP_MATMUL) print_matrix(p, op, out);
    if (op->vector != IM__NONE) im__buf_printf(out, " %s[%u]", p->vector[op->vector].name, p->vector[op->vector].n);
    if (op->wide) im__buf_puts(out, " wide");
    if (op->kind == IM__OP_NORM) im__buf_printf(out, " groups of %u, eps %.9g", op->n, (double)op->by);
    if (op->kind == IM__OP_EMBED || op->kind == IM__OP_SCALE || op->kind == IM__OP_SOFTCAP)
        im__buf_printf(out, " by %.9g", (double)op->by);
    if (op->kind == IM__OP_GLU) im__buf_puts(out, op->glu == IM__GLU_GELU ? " gelu" : " silu");
    if (op->kind == IM__OP_ROPE) {
        const im__rope *r = &p->rope[op->rope];
        im__buf_printf(out, " %u heads of %u, table %d: %u dims in %s", op->heads, op->head_dim, op->rope, r->rot_dim,
                       r->adjacent ? "neighbouring pairs" : "halves");
    }
    if (op->kind == IM__OP_ATTENTION) {
        const im__kv_layer *kv = &p->kv[op->layer];
        im__buf_printf(out, " layer %d: %u heads on %u of %u, window %u, scale %.9g, cap %.9g", op->layer, op->heads, kv->kv_heads,
                       op->head_dim, kv->window, (double)op->by, (double)op->cap);
    }
    if (op->kind == IM__OP_KV_STORE) im__buf_printf(out, " layer %d as %s", op->layer, kv_type_name[p->kv[op->layer].type]);
}

void im__program_print(const im__program *p, im__buf *out)
{
    im__buf_printf(out, "program %s: %zu operations, %zu values, vocabulary %u\n", p->arch, p->op_count, p->value_count, p->vocab);
    for (size_t i = 0; i < p->rope_count; i++) {
        im__buf_printf(out, "rope table %zu:", i);
        for (uint32_t k = 0; k < p->rope[i].rot_dim / 2; k++) im__buf_printf(out, " %.17g", p->rope[i].frequency[k]);
        im__buf_puts(out, "\n");
    }
    for (size_t i = 0; i < p->op_count; i++) {
        const im__op *op = &p->op[i];
        im__buf_printf(out, "%4zu %-9s %-8s %-8s %-8s", i, kind_name[op->kind], value_name(p, op->dst), value_name(p, op->src),
                       value_name(p, op->src2));
        print_parameters(p, op, out);
        im__buf_puts(out, "\n");
    }
}

/* FNV-1a over the printed list: everything that gives the program its meaning is printed, so two programs with one digest are one program. */
uint64_t im__program_digest(const im__program *p)
{
    im__buf text = {0};
    im__program_print(p, &text);
    uint64_t h = 0xcbf29ce484222325u;
    for (size_t i = 0; i < text.len; i++) h = (h ^ (unsigned char)text.data[i]) * 0x100000001b3u;
    im__buf_free(&text);
    return h;
}
