/* SPDX-License-Identifier: Apache-2.0
 *
 * The scheduler: fibres of all living blocks, taken in turn; a fibre runs until it waits.
 */
#include "simt.h"

#include <stdio.h>
#include <sys/mman.h>

namespace
{

enum {
    WARP = 32,
    MOST_THREADS = 1024,
    BARRIERS = 16,
    PIECES = 16,
    STACK = 256 << 10,
    GUARD = 64,
    POISON = 0xff,
    IDLE_ROUNDS = 100000
};

enum state { READY, AT_BARRIER, AT_MEETING, RETURNED };

struct fibre {
    simt_thread seen;
    void *stack_pointer;
    char *stack;
    state now;
    const char *where; /* of what it waits for */
    unsigned barrier, mask;
};

struct meeting { /* of a warp's lanes: one at a time for each lane */
    uint64_t given[WARP], result[WARP][WARP];
};

struct barrier {
    unsigned arrived, wanted;
    const char *where;
};

struct piece {
    const void *key;
    char *memory;
    size_t bytes;
};

struct block {
    dim3 index;
    fibre *fibres;
    meeting *warps;
    unsigned living;
    barrier barriers[BARRIERS];
    piece pieces[PIECES];
    unsigned piece_count;
};

struct machine {
    unsigned threads;
    size_t dynamic;
    void (*call)(void *);
    void *fn;
    void *scheduler; /* its stack pointer while a fibre runs */
    block *running;
    fibre *current;
    bool progress;
} m;

[[noreturn]] void stop(const char *what)
{
    fprintf(stderr, "simt: %s\n", what);
    if (m.running != NULL) {
        fprintf(stderr, "  in block %u,%u,%u\n", m.running->index.x, m.running->index.y, m.running->index.z);
        for (unsigned t = 0; t < m.threads; t++) {
            const fibre *f = &m.running->fibres[t], *before = t == 0 ? NULL : f - 1;
            if (before != NULL && before->now == f->now && before->where == f->where && before->mask == f->mask) continue;
            static const char *const name[] = {"ready", "at a barrier", "in a warp's collective", "returned"};
            fprintf(stderr, "  threads from %u: %s %s, mask %08x\n", t, name[f->now], f->where == NULL ? "" : f->where, f->mask);
        }
    }
    abort();
}

} // namespace

simt_thread *simt_here;
dim3 simt_grid, simt_block;
unsigned simt_order;

/* ---- switching ---- */

extern "C" void simt_switch(void **save, void *to);

#if defined(__x86_64__)
asm(".text\n.globl simt_switch\nsimt_switch:\n"
    "push %rbp\npush %rbx\npush %r12\npush %r13\npush %r14\npush %r15\n"
    "mov %rsp,(%rdi)\nmov %rsi,%rsp\n"
    "pop %r15\npop %r14\npop %r13\npop %r12\npop %rbx\npop %rbp\nret\n");
enum { SAVED = 8, ENTRY = 6 }; /* words: six registers, where to return to, alignment */
#elif defined(__aarch64__)
asm(".text\n.globl simt_switch\nsimt_switch:\n"
    "sub sp,sp,#160\n"
    "stp x19,x20,[sp]\nstp x21,x22,[sp,#16]\nstp x23,x24,[sp,#32]\nstp x25,x26,[sp,#48]\nstp x27,x28,[sp,#64]\nstp "
    "x29,x30,[sp,#80]\n"
    "stp d8,d9,[sp,#96]\nstp d10,d11,[sp,#112]\nstp d12,d13,[sp,#128]\nstp d14,d15,[sp,#144]\n"
    "mov x9,sp\nstr x9,[x0]\nmov sp,x1\n"
    "ldp x19,x20,[sp]\nldp x21,x22,[sp,#16]\nldp x23,x24,[sp,#32]\nldp x25,x26,[sp,#48]\nldp x27,x28,[sp,#64]\nldp "
    "x29,x30,[sp,#80]\n"
    "ldp d8,d9,[sp,#96]\nldp d10,d11,[sp,#112]\nldp d12,d13,[sp,#128]\nldp d14,d15,[sp,#144]\n"
    "add sp,sp,#160\nret\n");
enum { SAVED = 20, ENTRY = 11 };
#else
#error "simt: write simt_switch for this processor"
#endif

