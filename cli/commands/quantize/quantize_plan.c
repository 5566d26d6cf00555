/* What becomes bytes: the nodes of a network that have a form for bytes, the values between them, and the edits. */
#include <string.h>

#include "cli/commands/quantize/quantize.h"

/* Operators of constants with channels: the dims of their weights, and whether they have a bias. */
static const struct product_kind {
    const char *op;
    int32_t out_axis, in_axis;
    bool takes_bias;
} product_kinds[] = {
    {"Conv", 0, 1, true},
    {"ConvTranspose", 1, 0, true},
    {"Gemm", 1, 0, true},
    {"MatMul", 1, 0, false},
};
/* Operators of which bytes are as good an operand, where what follows reads bytes. */
static const struct map_kind {
    const char *op;
    uint32_t n; /* operands that are bytes; 0: all */
} map_kinds[] = {
    {"Add", 0}, {"Concat", 0}, {"MaxPool", 0}, {"AveragePool", 0}, {"Resize", 1},
};
/* Operators that nothing between a site and the next one has to be stored for. */
static const char *const passing[] = {"Relu", "Clip", "LeakyRelu"};

static bool is_among(const char *const *list, size_t n, const char *op)
{
    bool found = false;
    for (size_t i = 0; i < n && !found; i++)
        found = strcmp(list[i], op) == 0;
    return found;
}

/* ---- edges and sites --------------------------------------------------------------------------------------------- */

uint32_t plan_readers(const struct quantizer *q, const char *name, uint32_t *node)
{
    uint32_t n = q->editor->is_open(q->file, name);
    for (uint32_t i = q->editor->n_nodes(q->file); i-- > 0;) {
        const struct edit_node *e = q->editor->node(q->file, i);
        for (uint32_t k = 0; k < e->n_in; k++)
            if (strcmp(e->in[k], name) == 0) {
                n++;
                *node = i;
            }
    }
    return n;
}

static uint32_t edge_of(struct quantizer *q, const char *name)
{
    for (uint32_t i = 0; i < q->edges.n; i++)
        if (strcmp(q->edges.data[i].name, name) == 0)
            return i;
    VEC_PUSH(&q->ctx->session, &q->edges, ((struct edge){.name = name}));
    return q->edges.n - 1;
}

static bool read_weights(struct quantizer *q, const char *name, struct weights *w)
{
    struct tensor_data t;
    uint32_t node;
    *w = (struct weights){.name = name, .n = 1};
    if (!*name || !q->editor->constant(q->file, name, &t) || t.rank > RANK_MAX)
        return false;
    w->rank = t.rank;
    for (int32_t d = 0; d < t.rank; d++) {
        w->dims[d] = t.dims[d];
        w->n *= t.dims[d];
    }
    w->now = arena_copy(&q->ctx->session, t.bytes.data, t.bytes.size);
    w->only = plan_readers(q, name, &node) == 1;
    return w->n > 0;
}

/* Gemm: y = x w + c alone, w either way round. */
static bool settle_gemm(const struct quantizer *q, struct site *s)
{
    bool turned = q->editor->number(q->file, s->node, "transB", 0) != 0;
    s->out_axis = turned ? 0 : 1;
    s->in_axis = turned ? 1 : 0;
    return q->editor->number(q->file, s->node, "transA", 0) == 0 &&
           q->editor->number(q->file, s->node, "alpha", 1) == 1 && q->editor->number(q->file, s->node, "beta", 1) == 1;
}

static bool settle_channels(struct site *s, double groups)
{
    int64_t outs = s->w.dims[s->out_axis], ins = s->w.dims[s->in_axis];
    s->groups = groups >= 1 && groups < UINT32_MAX ? (uint32_t)groups : 1;
    if (outs >= UINT32_MAX || ins >= UINT32_MAX / s->groups || outs % s->groups || (s->out_axis == 1 && s->groups > 1))
        return false;
    s->outs = (uint32_t)outs;
    s->ins = (uint32_t)ins * s->groups;
    return true;
}

static void add_product(struct quantizer *q, uint32_t i, const struct product_kind *kind)
{
    const struct edit_node *e = q->editor->node(q->file, i);
    struct site s = {.node = i,
                     .is_product = true,
                     .takes_bias = kind->takes_bias,
                     .out_axis = kind->out_axis,
                     .in_axis = kind->in_axis,
                     .n_edges = 1};
    struct tensor_data none;
    bool matrix = !strcmp(kind->op, "Gemm") || !strcmp(kind->op, "MatMul");
    if (e->n_in < 2 || !*e->in[0] || q->editor->constant(q->file, e->in[0], &none) ||
        !read_weights(q, e->in[1], &s.w) || (matrix ? s.w.rank != 2 : s.w.rank < 3) ||
        (strcmp(kind->op, "Gemm") == 0 && !settle_gemm(q, &s)) ||
        !settle_channels(&s, matrix ? 1 : q->editor->number(q->file, i, "group", 1)))
        return;
    bool has_bias = e->n_in > 2 && *e->in[2];
    if (has_bias && !(read_weights(q, e->in[2], &s.bias) && s.bias.rank == 1 && s.bias.n == s.outs)) {
        s.takes_bias = false; /* computed, or of another shape: it stays as it is */
        s.bias.now = NULL;
    }
    s.edges[0] = edge_of(q, e->in[0]);
    q->edges.data[s.edges[0]].last_axis |= matrix;
    VEC_PUSH(&q->ctx->session, &q->sites, s);
}

