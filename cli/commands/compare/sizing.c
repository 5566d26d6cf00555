/* Sizes of the inputs: see sizing.h. */
#include "cli/commands/compare/sizing.h"

#include "cli/commands/compare/integers.h"
#include "ir/expr/expr.h"
#include "ir/ops/ops.h"

/* By what each symbol is longer than the one before in SIZES_APART; and how far from a size sizing_mend looks, and from
 * a number sizing_mend_numbers. */
enum { APART = 3, FAR = 512, FAR_NUMBER = 128 };
/* What a failing condition counts outside of branches and loops, and in the branch that sizing_mend prefers; in another
 * one it counts 1. */
enum { OUTER = 1 << 16, PREFERRED = 1 << 8 };
/* A size, or elements of inputs, that sizing_break does not try. */
enum { SIZING_LARGE = 1 << 24 };
/* An element of an input without free symbols, such as a weight, counts as so small a part: nothing else grows with it.
 */
enum { FIXED_PART = 32 };
/* What drawn sizes take of SIZES_WORK, and more for each pair of symbols. */
enum { EACH = 1 << 14 };
enum { COMPUTED_MOST = 32 };
#define NUMBERS_WORK ((int64_t)1 << 27) /* as SIZES_WORK, to find numbers */
/* Drawn sizes are at most 2^0, 2^1, ..., one of 16 the least. */
enum { DRAWN_BITS = 6 };

/* The graph's symbol for one of the artifact. */
static sym_id symbol_of(const struct sizing *z, uint32_t symbol)
{
    const struct exprs *x = z->graph->ctx->exprs;
    sym_id y = sym_next(x, SYM_SHAPE, (sym_id){0});
    for (uint32_t i = 0; i < symbol && y.i; i++)
        y = sym_next(x, SYM_SHAPE, y);
    return y;
}

/* The symbol's only value that the network takes; -1: there are several. */
static int64_t only_value(const struct sizing *z, uint32_t symbol)
{
    const sym_id y = symbol_of(z, symbol);
    for (uint32_t i = 0; i < z->graph->size_checks.n; i++) {
        const struct size_check *c = &z->graph->size_checks.data[i];
        if (c->sym.i == y.i && !c->same.i && c->bounds.lo == c->bounds.hi)
            return c->bounds.lo;
    }
    return -1;
}

bool sizing_is_free(const struct sizing *z, uint32_t symbol)
{
    return session_is_free(z->session, z->given, symbol) && only_value(z, symbol) < 0;
}

static uint32_t count_free(const struct sizing *z)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < z->session->api->n_sym; i++)
        n += sizing_is_free(z, i);
    return n;
}

uint32_t sizing_forms(const struct sizing *z)
{
    const uint32_t n = count_free(z); /* of two, one is all but the other */
    return n < 2 ? n : SIZES_OTHERS + (n == 2 ? n : 2 * n);
}

bool sizing_is_alone(const struct sizing *z, uint32_t form)
{
    const uint32_t n = count_free(z);
    return n == 1 || (form < SIZES_DRAWN && form >= SIZES_OTHERS + (n == 2 ? 0 : n));
}

/* Of free symbol n in the form. */
static int64_t size_in(uint32_t form, int64_t size, uint32_t n, uint32_t free)
{
    if (form == SIZES_DRAWN) {
        uint64_t state = (uint64_t)size << 32 | n;
        const uint64_t r = integer_random(&state);
        return r >> 60 ? 1 + (int64_t)((r >> 8) % ((uint64_t)1 << (r % (DRAWN_BITS + 1)))) : 0;
    }
    const bool one = form >= SIZES_OTHERS && ((form - SIZES_OTHERS) % free == n) != (form >= SIZES_OTHERS + free);
    return one ? 1 : size + (form == SIZES_APART ? APART * n : 0);
}

