/* Every unit's loop IR to an object, through workers; equal functions are compiled once.
 *
 * Two units are equal when target and text agree but for the first line, which holds only the function's own name and
 * its source nodes: the second symbol is another name of the first. Setting LLVM up for a module costs as much as the
 * code of some hundred instructions, so units of one target that follow one another share a module up to MODULE_TEXT.
 * What shares depends on the units alone, not on the workers.
 */
#include <stdlib.h>
#include <string.h>

#include "codegen/codegen.h"
#include "codegen/wire.h"

enum { MODULE_TEXT = 32 << 10 };     /* bytes of loop IR: some 5000 lines of assembly */

struct entry {
    uint64_t key;
    uint32_t unit;
};     /* units in the order of a key */

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

static bool same_code(const struct codegen_unit *a, const struct codegen_unit *b)
{
    return a->text[0] == b->text[0] && strcmp(body_of(a->text), body_of(b->text)) == 0 &&
           strcmp(a->target->triple, b->target->triple) == 0 && strcmp(a->target->cpu, b->target->cpu) == 0 &&
           strcmp(a->target->features, b->target->features) == 0;
}

static int by_key(const void *x, const void *y)
{
    const struct entry *a = x, *b = y;
    if (a->key != b->key)
        return a->key < b->key ? -1 : 1;
    return a->unit < b->unit ? -1 : a->unit > b->unit;
}

/* first[i]: the earliest unit with the code of unit i. */
static uint32_t *find_equal(struct arena *arena, const struct codegen_unit *units, uint32_t n)
{
    struct entry *order = NEW_ARRAY(arena, struct entry, n + 1);
    uint32_t *first = NEW_ARRAY(arena, uint32_t, n + 1);
    for (uint32_t i = 0; i < n; i++)
        order[i] = (struct entry){unit_key(&units[i]), i};
    qsort(order, n, sizeof *order, by_key);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t u = order[i].unit;
        first[u] = u;
        for (uint32_t k = i; k > 0 && order[k - 1].key == order[i].key; k--) {
            uint32_t before = order[k - 1].unit;
            if (first[before] == before && same_code(&units[before], &units[u]))
                first[u] = before;
        }
    }
    return first;
}

/* Units that become one module: so many of order[], from the first on. */
struct batch {
    uint32_t first, n;
    uint64_t length;
};

/* order[0 .. n): the units that are compiled, in their own order. Objects only: other products are a text for each unit. */
static uint32_t make_batches(const struct codegen_options *options, const struct codegen_unit *units,
                             const uint32_t *order, uint32_t n, struct batch *batches)
{
    uint32_t n_batches = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint64_t length = strlen(units[order[i]].text);
        struct batch *last = n_batches ? &batches[n_batches - 1] : NULL;
        if (last && options->emit == EMIT_OBJECT && last->length + length <= MODULE_TEXT &&
            units[order[last->first]].target == units[order[i]].target) {
            last->n++;
            last->length += length;
        } else {
            batches[n_batches++] = (struct batch){i, 1, length};
        }
    }
    return n_batches;
}

static struct span text_part(const char *text)
{
    return (struct span){text, strlen(text)};
}

static struct job make_job(struct arena *arena, const struct codegen_options *options, const struct codegen_unit *units,
                           const uint32_t *order, const struct batch *b)
{
    const struct codegen_unit *first = &units[order[b->first]];
    struct span *parts = NEW_ARRAY(arena, struct span, COMPILE_FUNCTIONS + 2 * (size_t)b->n);
    parts[COMPILE_TRIPLE] = text_part(first->target->triple);
    parts[COMPILE_CPU] = text_part(first->target->cpu);
    parts[COMPILE_FEATURES] = text_part(first->target->features);
    uint32_t *lines = NEW_ARRAY(arena, uint32_t, b->n);
    if (options->debug_file) {
        parts[COMPILE_FILE] = text_part(options->debug_file);
        parts[COMPILE_FOLDER] = text_part(options->debug_folder);
        parts[COMPILE_LINES] = (struct span){lines, b->n * sizeof *lines};
    }
    for (uint32_t i = 0; i < b->n; i++) {
        const struct codegen_unit *u = &units[order[b->first + i]];
        lines[i] = u->line;
        parts[COMPILE_FUNCTIONS + 2 * i] = text_part(u->symbol);
        parts[COMPILE_FUNCTIONS + 2 * i + 1] = text_part(u->text);
    }
    struct job job = {.parts = parts};
    job.head.kind = WIRE_COMPILE;
    job.head.opt_level = options->opt_level;
    job.head.emit = (int32_t)options->emit;
    job.head.n_parts = COMPILE_FUNCTIONS + 2 * (uint64_t)b->n;
    job.what = b->n == 1 ? arena_printf(arena, "code generation of '%s' for %s", first->symbol, first->target->cpu)
                         : arena_printf(arena, "code generation of '%s' and %u more for %s", first->symbol, b->n - 1,
                                        first->target->cpu);
    return job;
}

