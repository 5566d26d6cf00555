/* Inference of opaque operators, sequences, optionals and control flow (see infer.c).
 *
 * IF and LOOP get their result types from the caller (regions are filled after the node exists); what can be
 * checked against the operands is checked. */
#include "ir/graph/infer.h"

static bool fresh_count(struct infer *f, const char *name, expr_id *count)
{
    *count = node_expr(&f->attrs, name);
    return count->i ? true : infer_error(f, "attribute %s is missing", name);
}

static void set_1d(struct infer *f, uint32_t i, enum elem elem, expr_id n)
{
    expr_id *d = infer_dims(f, 1);
    d[0] = n;
    infer_set(f, i, elem, 1, d);
}

bool infer_sort(struct infer *f)
{
    const struct type *t = infer_tensor(f, 0);
    int64_t axis;
    if (!t || !infer_elem_in(f, 0, "BIUF") || !infer_axis(f, t->rank, &axis))
        return false;
    expr_id *dims = infer_dims(f, t->rank), count = node_expr(&f->attrs, "count");
    memcpy(dims, t->dims, (size_t)t->rank * sizeof *dims);
    if (count.i)
        dims[axis] = count;
    infer_set(f, 0, t->elem, t->rank, dims);
    return infer_set(f, 1, ELEM_I64, t->rank, dims);
}

bool infer_nonzero(struct infer *f)
{
    const struct type *t = infer_tensor(f, 0);
    expr_id *dims = infer_dims(f, 2);
    if (!t || !infer_elem_in(f, 0, "BIUF") || !fresh_count(f, "count", &dims[1]))
        return false;
    dims[0] = ex_const(f->ex, t->rank);
    return infer_set(f, 0, ELEM_I64, 2, dims);
}

bool infer_unique(struct infer *f)
{
    const struct type *t = infer_tensor(f, 0);
    int64_t axis = node_int(&f->attrs, "axis", -1);
    expr_id count, whole = ex_const(f->ex, 1);
    if (!t || !infer_elem_in(f, 0, "BIUF") || !fresh_count(f, "count", &count))
        return false;
    if (axis != -1 && !infer_axis(f, t->rank, &axis))
        return false;
    if (axis == -1) {
        for (int32_t i = 0; i < t->rank; i++)
            whole = ex_mul(f->ex, whole, t->dims[i]);
        set_1d(f, 0, t->elem, count);
    } else {
        expr_id *dims = infer_dims(f, t->rank);
        memcpy(dims, t->dims, (size_t)t->rank * sizeof *dims);
        whole = dims[axis];
        dims[axis] = count;
        infer_set(f, 0, t->elem, t->rank, dims);
    }
    set_1d(f, 1, ELEM_I64, count);
    set_1d(f, 2, ELEM_I64, whole);
    set_1d(f, 3, ELEM_I64, count);
    return true;
}

bool infer_nms(struct infer *f)
{
    expr_id *dims = infer_dims(f, 2);
    static const int32_t ranks[] = {3, 3, 0, 0, 0};
    for (uint32_t i = 0; i < 5; i++) {
        const struct type *t = infer_tensor(f, i);
        if (!t || !infer_elem_in(f, i, i == 2 ? "I" : "F"))
            return false;
        if (t->rank != ranks[i])
            return infer_error(f, "operand %u is %s instead of rank %d", i + 1, type_text(f->g, t), ranks[i]);
    }
    const struct type *boxes = infer_in(f, 0), *scores = infer_in(f, 1);
    if (!fresh_count(f, "count", &dims[0]) || !infer_agree(f, boxes->dims[0], scores->dims[0], "batches differ") ||
        !infer_agree(f, boxes->dims[1], scores->dims[2], "numbers of boxes differ") ||
        !infer_agree(f, boxes->dims[2], ex_const(f->ex, 4), "boxes have four coordinates"))
        return false;
    dims[1] = ex_const(f->ex, 3);
    return infer_set(f, 0, ELEM_I64, 2, dims);
}

/* Trailing dim 1 (real) or 2 (complex). The inverse of a onesided spectrum is real. */
bool infer_dft(struct infer *f)
{
    const struct type *t = infer_tensor(f, 0);
    int64_t axis, parts;
    expr_id length;
    bool onesided = node_int(&f->attrs, "onesided", 0), inverse = node_int(&f->attrs, "inverse", 0);
    if (!t || !infer_elem_in(f, 0, "F") || !fresh_count(f, "length", &length))
        return false;
    if (t->rank < 2 || !ex_is_const(f->ex, t->dims[t->rank - 1], &parts) || (parts != 1 && parts != 2))
        return infer_error(f, "%s: the last dim must be 1 (real) or 2 (complex)", type_text(f->g, t));
    if (!infer_axis(f, t->rank - 1, &axis))
        return false;
    if (ex_hi(f->ex, length) < 1)
        return infer_error(f, "length is %s", expr_text(f->g, length));
    expr_id *dims = infer_dims(f, t->rank);
    memcpy(dims, t->dims, (size_t)t->rank * sizeof *dims);
    bool half = onesided && !inverse;
    dims[axis] = half ? ex_addc(f->ex, ex_div(f->ex, length, ex_const(f->ex, 2)), 1) : length;
    dims[t->rank - 1] = ex_const(f->ex, onesided && inverse ? 1 : 2);
    return infer_set(f, 0, t->elem, t->rank, dims);
}

