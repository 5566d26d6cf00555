/* Storage of expressions: interning, symbols, queries.
 *
 * A node is found again by hash; its interval and divisor are computed once, when it is made (ir/expr/bounds.c). A node
 * whose interval is one point becomes that constant. Simplification is elsewhere: sums and products in ir/expr/sum.c,
 * division in ir/expr/div.c, comparison and minimum in ir/expr/cmp.c by ir/expr/prove.c, choice in ir/expr/choice.c,
 * walks in ir/expr/walk.c, text in ir/expr/expr_text.c.
 */
#include "ir/expr/expr.h"

#include <math.h>
#include <stdio.h>

#include "ir/expr/internal.h"

enum { TABLE_MIN = 1024 };

/* ---- interning ------------------------------------------------------------------------------------------ */

static uint64_t key_hash(const struct ekey *k)
{
    uint64_t h = hash_mix((uint64_t)k->kind << 32 | k->n, (uint64_t)k->c);
    h = hash_mix(h, k->sym.i);
    if (k->n)
        h = hash_mix(h, hash_bytes(k->arg, k->n * sizeof *k->arg));
    if (k->kind == EX_SUM)
        h = hash_mix(h, hash_bytes(k->coef, k->n * sizeof *k->coef));
    return h;
}

static bool key_is(const struct enode *e, const struct ekey *k)
{
    return e->kind == k->kind && e->n == k->n && e->c == k->c && e->sym.i == k->sym.i &&
           (k->n == 0 || memcmp(e->arg, k->arg, k->n * sizeof *k->arg) == 0) &&
           (k->kind != EX_SUM || memcmp(e->coef, k->coef, k->n * sizeof *k->coef) == 0);
}

void expr_table_insert(struct exprs *x, uint32_t e)
{
    uint32_t mask = x->table_size - 1;
    uint32_t at = (uint32_t)enode(x, (expr_id){e})->hash & mask;
    while (x->table[at])
        at = (at + 1) & mask;
    x->table[at] = e;
}

static void table_grow(struct exprs *x)
{
    if (x->n > UINT32_MAX / 8)
        context_unwind(x->ctx, FAIL_LIMIT, (src_id){0}, "more than %u expressions of dims", UINT32_MAX / 8);
    x->table_size *= 2;
    x->table = NEW_ARRAY(x->arena, uint32_t, x->table_size);
    for (uint32_t e = 1; e < x->n; e++)
        expr_table_insert(x, e);
}

/* The largest magnitude that e has in networks that mean no harm, where five sizes of 2^12 make a product of 60 bits */
static double enode_largest(const struct exprs *x, const struct enode *e)
{
    double bound = fmax(fabs((double)e->lo), fabs((double)e->hi)), all = e->kind == EX_PROD, part;
    if (e->kind == EX_CONST || e->kind == EX_SYM)
        return e->kind == EX_SYM && bound > 0x1p40 ? 0x1p12 : bound;
    if (e->kind == EX_SUM)
        all = fabs((double)e->c);
    for (uint32_t i = e->kind == EX_SELECT; i < e->n; i++) {
        part = enode(x, e->arg[i])->largest;
        all = e->kind == EX_SUM    ? all + fabs((double)e->coef[i]) * part
              : e->kind == EX_PROD ? all * part
                                   : fmax(all, part);
    }
    return fmin(all, bound);
}

/* Depth, size, symbols, flags and the largest magnitude, from the operands; false when the limits are passed in an
 * attempt. */
