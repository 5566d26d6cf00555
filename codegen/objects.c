/* Every unit's loop IR to an object, through workers; equal functions are compiled once.
 *
 * Two units are equal when target and text agree except for the first line, which holds only the function's own name
 * and its source nodes: the second symbol is another name of the first. Each function is a module and an object of its
 * own. Workers give all functions one placeholder name, and the parent writes the real name into the object. So a
 * function has the same bytes in every network that has it, and is found in the cache. Small units of one target travel
 * together, up to JOB_TEXT.
 * Kernels that differ in constants only are made equal before (constants.c).
 */
#include "codegen/cache.h"
#include "codegen/constants.h"
#include "codegen/digest.h"
#include "codegen/wire.h"

enum { JOB_TEXT = 32 << 10 }; /* bytes of loop IR: some 5000 lines of assembly */
/* Every function's symbol in the object that the worker makes, as long as the longest that takes its place there. */
#define FUNCTION                                                       \
    "mcc_function____________________________________________________" \
    "_______________________________________________________________"

static const char *body_of(const char *text)
{
    const char *line = strchr(text, '\n');
    return line ? line : text;
}

static uint64_t unit_key(const struct codegen_unit *u)
{
    const char *body = body_of(u->text);
    uint64_t key = hash_bytes(body, strlen(body));
    key = hash_mix(key, hash_bytes(u->target->triple, strlen(u->target->triple)));
    key = hash_mix(key, hash_bytes(u->target->cpu, strlen(u->target->cpu)));
    key = hash_mix(key, hash_bytes(u->target->features, strlen(u->target->features)));
    return hash_mix(key, (uint64_t)u->text[0]);     /* kernel, program or plan */
}

/* Code of two lines of the model's source is not shared where line tables tell them apart. */
static bool same_code(const struct codegen_unit *a, const struct codegen_unit *b)
{
    return strcmp(a->origin ? a->origin : "", b->origin ? b->origin : "") == 0 && a->text[0] == b->text[0] &&
           strcmp(body_of(a->text), body_of(b->text)) == 0 && strcmp(a->target->triple, b->target->triple) == 0 &&
           strcmp(a->target->cpu, b->target->cpu) == 0 && strcmp(a->target->features, b->target->features) == 0;
}

enum { KEYS = 1024 };
#define NO_UNIT UINT32_MAX

/* A function that is looked for in the cache, then compiled. */
struct piece {
    struct codegen_unit of;  /* as it came first */
    uint32_t unit;           /* the first that has this code; NO_UNIT: none yet */
    uint32_t next;           /* piece + 1 of the same part of the table */
    uint64_t hash;
    struct span key;    /* the job that makes it alone */
    struct span object; /* data NULL: not there yet */
    double began, ended;
    uint32_t worker;
};
/* What one job makes: so many of order[], from the first on. */
struct batch {
    uint32_t first, n;
    uint64_t length;
    const struct target *target;
};

struct codegen {
    struct context *ctx;
    struct arena *arena;
    struct codegen_options options;
    struct pool *pool;
    struct cache *cache; /* opened with the first function; NULL: none */
    bool sought, waits;  /* waits: all functions are known */
    bool fills;          /* the last batch waits for more */
    uint32_t n_made;
    VEC(struct piece) pieces;
    uint32_t table[KEYS];      /* piece + 1 by key */
    VEC(uint32_t) order;       /* pieces that are compiled */
    VEC(struct batch) batches; /* by job */
    VEC(uint32_t) piece_of;    /* by unit */
    VEC(struct span) data;     /* by unit */
};

/* Do the objects take their names when they are done? Line tables name functions themselves, and the entry of a static
 * network is none that another one has. */
static bool names_later(const struct codegen_options *o)
{
    return o->emit == EMIT_OBJECT && !o->debug_file && !o->is_static;
}

static struct span text_part(const char *text)
{
    return (struct span){text, strlen(text)};
}