bool infer_det(struct infer *f)
{
    const struct type *t = infer_tensor(f, 0);
    if (!t || !infer_elem_in(f, 0, "F"))
        return false;
    if (t->rank < 2)
        return infer_error(f, "%s is not a matrix", type_text(f->g, t));
    if (!infer_agree(f, t->dims[t->rank - 2], t->dims[t->rank - 1], "matrices must be square"))
        return false;
    return infer_set(f, 0, t->elem, t->rank - 2, t->dims);
}

bool infer_string(struct infer *f)
{
    uint32_t rank;
    const expr_id *dims = node_exprs(&f->attrs, "dims", &rank);
    enum elem elem = node_elem(&f->attrs, "elem");
    if (elem == ELEM_NONE || rank > RANK_MAX || !node_attr(&f->attrs, "fn"))
        return infer_error(f, "needs fn, elem and dims");
    return infer_set(f, 0, elem, (int32_t)rank, dims);
}

/* ---- sequences and optionals ------------------------------------------------------------------------------------- */

static const struct type *copy_type(struct infer *f, struct type t)
{
    return arena_copy(&f->g->arena, &t, sizeof t);
}

/* What two tensor types have in common: unknown dims and ranks where they differ. */
static void join_shapes(struct graph *g, struct type *a, const struct type *b)
{
    if (b->rank == RANK_NONE)
        return;
    if (a->rank == RANK_NONE) {
        *a = *b;
    } else if (a->rank != b->rank || a->rank == RANK_UNKNOWN) {
        a->rank = RANK_UNKNOWN;
        a->dims = NULL;
    } else {
        expr_id *dims = NEW_ARRAY(&g->arena, expr_id, a->rank + 1);
        for (int32_t i = 0; i < a->rank; i++)
            dims[i] = a->dims[i].i == b->dims[i].i ? a->dims[i] : (expr_id){0};
        a->dims = dims;
    }
}

bool type_join(struct graph *g, struct type *a, const struct type *b)
{
    if (a->kind != b->kind || a->elem != b->elem)
        return false;
    if (a->kind == TYPE_TENSOR) {
        join_shapes(g, a, b);
        return true;
    }
    if (!a->inner || !b->inner || a->kind == TYPE_MAP)
        return type_equal(a, b);
    struct type *inner = arena_copy(&g->arena, a->inner, sizeof *inner);
    a->inner = inner;
    return type_join(g, inner, b->inner); /* types are nested 64 deep at most */
}

static bool join(struct infer *f, struct type *a, const struct type *b)
{
    const struct type before = *a;
    return (a->kind == TYPE_TENSOR && type_join(f->g, a, b)) ||
           infer_error(f, "a sequence holds tensors of one type: %s and %s", type_text(f->g, &before),
                       type_text(f->g, b));
}

bool infer_seq(struct infer *f)
{
    struct type t = {.kind = TYPE_TENSOR, .elem = node_elem(&f->attrs, "elem"), .rank = RANK_NONE};
    if (t.elem == ELEM_NONE)
        return infer_error(f, "no element type");
    for (uint32_t i = 0; i < f->n_in; i++)
        if (!join(f, &t, infer_in(f, i)))
            return false;
    f->out[0] = (struct type){.kind = TYPE_SEQUENCE, .inner = copy_type(f, t)};
    return true;
}

static const struct type *sequence(struct infer *f, enum type_kind kind)
{
    const struct type *t = infer_in(f, 0);
    if (t->kind == kind && t->inner)
        return t;
    infer_error(f, "operand 1 is %s", type_text(f->g, t));
    return NULL;
}

static bool all_known(const struct type *t)
{
    for (int32_t i = 0; i < t->rank; i++)
        if (t->dims[i].i == 0)
            return false;
    return t->rank >= 0;
}

/* Result type of an operator that takes a tensor out of a sequence: dims attribute, else what the sequence knows. */
static bool item_type(struct infer *f, enum elem elem, const struct type *known)
{
    uint32_t rank;
    const expr_id *dims = node_exprs(&f->attrs, "dims", &rank);
    if (rank > RANK_MAX)
        return infer_error(f, "rank %u is above %d", rank, RANK_MAX);
    if (node_attr(&f->attrs, "dims"))
        infer_set(f, 0, elem, (int32_t)rank, dims);
    else if (known && all_known(known))
        f->out[0] = *known;
    else
        infer_set(f, 0, elem, RANK_UNKNOWN, NULL);
    return true;
}

