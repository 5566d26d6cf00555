/* What passes ask of values, contractions and extents, whatever decides or emits. */
#include "passes/module/analysis.h"

#include "passes/module/access_function.h"

#include <math.h>

enum { MAX_SPLAT_VIEWS = 64 };   /* a longer chain is not looked through */

/* A view that leaves one element what it is. */
static bool is_splat_view(enum op op)
{
    return op == OP_BROADCAST || op == OP_RESHAPE || op == OP_TRANSPOSE || op == OP_IDENTITY || op == OP_SLICE;
}

value_id value_unspread(const struct graph *g, value_id v)
{
    while (value_op(g, v) == OP_BROADCAST)
        v = value_node(g, v)->in[0];
    return v;
}

value_id map_source(const struct graph *g, const struct node *n)
{
    uint32_t k = 0;
    while (k + 1 < n->n_in && (value_is_const(g, n->in[k]) || value_op(g, n->in[k]) == OP_BROADCAST))
        k++;
    return n->in[k];
}

bool value_is_splat(struct graph *g, value_id v, double *f, int64_t *i)
{
    for (int steps = 0; is_splat_view(value_op(g, v)); steps++) {
        if (steps == MAX_SPLAT_VIEWS)
            return false;
        v = value_node(g, v)->in[0];
    }
    const struct type *t = value_type(g, v);
    if (t->kind != TYPE_TENSOR || !value_is_const(g, v))
        return false;
    char c = elem_class(t->elem);
    if (c != 'F' && c != 'I' && c != 'U' && c != 'B')
        return false;
    for (int32_t d = 0; d < t->rank; d++)
        if (!ex_is(g->ctx->exprs, t->dims[d], 1))
            return false;
    return c == 'F' ? value_const_f64(g, v, f, 1) : value_const_i64(g, v, i, 1);
}

bool splats_equal(struct graph *g, value_id a, value_id b)
{
    double f[2] = {0, 0};
    int64_t i[2] = {0, 0};
    return value_type(g, a)->elem == value_type(g, b)->elem && value_is_splat(g, a, &f[0], &i[0]) &&
           value_is_splat(g, b, &f[1], &i[1]) && isfinite(f[0]) && memcmp(&f[0], &f[1], sizeof *f) == 0 && i[0] == i[1];
}

bool splat_is_number(struct graph *g, value_id v)
{
    enum elem e = value_type(g, v)->elem;
    double f = 0;
    int64_t i = 0;
    if ((elem_class(e) != 'F' && e != ELEM_I32 && e != ELEM_I8 && e != ELEM_U8) || !value_is_splat(g, v, &f, &i))
        return false;
    if (elem_class(e) == 'F')
        return isfinite(f) && f != 0 && fabs(f) != 1;
    return i < -1 || i > 1;
}

const value_id *kernel_operands(const struct kernel *k, const struct node *n, uint32_t *count)
{
    bool piece = k->piece && n->op == OP_CONCAT && n->out[0].i == k->outs.data[0].i;
    *count = piece ? 1 : n->n_in;
    return piece ? n->in + (k->piece - 1) : n->in;
}

static bool is_byte(const struct graph *g, value_id v)
{
    const struct type *t = v.i && !value_is_const(g, v) ? value_type(g, v) : NULL;
    return t && t->kind == TYPE_TENSOR && (t->elem == ELEM_U8 || t->elem == ELEM_I8);
}

bool kernel_has_bytes(const struct graph *g, const struct kernel *k)
{
    bool bytes = false, floats = false; /* without floats it is text, or integers that are exact as they stand */
    for (uint32_t i = 0; i < k->nodes.n; i++) {
        const struct node *n = graph_node(g, k->nodes.data[i]);
        uint32_t n_in;
        const value_id *in = kernel_operands(k, n, &n_in);
        for (uint32_t o = 0; o < n_in; o++)
            bytes |= is_byte(g, in[o]);
        for (uint32_t o = 0; o < n->n_out; o++) {
            bytes |= is_byte(g, n->out[o]);
            floats |= elem_class(value_type(g, n->out[o])->elem) == 'F';
        }
    }
    return bytes && floats;
}