/* The text under the name that all share. */
static struct span shared_text(struct arena *arena, const char *text)
{
    size_t role = strcspn(text, "@");
    return text_part(arena_printf(arena, "%.*s@" FUNCTION " {%s", (int)role, text, body_of(text)));
}

static struct job make_job(struct codegen *g, const struct codegen_unit *const *units, uint32_t n)
{
    const struct codegen_options *o = &g->options;
    struct span *parts = NEW_ARRAY(g->arena, struct span, COMPILE_FUNCTIONS + 2 * (size_t)n);
    uint32_t *lines = NEW_ARRAY(g->arena, uint32_t, n);
    struct strbuf origins = strbuf_of(g->arena);
    parts[COMPILE_TRIPLE] = text_part(units[0]->target->triple);
    parts[COMPILE_CPU] = text_part(units[0]->target->cpu);
    parts[COMPILE_FEATURES] = text_part(units[0]->target->features);
    for (uint32_t i = 0; i < n; i++) {
        const char *origin = units[i]->origin ? units[i]->origin : "";
        lines[i] = units[i]->line;
        strbuf_append(&origins, origin, strlen(origin) + 1);
        parts[COMPILE_FUNCTIONS + 2 * i] = text_part(names_later(o) ? FUNCTION : units[i]->symbol);
        parts[COMPILE_FUNCTIONS + 2 * i + 1] = names_later(o) ? shared_text(g->arena, units[i]->text)
                                                              : text_part(units[i]->text);
    }
    if (o->debug_file) {
        parts[COMPILE_FILE] = text_part(o->debug_file);
        parts[COMPILE_FOLDER] = text_part(o->debug_folder);
        parts[COMPILE_LINES] = (struct span){lines, n * sizeof *lines};
        parts[COMPILE_ORIGINS] = (struct span){origins.data, origins.n};
    }
    struct job job = {.parts = parts};
    job.head.kind = WIRE_COMPILE;
    job.head.opt_level = o->opt_level;
    job.head.emit = (int32_t)o->emit;
    job.head.is_static = o->is_static;
    job.head.n_parts = COMPILE_FUNCTIONS + 2 * (uint64_t)n;
    return job;
}

/* While further functions are made it is not known how many there will be. */
static void report_made(const struct codegen *g)
{
    if (g->options.made && g->waits)
        g->options.made(g->options.user, g->n_made, g->order.n);
}

/* Takes a job's product apart. */
static void take_products(void *user, uint32_t number, const struct job *job)
{
    struct codegen *g = user;
    if (number >= g->batches.n) /* the last job */
        return;
    const struct batch *b = &g->batches.data[number];
    const char *at = job->result.data, *end = at + job->result.size;
    for (uint32_t i = 0; i < b->n; i++) {
        struct piece *p = &g->pieces.data[g->order.data[b->first + i]];
        uint64_t size;
        if ((size_t)(end - at) < sizeof size)
            return;
        memcpy(&size, at, sizeof size);
        at += sizeof size;
        if ((size_t)(end - at) < size)
            return;
        p->object = (struct span){at, size};
        at += size;
        g->n_made++;
        cache_put(g->cache, p->key, p->object);
    }
    report_made(g);
    struct piece *p = &g->pieces.data[g->order.data[b->first]];
    p->began = job->began;
    p->ended = job->ended;
    p->worker = job->worker;
}

struct codegen *codegen_begin(struct context *ctx, struct arena *arena, const struct codegen_options *options)
{
    struct codegen *g = NEW(arena, struct codegen);
    *g = (struct codegen){.ctx = ctx, .arena = arena, .options = *options};
    g->pool = pool_new(ctx, arena, options, take_products, g);
    return g;
}

