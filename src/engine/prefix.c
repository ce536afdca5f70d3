/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/prefix.h"

#include <string.h>
#include <xxhash.h>

enum { NONE = -1, REMEMBERED = 4096 };

/* Pages in the order of their last use, the latest first. */
typedef struct list {
    int32_t first, last;
    size_t count;
} list;

typedef struct link {
    int32_t before, after;
} link;

/* Indexed by page of the full pool. */
typedef struct node {
    im__page_name name;
    link link;      /* in `idle`, while nobody holds it */
    int32_t parent; /* NONE: the first page of a text */
    int32_t child;  /* the latest one, or NONE */
    link sibling;
    int32_t next;   /* with the same hash; not of a tail */
    int32_t window; /* page of the window pool, or NONE */
    uint32_t pins;
    uint32_t count; /* of ids: IM__PAGE, of a tail fewer; 0: this is no node */
    bool stored;
    int32_t ids[IM__PAGE];
} node;

/* Indexed by page of the window pool. */
typedef struct window_page {
    link link;    /* in a list of idle ones, while nobody holds it */
    int32_t node; /* NONE: without a name */
    uint32_t pins;
    bool end_of_turn, stored;
} window_page;

struct im__prefix {
    im__kv *kv;
    size_t most[IM__POOLS];   /* pages that nobody holds */
    size_t pinned[IM__POOLS]; /* at most as many */
    node *node;
    window_page *window;
    int32_t *bucket; /* [buckets] a power of two */
    size_t buckets;
    int32_t root;                 /* the latest first page of a text */
    list idle, idle_window[2];    /* of windows: usual ones, ends of turns */
    int32_t *path;                /* [pages of the context] */
    uint64_t evicted[REMEMBERED]; /* parts of names of pages that are gone */
};

/* ---- names ------------------------------------------------------------------------------------------------------------------------------ */

void im__page_names(const int32_t *ids, size_t begin, size_t end, im__page_name *name)
{
    struct {
        im__page_name before;
        int32_t ids[IM__PAGE];
    } text = {.before = begin > 0 ? name[begin - 1] : (im__page_name){0, 0}};
    for (size_t i = begin; i < end; i++) {
        memcpy(text.ids, ids + i * IM__PAGE, sizeof text.ids);
        XXH128_hash_t h = XXH3_128bits(&text, sizeof text);
        text.before = name[i] = (im__page_name){h.low64, h.high64};
    }
}

static int32_t *bucket_of(const im__prefix *c, const im__page_name *name) { return &c->bucket[name->low & (c->buckets - 1)]; }

static int32_t find(const im__prefix *c, int32_t parent, const int32_t *ids, const im__page_name *name)
{
    for (int32_t at = *bucket_of(c, name); at != NONE; at = c->node[at].next) {
        const node *n = &c->node[at];
        if (n->name.low == name->low && n->name.high == name->high && n->parent == parent &&
            memcmp(n->ids, ids, sizeof n->ids) == 0)
            return at;
    }
    return NONE;
}

/* ---- children ---------------------------------------------------------------------------------------------------------------------------- */

static int32_t *child_of(im__prefix *c, int32_t parent) { return parent == NONE ? &c->root : &c->node[parent].child; }

static void add_child(im__prefix *c, int32_t page)
{
    int32_t *first = child_of(c, c->node[page].parent);
    c->node[page].sibling = (link){.before = NONE, .after = *first};
    if (*first != NONE) c->node[*first].sibling.before = page;
    *first = page;
}

static void remove_child(im__prefix *c, int32_t page)
{
    link at = c->node[page].sibling;
    *(at.before == NONE ? child_of(c, c->node[page].parent) : &c->node[at.before].sibling.after) = at.after;
    if (at.after != NONE) c->node[at.after].sibling.before = at.before;
}

static bool is_tail(const node *n) { return n->count < IM__PAGE; }

static size_t common(const node *n, const int32_t *ids, size_t most)
{
    size_t same = 0;
    while (same < most && same < n->count && n->ids[same] == ids[same]) same++;
    return same;
}

