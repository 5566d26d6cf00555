/* Integers of the run: see integers.h. */
#include "cli/commands/compare/integers.h"

#include <math.h>

#include "cli/commands/compare/chance.h"
#include "ir/eval/constants.h"
#include "ir/eval/eval.h"
#include "ir/expr/expr.h"
#include "ir/ops/field.h"

enum { ROUNDS = 16 }; /* over the nodes in the order of the run, until nothing changes */
enum { COMPARED_MOST = 64, DECIDING_MOST = 1 << 16 }; /* constants; what one that decides may be */

static bool is_integer(const struct type *t)
{
    return t->kind == TYPE_TENSOR && strchr("IU", elem_class(t->elem));
}

static bool is_exact(const struct type *t)
{
    return is_integer(t) || (t->kind == TYPE_TENSOR && elem_class(t->elem) == 'B');
}

/* ---- what inputs have to be -------------------------------------------------------------------------------------- */

static bool add_role(struct integers *s, value_id v, struct integer_role more)
{
    struct integer_role *r = &s->role[v.i], old = *r;
    r->decides |= more.decides;
    r->divides |= more.divides;
    r->shifts |= more.shifts;
    r->counts |= more.counts;
    if (more.extent && (!r->extent || more.extent < r->extent))
        r->extent = more.extent;
    return memcmp(&old, r, sizeof old) != 0;
}

/* How many elements the least of the dimensions has that an index of this node reaches; 0: not known. */
static int64_t reached(const struct graph *g, const struct node *n)
{
    const struct type *x = value_type(g, n->in[0]), *idx = value_type(g, n->in[1]);
    const bool tuples = n->op == OP_GATHER_ND || n->op == OP_SCATTER_ND;
    int64_t from = node_int(n, tuples ? "batch" : "axis", 0), count = 1, extent = 0;
    if (n->op != OP_GATHER && n->op != OP_GATHER_ELEMENTS && n->op != OP_SCATTER_ELEMENTS && !tuples)
        return 0;
    if (tuples && (!idx->rank || !ex_is_const(g->ctx->exprs, idx->dims[idx->rank - 1], &count)))
        return 0;
    for (int64_t d = from; d < from + count; d++) {
        int64_t dim;
        if (d >= x->rank || !ex_is_const(g->ctx->exprs, x->dims[d], &dim))
            return 0;
        extent = d == from || dim < extent ? dim : extent;
    }
    return extent;
}

static bool op_keeps_integers(enum op op)
{
    return op == OP_FLOOR || op == OP_CEIL || op == OP_ROUND || op == OP_TRUNC;
}

/* A function of the runtime that orders or transforms what it gets, and nothing else: any numbers serve, and the
 * positions that it gives are those of elements that there are. */
static bool takes_all(const struct node *n, uint32_t at)
{
    return n->op == OP_SORT || n->op == OP_UNIQUE || n->op == OP_NONZERO || n->op == OP_DFT || n->op == OP_DET ||
           (n->op == OP_NMS && at != 2);
}

/* Does it add the extent to a position from the end? */
static bool adds_extent(struct graph *g, const struct node *n, int64_t extent)
{
    bool adds = false;
    for (uint32_t i = 0; i < n->n_in && n->op == OP_ADD && extent; i++) {
        value_id v = n->in[i];
        int64_t x;
        while (v.i && value_op(g, v) == OP_BROADCAST)
            v = value_node(g, v)->in[0];
        adds |= v.i && is_integer(value_type(g, v)) && value_type(g, v)->rank == 0 && value_is_const(g, v) &&
                value_const_i64(g, v, &x, 1) && x == extent;
    }
    return adds;
}

