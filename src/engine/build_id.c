/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/build_id.h"

#if defined(__linux__)
#include <elf.h>
#include <link.h>
#include <stdint.h>
#include <string.h>

typedef struct search {
    uintptr_t inside; /* an address of the object that is meant */
    const void *id;
    size_t n;
} search;

static size_t padded(size_t n) { return (n + 3) & ~(size_t)3; }

static void read_notes(search *s, const char *at, size_t size)
{
    while (size >= sizeof(ElfW(Nhdr))) {
        ElfW(Nhdr) note;
        memcpy(&note, at, sizeof note);
        size_t name = padded(note.n_namesz), all = sizeof note + name + padded(note.n_descsz);
        if (all > size) return;
        if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 && memcmp(at + sizeof note, "GNU", 4) == 0) {
            s->id = at + sizeof note + name;
            s->n = note.n_descsz;
            return;
        }
        at += all;
        size -= all;
    }
}

static int look(struct dl_phdr_info *info, size_t size, void *user)
{
    search *s = user;
    (void)size;
    int inside = 0;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];
        uintptr_t begin = info->dlpi_addr + p->p_vaddr;
        if (p->p_type == PT_LOAD && s->inside >= begin && s->inside < begin + p->p_memsz) inside = 1;
    }
    for (int i = 0; inside && i < info->dlpi_phnum && s->id == NULL; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];
        if (p->p_type == PT_NOTE) read_notes(s, (const char *)(info->dlpi_addr + p->p_vaddr), p->p_memsz);
    }
    return inside;
}

const void *im__build_id(size_t *n)
{
    search s = {.inside = (uintptr_t)&im__build_id};
    dl_iterate_phdr(look, &s);
    *n = s.n;
    return s.id;
}

#else

const void *im__build_id(size_t *n)
{
    *n = 0;
    return NULL;
}

#endif