/* The child with most of the first `most` ids, of those that can be copied; *same of them. */
static int32_t closest(im__prefix *c, int32_t parent, const int32_t *ids, size_t most, size_t *same)
{
    bool windows = c->kv->pool[IM__POOL_WINDOW].pages > 0;
    int32_t best = NONE;
    *same = 0;
    for (int32_t at = *child_of(c, parent); at != NONE; at = c->node[at].sibling.after) {
        size_t n = windows && c->node[at].window == NONE ? 0 : common(&c->node[at], ids, most);
        if (n <= *same) continue;
        *same = n;
        best = at;
    }
    return best;
}

/* ---- lists ------------------------------------------------------------------------------------------------------------------------------ */

static link *link_of(im__prefix *c, im__pool_kind k, int32_t page)
{
    return k == IM__POOL_FULL ? &c->node[page].link : &c->window[page].link;
}

static void list_push(im__prefix *c, list *l, im__pool_kind k, int32_t page)
{
    *link_of(c, k, page) = (link){.before = NONE, .after = l->first};
    if (l->first != NONE) link_of(c, k, l->first)->before = page;
    l->first = page;
    if (l->last == NONE) l->last = page;
    l->count++;
}

static void list_remove(im__prefix *c, list *l, im__pool_kind k, int32_t page)
{
    link at = *link_of(c, k, page);
    *(at.before == NONE ? &l->first : &link_of(c, k, at.before)->after) = at.after;
    *(at.after == NONE ? &l->last : &link_of(c, k, at.after)->before) = at.before;
    l->count--;
}

static list *idle_of(im__prefix *c, im__pool_kind k, int32_t page)
{
    return k == IM__POOL_FULL ? &c->idle : &c->idle_window[c->window[page].end_of_turn];
}

/* ---- what goes -------------------------------------------------------------------------------------------------------------------------- */

static void forget_window(im__prefix *c, int32_t page)
{
    list_remove(c, idle_of(c, IM__POOL_WINDOW, page), IM__POOL_WINDOW, page);
    c->node[c->window[page].node].window = NONE;
    c->window[page].node = NONE;
    im__kv_give_back(c->kv, IM__POOL_WINDOW, page);
}

static void forget_name(im__prefix *c, int32_t page)
{
    const node *n = &c->node[page];
    int32_t *at = bucket_of(c, &n->name);
    while (*at != page) at = &c->node[*at].next;
    *at = n->next;
    c->evicted[n->name.low % REMEMBERED] = n->name.high;
}

static void forget(im__prefix *c, int32_t page)
{
    node *n = &c->node[page];
    if (!is_tail(n)) forget_name(c, page);
    if (n->window != NONE) forget_window(c, n->window);
    remove_child(c, page);
    n->count = 0;
    list_remove(c, &c->idle, IM__POOL_FULL, page);
    im__kv_give_back(c->kv, IM__POOL_FULL, page);
}

static uint32_t *pins_of(im__prefix *c, im__pool_kind k, int32_t page)
{
    return k == IM__POOL_FULL ? &c->node[page].pins : &c->window[page].pins;
}

/* Whose pages are pinned has all its parents pinned too, so this is a leaf. */
static int32_t oldest(im__prefix *c, const list *l, im__pool_kind k)
{
    int32_t page = l->last;
    while (page != NONE && *pins_of(c, k, page) > 0) page = link_of(c, k, page)->before;
    return page;
}

/* There is always one that may go: fewer are pinned than may be idle. */
static void make_room(im__prefix *c)
{
    while (c->idle.count > c->most[IM__POOL_FULL]) forget(c, oldest(c, &c->idle, IM__POOL_FULL));
    while (c->idle_window[0].count + c->idle_window[1].count > c->most[IM__POOL_WINDOW]) {
        int32_t page = oldest(c, &c->idle_window[0], IM__POOL_WINDOW);
        forget_window(c, page != NONE ? page : oldest(c, &c->idle_window[1], IM__POOL_WINDOW));
    }
}

static bool keep(void *cache, im__pool_kind k, int32_t page)
{
    im__prefix *c = cache;
    bool known = k == IM__POOL_FULL ? c->node[page].count > 0 : c->window[page].node != NONE;
    if (!known) return false;
    list_push(c, idle_of(c, k, page), k, page);
    make_room(c);
    return true;
}

/* ---- taking ----------------------------------------------------------------------------------------------------------------------------- */

static int32_t last_named(const im__kv_seq *s) { return s->named > 0 ? s->table[IM__POOL_FULL][s->named - 1] : NONE; }

