/* Sequences and optionals.
 *
 * Where the structure is known while compiling they are lists of values and vanish: constructors, positions known
 * now, lengths, splits into a known number of pieces. What the run decides goes to the run-time operators.
 */
#include "passes/legalize/control.h"

static const struct lowered *list_copy(struct rule *r, const struct lowered *items, uint32_t n, uint32_t room)
{
    struct lowered *copy = NEW_ARRAY(&r->b->g->arena, struct lowered, n + room + 1);
    if (n)
        memcpy(copy, items, n * sizeof *copy);
    return copy;
}

static bool list_out(struct rule *r, const struct lowered *items, uint32_t n, enum elem elem)
{
    r->out[0] = (struct lowered){.kind = LOWERED_LIST, .items = items, .n = n, .elem = elem};
    return true;
}

static bool is_list(const struct rule *r, uint32_t i)
{
    return rule_has(r, i) && r->arg[i].kind == LOWERED_LIST;
}

/* Position operand i, from the end when negative; *known false: it is dynamic. */
static bool position(struct rule *r, uint32_t i, uint32_t n, int64_t absent, bool *known, uint32_t *at)
{
    int64_t pos = absent;
    *known = true;
    if (rule_has(r, i) && !v_known_i64(r->b, rule_in(r, i), 0, &pos)) {
        *known = false;
        return true;
    }
    if (pos < -(int64_t)n || pos > (int64_t)n)
        return rule_bad(r, "position %lld in a sequence of %u", (long long)pos, n);
    *at = (uint32_t)(pos < 0 ? pos + n : pos);
    return true;
}

bool rule_seq_construct(struct rule *r)
{
    enum elem e = r->n_in && r->arg[0].kind == LOWERED_VALUE ? v_elem(r->b, r->arg[0].v) : ELEM_NONE;
    return list_out(r, list_copy(r, r->arg, r->n_in, 0), r->n_in, e);
}

bool rule_seq_empty(struct rule *r)
{
    return list_out(r, NULL, 0, rule_elem_attr(r, "dtype", ELEM_F32));
}

bool rule_seq_length(struct rule *r)
{
    value_id s;
    if (is_list(r, 0))
        return rule_result(r, b_scalar_i64(r->b, ELEM_I64, r->arg[0].n));
    s = rule_in(r, 0);
    return rule_result(r, b_op(r->b, OP_SEQ_LENGTH, &s, 1, NULL, 0));
}

/* Elements of one type in a list, a position of the run: stacked, then gathered. */
static bool list_gather(struct rule *r)
{
    struct builder *b = r->b;
    const struct lowered *l = &r->arg[0];
    value_id *rows = NEW_ARRAY(&b->g->arena, value_id, l->n + 1);
    for (uint32_t i = 0; i < l->n; i++) {
        rows[i] = l->items[i].kind == LOWERED_VALUE ? l->items[i].v : (value_id){0};
        if (!rows[i].i || !type_equal(value_type(b->g, rows[i]), value_type(b->g, rows[0])))
            return false;
        rows[i] = b_unsqueeze(b, rows[i], 0);
    }
    return l->n && rule_result(r, b_gather(b, b_concat(b, rows, l->n, 0), v_scalar(b, rule_in(r, 1)), 0));
}

/* ---- what a run-time sequence or optional holds ------------------------------------------------------------------ */

/* Its dims: what the type leaves open becomes symbols that the value taken out binds. */
static bool held_dims(struct rule *r, const struct type *t, const char *what, expr_id dims[RANK_MAX])
{
    if (t->kind != TYPE_TENSOR)
        return rule_refuse(r, "the elements of the sequence are not tensors");
    if (t->rank == RANK_NONE)
        return rule_bad(r, "there is no %s: always empty here", what);
    if (t->rank == RANK_UNKNOWN)
        return rule_refuse(r, "the rank of the %s is known only at run time", what);
    for (int32_t i = 0; i < t->rank; i++)
        dims[i] = t->dims[i].i ? t->dims[i] : b_symbol(r->b, "held_dim", INT32_MAX);
    return true;
}

static value_id held_bind(struct builder *b, value_id v, const expr_id *dims, int32_t rank)
{
    for (int32_t i = 0; v.i && i < rank; i++)
        fresh_bind(b, dims[i], v);
    return v;
}