/* Draws inputs of the sizes, by symbol. */
static bool feed(struct sizing *z, const int64_t *size)
{
    struct arena *arena = &z->session->ctx->session;
    struct text_list dims = {0};
    for (uint32_t i = 0; i < z->given->dims.items.n; i++)
        VEC_PUSH(arena, &dims.items, z->given->dims.items.data[i]);
    for (uint32_t i = 0; i < z->session->api->n_sym; i++)
        if (session_is_free(z->session, z->given, i))
            VEC_PUSH(arena, &dims.items,
                     arena_printf(arena, "%s=%lld", z->session->api->sym[i].name, (long long)size[i]));
    z->running.dims = dims;
    return session_feed(z->session, true);
}

/* Elements of the inputs whose open dims have these sizes, by symbol; NULL: those at hand. */
static double elements_of(const struct sizing *z, const int64_t *size)
{
    double all = 0;
    for (uint32_t i = 0; i < z->session->api->n_in; i++) {
        const struct file_tensor *t = &z->session->in[i];
        double n = 1;
        bool any = false;
        for (int32_t d = 0; d < t->rank; d++) {
            const mcc_dim *dim = &z->session->api->in[i].dims[d];
            const bool open = dim->extent == -1 && dim->symbol >= 0 && sizing_is_free(z, (uint32_t)dim->symbol);
            n *= (double)(open && size ? size[dim->symbol] : t->dims[d]);
            any |= open;
        }
        all += any ? n : n / FIXED_PART;
    }
    return all;
}

uint64_t sizing_elements(const struct sizing *z)
{
    return (uint64_t)elements_of(z, NULL);
}

bool sizing_put(struct sizing *z, int64_t size, uint32_t form, uint64_t most)
{
    const mcc_api *api = z->session->api;
    int64_t *sizes = NEW_ARRAY(&z->session->ctx->session, int64_t, api->n_sym + 1);
    const uint32_t free = count_free(z);
    uint32_t n = 0; /* free symbols so far */
    bool fits = form == SIZES_DRAWN ? free > 1 : form < sizing_forms(z);
    for (uint32_t i = 0; i < api->n_sym && fits; i++) {
        const mcc_symbol *sym = &api->sym[i];
        const int64_t step = sym->step > 1 ? sym->step : 1;
        sizes[i] = only_value(z, i);
        if (!sizing_is_free(z, i))
            continue;
        sizes[i] = (size_in(form, size, n++, free) + step - 1) / step * step;
        sizes[i] = sizes[i] || form != SIZES_DRAWN ? sizes[i] : sym->min;
        fits = sizes[i] >= sym->min && (!sym->max || sizes[i] <= sym->max);
    }
    z->spent += EACH + (int64_t)api->n_sym * api->n_sym;
    return fits && z->spent < SIZES_WORK && elements_of(z, sizes) <= (double)most && feed(z, sizes);
}

static expr_id replaced(struct exprs *x, expr_id e, const sym_id *symbol, const expr_id *by, uint32_t n)
{
    const expr_id r = n ? ex_subst_try(x, e, symbol, by, n) : e;
    return r.i ? r : e;
}

uint32_t sizing_computed(const struct graph *g, sym_id *symbol, expr_id *by, uint32_t most)
{
    struct exprs *x = g->ctx->exprs;
    uint32_t n = 0, count;
    for (sym_id y = sym_next(x, SYM_VALUE, (sym_id){0}); y.i && n < most; y = sym_next(x, SYM_VALUE, y)) {
        const struct symbol *sym = sym_get(x, y);
        const value_id v = {sym->value};
        const struct node *of = v.i && v.i < g->values.n ? value_node(g, v) : NULL;
        if (!of || of->op != OP_FROM_EXPRS || of->parent.i != 1 || value_type(g, v)->elem != ELEM_I64)
            continue;
        const expr_id *list = node_exprs(of, "exprs", &count);
        if (sym->elem >= count)
            continue;
        const expr_id e = replaced(x, list[sym->elem], symbol, by, n);
        symbol[n] = y;
        by[n++] = e;
    }
    return n;
}