static const struct site *site_at(const struct quantizer *q, uint32_t node)
{
    for (uint32_t i = 0; i < q->sites.n; i++)
        if (q->sites.data[i].node == node)
            return &q->sites.data[i];
    return NULL;
}

/* Does a site read the value, or what maps make of it? */
static bool leads_to_site(const struct quantizer *q, const char *name, int depth)
{
    bool leads = false;
    for (uint32_t i = 0; i < q->editor->n_nodes(q->file) && !leads; i++) {
        const struct edit_node *e = q->editor->node(q->file, i);
        bool reads = is_among(e->in, e->n_in, name);
        leads = reads && (site_at(q, i) || (depth > 0 && e->n_out && is_among(passing, COUNT_OF(passing), e->op) &&
                                            leads_to_site(q, e->out[0], depth - 1)));
    }
    return leads;
}

static const struct map_kind *map_kind_of(const char *op)
{
    for (size_t k = 0; k < COUNT_OF(map_kinds); k++)
        if (strcmp(map_kinds[k].op, op) == 0)
            return &map_kinds[k];
    return NULL;
}

/* Takes the node as a site where all it reads is computed, and what it makes goes on to one. */
static bool add_map(struct quantizer *q, uint32_t i)
{
    const struct edit_node *e = q->editor->node(q->file, i);
    const struct map_kind *kind = map_kind_of(e->op);
    struct site s = {.node = i, .n_edges = kind && kind->n && kind->n < e->n_in ? kind->n : e->n_in};
    struct tensor_data none;
    if (*e->domain || !kind || site_at(q, i) || !e->n_in || s.n_edges > COUNT_OF(s.edges) || e->n_out != 1 ||
        !leads_to_site(q, e->out[0], 2))
        return false;
    for (uint32_t k = 0; k < s.n_edges; k++)
        if (!*e->in[k] || q->editor->constant(q->file, e->in[k], &none))
            return false;
    for (uint32_t k = 0; k < s.n_edges; k++)
        s.edges[k] = edge_of(q, e->in[k]);
    VEC_PUSH(&q->ctx->session, &q->sites, s);
    return true;
}

void plan_make(struct quantizer *q)
{
    uint32_t n = q->editor->n_nodes(q->file);
    for (uint32_t i = 0; i < n; i++)
        for (size_t k = 0; k < COUNT_OF(product_kinds); k++)
            if (!*q->editor->node(q->file, i)->domain &&
                strcmp(product_kinds[k].op, q->editor->node(q->file, i)->op) == 0)
                add_product(q, i, &product_kinds[k]);
    for (bool more = q->sites.n > 0; more;) {
        more = false;
        for (uint32_t i = n; i-- > 0;)
            more |= add_map(q, i);
    }
}

void plan_settle(struct quantizer *q)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < q->sites.n; i++) {
        bool floats = true;
        for (uint32_t k = 0; k < q->sites.data[i].n_edges; k++)
            floats &= q->edges.data[q->sites.data[i].edges[k]].is_float;
        if (floats)
            q->sites.data[kept++] = q->sites.data[i];
    }
    q->sites.n = kept;
}

/* ---- edits ------------------------------------------------------------------------------------------------------- */

static const char *add_f32(struct quantizer *q, const char *name, const float *x, int64_t n, int32_t rank)
{
    q->editor->set_constant(q->file, name, ELEM_F32, &n, rank, (struct span){x, (size_t)n * sizeof *x});
    return name;
}

static const char *named(struct quantizer *q, const char *name, const char *what)
{
    return q->editor->new_name(q->file, arena_printf(&q->ctx->session, "%s_%s", name, what));
}

/* The node after which the value is there: 0 for inputs. */
static uint32_t place_of(const struct quantizer *q, const char *name)
{
    for (uint32_t i = 0; i < q->editor->n_nodes(q->file); i++) {
        const struct edit_node *e = q->editor->node(q->file, i);
        if (is_among(e->out, e->n_out, name))
            return i + 1;
    }
    return 0;
}

/* Largest of a window: its results are among its operands, so the same steps serve both. */
static struct range range_of(const struct quantizer *q, const struct edge *e)
{
    const struct site *maker;
    uint32_t place;
    while ((place = place_of(q, e->name)) && (maker = site_at(q, place - 1)) && !maker->kept &&
           strcmp(q->editor->node(q->file, maker->node)->op, "MaxPool") == 0 && q->edges.data[maker->edges[0]].stored)
        e = &q->edges.data[maker->edges[0]];
    return e->range;
}