value_id splat_stored(const struct module *m, value_id v)
{
    for (int steps = 0; steps <= MAX_SPLAT_VIEWS; steps++) {
        if (m->fused.storage[v.i].place == PLACE_WEIGHTS)
            return v;
        if (!is_splat_view(value_op(m->g, v)))
            break;
        v = value_node(m->g, v)->in[0];
    }
    return (value_id){0};
}

bool dot_scaled(const struct node *n)
{
    return n->op == OP_DOT && n->n_in > 2;
}

bool conv_by_taps(const struct module *m, const struct node *n)
{
    return conv_depthwise(m->g, n) || (module_machine(m)->span && n->op == OP_CONV && conv_one_channel(m->g, n));
}

/* Does a microcontroller sum products of bytes, of which the channels have so many, in groups? A word has to be filled,
 * a register by half, and it lies together in weights only. Taps lie together in an image of one channel. */
static bool has_span(const struct module *m, const struct node *n, bool taps, int64_t extent)
{
    enum { WORD = 4, HALF = REGISTER_BYTES / 2 };
    uint32_t span = module_machine(m)->span;
    if (span != REGISTER_BYTES)
        return !span || (span > 1 && (!taps || conv_one_channel(m->g, n)) && extent >= WORD);
    return !taps && extent >= HALF && value_type(m->g, n->in[0])->elem == ELEM_I8 &&
           value_is_const(m->g, weight_whole(m->g, n->in[1]));
}

enum dot_kind dot_kind_of(const struct module *m, const struct node *n)
{
    static const struct {
        enum elem a, b, sum;
        enum dot_kind kind;
    } rows[] = {
        {ELEM_U8, ELEM_I8, ELEM_I32, DOT_U8},       {ELEM_I8, ELEM_I8, ELEM_I32, DOT_U8},
        {ELEM_I8, ELEM_U8, ELEM_F32, DOT_U8}, /* with scales */
        {ELEM_I8, ELEM_I8, ELEM_F32, DOT_U8},       {ELEM_BF16, ELEM_BF16, ELEM_BF16, DOT_BF16},
        {ELEM_BF16, ELEM_BF16, ELEM_F32, DOT_BF16},
    };
    uint32_t n_contract;
    int64_t extent = 0;
    bool taps = conv_by_taps(m, n);
    if (n->op != OP_DOT && (n->op != OP_CONV || (node_int(n, "groups", 1) != 1 && (!taps || conv_pixel_lanes(m, n)))))
        return DOT_KINDS;
    const struct type *a = value_type(m->g, n->in[0]), *b = value_type(m->g, n->in[1]),
                      *sum = value_type(m->g, n->out[0]);
    const int64_t *contract = n->op == OP_DOT ? node_ints(n, "contract_b", &n_contract) : NULL;
    if (n->op == OP_DOT && !n_contract)
        return DOT_KINDS;
    int64_t along = contract ? contract[n_contract - 1] : taps ? b->rank - 1 : 1;
    if (!ex_is_const(m->ctx->exprs, b->dims[along], &extent) || extent < 2)
        return DOT_KINDS;
    for (size_t i = 0; i < COUNT_OF(rows); i++)
        if (a->elem == rows[i].a && b->elem == rows[i].b && sum->elem == rows[i].sum)
            return m->asked.strict && rows[i].kind == DOT_BF16 ? DOT_KINDS : /* each CPU rounds pairs in its way */
                       sum->elem == ELEM_I32 && !has_span(m, n, taps, extent) ? DOT_KINDS
                                                                              : rows[i].kind;
    return DOT_KINDS;
}