/* Units that came together, and their jobs in the pool. */
struct lot {
    uint32_t from, n; /* units */
    uint32_t *first; /* by unit less from: the earliest of the lot with its code; NULL: itself */
    uint32_t *order; /* those that are compiled */
    struct batch *batches; /* of order: one is one job */
    uint32_t first_job, n_jobs;
};
struct codegen {
    struct arena *arena;
    struct codegen_options options;
    struct pool *pool;
    uint32_t n_jobs;
    VEC(struct lot) lots;
};

struct codegen *codegen_begin(struct context *ctx, struct arena *arena, const struct codegen_options *options)
{
    struct codegen *g = NEW(arena, struct codegen);
    *g = (struct codegen){.arena = arena, .options = *options, .pool = pool_new(ctx, arena, options)};
    return g;
}

void codegen_add(struct codegen *g, const struct codegen_unit *units, uint32_t from, uint32_t n)
{
    struct lot lot = {.from = from, .n = n, .first_job = g->n_jobs};
    uint32_t n_order = 0;
    units += from;
    lot.first = g->options.emit == EMIT_OBJECT ? find_equal(g->arena, units, n) : NULL;
    lot.order = NEW_ARRAY(g->arena, uint32_t, n + 1);
    lot.batches = NEW_ARRAY(g->arena, struct batch, n + 1);
    for (uint32_t i = 0; i < n; i++)
        if (!lot.first || lot.first[i] == i)
            lot.order[n_order++] = i;
    lot.n_jobs = make_batches(&g->options, units, lot.order, n_order, lot.batches);
    g->n_jobs += lot.n_jobs;
    for (uint32_t i = 0; i < lot.n_jobs; i++) {
        struct job job = make_job(g->arena, &g->options, units, lot.order, &lot.batches[i]);
        pool_add(g->pool, &job, 1);
    }
    VEC_PUSH(g->arena, &g->lots, lot);
}

static void take_results(struct codegen_unit *units, const uint32_t *order, const struct batch *b,
                         const struct job *job)
{
    for (uint32_t i = 0; i < b->n; i++)
        units[order[b->first + i]].object = job->result;
    struct codegen_unit *first = &units[order[b->first]];
    first->began = job->began;
    first->ended = job->ended;
    first->worker = job->worker;
}

bool codegen_step(struct codegen *g)
{
    return pool_step(g->pool);
}
void codegen_end(struct codegen *g)
{
    pool_end(g->pool);
}
void codegen_cached(const struct codegen *g, uint32_t *found, uint32_t *asked)
{
    pool_cached(g->pool, found, asked);
}

bool codegen_finish(struct codegen *g, struct codegen_unit *all)
{
    if (!pool_finish(g->pool))
        return false;
    for (uint32_t l = 0; l < g->lots.n; l++) {
        const struct lot *lot = &g->lots.data[l];
        struct codegen_unit *units = all + lot->from;
        for (uint32_t i = 0; i < lot->n_jobs; i++)
            take_results(units, lot->order, &lot->batches[i], pool_job(g->pool, lot->first_job + i));
        for (uint32_t i = 0; lot->first && i < lot->n; i++)
            if (lot->first[i] != i) {
                units[i].same = &units[lot->first[i]];
                units[i].object = units[lot->first[i]].object;
            }
    }
    return true;
}

bool codegen_objects(struct context *ctx, struct arena *arena, const struct codegen_options *options,
                     struct codegen_unit *units, uint32_t n)
{
    struct codegen *g = codegen_begin(ctx, arena, options);
    codegen_add(g, units, 0, n);
    return codegen_finish(g, units);
}