/* Is the symbol an integer of an input? */
static bool number_of(const struct sizing *z, sym_id y, struct sizing_number *out)
{
    const struct symbol *sym = sym_get(z->graph->ctx->exprs, y);
    for (uint32_t i = 0; i < z->graph->inputs.n; i++) {
        const struct file_tensor *t = &z->session->in[i];
        if (z->graph->inputs.data[i].value.i != sym->value || !strchr("IU", elem_class(t->elem)) ||
            elem_bits(t->elem) < 8 || sym->elem >= t->size / elem_size(t->elem))
            continue;
        *out = (struct sizing_number){y, i};
        return true;
    }
    return false;
}

/* Adds a condition whose symbols are all sizes or numbers of inputs, and these numbers. */
static void add_condition(struct sizing *z, struct sizing_condition c)
{
    const struct exprs *x = z->graph->ctx->exprs;
    struct sizing_number number;
    const uint32_t before = z->numbers.n;
    if (ex_uses_kind(x, c.holds, SYM_LOOP))
        return;
    sym_id y = ex_uses_kind(x, c.holds, SYM_VALUE) ? sym_next(x, SYM_VALUE, (sym_id){0}) : (sym_id){0};
    for (; y.i; y = sym_next(x, SYM_VALUE, y)) {
        if (!ex_uses(x, c.holds, y))
            continue;
        if (!number_of(z, y, &number)) {
            z->numbers.n = before;
            return;
        }
        bool known = false;
        for (uint32_t i = 0; i < z->numbers.n; i++)
            known |= z->numbers.data[i].symbol.i == y.i;
        c.numbers = true;
        if (!known)
            VEC_PUSH(&z->session->ctx->session, &z->numbers, number);
    }
    VEC_PUSH(&z->session->ctx->session, &z->conditions, c);
}

/* Which region of its owner it is, from 1 on; 0: the top one. */
static uint32_t branch_of(const struct graph *g, region_id region)
{
    const node_id owner = graph_get_region(g, region)->owner;
    uint32_t i = 0;
    while (owner.i && i < graph_node(g, owner)->n_region && graph_node(g, owner)->region[i].i != region.i)
        i++;
    return owner.i ? 1 + i : 0;
}

static void find_conditions(struct sizing *z)
{
    const struct graph *g = z->graph;
    struct arena *arena = &z->session->ctx->session;
    const bool found = z->conditions.n;
    for (uint32_t i = 0; i < g->size_checks.n && !found; i++)
        VEC_PUSH(arena, &z->conditions, (struct sizing_condition){.check = &g->size_checks.data[i]});
    sym_id computed[COMPUTED_MOST];
    expr_id by[COMPUTED_MOST];
    const uint32_t n_computed = found ? 0 : sizing_computed(g, computed, by, COMPUTED_MOST);
    for (uint32_t i = 1; i < g->nodes.n && !found; i++) {
        const struct node *n = &g->nodes.data[i];
        if (n->dead || n->op != OP_ASSERT)
            continue;
        const expr_id holds = replaced(g->ctx->exprs, node_expr(n, "cond"), computed, by, n_computed);
        add_condition(z, (struct sizing_condition){.holds = holds, .branch = branch_of(g, n->parent)});
    }
}

/* Does it hold? value: by symbol. */
static bool holds(struct sizing *z, const struct sizing_condition *c, const int64_t *value)
{
    const struct exprs *x = z->graph->ctx->exprs;
    const struct size_check *check = c->check;
    int64_t result;
    z->spent += check ? 1 : ex_size(x, c->holds);
    if (!check)
        return ex_eval(x, c->holds, value, &result) && result;
    const int64_t v = value[check->sym.i], divisor = check->bounds.divisor > 1 ? check->bounds.divisor : 1;
    return check->same.i ? v == value[check->same.i]
                         : v >= check->bounds.lo && v <= check->bounds.hi && v % divisor == 0;
}