value_id sequence_item(struct rule *r, value_id seq, value_id at)
{
    struct builder *b = r->b;
    value_id in[2] = {seq, at};
    const struct type *t = seq.i ? value_type(b->g, seq) : NULL;
    expr_id dims[RANK_MAX];
    if (!t || !at.i)
        return (value_id){0};
    if (t->kind != TYPE_SEQUENCE || !t->inner)
        return rule_bad(r, "operand 1 is not a sequence"), (value_id){0};
    if (!held_dims(r, t->inner, "element", dims))
        return (value_id){0};
    struct attr attr = attr_exprs("dims", dims, (uint32_t)t->inner->rank);
    return held_bind(b, b_op(b, OP_SEQ_AT, in, 2, &attr, 1), dims, t->inner->rank);
}

bool rule_seq_at(struct rule *r)
{
    bool known;
    uint32_t at = 0;
    if (is_list(r, 0)) {
        if (!position(r, 1, r->arg[0].n, 0, &known, &at))
            return false;
        if (known && at >= r->arg[0].n)
            return rule_bad(r, "position %u in a sequence of %u", at, r->arg[0].n);
        if (known) {
            r->out[0] = r->arg[0].items[at];
            return true;
        }
        if (list_gather(r))
            return true;
    }
    return rule_result(r, sequence_item(r, rule_in(r, 0), v_scalar(r->b, rule_in(r, 1))));
}

bool rule_seq_insert(struct rule *r)
{
    bool known;
    uint32_t at = 0, n = r->arg[0].n;
    if (is_list(r, 0)) {
        if (!position(r, 2, n, n, &known, &at))
            return false;
        if (known) {
            struct lowered *items = (struct lowered *)(uintptr_t)list_copy(r, r->arg[0].items, n, 1);
            memmove(items + at + 1, items + at, (n - at) * sizeof *items);
            items[at] = r->arg[1];
            enum elem e = r->arg[1].kind == LOWERED_VALUE ? v_elem(r->b, r->arg[1].v) : r->arg[0].elem;
            return list_out(r, items, n + 1, e);
        }
    }
    value_id in[3] = {rule_in(r, 0), rule_in(r, 1)};
    if (rule_has(r, 2))
        in[2] = v_scalar(r->b, rule_in(r, 2));
    return rule_result(r, b_op(r->b, OP_SEQ_INSERT, in, rule_has(r, 2) ? 3 : 2, NULL, 0));
}

bool rule_seq_erase(struct rule *r)
{
    bool known;
    uint32_t at = 0, n = r->arg[0].n;
    if (is_list(r, 0)) {
        if (!position(r, 1, n, -1, &known, &at))
            return false;
        if (known && at >= n)
            return rule_bad(r, "position %u in a sequence of %u", at, n);
        if (known) {
            struct lowered *items = (struct lowered *)(uintptr_t)list_copy(r, r->arg[0].items, n, 0);
            memmove(items + at, items + at + 1, (n - at - 1) * sizeof *items);
            return list_out(r, items, n - 1, r->arg[0].elem);
        }
    }
    value_id in[2] = {rule_in(r, 0)};
    if (rule_has(r, 1))
        in[1] = v_scalar(r->b, rule_in(r, 1));
    return rule_result(r, b_op(r->b, OP_SEQ_ERASE, in, rule_has(r, 1) ? 2 : 1, NULL, 0));
}

/* Of a run-time sequence: what its type leaves open, and the sum along the axis, become symbols. */
static bool seq_concat_late(struct rule *r, bool new_axis)
{
    struct builder *b = r->b;
    value_id seq = rule_in(r, 0);
    const struct type *t = seq.i ? value_type(b->g, seq) : NULL;
    expr_id dims[RANK_MAX];
    int32_t axis;
    if (!t || t->kind != TYPE_SEQUENCE || !t->inner)
        return t ? rule_bad(r, "operand 1 is not a sequence") : false;
    const struct type *item = t->inner;
    if (!held_dims(r, item, "element", dims))
        return false;
    int32_t rank = item->rank + new_axis;
    if (rank > RANK_MAX || !rule_axis(r, rule_int(r, "axis", 0), rank, &axis))
        return false;
    for (int32_t i = 0; i < rank; i++) {
        int32_t from = i - (new_axis && i > axis);
        dims[i] = i != axis && item->dims[from].i ? item->dims[from] : b_symbol(b, "concat_dim", INT32_MAX);
    }
    struct attr attrs[] = {attr_int("axis", axis), attr_int("new_axis", new_axis),
                           attr_exprs("dims", dims, (uint32_t)rank)};
    return rule_result(r, held_bind(b, b_op(b, OP_SEQ_CONCAT, &seq, 1, attrs, 3), dims, rank));
}