static void wait_for_turn(void)
{
    fibre *f = m.current;
    simt_switch(&f->stack_pointer, m.scheduler);
}

static void release_barrier(unsigned id)
{
    for (unsigned t = 0; t < m.threads; t++) {
        fibre *f = &m.running->fibres[t];
        if (f->now == AT_BARRIER && f->barrier == id) f->now = READY, f->where = NULL;
    }
    m.running->barriers[id] = {0, 0, NULL};
}

static void check_barrier(unsigned id)
{
    barrier *b = &m.running->barriers[id];
    if (b->arrived != 0 && b->arrived >= (b->wanted != 0 ? b->wanted : m.running->living)) release_barrier(id);
}

static void fibre_main(void)
{
    m.call(m.fn);
    m.current->now = RETURNED;
    m.running->living--;
    m.progress = true;
    if (m.running->living > 0) check_barrier(0);
    wait_for_turn();
    stop("a thread that had returned was run");
}

static void fibre_prepare(fibre *f)
{
    void **top = (void **)(f->stack + STACK) - SAVED;
    memset(top, 0, SAVED * sizeof *top);
    top[ENTRY] = (void *)fibre_main;
    f->stack_pointer = top;
}

static void fibre_run(block *b, fibre *f)
{
    m.running = b;
    m.current = f;
    simt_here = &f->seen;
    simt_switch(&m.scheduler, f->stack_pointer);
}

/* ---- what threads call ---- */

void simt_yield(void) { wait_for_turn(); }

void simt_barrier(unsigned id, unsigned threads, bool waits, const char *where)
{
    fibre *f = m.current;
    if (id >= BARRIERS) stop("a barrier's number is above 15");
    barrier *b = &m.running->barriers[id];
    f->where = where;
    if (b->arrived != 0 && b->where != where) stop("threads of a block are at different barriers");
    if (b->arrived != 0 && b->wanted != threads) stop("a barrier is asked for with two counts");
    b->where = where;
    b->wanted = threads;
    b->arrived++;
    m.progress = true;
    if (waits) f->now = AT_BARRIER, f->barrier = id;
    check_barrier(id);
    if (waits) wait_for_turn();
}

const uint64_t *simt_meet(unsigned mask, const char *what, uint64_t value)
{
    fibre *f = m.current;
    unsigned lane = f->seen.linear % WARP, first = f->seen.linear - lane;
    meeting *w = &m.running->warps[first / WARP];
    if ((mask >> lane & 1) == 0) stop("a collective's mask leaves out the thread that calls it");
    if (m.threads - first < WARP) mask &= (1u << (m.threads - first)) - 1;
    w->given[lane] = value;
    f->now = AT_MEETING;
    f->where = what;
    f->mask = mask;
    m.progress = true;
    bool all = true;
    for (unsigned l = 0; l < WARP && all; l++) {
        const fibre *other = &m.running->fibres[first + l];
        if ((mask >> l & 1) == 0) continue;
        all = other->now == AT_MEETING && other->mask == mask;
        if (other->now == RETURNED) stop("a collective waits for a thread that has returned");
        if (all && strcmp(other->where, what) != 0) stop("threads of a warp are in different collectives");
    }
    for (unsigned l = 0; l < WARP && all; l++) {
        if ((mask >> l & 1) == 0) continue;
        memcpy(w->result[l], w->given, sizeof w->given);
        m.running->fibres[first + l].now = READY;
    }
    if (!all) wait_for_turn();
    f->mask = 0;
    f->where = NULL;
    return w->result[lane];
}

static char *piece_new(block *b, const void *key, size_t bytes)
{
    if (b->piece_count == PIECES) stop("more than 16 pieces of shared memory");
    char *memory = (char *)aligned_alloc(128, (bytes + GUARD + 127) / 128 * 128);
    if (memory == NULL) stop("no memory");
    memset(memory, POISON, bytes + GUARD);
    b->pieces[b->piece_count++] = {key, memory, bytes};
    return memory;
}

void *simt_piece(const void *key, size_t bytes)
{
    block *b = m.running;
    for (unsigned i = 0; i < b->piece_count; i++)
        if (b->pieces[i].key == key) return b->pieces[i].memory;
    return piece_new(b, key, bytes);
}