/* What the node asks of its operands. */
static bool node_roles(struct integers *s, struct graph *g, const struct node *n)
{
    const enum op_shape shape = op_shape(n->op);
    struct integer_role of = {0};
    bool changed = false;
    for (uint32_t i = 0; i < n->n_out; i++) {
        const struct integer_role *r = &s->role[n->out[i].i];
        const bool moves = shape == SHAPE_VIEW || n->op == OP_CONVERT || adds_extent(g, n, r->extent);
        of.decides |= r->decides || (r->extent && !moves && n->op != OP_SELECT);
        of.divides |= r->divides && (moves || n->op == OP_SELECT || n->op == OP_MUL);
        of.shifts |= r->shifts && moves;
        of.counts |= r->counts && (moves || op_keeps_integers(n->op));
        of.extent = of.extent ? of.extent : moves || n->op == OP_SELECT ? r->extent : 0;
    }
    for (uint32_t i = 0; i < n->n_in; i++) {
        struct integer_role more = of;
        if (!n->in[i].i || value_type(g, n->in[i])->kind != TYPE_TENSOR || takes_all(n, i))
            continue;
        if (n->op == OP_SELECT && i == 0) /* which one of two numbers, whatever these are for */
            more = (struct integer_role){.decides = of.decides};
        more.decides |= shape == SHAPE_OPAQUE || (shape == SHAPE_CONTROL && i < 2) || n->op == OP_SEGMENTS;
        more.divides |= i == 1 && (n->op == OP_DIV || n->op == OP_MOD || n->op == OP_REM);
        more.shifts |= i == 1 && (n->op == OP_SHL || n->op == OP_SHR);
        more.counts |= n->op == OP_CONVERT && is_integer(value_type(g, n->out[0]));
        if (i == 1 && (shape == SHAPE_INDEX || shape == SHAPE_SCATTER)) {
            more = (struct integer_role){.extent = reached(g, n)};
            more.decides = !more.extent;
        }
        changed |= add_role(s, n->in[i], more);
    }
    return changed;
}

static void add_number(struct arena *arena, struct number_list *to, int64_t x)
{
    bool known = to->n == COMPARED_MOST;
    for (uint32_t k = 0; k < to->n && !known; k++)
        known = to->data[k] == x;
    if (!known)
        VEC_PUSH(arena, to, x);
}

/* Adds the integers of a constant that the node compares with. */
static void add_compared(struct integers *s, struct graph *g, value_id v, bool decides)
{
    int64_t x[COMPARED_MOST], n = 1, extent;
    while (v.i && value_op(g, v) == OP_BROADCAST)
        v = value_node(g, v)->in[0];
    if (!v.i || !is_integer(value_type(g, v)) || !value_is_const(g, v))
        return;
    for (int32_t d = 0; d < value_type(g, v)->rank; d++)
        if (!ex_is_const(g->ctx->exprs, value_type(g, v)->dims[d], &extent) || !mul_i64(n, extent, &n) ||
            n > COMPARED_MOST)
            return;
    if (!value_const_i64(g, v, x, (uint32_t)n))
        return;
    for (int64_t i = 0; i < n; i++) {
        add_number(&g->ctx->session, &s->compared, x[i]);
        if (decides && x[i] >= -DECIDING_MOST && x[i] <= DECIDING_MOST)
            add_number(&g->ctx->session, &s->deciding, x[i]);
    }
}

/* Adds the floats of a constant that the node asks others to be equal to. */
static void add_equal(struct integers *s, struct graph *g, value_id v)
{
    while (v.i && value_op(g, v) == OP_BROADCAST)
        v = value_node(g, v)->in[0];
    const enum elem elem = v.i && value_op(g, v) == OP_CONSTANT ? value_type(g, v)->elem : ELEM_NONE;
    if (!field_form(elem))
        return;
    const struct span data = node_attr(value_node(g, v), "data")->u.data;
    for (size_t at = 0; at + elem_size(elem) <= data.size && at / elem_size(elem) < COMPARED_MOST;
         at += elem_size(elem))
        add_number(&g->ctx->session, &s->floats, field_load(elem, (const char *)data.data + at));
}

static void compared_constants(struct integers *s, struct graph *g)
{
    for (uint32_t i = 1; i < g->nodes.n; i++) {
        const struct node *n = &g->nodes.data[i];
        const bool equal = n->op == OP_EQ || n->op == OP_NE;
        for (uint32_t k = 0; k < n->n_in && !n->dead && (equal || n->op == OP_LT || n->op == OP_LE); k++)
            add_compared(s, g, n->in[k], s->role[n->out[0].i].decides);
        for (uint32_t k = 0; k < n->n_in && !n->dead && equal; k++)
            add_equal(s, g, n->in[k]);
    }
}