static void batch_send(struct codegen *g)
{
    const struct batch *b = &g->batches.data[g->batches.n - 1];
    const struct codegen_unit **of = NEW_ARRAY(g->arena, const struct codegen_unit *, b->n);
    for (uint32_t i = 0; i < b->n; i++)
        of[i] = &g->pieces.data[g->order.data[b->first + i]].of;
    struct job job = make_job(g, of, b->n);
    const char *symbol = of[0]->symbol, *cpu = b->target->cpu;
    job.what = b->n == 1 ? arena_printf(g->arena, "code generation of '%s' for %s", symbol, cpu)
                         : arena_printf(g->arena, "code generation of '%s' and %u more for %s", symbol, b->n - 1, cpu);
    pool_add(g->pool, &job, 1);
    g->fills = false;
}

/* Is there room for another function in the batch that is being filled? Objects only: other products are a text
 * each. */
static bool batch_takes(const struct codegen *g, const struct target *t, uint64_t length)
{
    const struct batch *b = &g->batches.data[g->batches.n - 1];
    return g->options.emit == EMIT_OBJECT && b->target == t && b->length + length <= JOB_TEXT;
}

/* The piece into the batch that is being filled, or into a new one. */
static void batch_add(struct codegen *g, uint32_t piece)
{
    const struct codegen_unit *u = &g->pieces.data[piece].of;
    uint64_t length = strlen(u->text);
    if (g->fills && !batch_takes(g, u->target, length))
        batch_send(g);
    if (!g->fills)
        VEC_PUSH(g->arena, &g->batches, ((struct batch){.first = g->order.n, .target = u->target}));
    struct batch *b = &g->batches.data[g->batches.n - 1];
    g->fills = true;
    VEC_PUSH(g->arena, &g->order, piece);
    b->n++;
    b->length += length;
}

static void cache_seek(struct codegen *g)
{
    const struct codegen_options *o = &g->options;
    if (!g->sought && o->cache)
        g->cache = cache_open(g->ctx, g->arena, o->cache, o->self, o->cache_bytes);
    g->sought = true;
}

bool codegen_recall(struct codegen *g, struct span key, struct span *record)
{
    cache_seek(g);
    return cache_get_whole(g->cache, key, record);
}

void codegen_remember(struct codegen *g, struct span key, struct span record)
{
    cache_put_whole(g->cache, key, record);
}

/* The piece with the unit's code: of objects only, other products hold the name. A new one is on its way. */
static uint32_t piece_for(struct codegen *g, const struct codegen_unit *u)
{
    struct piece p = {.of = *u, .unit = NO_UNIT, .hash = unit_key(u)};
    uint32_t *list = &g->table[p.hash % KEYS];
    for (uint32_t k = g->options.emit == EMIT_OBJECT ? *list : 0; k; k = g->pieces.data[k - 1].next)
        if (g->pieces.data[k - 1].hash == p.hash && same_code(&g->pieces.data[k - 1].of, u))
            return k - 1;
    cache_seek(g);
    if (g->cache) {
        struct job alone = make_job(g, &u, 1);
        p.key = job_bytes(g->arena, &alone);
    }
    bool found = cache_get(g->cache, p.key, &p.object);
    p.next = *list;
    VEC_PUSH(g->arena, &g->pieces, p);
    *list = g->pieces.n;
    if (!found)
        batch_add(g, g->pieces.n - 1);
    return g->pieces.n - 1;
}

void codegen_ahead(struct codegen *g, const struct codegen_unit *unit)
{
    if (names_later(&g->options) && !constants_wait(unit))
        piece_for(g, unit);
}

void codegen_add(struct codegen *g, const struct codegen_unit *units, uint32_t n)
{
    if (names_later(&g->options))
        units = constants_share(g->arena, units, n);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t piece = piece_for(g, &units[i]);
        struct piece *p = &g->pieces.data[piece];
        if (p->unit == NO_UNIT)
            p->unit = g->piece_of.n;
        VEC_PUSH(g->arena, &g->piece_of, piece);
        VEC_PUSH(g->arena, &g->data, units[i].data);
    }
    if (g->fills)
        batch_send(g);
}

