/* codegen_objects: every unit's loop IR to an object, through workers; equal functions are compiled once.
 *
 * Two units are equal when target and text agree but for the first line, which holds only the function's own name and
 * its source nodes. Their objects are then the same bytes at the same address, by which codegen_link() knows that the
 * second symbol is another name of the first.
 */
#include <stdlib.h>
#include <string.h>

#include "codegen/codegen.h"
#include "codegen/wire.h"

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

static struct job make_job(struct arena *arena, const struct codegen_options *options, const struct codegen_unit *u)
{
    struct span *parts = NEW_ARRAY(arena, struct span, COMPILE_PARTS);
    parts[COMPILE_TRIPLE] = (struct span){ u->target->triple, strlen(u->target->triple) };
    parts[COMPILE_CPU] = (struct span){ u->target->cpu, strlen(u->target->cpu) };
    parts[COMPILE_FEATURES] = (struct span){ u->target->features, strlen(u->target->features) };
    parts[COMPILE_SYMBOL] = (struct span){ u->symbol, strlen(u->symbol) };
    parts[COMPILE_TEXT] = (struct span){ u->text, strlen(u->text) };
    struct job job = { .parts = parts };
    job.head.kind = WIRE_COMPILE;
    job.head.opt_level = options->opt_level;
    job.head.emit = (int32_t)options->emit;
    job.head.n_parts = COMPILE_PARTS;
    job.what = arena_printf(arena, "code generation of '%s' for %s", u->symbol, u->target->cpu);
    return job;
}

/* Long functions first, so that no worker begins one when the others are done. */
static int by_length(const void *x, const void *y)
{
    const struct entry *a = x, *b = y;
    if (a->key != b->key)
        return a->key > b->key ? -1 : 1;
    return a->unit < b->unit ? -1 : a->unit > b->unit;
}

bool codegen_objects(struct context *ctx, struct arena *arena, const struct codegen_options *options,
                     struct codegen_unit *units, uint32_t n)
{
    uint32_t *first = options->emit == EMIT_OBJECT ? find_equal(arena, units, n) : NULL;
    uint32_t *at = NEW_ARRAY(arena, uint32_t, n + 1), n_jobs = 0;
    struct job *jobs = NEW_ARRAY(arena, struct job, n + 1);
    struct entry *order = NEW_ARRAY(arena, struct entry, n + 1);
    for (uint32_t i = 0; i < n; i++)
        order[i] = (struct entry){ strlen(units[i].text), i };
    qsort(order, n, sizeof *order, by_length);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t u = order[i].unit;
        if (first && first[u] != u)
            continue;
        at[u] = n_jobs;
        jobs[n_jobs++] = make_job(arena, options, &units[u]);
    }
    if (n_jobs && !spawn_jobs(ctx, arena, options, jobs, n_jobs))
        return false;
    for (uint32_t i = 0; i < n; i++) {
        const struct job *job = &jobs[at[first ? first[i] : i]];
        units[i].object = job->result;
        if (first && first[i] != i)
            continue;
        units[i].began = job->began;
        units[i].ended = job->ended;
        units[i].worker = job->worker;
    }
    return true;
}