void integers_roles(struct integers *s, struct graph *g)
{
    struct exprs *x = g->ctx->exprs;
    bool changed = true;
    s->role = NEW_ARRAY(&g->ctx->session, struct integer_role, g->values.n + 1);
    for (sym_id y = sym_next(x, SYM_VALUE, (sym_id){0}); y.i; y = sym_next(x, SYM_VALUE, y))
        if (sym_get(x, y)->value < g->values.n)
            s->role[sym_get(x, y)->value].decides = true;
    for (int round = 0; changed && round < ROUNDS; round++) {
        changed = false;
        for (uint32_t r = g->regions.n; r-- > 1;)
            for (uint32_t i = g->regions.data[r].nodes.n; i-- > 0;)
                changed |= node_roles(s, g, graph_node(g, g->regions.data[r].nodes.data[i]));
    }
    compared_constants(s, g);
}

/* ---- draws ------------------------------------------------------------------------------------------------------- */

uint64_t integer_random(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

int64_t integer_deciding(uint64_t r, uint32_t attempt)
{
    static const struct {
        int8_t low, n;
    } ranges[] = {{0, 8}, {0, 5}, {0, 3}, {1, 4}, {0, 2}, {1, 2}, {-2, 5}, {1, 1}};
    /* the first ranges are wide, the last ones are one number */
    _Static_assert(INTEGER_EACH * COUNT_OF(ranges) == INTEGER_ATTEMPTS, "each range has as many attempts");
    return ranges[attempt / INTEGER_EACH].low + (int64_t)(r % (uint64_t)ranges[attempt / INTEGER_EACH].n);
}

int64_t integer_many(uint64_t r)
{
    return r & 1 ? 16 * (1 + (int64_t)((r >> 1) % 5)) : 8 + (int64_t)((r >> 1) % 73);
}

/* Is a number that decides one of the constants that such numbers are compared with? In half of the draws at first,
 * else if the attempt before was refused, also where attempts are INTEGER_EACH apart. */
static bool takes_constants(uint32_t draw, uint32_t attempt)
{
    uint64_t state = draw;
    return (integer_random(&state) ^ attempt ^ attempt / INTEGER_EACH) & 1;
}

static uint64_t drawn(const struct integers *s, const struct integer_role *role, enum elem elem, uint64_t *state,
                      uint32_t draw, uint32_t attempt)
{
    const uint32_t bits = elem_bits(elem);
    const bool is_signed = elem_class(elem) == 'I';
    const uint64_t r = integer_random(state), top = (uint64_t)1 << (bits - 1);
    const uint64_t ends[] = {0, 1, UINT64_MAX, is_signed ? top : top - 1, is_signed ? top - 1 : top};
    if (role->decides && s->deciding.n && takes_constants(draw, attempt))
        return (uint64_t)s->deciding.data[(r >> 8) % s->deciding.n] + (r & 6 ? 0 : r & 1 ? 1 : UINT64_MAX);
    if (role->decides)
        return (uint64_t)integer_deciding(r, attempt);
    if (role->extent) {
        const int64_t n = role->extent, at = (int64_t)(r >> 2) % (is_signed ? 2 * n : n);
        const int64_t last[] = {0, n - 1, is_signed ? -1 : 0, is_signed ? -n : n - 1};
        return (uint64_t)(draw % 3 == 2 ? last[r & 3] : at < n ? at : at - 2 * n);
    }
    if (role->shifts)
        return r % (bits + 2);
    if (draw % 3 == 1) { /* of any number of bits, half of them small, and the complements */
        const uint64_t h = integer_random(state), of = h & 1 || bits < 8 ? bits : 4;
        const uint64_t few = r >> (64 - of) >> ((h >> 8) % of);
        return is_signed && r & 1 ? ~(few >> 1) : few >> is_signed;
    }
    return draw % 3 == 2 ? ends[(r >> 8) % COUNT_OF(ends)] : r;
}

/* One of the constants; in some draws also x, or what is next to one. */
static uint64_t draw_compared(const struct integers *s, uint64_t r, uint32_t draw, uint64_t x)
{
    const uint64_t constant = (uint64_t)s->compared.data[(r >> 8) % s->compared.n];
    const bool next = draw % 4 == 0 && (r & 6) == 0;
    return draw % 4 < 2 && r & 1 ? x : !next ? constant : constant + (r & 8 ? 1 : UINT64_MAX);
}

/* One index next to the dimension, which the network refuses, unless it leaves such indices out. */
static void put_outside(struct file_tensor *t, int64_t extent, uint64_t r)
{
    const size_t size = elem_size(t->elem), n = t->size / size;
    const int64_t x = r & 1 && elem_class(t->elem) == 'I' ? -extent - 1 : extent;
    if (n && elem_bits(t->elem) >= 32 && x == (int32_t)x)
        memcpy((char *)t->data + (r >> 1) % n * size, &x, size);
}

void integers_draw(struct file_tensor *t, const struct integer_role *role, const struct integers *s, bool compared,
                   uint64_t *state, uint32_t draw, uint32_t attempt)
{
    const size_t size = elem_size(t->elem);
    compared = compared && s->compared.n && !role->shifts && attempt < INTEGER_FEW;
    for (size_t k = 0; k + size <= t->size; k += size) {
        uint64_t x = drawn(s, role, t->elem, state, draw, attempt);
        x = compared ? draw_compared(s, integer_random(state), draw, x) : x;
        const uint64_t low = x << (64 - elem_bits(t->elem));
        x = role->divides && !low ? 1 : x;
        memcpy((char *)t->data + k, &x, size); /* its low bytes */
    }
    if (role->extent && !role->decides && draw % 4 == 3 && attempt == 0)
        put_outside(t, role->extent, integer_random(state));
}

/* ---- what kernels compute with ----------------------------------------------------------------------------------- */

/* Of the results of a node, from its operands. */
static uint8_t result_origin(const struct integers *s, const struct graph *g, const struct node *n, uint32_t i)
{
    const struct type *t = value_type(g, n->out[i]);
    const enum op_shape shape = op_shape(n->op);
    uint8_t from = 0;
    if (shape == SHAPE_CONTROL || shape == SHAPE_OPAQUE || t->kind != TYPE_TENSOR)
        return FROM_INTEGERS;
    if (chance_is_single(n)) /* a position */
        return 0;
    if (n->op == OP_FROM_EXPRS) {
        uint32_t count;
        const expr_id *list = node_exprs(n, "exprs", &count);
        for (uint32_t k = 0; k < count; k++)
            from |= ex_uses_kind(g->ctx->exprs, list[k], SYM_VALUE) ? FROM_INTEGERS : 0;
        return from;
    }
    for (uint32_t k = 0; k < n->n_in; k++)
        from |= n->in[k].i ? s->origin[n->in[k].i] : 0;
    return is_exact(t) || !from ? from : FROM_FLOATS;
}

static bool is_true(struct graph *g, value_id v)
{
    int64_t x = 0;
    return value_is_const(g, v) && value_const_i64(g, v, &x, 1) && x;
}

/* The number of a trip, for a loop that nothing but a number of trips ends; {0}: for others. */
static value_id trip_of(struct graph *g, const struct node *n)
{
    if (n->op != OP_LOOP || node_int(n, "forever", 0) || n->n_region != 1)
        return (value_id){0};
    const struct region *r = graph_get_region(g, n->region[0]);
    const bool goes_on = r->results.n && is_true(g, r->results.data[0]) && is_true(g, n->in[1]);
    return goes_on && r->params.n ? r->params.data[0] : (value_id){0};
}

/* follows: else its results are the worst. */
static bool node_origins(struct integers *s, struct graph *g, const struct node *n, bool follows)
{
    bool changed = false;
    const value_id trip = n->dead ? (value_id){0} : trip_of(g, n);
    if (trip.i) { /* of so many trips each draw makes all, as an iota has all positions */
        const uint8_t was = s->origin[trip.i];
        s->origin[trip.i] |= follows ? s->origin[n->in[0].i] : FROM_INTEGERS;
        changed = was != s->origin[trip.i];
    }
    for (uint32_t k = 0; k < n->n_out && !n->dead; k++) {
        uint8_t *origin = &s->origin[n->out[k].i], was = *origin;
        *origin |= follows ? result_origin(s, g, n, k) : FROM_INTEGERS;
        changed |= was != *origin;
    }
    return changed;
}

static uint8_t parameter_origin(const struct type *t)
{
    return is_integer(t) && elem_bits(t->elem) > 8                       ? FROM_INTEGERS
           : t->kind == TYPE_TENSOR && strchr("FC", elem_class(t->elem)) ? FROM_FLOATS
                                                                         : FROM_BYTES;
}

void integers_origins(struct integers *s, struct graph *g)
{
    struct arena *arena = &g->ctx->session;
    bool changed = true;
    s->origin = NEW_ARRAY(arena, uint8_t, g->values.n + 1);
    s->watched = NEW_ARRAY(arena, bool, g->values.n + 1);
    s->uniform = NEW_ARRAY(arena, bool, g->values.n + 1);
    s->history = NEW_ARRAY(arena, struct integer_history, g->values.n + 1);
    for (uint32_t i = 1; i < g->values.n; i++)
        if (!g->values.data[i].def.i)
            s->origin[i] = parameter_origin(&g->values.data[i].type);
    for (uint32_t i = 1; i < g->nodes.n; i++)
        if (!g->nodes.data[i].dead)
            s->origin[trip_of(g, &g->nodes.data[i]).i] = 0;
    for (int round = 0; changed; round++) {
        changed = false;
        for (uint32_t r = 1; r < g->regions.n; r++)
            for (uint32_t i = 0; i < g->regions.data[r].nodes.n; i++)
                changed |= node_origins(s, g, graph_node(g, g->regions.data[r].nodes.data[i]), round < ROUNDS);
    }
}

/* Of polynomials of integers drawn ones show much: of degree d over all bytes, they vanish in d of 256. */
static bool is_polynomial(enum op op, const char *monoid)
{
    switch (op) {
    case OP_ADD:
    case OP_SUB:
    case OP_MUL:
    case OP_NEG:
    case OP_MIN:
    case OP_MAX:
    case OP_SELECT: return true;
    case OP_REDUCE:
    case OP_WINDOW: return strcmp(monoid, "sum") == 0 || strcmp(monoid, "max") == 0 || strcmp(monoid, "min") == 0;
    default: return false;
    }
}

/* Bytes, all of whose values are drawn, to other types of numbers, or integers to floats that hold them. */
static bool is_widening(const struct graph *g, const struct node *n)
{
    const enum elem from = value_type(g, n->in[0])->elem, to = value_type(g, n->out[0])->elem;
    return n->op == OP_CONVERT && to != ELEM_BOOL &&
           (elem_bits(from) <= 8 || to == ELEM_F32 || elem_bits(to) > elem_bits(from));
}

/* Bytes by a table of all of them, and bytes as other ones. */
static bool is_byte_function(const struct graph *g, const struct node *n)
{
    const bool table = n->op == OP_GATHER && value_is_const(g, n->in[0]);
    return (table || n->op == OP_BITCAST) && elem_bits(value_type(g, n->in[table])->elem) == 8;
}

static bool is_exact_of_bytes(const struct graph *g, const struct node *n)
{
    return is_polynomial(n->op, node_str(n, "monoid", "")) || is_widening(g, n) || is_byte_function(g, n);
}

/* What a broadcast repeats: the copies are equal, which says nothing. */
static value_id repeated(const struct graph *g, value_id v)
{
    while (v.i && value_op(g, v) == OP_BROADCAST)
        v = value_node(g, v)->in[0];
    return v;
}

static bool is_uniform(struct graph *g, value_id v, uint32_t depth)
{
    enum { DEPTH = 8 };
    const struct node *n = value_node(g, v);
    bool uniform = n && depth < DEPTH && op_shape(n->op) == SHAPE_MAP;
    for (uint32_t i = 0; uniform && i < n->n_in; i++) {
        const value_id of = repeated(g, n->in[i]);
        const struct type *t = value_type(g, of);
        bool single = t->kind == TYPE_TENSOR;
        for (int32_t d = 0; single && d < t->rank; d++)
            single = ex_is(g->ctx->exprs, t->dims[d], 1);
        uniform = single || integer_is_fixed(g, of) || is_uniform(g, of, depth + 1);
    }
    return uniform;
}

/* Not what can be one number only, as a position in a dim of one element is. */
static void watch(struct integers *s, struct graph *g, value_id v)
{
    v = repeated(g, v);
    if (!v.i || !is_exact(value_type(g, v)) || !s->origin[v.i] || value_is_const(g, v) || chance_empty(g, v))
        return;
    s->watched[v.i] |= !integer_is_fixed(g, v);
    s->uniform[v.i] = is_uniform(g, v, 0);
}

void integers_watch(struct integers *s, value_id v)
{
    s->watched[v.i] = true;
}

double integers_shown_of(const struct integers *s, value_id v)
{
    return fmin(s->history[v.i].moved, s->history[v.i].differed);
}

bool integers_need_draws(struct integers *s, struct graph *g, const struct node *n, const char **why)
{
    const enum op_shape shape = op_shape(n->op);
    bool wide = false;
    uint8_t from = 0;
    if (shape == SHAPE_VIEW || n->op == OP_CONV || n->op == OP_DOT ||
        ((n->op == OP_UNIQUE || n->op == OP_NMS) && !chance_tells(g, n)))
        return false;
    for (uint32_t i = 0; i < n->n_in; i++) {
        const struct type *t = n->in[i].i ? value_type(g, n->in[i]) : NULL;
        if (!t || !is_integer(t) || value_is_const(g, n->in[i]))
            continue;
        from |= s->origin[n->in[i].i];
        wide |= elem_bits(t->elem) > 32;
    }
    if (!from || (!wide && !(from & FROM_INTEGERS) && is_exact_of_bytes(g, n)))
        return false;
    if (n->op == OP_BITCAST && elem_class(value_type(g, n->out[0])->elem) == 'F')
        *why = "it takes the bits of integers for floats";
    for (uint32_t i = 0; i < n->n_in; i++)
        watch(s, g, n->in[i]);
    for (uint32_t i = 0; i < n->n_out; i++)
        watch(s, g, n->out[i]);
    return true;
}

/* Of the positions that both tensors have, how many have other elements; 0: there is none. */
static double share_moved(const struct tensor *last, const struct tensor *t)
{
    int64_t dims[RANK_MAX] = {0}, at[RANK_MAX] = {0}, of[2][RANK_MAX], moved = 0, n = 0;
    const size_t size = elem_size(t->elem);
    if (last->rank != t->rank || t->rank < 0 || t->rank > RANK_MAX)
        return 0;
    for (int32_t d = 0; d < t->rank; d++)
        dims[d] = t->dims[d] < last->dims[d] ? t->dims[d] : last->dims[d];
    if (dims_count(dims, t->rank) == 0)
        return 0;
    dims_strides(last->dims, t->rank, of[0]);
    dims_strides(t->dims, t->rank, of[1]);
    do {
        int64_t from = 0, to = 0;
        for (int32_t d = 0; d < t->rank; d++)
            from += at[d] * of[0][d], to += at[d] * of[1][d];
        n++;
        moved += memcmp((const char *)last->data + (size_t)from * size, (const char *)t->data + (size_t)to * size,
                        size) != 0;
    } while (dims_next(dims, t->rank, at));
    return (double)moved / (double)n;
}

void integers_count(struct integers *s, struct arena *arena, value_id v, const struct tensor *t)
{
    if (!s->watched || !s->watched[v.i] || t->kind != TYPE_TENSOR)
        return;
    struct integer_history *h = &s->history[v.i];
    const size_t size = elem_size(t->elem);
    const char *data = t->data;
    const int64_t n = tensor_count(t);
    int64_t differ = 0;
    for (int64_t i = 1; i < n; i++)
        differ += memcmp(data + (size_t)i * size, data + (size_t)(i - 1) * size, size) != 0;
    h->moved += h->last.data ? share_moved(&h->last, t) : 0;
    h->differed += differ || n == 1 || (n && s->uniform[v.i]);
    if (n > h->room) {
        h->room = n;
        h->data = arena_alloc_array(arena, (size_t)n, size);
    }
    if (n)
        memcpy(h->data, data, (size_t)n * size);
    h->last = *t;
    h->last.data = n ? h->data : NULL;
    h->last.dims = memcpy(h->dims, t->dims, (size_t)t->rank * sizeof *t->dims);
}

double integers_shown(const struct integers *s, const struct graph *g, const struct node *n)
{
    double least = INFINITY;
    for (uint32_t i = 0; i < n->n_in + n->n_out; i++) {
        const value_id v = repeated(g, i < n->n_in ? n->in[i] : n->out[i - n->n_in]);
        const bool asks = v.i && s->watched[v.i] && is_exact(value_type(g, v));
        least = asks ? fmin(least, integers_shown_of(s, v)) : least;
    }
    return least;
}