static bool enode_derive(struct exprs *x, struct enode *e)
{
    uint32_t depth = 0, size = 1;
    e->flags = e->kind == EX_DIV ? F_DIV : e->kind == EX_MOD ? F_MOD : 0;
    if (e->kind == EX_SYM) {
        e->syms = (uint64_t)1 << (e->sym.i % 64);
        e->flags = (uint8_t)(F_KIND << x->syms.data[e->sym.i]->kind);
    }
    for (uint32_t i = 0; i < e->n; i++) {
        const struct enode *a = enode(x, e->arg[i]);
        depth = a->depth > depth ? a->depth : depth;
        size += a->size;
        e->syms |= a->syms;
        e->flags |= e->kind == EX_PROD ? a->flags : a->flags & ~(F_DIV | F_MOD);
    }
    if (depth >= EXPR_DEPTH_MAX || size > EXPR_SIZE_MAX) {
        return expr_too_large(x, "a size or index is too complicated an expression (depth %u, %u parts)", depth, size)
            .i;
    }
    e->depth = (uint16_t)(depth + 1);
    e->size = size;
    e->largest = enode_largest(x, e);
    return true;
}

static expr_id enode_add(struct exprs *x, const struct ekey *k, const struct enode *made)
{
    if (x->n / CHUNK == x->chunks.n) {
        struct enode *chunk = NEW_ARRAY(x->arena, struct enode, CHUNK);
        VEC_PUSH(x->arena, &x->chunks, chunk);
    }
    struct enode *e = &x->chunks.data[x->n / CHUNK][x->n % CHUNK];
    *e = *made;
    if (k->n) {
        e->arg = arena_copy(x->arena, k->arg, k->n * sizeof *k->arg);
        if (k->kind == EX_SUM)
            e->coef = arena_copy(x->arena, k->coef, k->n * sizeof *k->coef);
    }
    uint32_t id = x->n++;
    expr_table_insert(x, id);
    if (x->n > x->table_size / 2)
        table_grow(x);
    return (expr_id){id};
}

expr_id expr_intern(struct exprs *x, const struct ekey *k)
{
    for (uint32_t i = 0; i < k->n; i++)
        if (!k->arg[i].i)
            return (expr_id){0};
    time_spend(x->ctx, TIME_EXPR);
    uint64_t hash = key_hash(k);
    uint32_t mask = x->table_size - 1;
    for (uint32_t at = (uint32_t)hash & mask; x->table[at]; at = (at + 1) & mask) {
        const struct enode *e = enode(x, (expr_id){x->table[at]});
        if (e->hash == hash && key_is(e, k))
            return (expr_id){x->table[at]};
    }
    struct enode e = {
        .kind = (uint8_t)k->kind, .n = k->n, .sym = k->sym, .c = k->c, .arg = k->arg, .coef = k->coef, .hash = hash};
    expr_bounds(x, k, &e.lo, &e.hi, &e.div);
    if (e.lo == e.hi && k->kind != EX_CONST && e.lo != INT64_MIN && e.lo != INT64_MAX)
        return ex_const(x, e.lo);
    return enode_derive(x, &e) ? enode_add(x, k, &e) : (expr_id){0};
}

expr_id expr_intern2(struct exprs *x, enum expr_kind kind, expr_id a, expr_id b)
{
    const expr_id args[] = {a, b};
    return expr_intern(x, &(struct ekey){.kind = kind, .n = 2, .arg = args});
}

expr_id ex_const(struct exprs *x, int64_t c)
{
    bool small = c >= 0 && c < SMALL;
    if (small && x->small[c].i)
        return x->small[c];
    expr_id e = expr_intern(x, &(struct ekey){.kind = EX_CONST, .c = c});
    if (small)
        x->small[c] = e;
    return e;
}

struct exprs *exprs_new(struct context *ctx)
{
    struct exprs *x = NEW(&ctx->session, struct exprs);
    x->ctx = ctx;
    x->arena = &ctx->session;
    struct enode *none = NEW_ARRAY(x->arena, struct enode, CHUNK);
    *none = (struct enode){.kind = EX_NONE, .lo = INT64_MIN, .hi = INT64_MAX, .div = 1};
    VEC_PUSH(x->arena, &x->chunks, none);
    x->n = 1;
    x->table_size = x->names_size = TABLE_MIN;
    x->table = NEW_ARRAY(x->arena, uint32_t, x->table_size);
    x->names = NEW_ARRAY(x->arena, uint32_t, x->names_size);
    x->scratch = NEW_ARRAY(x->arena, struct term, EXPR_SCRATCH);
    x->proofs = NEW_ARRAY(x->arena, struct proof, PROOF_SLOTS);
    VEC_PUSH(x->arena, &x->syms, NULL);
    VEC_PUSH(x->arena, &x->sym_exprs, (expr_id){0});
    return x;
}