bool infer_seq_at(struct infer *f)
{
    const struct type *t = sequence(f, TYPE_SEQUENCE);
    return t && infer_elem_in(f, 1, "IU") && item_type(f, t->inner->elem, t->inner);
}

bool infer_seq_same(struct infer *f)
{
    const struct type *t = sequence(f, TYPE_SEQUENCE);
    if (!t)
        return false;
    struct type inner = *t->inner;
    if (f->op == OP_SEQ_INSERT && !join(f, &inner, infer_in(f, 1)))
        return false;
    f->out[0] = (struct type){.kind = TYPE_SEQUENCE, .inner = copy_type(f, inner)};
    return true;
}

bool infer_seq_length(struct infer *f)
{
    infer_set(f, 0, ELEM_I64, 0, NULL);
    return sequence(f, TYPE_SEQUENCE) != NULL;
}

bool infer_seq_concat(struct infer *f)
{
    const struct type *t = sequence(f, TYPE_SEQUENCE);
    return t && item_type(f, t->inner->elem, NULL);
}

bool infer_seq_split(struct infer *f)
{
    const struct type *t = infer_tensor(f, 0);
    int64_t axis;
    if (!t || !infer_axis(f, t->rank, &axis))
        return false;
    bool drop = f->n_in < 2 && !node_int(&f->attrs, "keepdims", 1);
    expr_id *dims = infer_dims(f, t->rank);
    int32_t rank = 0;
    for (int32_t i = 0; i < t->rank; i++)
        if (i != axis || !drop)
            dims[rank++] = i != axis ? t->dims[i] : f->n_in < 2 ? ex_const(f->ex, 1) : (expr_id){0};
    struct type inner = {.kind = TYPE_TENSOR, .elem = t->elem, .rank = rank, .dims = dims};
    f->out[0] = (struct type){.kind = TYPE_SEQUENCE, .inner = copy_type(f, inner)};
    return true;
}

bool infer_opt(struct infer *f)
{
    struct type inner = {.kind = TYPE_TENSOR, .elem = node_elem(&f->attrs, "elem"), .rank = RANK_NONE};
    if (f->n_in)
        inner = *infer_in(f, 0);
    else if (inner.elem == ELEM_NONE)
        return infer_error(f, "neither an operand nor an element type");
    else if (node_int(&f->attrs, "sequence", 0))
        inner = (struct type){.kind = TYPE_SEQUENCE, .inner = copy_type(f, inner)};
    f->out[0] = (struct type){.kind = TYPE_OPTIONAL, .inner = copy_type(f, inner)};
    return true;
}

bool infer_opt_get(struct infer *f)
{
    const struct type *t = sequence(f, TYPE_OPTIONAL);
    if (!t)
        return false;
    f->out[0] = *t->inner;
    return t->inner->kind != TYPE_TENSOR || item_type(f, t->inner->elem, t->inner);
}

bool infer_opt_has(struct infer *f)
{
    infer_set(f, 0, ELEM_BOOL, 0, NULL);
    return sequence(f, TYPE_OPTIONAL) != NULL;
}

/* ---- control flow ------------------------------------------------------------------------------------------------ */

static bool scalar_operand(struct infer *f, uint32_t i, enum elem elem)
{
    const struct type *t = infer_in(f, i);
    if (t->kind == TYPE_TENSOR && t->elem == elem && t->rank == 0)
        return true;
    return infer_error(f, "operand %u must be %s[], is %s", i + 1, elem_name(elem), type_text(f->g, t));
}

bool infer_region(struct infer *f)
{
    if (f->op == OP_IF)
        return scalar_operand(f, 0, ELEM_BOOL);
    int64_t carried = node_int(&f->attrs, "n_carried", -1);
    if (!scalar_operand(f, 0, ELEM_I64) || !scalar_operand(f, 1, ELEM_BOOL))
        return false;
    if (carried != (int64_t)f->n_in - 2 || carried > (int64_t)f->n_out)
        return infer_error(f, "%lld carried values with %u operands and %u results", (long long)carried, f->n_in,
                           f->n_out);
    for (uint32_t i = 0; i < (uint32_t)carried; i++) {
        const struct type *a = infer_in(f, i + 2), *b = &f->out[i];
        if (b->kind != TYPE_UNKNOWN && (a->kind != b->kind || (a->kind == TYPE_TENSOR && a->elem != b->elem)))
            return infer_error(f, "carried value %u enters as %s and leaves as %s", i + 1, type_text(f->g, a),
                               type_text(f->g, b));
    }
    return true;
}