static void hold(im__prefix *c, im__pool_kind k, int32_t page, int32_t *entry)
{
    if (c->kv->pool[k].holders[page] == 0) list_remove(c, idle_of(c, k, page), k, page);
    im__kv_hold(c->kv, k, page);
    *entry = page;
}

/* Are the window pages that a row at page `end` sees to be had? */
static bool window_is_whole(const im__prefix *c, const im__kv_seq *s, size_t end)
{
    for (size_t i = im__kv_window_first(c->kv, (uint32_t)(end * IM__PAGE)); i < end; i++)
        if (i < s->named ? s->table[IM__POOL_WINDOW][i] < 0 : c->node[c->path[i]].window == NONE) return false;
    return true;
}

static void take(im__prefix *c, im__kv_seq *s, size_t end)
{
    bool windows = c->kv->pool[IM__POOL_WINDOW].pages > 0;
    size_t first = windows ? im__kv_window_first(c->kv, (uint32_t)(end * IM__PAGE)) : end;
    for (size_t i = s->named; i < end; i++) {
        hold(c, IM__POOL_FULL, c->path[i], &s->table[IM__POOL_FULL][i]);
        if (i >= first) hold(c, IM__POOL_WINDOW, c->node[c->path[i]].window, &s->table[IM__POOL_WINDOW][i]);
    }
    s->named = end;
    im__kv_advance(c->kv, s, (uint32_t)(end * IM__PAGE) - s->length);
}

/* Whoever copies a page holds the one before it, so it comes to lie before this one in turn. */
static void use(im__prefix *c, im__pool_kind k, int32_t page)
{
    if (c->kv->pool[k].holders[page] > 0) return;
    list_remove(c, idle_of(c, k, page), k, page);
    list_push(c, idle_of(c, k, page), k, page);
}

static im_cache_miss why(const im__prefix *c, size_t pages, size_t taken, const im__page_name *name)
{
    if (pages > taken) return IM_MISS_WINDOW;
    if (c->evicted[name[pages].low % REMEMBERED] == name[pages].high && name[pages].high != 0) return IM_MISS_EVICTED;
    return pages > 0 ? IM_MISS_DIVERGED : IM_MISS_NEW;
}

im__prefix_found im__prefix_attach(im__prefix *c, im__kv_seq *s, const int32_t *ids, const im__page_name *name, size_t most)
{
    im__prefix_found found = {.pages = s->named};
    for (int32_t at = last_named(s); found.pages < most; found.pages++) {
        at = find(c, at, ids + found.pages * IM__PAGE, &name[found.pages]);
        if (at == NONE) break;
        c->path[found.pages] = at;
    }
    size_t end = found.pages;
    while (c->kv->pool[IM__POOL_WINDOW].pages > 0 && end > s->named && !window_is_whole(c, s, end)) end--;
    if (end > s->named) take(c, s, end);
    found.taken = s->named;
    if (found.taken < most) found.miss = why(c, found.pages, found.taken, name);
    return found;
}

im__prefix_part im__prefix_attach_part(im__prefix *c, im__kv_seq *s, const int32_t *ids, size_t end)
{
    im__prefix_part part = {.from = {NONE, NONE}, .to = {NONE, NONE}};
    size_t same, most = end - s->length < IM__PAGE ? end - s->length : IM__PAGE;
    int32_t page = closest(c, last_named(s), ids + s->length, most, &same);
    if (same < IM__PART_LEAST || !im__kv_reserve(c->kv, s, (uint32_t)same)) return part;
    part.positions = same;
    part.from[IM__POOL_FULL] = page;
    part.from[IM__POOL_WINDOW] = c->node[page].window;
    for (int k = 0; k < IM__POOLS; k++) {
        if (part.from[k] == NONE) continue;
        part.to[k] = s->table[k][s->named];
        use(c, (im__pool_kind)k, part.from[k]);
    }
    im__kv_advance(c->kv, s, (uint32_t)same);
    return part;
}

/* ---- giving names ----------------------------------------------------------------------------------------------------------------------- */

/* Tails with nothing beyond these ids are of no use any more. */
static void forget_tails(im__prefix *c, int32_t parent, const int32_t *ids, size_t count)
{
    for (int32_t next, at = *child_of(c, parent); at != NONE; at = next) {
        const node *n = &c->node[at];
        next = n->sibling.after;
        if (is_tail(n) && common(n, ids, count) == n->count) forget(c, at);
    }
}

