/* SPDX-License-Identifier: Apache-2.0
 *
 * What the library says of itself, and the shortest way to an answer.
 */
#include "backend/cpu/self_check.h"
#include "base/machine.h"
#include "engine/internal.h"
#include "num/real.h"

#include <string.h>

#define TEXT2(x) #x
#define TEXT(x) TEXT2(x)

const char *im_version(void) { return TEXT(IM_VERSION_MAJOR) "." TEXT(IM_VERSION_MINOR) "." TEXT(IM_VERSION_PATCH); }

int im_numerics_version(void) { return IM__NUMERICS_VERSION; }

const char *im_status_name(im_status status)
{
    static const char *const name[] = {
        [IM_OK] = "ok",
        [IM_ERR_ARGUMENT] = "argument",
        [IM_ERR_IO] = "io",
        [IM_ERR_FORMAT] = "format",
        [IM_ERR_UNSUPPORTED] = "unsupported",
        [IM_ERR_MEMORY] = "memory",
        [IM_ERR_CONTEXT] = "context",
        [IM_ERR_TEMPLATE] = "template",
        [IM_ERR_NUMERIC] = "numeric",
        [IM_ERR_CANCELLED] = "cancelled",
        [IM_ERR_INTERNAL] = "internal",
        [IM_ERR_TIMEOUT] = "timeout",
        [IM_ERR_BUSY] = "busy",
        [IM_ERR_DEVICE] = "device",
    };
    return (unsigned)status < sizeof name / sizeof *name ? name[status] : "unknown";
}

const char *const *im_cpu_levels(void)
{
    static const char *list[IM__CPU_LEVELS + 1];
    const char *found[IM__CPU_LEVELS + 1] = {NULL};
    size_t n = 0;
    for (int level = 0; level < IM__CPU_LEVELS; level++)
        if (im__cpu_has((im__cpu_level)level)) found[n++] = im__cpu_level_name((im__cpu_level)level);
    for (size_t i = 0; i <= n; i++)
        __atomic_store_n(&list[i], found[i], __ATOMIC_RELAXED); /* the same values each time, from any thread */
    return list;
}

void im_machine_get_info(im_machine_info *info)
{
    *info = (im_machine_info){.cores = im__machine_cores(), .memory_available = im__machine_memory()};
}

void im__options_copy(void *out, size_t size, const void *from, size_t own)
{
    memset(out, 0, size);
    memcpy(out, from, own < size ? own : size);
    if (size >= sizeof size) memcpy(out, &size, sizeof size);
}

static im_status check_ops(im__cpu_level level, im_error *err)
{
    im__ops ops;
    const char *wrong;
    im__ops_c(&ops);
    im__ops_cpu(&ops, level);
    IM__TRY(im__ops_self_check(&ops, &wrong, err));
    if (wrong == NULL) return IM_OK;
    return im__fail(err, IM_ERR_INTERNAL, "operation %s of level %s does not return the reference's bits on this machine", wrong,
                    im__cpu_level_name(level));
}

static im_status check_matmul(const im__matmul_kernel *k, im_error *err)
{
    bool good;
    IM__TRY(im__matmul_self_check(k, &good, err));
    if (good) return IM_OK;
    return im__fail(err, IM_ERR_INTERNAL, "kernel %s does not return the reference's bits on this machine", k->name);
}

im_status im_cpu_self_check(const char *name, size_t *checked, im_error *err)
{
    im__cpu_level level;
    size_t count = 1; /* the table of operations */
    if (name == NULL || !im__cpu_level_parse(name, &level))
        return im__fail(err, IM_ERR_ARGUMENT, "\"%s\" is no kernel level", name == NULL ? "" : name);
    if (!im__cpu_has(level)) return im__fail(err, IM_ERR_UNSUPPORTED, "this machine does not have the kernel level %s", name);
    IM__TRY(check_ops(level, err));
    for (const im__matmul_kernel *const *k = im__matmul_kernels(); *k != NULL; k++) {
        if ((*k)->level != level) continue;
        IM__TRY(check_matmul(*k, err));
        count++;
    }
    if (checked != NULL) *checked = count;
    return IM_OK;
}

/* {"role": "user", "content": question} as JSON. */
static void question_json(const char *question, im__buf *b)
{
    im__buf_puts(b, "[{\"role\": \"user\", \"content\": \"");
    for (const char *c = question; *c != 0; c++) {
        if (*c == '"' || *c == '\\')
            im__buf_printf(b, "\\%c", *c);
        else if ((unsigned char)*c < 0x20)
            im__buf_printf(b, "\\u%04x", *c);
        else
            im__buf_append(b, c, 1);
    }
    im__buf_puts(b, "\"}]");
}

static im_status encode_question(const im_model *m, const char *question, int32_t **ids, size_t *count, im_error *err)
{
    im__buf messages = {0};
    if (!m->info.has_chat_template) return im_model_encode(m, question, strlen(question), IM_ENCODE_DEFAULT, ids, count, err);
    question_json(question, &messages);
    im_status status = messages.failed ? im__fail(err, IM_ERR_MEMORY, "out of memory")
                                       : im_model_chat(m, messages.data, NULL, NULL, NULL, ids, count, err);
    im__buf_free(&messages);
    return status;
}

im_status im_answer(im_engine *e, const char *question, uint32_t max_tokens, char **text, im_error *err)
{
    im_request_options o;
    im_request *r;
    im_result result;
    int32_t *ids;
    if (e == NULL || question == NULL || text == NULL) return im__fail(err, IM_ERR_ARGUMENT, "a NULL argument");
    im_request_options_defaults(&o);
    IM__TRY(encode_question(e->model, question, &ids, &o.prompt_len, err));
    o.prompt = ids;
    o.max_tokens = max_tokens;
    o.no_hash = true;
    im_status status = im_request_submit(e, &o, &r, err);
    im__free(ids);
    if (status != IM_OK) return status;
    status = im_request_wait(r, &result, err);
    char *copy = status == IM_OK ? im__strdup(result.text, result.text_len) : NULL;
    im_request_free(r);
    if (status == IM_OK && copy == NULL) return im__fail(err, IM_ERR_MEMORY, "out of memory");
    if (status == IM_OK) *text = copy;
    return status;
}