void *simt_dynamic(void) { return simt_piece(&m.dynamic, m.dynamic); }

/* ---- blocks ---- */

static unsigned order_of(unsigned t)
{
    if (simt_order == 0) return t;
    if (simt_order == 1) return m.threads - 1 - t;
    unsigned odd = simt_order * 2654435761u | 1; /* a walk that meets each number below a power of two once */
    unsigned size = 1;
    while (size < m.threads) size *= 2;
    do t = (t * odd + simt_order) & (size - 1);
    while (t >= m.threads);
    return t;
}

static void block_start(block *b, dim3 index)
{
    b->index = index;
    b->living = m.threads;
    b->piece_count = 0;
    memset(b->barriers, 0, sizeof b->barriers);
    for (unsigned t = 0; t < m.threads; t++) {
        fibre *f = &b->fibres[t];
        f->seen.thread = dim3(t % simt_block.x, t / simt_block.x % simt_block.y, t / simt_block.x / simt_block.y);
        f->seen.block = index;
        f->seen.linear = t;
        f->now = READY;
        f->where = NULL;
        f->mask = 0;
        fibre_prepare(f);
    }
}

static void block_end(block *b)
{
    m.running = b;
    for (unsigned i = 0; i < b->piece_count; i++) {
        const piece *p = &b->pieces[i];
        for (size_t g = 0; g < GUARD; g++)
            if ((unsigned char)p->memory[p->bytes + g] != POISON) stop("a write beyond a piece of shared memory");
        free(p->memory);
    }
}

static block *blocks_new(unsigned count)
{
    block *b = (block *)calloc(count, sizeof *b);
    for (unsigned i = 0; b != NULL && i < count; i++) {
        b[i].fibres = (fibre *)calloc(m.threads, sizeof(fibre));
        b[i].warps = (meeting *)calloc((m.threads + WARP - 1) / WARP, sizeof(meeting));
        void *stacks =
            mmap(NULL, (size_t)STACK * m.threads, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (b[i].fibres == NULL || b[i].warps == NULL || stacks == MAP_FAILED) stop("no memory");
        for (unsigned t = 0; t < m.threads; t++) b[i].fibres[t].stack = (char *)stacks + (size_t)STACK * t;
    }
    if (b == NULL) stop("no memory");
    return b;
}

static void blocks_free(block *b, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        munmap(b[i].fibres[0].stack, (size_t)STACK * m.threads);
        free(b[i].fibres);
        free(b[i].warps);
    }
    free(b);
}

/* Until all threads of these blocks have returned. */
static void blocks_run(block *b, unsigned count)
{
    unsigned idle = 0, living = 1;
    while (living > 0) {
        bool ran = false;
        living = 0;
        m.progress = false;
        for (unsigned i = 0; i < count; i++) {
            for (unsigned k = 0; k < m.threads; k++) {
                fibre *f = &b[i].fibres[order_of(k)];
                if (f->now != READY) continue;
                ran = true;
                fibre_run(&b[i], f);
            }
            living += b[i].living;
            if (b[i].living > 0) m.running = &b[i];
        }
        if (living > 0 && !ran) stop("all threads wait for each other");
        idle = m.progress ? 0 : idle + 1;
        if (idle > IDLE_ROUNDS) stop("threads poll for ever");
    }
}

void simt_run(dim3 grid, dim3 block_shape, size_t dynamic, bool together, void (*call)(void *), void *fn)
{
    simt_grid = grid;
    simt_block = block_shape;
    m.threads = block_shape.x * block_shape.y * block_shape.z;
    m.dynamic = dynamic;
    m.call = call;
    m.fn = fn;
    m.running = NULL;
    if (m.threads == 0 || m.threads > MOST_THREADS) stop("a block has 1 to 1024 threads");
    unsigned all = grid.x * grid.y * grid.z, at_once = together ? all : 1;
    block *b = blocks_new(at_once);
    for (unsigned i = 0; i < all; i += at_once) {
        for (unsigned k = 0; k < at_once; k++)
            block_start(&b[k], dim3((i + k) % grid.x, (i + k) / grid.x % grid.y, (i + k) / grid.x / grid.y));
        blocks_run(b, at_once);
        for (unsigned k = 0; k < at_once; k++) block_end(&b[k]);
    }
    blocks_free(b, at_once);
    m.running = NULL;
}