struct context *codegen_context(const struct codegen *g)
{
    return g->ctx;
}

void codegen_warm(struct codegen *g)
{
    pool_warm(g->pool);
}

bool codegen_step(struct codegen *g)
{
    return pool_step(g->pool);
}

void codegen_end(struct codegen *g)
{
    pool_end(g->pool);
    cache_close(g->cache);
}

void codegen_cached(const struct codegen *g, uint32_t *found, uint32_t *asked)
{
    cache_counts(g->cache, found, asked);
}

/* The object of a static network's function ends with the size of its frame. */
static void take_frame(struct codegen_unit *u)
{
    if (u->object.size < sizeof u->frame)
        return;
    u->object.size -= sizeof u->frame;
    memcpy(&u->frame, (const char *)u->object.data + u->object.size, sizeof u->frame);
}

/* A copy of the object whose function is called `to`: the name and NULs overwrite FUNCTION in the table of strings,
 * which all formats have. Data NULL: FUNCTION is not in it, or `to` is longer. */
static struct span rename_function(struct arena *arena, struct span object, const char *to)
{
    const size_t room = sizeof FUNCTION - 1;
    char *copy = arena_copy(arena, object.data, object.size);
    char *at = strlen(to) <= room ? memmem(copy, object.size, FUNCTION, room) : NULL;
    if (!at)
        return (struct span){0};
    strncpy(at, to, room); /* fills with NULs; one follows the name in any case */
    return (struct span){copy, object.size};
}

static bool give_object(struct codegen *g, const struct piece *p, struct codegen_unit *u)
{
    u->object = p->object;
    if (g->options.is_static && g->options.emit == EMIT_OBJECT)
        take_frame(u);
    if (p->object.data && names_later(&g->options))
        u->object = rename_function(g->arena, p->object, u->symbol);
    u->began = p->began;
    u->ended = p->ended;
    u->worker = p->worker;
    return u->object.data || error_internal(g->ctx, (src_id){0}, "the worker's object of '%s' is not whole", u->symbol);
}

bool codegen_finish(struct codegen *g, struct codegen_unit *all)
{
    g->waits = true;
    report_made(g);
    bool ok = pool_wait(g->pool);
    pool_dismiss(g->pool, 1);
    for (uint32_t i = 0; i < g->piece_of.n && ok; i++) {
        const struct piece *p = &g->pieces.data[g->piece_of.data[i]];
        all[i].data = g->data.data[i];
        if (p->unit == i) {
            ok = give_object(g, p, &all[i]);
        } else {
            all[i].same = &all[p->unit];
            all[i].object = all[p->unit].object;
        }
    }
    return ok;
}

/* The key of a link: the hash of its parts, which are larger than what it makes. */
static struct span link_key(struct arena *arena, const struct job *job)
{
    struct digest *d = digest_new(arena);
    char *key = arena_alloc(arena, DIGEST_TEXT);
    for (uint64_t i = 0; i < job->head.n_parts; i++) {
        uint64_t size = job->parts[i].size;
        digest_add(d, &size, sizeof size);
        digest_add(d, job->parts[i].data, size);
    }
    digest_end(d, key);
    return (struct span){key, DIGEST_TEXT};
}

/* Its worker ends itself; nobody waits for that now. With require_sandbox there is one in any case, which says whether
 * it is confined. */
bool codegen_last(struct codegen *g, const struct job *job, struct span *result)
{
    struct span key = {0};
    cache_seek(g);
    if (g->cache && !g->options.require_sandbox) {
        key = link_key(g->arena, job);
        if (cache_get_whole(g->cache, key, result)) {
            pool_dismiss(g->pool, 0);
            return true;
        }
    }
    pool_add(g->pool, job, 1);
    bool ok = pool_wait(g->pool);
    pool_dismiss(g->pool, 0);
    *result = pool_job(g->pool, g->batches.n)->result;
    if (ok && key.size)
        cache_put_whole(g->cache, key, *result);
    return ok;
}