/* How many conditions do not hold, those inside of branches and loops last. */
static uint64_t count_failing(struct sizing *z, const int64_t *value, bool asked)
{
    uint64_t failing = 0;
    find_conditions(z);
    z->spent += z->conditions.n;
    for (uint32_t i = 0; i < z->conditions.n; i++)
        if ((!asked || z->conditions.data[i].asked) && z->conditions.data[i].numbers == z->of_numbers)
            failing += holds(z, &z->conditions.data[i], value)     ? 0
                       : !z->conditions.data[i].branch             ? OUTER
                       : z->conditions.data[i].branch == z->branch ? PREFERRED
                                                                   : 1;
    return failing;
}

/* Asks the conditions that the symbol decides. */
static void ask(struct sizing *z, sym_id y)
{
    for (uint32_t i = 0; i < z->conditions.n; i++) {
        struct sizing_condition *c = &z->conditions.data[i];
        c->asked = c->check ? c->check->sym.i == y.i || c->check->same.i == y.i
                            : ex_uses(z->graph->ctx->exprs, c->holds, y);
    }
}

/* The sizes at hand, by symbol of the artifact and by that of the graph. */
static bool sizes_now(const struct sizing *z, int64_t **size, int64_t **value)
{
    struct arena *arena = &z->session->ctx->session;
    *size = NEW_ARRAY(arena, int64_t, z->session->api->n_sym + 1);
    *value = NEW_ARRAY(arena, int64_t, sym_count(z->graph->ctx->exprs) + 1);
    if (!session_symbols(z->session, *size))
        return false;
    for (uint32_t i = 0; i < z->session->api->n_sym; i++)
        (*value)[symbol_of(z, i).i] = (*size)[i];
    return true;
}

bool sizing_is_new(struct sizing *z)
{
    int64_t *size, *value;
    const uint32_t n = z->session->api->n_sym;
    if (!sizes_now(z, &size, &value))
        return false;
    for (uint32_t i = 0; i < z->tried.n; i++)
        if (memcmp(z->tried.data[i], size, n * sizeof *size) == 0)
            return false;
    VEC_PUSH(&z->session->ctx->session, &z->tried, size);
    return true;
}

bool sizing_holds(struct sizing *z)
{
    int64_t *size, *value;
    if (!sizes_now(z, &size, &value) || count_failing(z, value, false))
        return false;
    z->first = z->first ? z->first : size;
    return true;
}

bool sizing_holds_outside(struct sizing *z)
{
    int64_t *size, *value;
    return sizes_now(z, &size, &value) && count_failing(z, value, false) < OUTER;
}

bool sizing_break(struct sizing *z, uint32_t check, uint32_t way)
{
    const struct size_check *c = &z->graph->size_checks.data[check];
    const uint32_t n = z->session->api->n_sym;
    uint32_t symbol = 0;
    while (symbol < n && symbol_of(z, symbol).i != c->sym.i)
        symbol++;
    z->spent += EACH;
    if (!z->first || symbol == n || !session_is_free(z->session, z->given, symbol) || z->spent >= SIZES_WORK)
        return false;
    const mcc_symbol *sym = &z->session->api->sym[symbol];
    int64_t *size = arena_copy(&z->session->ctx->session, z->first, n * sizeof *size), to = -1;
    if (c->same.i || way == 2)
        to = way == 2 && (c->same.i || c->bounds.divisor > 1) ? size[symbol] + 1 : -1;
    else
        to = way == 0 ? c->bounds.lo - 1 : c->bounds.hi < SIZING_LARGE ? c->bounds.hi + 1 : -1;
    size[symbol] = to;
    const bool gives = to >= 0 && to >= sym->min && (!sym->max || to <= sym->max) &&
                       (sym->step <= 1 || to % sym->step == 0);
    return gives && elements_of(z, size) < SIZING_LARGE && feed(z, size);
}

/* What may stand for a symbol. */
struct range {
    int64_t least, most, step, far;
};