uint32_t dot_group(const struct module *m, const struct node *n)
{
    static const uint32_t groups[DOT_KINDS + 1] = {[DOT_U8] = 4, [DOT_BF16] = 2, [DOT_KINDS] = 1};
    enum dot_kind kind = dot_kind_of(m, n);
    bool whole = kind == DOT_U8 && value_type(m->g, n->out[0])->elem == ELEM_I32;
    return whole && module_machine(m)->span ? module_machine(m)->span : groups[kind];
}

bool dot_is_whole(const struct machine *mach, const struct module *m, const struct node *n)
{
    enum dot_kind kind = dot_kind_of(m, n);
    uint32_t grade = kind < DOT_KINDS ? mach->dot[kind] : 0;
    return grade >= DOT_WHOLE || (grade == DOT_SIGNED && value_type(m->g, n->in[0])->elem == ELEM_I8 &&
                                  value_type(m->g, n->in[1])->elem == ELEM_I8);
}

uint32_t panel_group(const struct module *m, const struct node *n)
{
    uint32_t group = dot_group(m, n), n_contract;
    int64_t extent;
    if (group == 1 || !(m->asked.matdot >> dot_kind_of(m, n) & 1) || conv_depthwise(m->g, n) || dot_scaled(n))
        return group;
    const int64_t *contract = n->op == OP_DOT ? node_ints(n, "contract_b", &n_contract) : NULL;
    expr_id along = value_type(m->g, n->in[1])->dims[contract ? contract[n_contract - 1] : 1];
    return ex_is_const(m->ctx->exprs, along, &extent) && extent >= LANE_STEPS * (int64_t)group ? 2 * group : group;
}

/* ---- where memory is contiguous ---------------------------------------------------------------------------------- */

/* The dim of an index operator's result that runs along dim d of its data; -1: none. */
static int32_t index_dim(const struct module *m, const struct node *n, int32_t d)
{
    expr_id idx[RANK_MAX] = {{0}};
    struct index_access a;
    if (n->op == OP_WALK) /* by its trees */
        return 1;
    if (d < 0 || n->op == OP_GATHER_ELEMENTS) /* along the axis too, the indices lie contiguous */
        return d;
    index_access(m->g, n, idx, &a);
    if (n->op == OP_GATHER && d == a.dim) { /* its indices' own */
        int32_t of_index = value_fast_dim(m, n->in[1]);
        return of_index < 0 ? -1 : d + of_index;
    }
    return d < a.dim ? d : d < a.dim + a.n ? -1 : d - a.dim - a.n + a.after;
}

int32_t value_fast_dim(const struct module *m, value_id v)
{
    for (int steps = 0; steps < 64; steps++) {
        const struct storage *s = &m->fused.storage[v.i];
        const struct type *t = value_type(m->g, v);
        if (s->place != PLACE_NONE) {
            for (int32_t d = s->rank - 1; d >= 0; d--)
                if ((!s->dim[d].block && ex_is(m->ctx->exprs, s->dim[d].outer, 1) &&
                     !ex_is(m->ctx->exprs, t->dims[d], 1)) ||
                    (s->dim[d].block && s->dim[d].inner == 1))
                    return d;
            return -1;
        }
        const struct node *n = value_node(m->g, v);
        if (!n)
            return -1;
        if (op_shape(n->op) == SHAPE_INDEX)
            return index_dim(m, n, value_fast_dim(m, n->in[0]));
        if (op_shape(n->op) == SHAPE_MAP) {
            v = map_source(m->g, n);
        } else if (n->op == OP_IDENTITY || n->op == OP_SLICE || n->op == OP_PAD) {
            v = n->in[0];
        } else if (n->op == OP_TRANSPOSE || n->op == OP_RESHAPE) {
            int32_t in = value_fast_dim(m, n->in[0]);
            const struct type *from = value_type(m->g, n->in[0]);
            if (n->op == OP_RESHAPE) {
                int32_t last = t->rank - 1;
                while (last > 0 && ex_is(m->ctx->exprs, t->dims[last], 1))
                    last--;
                return in >= 0 && in == from->rank - 1 ? last : -1;
            }
            const int64_t *perm = node_ints(n, "perm", NULL);
            for (int32_t d = 0; d < t->rank; d++)
                if (perm[d] == in)
                    return d;
            return -1;
        } else {
            return -1;
        }
    }
    return -1;
}