/* The value as bytes and as a float again, in front of its first reader. */
static void scale_edge(struct quantizer *q, struct edge *e)
{
    uint32_t place = place_of(q, e->name);
    const int64_t one = 1;
    const struct range range = range_of(q, e);
    const char *scale = add_f32(q, named(q, e->name, "scale"), &range.scale, 1, 0),
               *zero = named(q, e->name, "zero_point");
    q->editor->set_constant(q->file, zero, ELEM_U8, &one, 0, (struct span){&range.zero, 1});
    const char *bytes = named(q, e->name, "quantized");
    e->wide = named(q, e->name, "dequantized");
    q->editor->add_scaling(q->file, place, true, (const char *const[]){e->name, scale, zero}, bytes, -1);
    q->editor->add_scaling(q->file, place, false, (const char *const[]){bytes, scale, zero}, e->wide, -1);
}

static void apply_weights(struct quantizer *q, const struct site *s)
{
    struct arena *arena = &q->ctx->session;
    const int64_t outs = s->outs;
    const char *like = s->w.only ? s->w.name : arena_printf(arena, "%s_%u", s->w.name, s->node);
    const char *bytes = named(q, like, "quantized"), *zero = named(q, like, "zero_point"),
               *wide = named(q, like, "dequantized"), *scale = named(q, like, "scale");
    q->editor->set_constant(q->file, bytes, ELEM_I8, s->w.dims, s->w.rank, (struct span){s->bytes, (size_t)s->w.n});
    q->editor->set_constant(q->file, zero, ELEM_I8, &outs, 1,
                            (struct span){arena_alloc_array(arena, s->outs, 1), s->outs});
    add_f32(q, scale, s->scales, outs, 1);
    q->editor->add_scaling(q->file, s->node, false, (const char *const[]){bytes, scale, zero}, wide, s->out_axis);
    q->editor->set_operand(q->file, s->node, 1, wide);
    if (!s->corrected)
        return;
    const float x = range_of(q, &q->edges.data[s->edges[0]]).scale;
    float *scales = NEW_ARRAY(arena, float, s->outs);
    int32_t *whole = NEW_ARRAY(arena, int32_t, s->outs), *zeros = NEW_ARRAY(arena, int32_t, s->outs);
    for (uint32_t o = 0; o < s->outs; o++) {
        scales[o] = x * s->scales[o];
        double v = (double)s->corrected[o] / (double)scales[o];
        whole[o] = (int32_t)(v < 0 ? v - 0.5 : v + 0.5);
    }
    like = arena_printf(arena, "%s_bias", like);
    const char *ints = named(q, like, "quantized"), *of = named(q, like, "scale"), *none = named(q, like, "zero_point"),
               *bias = named(q, like, "dequantized");
    size_t size = s->outs * sizeof *whole;
    q->editor->set_constant(q->file, ints, ELEM_I32, &outs, 1, (struct span){whole, size});
    q->editor->set_constant(q->file, none, ELEM_I32, &outs, 1, (struct span){zeros, size});
    add_f32(q, of, scales, outs, 1);
    q->editor->add_scaling(q->file, s->node, false, (const char *const[]){ints, of, none}, bias, 0);
    q->editor->set_operand(q->file, s->node, 2, bias);
}

/* Constants of a product that stays in f32, where channels were moved. */
static void apply_moved(struct quantizer *q, const struct site *s)
{
    const struct weights *all[] = {&s->w, &s->bias};
    for (size_t i = 0; i < COUNT_OF(all); i++)
        if (all[i]->changed)
            q->editor->set_constant(q->file, all[i]->name, ELEM_F32, all[i]->dims, all[i]->rank,
                                    (struct span){all[i]->now, (size_t)all[i]->n * sizeof(float)});
}

/* Everybody reads an edge's bytes but products that stay in f32. */
static void set_readers(struct quantizer *q)
{
    for (uint32_t i = 0; i < q->editor->n_nodes(q->file); i++) {
        const struct edit_node *n = q->editor->node(q->file, i);
        const struct site *s = site_at(q, i);
        for (uint32_t k = 0; k < n->n_in && !(s && s->is_product && s->kept); k++)
            for (uint32_t e = 0; e < q->edges.n; e++)
                if (q->edges.data[e].wide && strcmp(q->edges.data[e].name, n->in[k]) == 0)
                    q->editor->set_operand(q->file, i, k, q->edges.data[e].wide);
    }
}

void plan_apply(struct quantizer *q)
{
    for (uint32_t i = 0; i < q->edges.n; i++) {
        q->edges.data[i].wide = NULL;
        q->edges.data[i].stored = false;
    }
    for (uint32_t i = 0; i < q->sites.n; i++)
        for (uint32_t k = 0; k < q->sites.data[i].n_edges; k++)
            q->edges.data[q->sites.data[i].edges[k]].stored |= !q->sites.data[i].kept;
    for (uint32_t i = 0; i < q->edges.n; i++)
        if (q->edges.data[i].stored)
            scale_edge(q, &q->edges.data[i]);
    for (uint32_t i = 0; i < q->sites.n; i++) {
        const struct site *s = &q->sites.data[i];
        if (s->is_product && s->kept)
            apply_moved(q, s);
        else if (s->is_product)
            apply_weights(q, s);
    }
    set_readers(q);
}