/* Gives the symbol the nearest value at which the fewest conditions fail. How many do. */
static uint64_t change(struct sizing *z, sym_id y, struct range in, int64_t *value, uint64_t failing)
{
    int64_t *at = &value[y.i], old = *at, best = old;
    ask(z, y);
    const uint64_t rest = failing - count_failing(z, value, true);
    for (int64_t far = in.step; far <= in.far && failing > rest && z->spent < SIZES_WORK; far += in.step)
        for (int sign = -1; sign <= 1; sign += 2) {
            if (!add_i64(old, sign * far, at) || *at < in.least || *at > in.most)
                continue;
            const uint64_t n = rest + count_failing(z, value, true);
            best = n < failing ? *at : best;
            failing = n < failing ? n : failing;
        }
    *at = best;
    return failing;
}

static struct range sizes_of(const mcc_symbol *sym)
{
    return (struct range){sym->min > 0 ? sym->min : 0, sym->max ? sym->max : INT64_MAX, sym->step > 1 ? sym->step : 1,
                          FAR};
}

bool sizing_mend(struct sizing *z, bool last, uint32_t branch)
{
    const uint32_t n = z->session->api->n_sym;
    int64_t *size, *value;
    z->branch = branch;
    if (!sizes_now(z, &size, &value))
        return false;
    for (uint32_t i = 0; i < n; i++)
        if (session_is_free(z->session, z->given, i) && only_value(z, i) >= 0)
            value[symbol_of(z, i).i] = only_value(z, i);
    uint64_t failing = count_failing(z, value, false), before = failing + 1;
    while (failing && failing < before) {
        before = failing;
        for (uint32_t i = 0; i < n && failing == before; i++) {
            const uint32_t symbol = last ? n - 1 - i : i;
            if (sizing_is_free(z, symbol))
                failing = change(z, symbol_of(z, symbol), sizes_of(&z->session->api->sym[symbol]), value, failing);
        }
    }
    for (uint32_t i = 0; i < n; i++)
        size[i] = value[symbol_of(z, i).i];
    if (failing < OUTER)
        z->first = z->first ? z->first : size;
    return failing < OUTER && feed(z, size);
}

/* The element that the symbol is; NULL: the input is too short at these sizes. */
static void *place_of(const struct sizing *z, const struct sizing_number *n, enum elem *elem)
{
    const struct file_tensor *t = &z->session->in[n->input];
    const size_t at = sym_get(z->graph->ctx->exprs, n->symbol)->elem, size = elem_size(t->elem);
    *elem = t->elem;
    return at < t->size / size ? (char *)t->data + at * size : NULL;
}

void sizing_mend_numbers(struct sizing *z, uint32_t first)
{
    struct exprs *x = z->graph->ctx->exprs;
    int64_t *size, *value;
    enum elem elem;
    const int64_t spent = z->spent;
    find_conditions(z);
    if (!z->numbers.n || z->numbers_spent > NUMBERS_WORK || !sizes_now(z, &size, &value))
        return;
    for (uint32_t i = 0; i < z->numbers.n; i++) {
        const void *from = place_of(z, &z->numbers.data[i], &elem);
        if (!from)
            return;
        const struct symbol *sym = sym_get(x, z->numbers.data[i].symbol);
        const int64_t now = elem_to_i64(elem, from);
        value[z->numbers.data[i].symbol.i] = now < sym->lo ? sym->lo : now > sym->hi ? sym->hi : now;
    }
    z->of_numbers = true;
    uint64_t failing = count_failing(z, value, false), before = failing + 1;
    while (failing && failing < before) {
        before = failing;
        for (uint32_t i = 0; i < z->numbers.n && failing == before; i++) {
            const sym_id y = z->numbers.data[(i + first) % z->numbers.n].symbol;
            const struct symbol *sym = sym_get(x, y);
            const struct range in = {sym->lo, sym->hi, sym->divisor, FAR_NUMBER};
            failing = change(z, y, in, value, failing);
        }
    }
    z->of_numbers = false;
    z->numbers_spent += z->spent - spent;
    z->spent = spent;
    for (uint32_t i = 0; i < z->numbers.n; i++) {
        void *to = place_of(z, &z->numbers.data[i], &elem);
        elem_from_i64(elem, value[z->numbers.data[i].symbol.i], to);
    }
}