uint32_t ex_count(const struct exprs *x)
{
    return x->n;
}

/* ---- attempts ----------------------------------------------------------------------------------------------- */

expr_id expr_overflow(struct exprs *x)
{
    return expr_too_large(x, "a size or index does not fit into 64 bits");
}

expr_id expr_too_large(struct exprs *x, const char *fmt, ...)
{
    TEXT_OF_ARGUMENTS(text, 160, fmt);
    if (!x->speculative)
        context_unwind(x->ctx, FAIL_LIMIT, (src_id){0}, "%s", text);
    return (expr_id){0};
}

/* ---- results that are remembered --------------------------------------------------------------------------------- */

static struct result *result_slot(struct exprs *x, const struct result *key)
{
    if (!x->results)
        x->results = NEW_ARRAY(x->arena, struct result, RESULTS);
    uint64_t h = hash_mix((uint64_t)key->a.i << 32 | key->b.i, (uint64_t)key->coef);
    return &x->results[hash_mix(h + key->op, (uint64_t)key->c) % RESULTS];
}

bool result_recall(struct exprs *x, struct result *key)
{
    const struct result *s = result_slot(x, key);
    if (!s->result.i || s->a.i != key->a.i || s->b.i != key->b.i || s->coef != key->coef || s->c != key->c ||
        s->op != key->op)
        return false;
    key->result = s->result;
    return true;
}

void result_keep(struct exprs *x, const struct result *r, uint32_t cut)
{
    if (r->result.i && x->cut == cut)
        *result_slot(x, r) = *r;
}

/* ---- symbols -------------------------------------------------------------------------------------------------- */

uint32_t expr_name_slot(const struct exprs *x, const char *name)
{
    uint32_t mask = x->names_size - 1;
    uint32_t at = (uint32_t)hash_bytes(name, strlen(name)) & mask;
    while (x->names[at] && strcmp(x->syms.data[x->names[at]]->name, name) != 0)
        at = (at + 1) & mask;
    return at;
}

sym_id expr_find_sym(const struct exprs *x, const char *name)
{
    return (sym_id){x->names[expr_name_slot(x, name)]};
}

static void names_grow(struct exprs *x)
{
    x->names_size *= 2;
    x->names = NEW_ARRAY(x->arena, uint32_t, x->names_size);
    for (uint32_t s = 1; s < x->syms.n; s++)
        x->names[expr_name_slot(x, x->syms.data[s]->name)] = s;
}

/* A name in use, or none, gets a number. */
static const char *name_unique(struct exprs *x, const char *name)
{
    if (name && *name && !expr_find_sym(x, name).i)
        return arena_strdup(x->arena, name);
    for (uint32_t k = x->syms.n;; k++) {
        char *numbered = arena_printf(x->arena, "%s_%u", name && *name ? name : "s", k);
        if (!expr_find_sym(x, numbered).i)
            return numbered;
    }
}

/* Enters a symbol under a name that no other has. */
static sym_id sym_enter(struct exprs *x, struct symbol with, const char *name)
{
    struct symbol *s = NEW(x->arena, struct symbol);
    *s = with;
    s->name = name_unique(x, name);
    VEC_PUSH(x->arena, &x->syms, s);
    VEC_PUSH(x->arena, &x->sym_exprs, (expr_id){0});
    uint32_t id = x->syms.n - 1;
    x->names[expr_name_slot(x, s->name)] = id;
    if (x->syms.n > x->names_size / 2)
        names_grow(x);
    return (sym_id){id};
}