bool rule_seq_concat(struct rule *r)
{
    struct builder *b = r->b;
    bool new_axis = rule_int(r, "new_axis", 0) != 0;
    int32_t axis;
    if (!is_list(r, 0))
        return seq_concat_late(r, new_axis);
    uint32_t n = r->arg[0].n;
    value_id *v = NEW_ARRAY(&b->g->arena, value_id, n + 1);
    if (!n)
        return rule_bad(r, "the sequence is empty");
    for (uint32_t i = 0; i < n; i++)
        v[i] = lowered_force(b, r->arg[0].items[i]);
    if (!rule_axis(r, rule_int(r, "axis", 0), v_rank(b, v[0]) + new_axis, &axis))
        return false;
    for (uint32_t i = 0; i < n && new_axis; i++)
        v[i] = b_unsqueeze(b, v[i], axis);
    return rule_result(r, b_concat(b, v, n, axis));
}

/* ---- SplitToSequence --------------------------------------------------------------------------------------------- */

/* Sizes of the pieces; false silently when their number is not known now. */
static bool split_plan(struct rule *r, expr_id dim, expr_id **sizes, uint32_t *n)
{
    int64_t total, chunk = 1;
    value_id split = rule_in(r, 1);
    if (rule_has(r, 1) && v_rank(r->b, split) == 1) {
        int64_t pieces;
        bool few = ex_is_const(r->b->x, b_dim(r->b, split, 0), &pieces) && pieces <= 4096;
        const expr_id *given = few ? b_elems(r->b, split, 0, INT32_MAX, n) : NULL;
        if (!given)
            return false;
        *sizes = NEW_ARRAY(&r->b->g->arena, expr_id, *n + 1);
        if (*n)
            memcpy(*sizes, given, *n * sizeof *given);
        return true;
    }
    if (rule_has(r, 1) && !v_known_i64(r->b, split, 0, &chunk))
        return false;
    if (!ex_is_const(r->b->x, dim, &total) || chunk < 1 || total / chunk > 4096)
        return false;
    *n = (uint32_t)(total / chunk + (total % chunk != 0));
    *sizes = NEW_ARRAY(&r->b->g->arena, expr_id, *n + 1);
    for (uint32_t i = 0; i < *n; i++)
        (*sizes)[i] = ex_const(r->b->x, total - chunk * i < chunk ? total - chunk * i : chunk);
    return true;
}

bool rule_split_to_sequence(struct rule *r)
{
    struct builder *b = r->b;
    value_id x = rule_in(r, 0);
    int32_t axis;
    uint32_t n;
    expr_id *sizes, start = ex_const(b->x, 0);
    bool drop = !rule_has(r, 1) && !rule_int(r, "keepdims", 1);
    if (!x.i || !rule_axis(r, rule_int(r, "axis", 0), v_rank(b, x), &axis))
        return false;
    if (!split_plan(r, b_dim(b, x, axis), &sizes, &n)) {
        value_id in[2] = {x, rule_has(r, 1) ? b_convert(b, rule_in(r, 1), ELEM_I64) : (value_id){0}};
        struct attr attrs[] = {attr_int("axis", axis), attr_int("keepdims", rule_int(r, "keepdims", 1))};
        return rule_result(r, b_op(b, OP_SEQ_SPLIT, in, rule_has(r, 1) ? 2 : 1, attrs, 2));
    }
    struct lowered *items = NEW_ARRAY(&b->g->arena, struct lowered, n + 1);
    for (uint32_t i = 0; i < n; i++) {
        value_id piece = b_slice_axis(b, x, axis, start, sizes[i]);
        items[i] = lowered_value(drop ? b_squeeze(b, piece, axis) : piece);
        start = ex_add(b->x, start, sizes[i]);
    }
    return list_out(r, items, n, v_elem(b, x));
}

/* ---- SequenceMap ------------------------------------------------------------------------------------------------- */