bool reduce_is_arg(const struct node *n)
{
    return n->op == OP_ARGREDUCE || n->op == OP_ARGWINDOW;
}

enum elem reduce_elem(const struct graph *g, const struct node *n)
{
    return register_elem(value_type(g, reduce_is_arg(n) ? n->in[0] : n->out[0])->elem);
}

bool reduce_horizontal(const struct module *m, const struct node *n)
{
    if (n->op == OP_ARGREDUCE) {
        int64_t axis = node_int(n, "axis", 0);
        return !node_int(n, "last", 0) && value_fast_dim(m, n->in[0]) == axis &&
               ex_lo(m->ctx->exprs, value_type(m->g, n->in[0])->dims[axis]) > 0;
    }
    if (n->op != OP_REDUCE || !strcmp(node_str(n, "monoid", "sum"), "xor")) /* no register folds itself by xor */
        return false;
    uint32_t n_axes;
    const int64_t *axes = node_ints(n, "axes", &n_axes);
    return n_axes > 0 && value_fast_dim(m, n->in[0]) == axes[n_axes - 1];
}

/* ---- registers --------------------------------------------------------------------------------------------------- */

enum elem register_elem(enum elem e)
{
    if (elem_class(e) == 'F' && e != ELEM_F32 && e != ELEM_F64)
        return ELEM_F32;
    if (e == ELEM_I4 || e == ELEM_I2)
        return ELEM_I8;
    if (e == ELEM_U4 || e == ELEM_U2)
        return ELEM_U8;
    return e;
}

uint32_t machine_lanes(const struct machine *mach, enum elem e)
{
    uint32_t size = elem_size(register_elem(e));
    return size ? mach->vector_bytes / size : 1;
}

uint32_t machine_vector_lanes(const struct machine *mach, enum elem e)
{
    return mach->vector_bytes / (elem_size(register_elem(e)) > 4 ? 8 : 4);
}

/* ---- extents ----------------------------------------------------------------------------------------------------- */

int64_t extent_hint(const struct exprs *x, expr_id e)
{
    int64_t n;
    return ex_is_const(x, e, &n) ? n : 16;
}

static int64_t symbol_least(const struct symbol *s)
{
    int64_t step = s && s->divisor > 1 ? s->divisor : 1, least = s && s->lo > 1 ? s->lo : 1;
    return (least + step - 1) / step * step;
}

int64_t extent_least(struct module *m, expr_id e)
{
    struct exprs *x = m->ctx->exprs;
    int64_t n = 0;
    for (uint32_t i = m->known.least.n; i <= sym_count(x); i++)
        VEC_PUSH(m->arena, &m->known.least, symbol_least(i ? sym_get(x, (sym_id){i}) : NULL));
    return ex_eval(x, e, m->known.least.data, &n) && n > 0 ? n : 0;
}

int64_t extent_of_image(struct module *m, expr_id e, int64_t side)
{
    struct exprs *x = m->ctx->exprs;
    int64_t n = 0;
    m->known.image.n = 0;
    for (uint32_t i = 0; i <= sym_count(x); i++) {
        const struct symbol *s = i ? sym_get(x, (sym_id){i}) : NULL;
        int64_t least = symbol_least(s), near = s && side > s->hi ? s->hi : side;
        VEC_PUSH(m->arena, &m->known.image, near > least ? near / (s ? s->divisor : 1) * (s ? s->divisor : 1) : least);
    }
    return ex_eval(x, e, m->known.image.data, &n) && n > 0 ? n : 1;
}