sym_id sym_new(struct exprs *x, enum sym_kind kind, const char *name, int64_t lo, int64_t hi)
{
    sym_id id = sym_enter(
        x,
        (struct symbol){
            .kind = kind, .lo = lo, .hi = hi, .divisor = 1, .given = {lo, hi, 1}, .least = lo, .filled = lo},
        name);
    if (x->last_sym[kind].i)
        x->syms.data[x->last_sym[kind].i]->next = id;
    else
        x->first_sym[kind] = id;
    x->last_sym[kind] = id;
    return id;
}

sym_id sym_within(struct exprs *x, sym_id s, int64_t lo, int64_t hi)
{
    struct symbol with = *sym_get(x, s);
    with.lo = with.least = with.filled = with.given.lo = lo;
    with.hi = with.given.hi = hi;
    with.of = s;
    with.next = (sym_id){0};
    return sym_enter(x, with, with.name);
}

struct symbol *sym_get(struct exprs *x, sym_id s)
{
    return x->syms.data[s.i];
}

sym_id sym_find(const struct exprs *x, const char *name)
{
    return expr_find_sym(x, name);
}

uint32_t sym_count(const struct exprs *x)
{
    return x->syms.n - 1;
}

sym_id sym_next(const struct exprs *x, enum sym_kind kind, sym_id s)
{
    return s.i ? x->syms.data[s.i]->next : x->first_sym[kind];
}

expr_id ex_sym(struct exprs *x, sym_id s)
{
    expr_id *known = &x->sym_exprs.data[s.i];
    if (!known->i) {
        expr_id e = expr_intern(x, &(struct ekey){.kind = EX_SYM, .sym = s});
        x->sym_exprs.data[s.i] = e;
        return e;
    }
    return *known;
}

/* ---- queries ---------------------------------------------------------------------------------------------------- */

enum expr_kind ex_kind(const struct exprs *x, expr_id e)
{
    return e.i ? (enum expr_kind)enode(x, e)->kind : EX_NONE;
}

bool ex_is_const(const struct exprs *x, expr_id e, int64_t *value)
{
    if (ex_kind(x, e) != EX_CONST)
        return false;
    if (value)
        *value = enode(x, e)->c;
    return true;
}

bool ex_is(const struct exprs *x, expr_id e, int64_t value)
{
    return ex_kind(x, e) == EX_CONST && enode(x, e)->c == value;
}

sym_id ex_as_sym(const struct exprs *x, expr_id e)
{
    return ex_kind(x, e) == EX_SYM ? enode(x, e)->sym : (sym_id){0};
}

int64_t ex_lo(const struct exprs *x, expr_id e)
{
    return !e.i ? INT64_MIN : enode(x, e)->kind == EX_CONST ? enode(x, e)->c : enode(x, e)->lo;
}

int64_t ex_hi(const struct exprs *x, expr_id e)
{
    return !e.i ? INT64_MAX : enode(x, e)->kind == EX_CONST ? enode(x, e)->c : enode(x, e)->hi;
}

int64_t ex_divisor(const struct exprs *x, expr_id e)
{
    if (!e.i)
        return 1;
    int64_t d = enode(x, e)->div;
    return d ? d : (int64_t)1 << 62; /* zero is a multiple of everything */
}

uint32_t ex_size(const struct exprs *x, expr_id e)
{
    return enode(x, e)->size;
}

uint32_t ex_n_args(const struct exprs *x, expr_id e)
{
    return e.i ? enode(x, e)->n : 0;
}

expr_id ex_arg(const struct exprs *x, expr_id e, uint32_t i)
{
    return enode(x, e)->arg[i];
}

int64_t ex_coef(const struct exprs *x, expr_id sum, uint32_t i)
{
    return enode(x, sum)->coef[i];
}

int64_t ex_addend(const struct exprs *x, expr_id sum)
{
    return enode(x, sum)->c;
}
