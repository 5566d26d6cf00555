/* codegen_objects: every unit's loop IR to an object, through workers; equal functions are compiled once.
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

struct entry { uint64_t key; uint32_t unit; };     /* units in the order of a key */

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
        order[i] = (struct entry){ unit_key(&units[i]), i };
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
struct batch { uint32_t first, n; uint64_t length; };

/* order[0 .. n): the units that are compiled, in their own order. Objects only: other products are a text for each unit. */
static uint32_t make_batches(const struct codegen_options *options, const struct codegen_unit *units, const uint32_t *order,
                             uint32_t n, struct batch *batches)
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
            batches[n_batches++] = (struct batch){ i, 1, length };
        }
    }
    return n_batches;
}

static struct span text_part(const char *text)
{
    return (struct span){ text, strlen(text) };
}

static struct job make_job(struct arena *arena, const struct codegen_options *options, const struct codegen_unit *units,
                           const uint32_t *order, const struct batch *b)
{
    const struct codegen_unit *first = &units[order[b->first]];
    struct span *parts = NEW_ARRAY(arena, struct span, COMPILE_FUNCTIONS + 2 * (size_t)b->n);
    parts[COMPILE_TRIPLE] = text_part(first->target->triple);
    parts[COMPILE_CPU] = text_part(first->target->cpu);
    parts[COMPILE_FEATURES] = text_part(first->target->features);
    for (uint32_t i = 0; i < b->n; i++) {
        const struct codegen_unit *u = &units[order[b->first + i]];
        parts[COMPILE_FUNCTIONS + 2 * i] = text_part(u->symbol);
        parts[COMPILE_FUNCTIONS + 2 * i + 1] = text_part(u->text);
    }
    struct job job = { .parts = parts };
    job.head.kind = WIRE_COMPILE;
    job.head.opt_level = options->opt_level;
    job.head.emit = (int32_t)options->emit;
    job.head.n_parts = COMPILE_FUNCTIONS + 2 * (uint64_t)b->n;
    job.what = b->n == 1 ? arena_printf(arena, "code generation of '%s' for %s", first->symbol, first->target->cpu)
                         : arena_printf(arena, "code generation of '%s' and %u more for %s", first->symbol, b->n - 1,
                                        first->target->cpu);
    return job;
}

/* Long modules first, so that no worker begins one when the others are done. */
static int by_length(const void *x, const void *y)
{
    const struct batch *a = x, *b = y;
    if (a->length != b->length)
        return a->length > b->length ? -1 : 1;
    return a->first < b->first ? -1 : a->first > b->first;
}

static void take_results(struct codegen_unit *units, const uint32_t *order, const struct batch *b, const struct job *job)
{
    for (uint32_t i = 0; i < b->n; i++)
        units[order[b->first + i]].object = job->result;
    struct codegen_unit *first = &units[order[b->first]];
    first->began = job->began;
    first->ended = job->ended;
    first->worker = job->worker;
}

bool codegen_objects(struct context *ctx, struct arena *arena, const struct codegen_options *options,
                     struct codegen_unit *units, uint32_t n)
{
    uint32_t *first = options->emit == EMIT_OBJECT ? find_equal(arena, units, n) : NULL;
    uint32_t *order = NEW_ARRAY(arena, uint32_t, n + 1), n_order = 0;
    struct batch *batches = NEW_ARRAY(arena, struct batch, n + 1);
    for (uint32_t i = 0; i < n; i++)
        if (!first || first[i] == i)
            order[n_order++] = i;
    uint32_t n_jobs = make_batches(options, units, order, n_order, batches);
    struct job *jobs = NEW_ARRAY(arena, struct job, n_jobs + 1);
    qsort(batches, n_jobs, sizeof *batches, by_length);
    for (uint32_t i = 0; i < n_jobs; i++)
        jobs[i] = make_job(arena, options, units, order, &batches[i]);
    if (n_jobs && !spawn_jobs(ctx, arena, options, jobs, n_jobs))
        return false;
    for (uint32_t i = 0; i < n_jobs; i++)
        take_results(units, order, &batches[i], &jobs[i]);
    for (uint32_t i = 0; first && i < n; i++)
        if (first[i] != i) {
            units[i].same = &units[first[i]];
            units[i].object = units[first[i]].object;
        }
    return true;
}