/* The body once per element; other operands are sequences too, or tensors given to every call. */
bool rule_sequence_map(struct rule *r)
{
    region_id body = rule_region(r, "body");
    struct arena *arena = &r->b->g->arena;
    if (!body.i || !is_list(r, 0))
        return body.i ? sequence_map_loop(r, body) : rule_bad(r, "no body");
    uint32_t n = r->arg[0].n;
    struct lowered *params = NEW_ARRAY(arena, struct lowered, r->n_in + 1),
                   *results = NEW_ARRAY(arena, struct lowered, r->n_out + 1);
    struct lowered **columns = NEW_ARRAY(arena, struct lowered *, r->n_out + 1);
    for (uint32_t o = 0; o < r->n_out; o++)
        columns[o] = NEW_ARRAY(arena, struct lowered, n + 1);
    for (uint32_t k = 0; k < n; k++) {
        for (uint32_t i = 0; i < r->n_in; i++) {
            bool list = is_list(r, i);
            if (list && r->arg[i].n != n)
                return rule_bad(r, "sequences of %u and %u elements", n, r->arg[i].n);
            params[i] = list ? r->arg[i].items[k] : r->arg[i];
        }
        if (!legalize_region(r, body, params, r->n_in, results, r->n_out))
            return false;
        for (uint32_t o = 0; o < r->n_out; o++)
            columns[o][k] = results[o];
    }
    for (uint32_t o = 0; o < r->n_out; o++)
        r->out[o] = (struct lowered){.kind = LOWERED_LIST,
                                     .items = columns[o],
                                     .n = n,
                                     .elem = n && columns[o][0].kind == LOWERED_VALUE ? v_elem(r->b, columns[o][0].v)
                                                                                      : ELEM_NONE};
    return true;
}

/* ---- optionals --------------------------------------------------------------------------------------------------- */

bool rule_optional(struct rule *r)
{
    const struct attr *type = node_attr(r->node, "type");
    const struct type *t = type && type->kind == ATTR_TYPE ? type->u.type : NULL;
    bool sequence = t && t->kind == TYPE_SEQUENCE;
    r->out[0] = (struct lowered){.kind = LOWERED_OPTIONAL,
                                 .sequence = sequence,
                                 .elem = !t         ? ELEM_NONE
                                         : sequence ? (t->inner ? t->inner->elem : ELEM_NONE)
                                                    : t->elem};
    if (rule_has(r, 0)) {
        r->out[0].items = list_copy(r, r->arg, 1, 0);
        r->out[0].n = 1;
    }
    return true;
}

static bool is_runtime_optional(const struct rule *r)
{
    return rule_has(r, 0) && r->arg[0].kind == LOWERED_VALUE && value_type(r->b->g, r->arg[0].v)->kind == TYPE_OPTIONAL;
}

bool rule_optional_has(struct rule *r)
{
    if (is_runtime_optional(r)) {
        value_id o = rule_in(r, 0);
        return rule_result(r, b_op(r->b, OP_OPT_HAS, &o, 1, NULL, 0));
    }
    bool has = rule_has(r, 0) && (r->arg[0].kind != LOWERED_OPTIONAL || r->arg[0].n);
    return rule_result(r, b_scalar_i64(r->b, ELEM_BOOL, has));
}

value_id optional_content(struct rule *r, value_id o)
{
    const struct type *t = value_type(r->b->g, o)->inner;
    expr_id dims[RANK_MAX];
    if (!t || t->kind != TYPE_TENSOR)
        return b_op(r->b, OP_OPT_GET, &o, 1, NULL, 0);
    if (!held_dims(r, t, "content", dims))
        return (value_id){0};
    struct attr attr = attr_exprs("dims", dims, (uint32_t)t->rank);
    return held_bind(r->b, b_op(r->b, OP_OPT_GET, &o, 1, &attr, 1), dims, t->rank);
}

bool rule_optional_get(struct rule *r)
{
    if (!rule_has(r, 0))
        return rule_bad(r, "no operand");
    if (is_runtime_optional(r)) {
        value_id o = rule_in(r, 0);
        return rule_result(r, optional_content(r, o));
    }
    if (r->arg[0].kind == LOWERED_OPTIONAL && !r->arg[0].n)
        return rule_bad(r, "the optional is empty");
    r->out[0] = r->arg[0].kind == LOWERED_OPTIONAL ? r->arg[0].items[0] : r->arg[0];
    return true;
}