static int64_t symbol_counted(const struct module *m, const struct symbol *s)
{
    if (s && s->of.i)
        s = sym_get(m->ctx->exprs, s->of);
    for (uint32_t i = 0; s && s->kind == SYM_SHAPE && i < m->asked.counted_at.n; i++)
        if (strcmp(m->asked.counted_at.data[i].symbol, s->name) == 0)
            return m->asked.counted_at.data[i].value;
    return symbol_least(s);
}

int64_t extent_counted(struct module *m, expr_id e)
{
    struct exprs *x = m->ctx->exprs;
    int64_t n = 0;
    for (uint32_t i = m->known.counted.n; i <= sym_count(x); i++)
        VEC_PUSH(m->arena, &m->known.counted, symbol_counted(m, i ? sym_get(x, (sym_id){i}) : NULL));
    return ex_eval(x, e, m->known.counted.data, &n) && n > 0 ? n : 0;
}

/* ---- kernels ----------------------------------------------------------------------------------------------------- */

bool piece_start(const struct module *m, const struct node *concat, uint32_t piece, expr_id *start)
{
    struct exprs *x = m->ctx->exprs;
    int64_t axis = node_int(concat, "axis", 0), first;
    const struct dim_layout *whole = &m->fused.storage[concat->out[0].i].dim[axis];
    expr_id at = concat_begin(m->g, concat, piece);
    if (whole->block) {
        if (!ex_is_const(x, at, &first) || first % whole->block)
            return false;
        at = ex_const(x, first / whole->block);
    }
    *start = ex_mul(x, at, whole->outer);
    return true;
}

void kernels_remove(struct module *m, const bool *gone)
{
    uint32_t *number = NEW_ARRAY(m->arena, uint32_t, m->fused.kernels.n + 1), n = 0;
    for (uint32_t i = 0; i < m->fused.kernels.n; i++) {
        if (gone[i])
            continue;
        m->fused.kernels.data[n] = m->fused.kernels.data[i];
        number[i + 1] = ++n;
    }
    m->fused.kernels.n = n;
    for (uint32_t i = 0; i < m->g->nodes.n; i++)
        m->fused.kernel_of[i] = number[m->fused.kernel_of[i]];
    for (uint32_t i = 0; i < n; i++) /* a concat belongs to one of the pieces that are left */
        for (uint32_t j = 0; j < m->fused.kernels.data[i].nodes.n; j++)
            if (!m->fused.kernel_of[m->fused.kernels.data[i].nodes.data[j].i])
                m->fused.kernel_of[m->fused.kernels.data[i].nodes.data[j].i] = i + 1;
}

static int place_order(const void *x, const void *y)
{
    const struct run_place *a = x, *b = y;
    return a->region != b->region ? (a->region > b->region) - (a->region < b->region)
           : a->order != b->order ? (a->order > b->order) - (a->order < b->order)
                                  : (a->kernel > b->kernel) - (a->kernel < b->kernel);
}

struct run_place *kernels_in_order(const struct module *m, struct arena *arena)
{
    struct run_place *place = NEW_ARRAY(arena, struct run_place, m->fused.kernels.n + 1);
    for (uint32_t i = 0; i < m->fused.kernels.n; i++)
        place[i] = (struct run_place){m->fused.kernels.data[i].region.i, m->fused.kernels.data[i].order, i};
    qsort(place, m->fused.kernels.n, sizeof *place, place_order);
    return place;
}

uint32_t kernel_lead(const struct module *m, const struct kernel *k)
{
    node_id made = k->outs.n ? graph_value(m->g, k->outs.data[0])->def : (node_id){0};
    if (k->kind == KERNEL_HALO && made.i && m->fused.kernel_of[made.i])
        k = &m->fused.kernels.data[m->fused.kernel_of[made.i] - 1];
    node_id lead = k->anchor.i ? k->anchor : k->nodes.n ? k->nodes.data[0] : (node_id){0};
    return lead.i ? graph_node(m->g, lead)->src.i : 0;
}

const char *kernel_label(const struct module *m, const struct kernel *k)
{
    return source_label(source_get(m->ctx, (src_id){kernel_lead(m, k)}));
}
