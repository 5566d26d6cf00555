/* Imported graph -> legal graph, as often as it takes: what a graph shows of its sizes (learn.c) holds from the start
 * of the next round, which makes the graph anew.
 */
#include "ir/expr/facts.h"
#include "passes/legalize/driver.h"

/* Rounds in which what the graph checks narrows its symbols: a fact may be what shows the next. */
enum { ROUNDS_MAX = 6 };

/* The symbols as they were, and what has been made since. */
struct start {
    struct context *ctx;
    const struct graph *imported;
    const struct legalize_options *options;
    const struct type *inputs;
    struct exprs_mark exprs;
    struct diag_mark diags;
    struct symbol *syms;
    struct learned learned;
    uint32_t n_learned;
};

static void symbols_save(struct start *s)
{
    s->n_learned = s->learned.checks.n;
    for (uint32_t i = 1; i < s->exprs.syms; i++)
        s->syms[i] = *sym_get(s->ctx->exprs, (sym_id){i});
}

static void symbols_restore(struct start *s)
{
    s->learned.checks.n = s->n_learned;
    for (uint32_t i = 1; i < s->exprs.syms; i++)
        *sym_get(s->ctx->exprs, (sym_id){i}) = s->syms[i];
}

static struct graph *start_over(const struct start *s, struct graph *g)
{
    graph_free(g);
    diag_drop(s->ctx, &s->diags);
    exprs_rewind(s->ctx->exprs, s->exprs);
    return legalize_once(s->ctx, s->imported, s->options, s->inputs, &s->learned);
}

static struct graph *rounds(struct start *s, struct graph *g)
{
    for (int round = 1; g && round < ROUNDS_MAX && facts_learn(g, &s->learned); round++)
        g = start_over(s, g);
    return g;
}

/* Gives sizes without anything to compute a case of their own, unless that changes what the outputs' dims are then. */
static struct graph *empties_apart(struct start *s, struct graph *g)
{
    symbols_save(s);
    const struct empties *e = empties_find(g);
    if (!e)
        return g;
    g = rounds(s, start_over(s, g));
    if (g && empties_hold(g, e, &s->learned))
        return g;
    symbols_restore(s);
    return start_over(s, g);
}

/* Of a symbol in whose place something stands, that check is enough. */
static void checks_enter(const struct start *s, struct graph *g)
{
    for (uint32_t i = 0; i < s->learned.checks.n; i++) {
        const struct size_check c = s->learned.checks.data[i];
        if (size_check_replaces(&c) || !size_replaced(s->ctx->exprs, &s->learned, c.sym).i)
            VEC_PUSH(&g->arena, &g->size_checks, c);
    }
}

struct graph *legalize(struct context *ctx, struct graph *imported, const struct legalize_options *options)
{
    if (options && options->adapters && !adapters_add(imported, options->adapters))
        return NULL;
    struct start start = {.ctx = ctx, .imported = imported, .options = options, .learned.arena = &ctx->session};
    start.inputs = inputs_settle(ctx, imported, options);
    start.exprs = exprs_mark(ctx->exprs);
    start.diags = diag_mark(ctx);
    start.syms = NEW_ARRAY(&ctx->session, struct symbol, start.exprs.syms + 1);
    symbols_save(&start);
    struct graph *g = start.inputs ? legalize_once(ctx, imported, options, start.inputs, &start.learned) : NULL;
    if (!g)
        return NULL;
    g = rounds(&start, g);
    if (g) {
        g = empties_apart(&start, g);
    } else { /* the facts exclude each other: no run gets through, and each says why */
        symbols_restore(&start);
        g = start_over(&start, NULL);
    }
    if (g)
        checks_enter(&start, g);
    bool fine = g && declared_states(ctx, g);
    enum elem cache = options ? options->cache_type : ELEM_NONE;
    return fine && (cache == ELEM_NONE || caches_narrow(g, cache)) ? g : NULL;
}