static void make_node(im__prefix *c, int32_t page, int32_t parent, const int32_t *ids, size_t count)
{
    node *n = &c->node[page];
    forget_tails(c, parent, ids, count);
    n->parent = parent;
    n->child = n->window = NONE;
    n->stored = false;
    n->count = (uint32_t)count;
    memcpy(n->ids, ids, count * sizeof *ids);
    add_child(c, page);
}

static void give_name(im__prefix *c, int32_t page, const im__page_name *name)
{
    int32_t *bucket = bucket_of(c, name);
    c->node[page].name = *name;
    c->node[page].next = *bucket;
    *bucket = page;
}

/* The sequence's entry becomes the known page; its own one, which has no name, becomes free. */
static void exchange(im__prefix *c, im__pool_kind k, int32_t *entry, int32_t known)
{
    im__kv_let_go(c->kv, k, entry);
    hold(c, k, known, entry);
}

static void name_window(im__prefix *c, int32_t page, int32_t *entry)
{
    node *n = &c->node[page];
    if (*entry < 0) return;
    if (n->window != NONE) {
        exchange(c, IM__POOL_WINDOW, entry, n->window);
    } else {
        n->window = *entry;
        c->window[*entry] = (window_page){.node = page};
    }
}

void im__prefix_name(im__prefix *c, im__kv_seq *s, size_t full, const int32_t *ids, const im__page_name *name)
{
    for (; s->named < full; s->named++) {
        size_t i = s->named;
        int32_t *entry = &s->table[IM__POOL_FULL][i], parent = last_named(s);
        int32_t known = find(c, parent, ids + i * IM__PAGE, &name[i]);
        if (known == NONE) {
            make_node(c, *entry, parent, ids + i * IM__PAGE, IM__PAGE);
            give_name(c, *entry, &name[i]);
        } else {
            exchange(c, IM__POOL_FULL, entry, known);
        }
        name_window(c, *entry, &s->table[IM__POOL_WINDOW][i]);
    }
}

void im__prefix_end_of_turn(im__prefix *c, const im__kv_seq *s, size_t boundary)
{
    size_t end = boundary / IM__PAGE;
    if (c->kv->pool[IM__POOL_WINDOW].pages == 0 || end == 0) return;
    size_t last =
        (boundary - 1) / IM__PAGE * IM__PAGE; /* where the same prompt would go on from: its last token is computed again */
    for (size_t i = im__kv_window_first(c->kv, (uint32_t)last); i < end; i++) {
        int32_t page = c->node[s->table[IM__POOL_FULL][i]].window;
        if (page == NONE) continue;
        bool idle = c->kv->pool[IM__POOL_WINDOW].holders[page] == 0;
        if (idle) list_remove(c, idle_of(c, IM__POOL_WINDOW, page), IM__POOL_WINDOW, page);
        c->window[page].end_of_turn = true;
        if (idle) list_push(c, idle_of(c, IM__POOL_WINDOW, page), IM__POOL_WINDOW, page);
    }
}

/* The page of the window goes first, as in im__kv_seq_free. */
void im__prefix_leave_tail(im__prefix *c, im__kv_seq *s, const int32_t *ids)
{
    size_t i = s->named, count = s->length - i * IM__PAGE, same;
    int32_t *full = &s->table[IM__POOL_FULL][i], *window = &s->table[IM__POOL_WINDOW][i];
    if (count < IM__PART_LEAST) return;
    closest(c, last_named(s), ids + i * IM__PAGE, count, &same);
    if (same == count) return;
    make_node(c, *full, last_named(s), ids + i * IM__PAGE, count);
    name_window(c, *full, window);
    if (*window >= 0) c->window[*window].end_of_turn = true;
    im__kv_let_go(c->kv, IM__POOL_WINDOW, window);
    im__kv_let_go(c->kv, IM__POOL_FULL, full);
}

/* ---- pins ------------------------------------------------------------------------------------------------------------------------------- */

static bool pin(im__prefix *c, im__pool_kind k, int32_t page)
{
    uint32_t *pins = pins_of(c, k, page);
    if (*pins == 0 && c->pinned[k] == c->most[k]) return false;
    c->pinned[k] += *pins == 0;
    ++*pins;
    return true;
}

static void unpin(im__prefix *c, im__pool_kind k, int32_t page)
{
    uint32_t *pins = pins_of(c, k, page);
    c->pinned[k] -= --*pins == 0;
}

static bool worth_storing(const im__prefix *c, int32_t window) { return window != NONE && c->window[window].end_of_turn; }

size_t im__prefix_pin(im__prefix *c, const im__kv_seq *s, size_t end, int32_t *const page[IM__POOLS])
{
    for (size_t i = 0; i < end; i++) {
        int32_t full = s->table[IM__POOL_FULL][i], window = c->node[full].window;
        if (!pin(c, IM__POOL_FULL, full)) return i;
        bool both = worth_storing(c, window) && pin(c, IM__POOL_WINDOW, window);
        page[IM__POOL_FULL][i] = full;
        page[IM__POOL_WINDOW][i] = both ? window : NONE;
    }
    return end;
}

void im__prefix_unpin(im__prefix *c, size_t count, int32_t *const page[IM__POOLS], size_t stored)
{
    for (size_t i = 0; i < count; i++) {
        int32_t full = page[IM__POOL_FULL][i], window = page[IM__POOL_WINDOW][i];
        unpin(c, IM__POOL_FULL, full);
        c->node[full].stored |= i < stored;
        if (window == NONE) continue;
        unpin(c, IM__POOL_WINDOW, window);
        c->window[window].stored |= i < stored;
    }
}

bool im__prefix_is_stored(const im__prefix *c, const im__kv_seq *s, size_t end)
{
    for (size_t i = 0; i < end; i++) {
        const node *n = &c->node[s->table[IM__POOL_FULL][i]];
        if (!n->stored || (worth_storing(c, n->window) && !c->window[n->window].stored)) return false;
    }
    return true;
}

size_t im__prefix_idle(const im__prefix *c) { return c->idle.count; }

/* ---- life ------------------------------------------------------------------------------------------------------------------------------- */

static size_t buckets_for(size_t pages)
{
    size_t n = 16;
    while (n < pages) n *= 2;
    return n;
}

static size_t pool_pages(const im__kv_sizes *s, im__pool_kind k) { return s->running[k] + s->cached[k]; }

size_t im__prefix_bytes(const im__kv_sizes *s, uint32_t context)
{
    size_t nodes = pool_pages(s, IM__POOL_FULL);
    return sizeof(im__prefix) + nodes * sizeof(node) + buckets_for(nodes) * sizeof(int32_t) +
           pool_pages(s, IM__POOL_WINDOW) * sizeof(window_page) + im__kv_seq_pages(context) * sizeof(int32_t);
}

static void clear(im__prefix *c)
{
    static const list empty = {.first = NONE, .last = NONE};
    c->idle = c->idle_window[0] = c->idle_window[1] = empty;
    c->root = NONE;
    for (size_t i = 0; i < c->buckets; i++) c->bucket[i] = NONE;
    for (size_t i = 0; i < c->kv->pool[IM__POOL_WINDOW].pages; i++) c->window[i].node = NONE;
}

im_status im__prefix_new(im__prefix **out, im__kv *kv, const im__kv_sizes *sizes, im_error *err)
{
    im__prefix *c = im__calloc(1, sizeof *c);
    if (c == NULL) return im__fail(err, IM_ERR_MEMORY, "out of memory");
    c->kv = kv;
    memcpy(c->most, sizes->cached, sizeof c->most);
    c->buckets = buckets_for(kv->pool[IM__POOL_FULL].pages);
    c->node = im__calloc(kv->pool[IM__POOL_FULL].pages, sizeof *c->node);
    c->window = im__calloc(kv->pool[IM__POOL_WINDOW].pages, sizeof *c->window);
    c->bucket = im__calloc(c->buckets, sizeof *c->bucket);
    c->path = im__calloc(im__kv_seq_pages(kv->context), sizeof *c->path);
    if (!c->node || !c->window || !c->bucket || !c->path) {
        im__prefix_free(c);
        return im__fail(err, IM_ERR_MEMORY, "out of memory");
    }
    clear(c);
    kv->keep = keep;
    kv->keeper = c;
    *out = c;
    return IM_OK;
}

void im__prefix_free(im__prefix *c)
{
    if (c == NULL) return;
    im__free(c->node);
    im__free(c->window);
    im__free(c->bucket);
    im__free(c->path);
    im__free(c);
}
