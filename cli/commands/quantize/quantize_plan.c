/* What becomes bytes: the nodes of a network that have a form for bytes, the values between them, and the edits. */
#include "cli/commands/quantize/quantize.h"

/* Operators of which bytes are as good an operand, where what follows reads bytes: how many operands are bytes. */
static uint32_t map_operands(const struct edit_node *e)
{
    switch (e->kind) {
    case EDIT_SUM:
    case EDIT_CONCAT:
    case EDIT_MAX_POOL:
    case EDIT_AVERAGE_POOL: return e->n_in;
    case EDIT_RESIZE: return e->n_in ? 1 : 0;
    default: return 0;
    }
}

/* Nothing between a site and the next one has to be stored for these. */
static bool passes(const struct edit_node *e)
{
    return e->kind == EDIT_RELU || e->kind == EDIT_CLIP || e->kind == EDIT_LEAKY_RELU;
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

struct edge *plan_edge(const struct quantizer *q, const char *name)
{
    return ROW_NAMED(q->edges.data, q->edges.n, name);
}

static uint32_t edge_of(struct quantizer *q, const char *name)
{
    if (!plan_edge(q, name))
        VEC_PUSH(&q->ctx->session, &q->edges, ((struct edge){.name = name}));
    return (uint32_t)(plan_edge(q, name) - q->edges.data);
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

static void add_product(struct quantizer *q, uint32_t i)
{
    const struct edit_node *e = q->editor->node(q->file, i);
    const struct edit_product *p = &e->product;
    struct site s = {.node = i,
                     .is_product = true,
                     .takes_bias = p->takes_bias,
                     .out_axis = p->out_axis,
                     .in_axis = p->in_axis,
                     .n_edges = 1};
    struct tensor_data none;
    if (e->n_in < 2 || !*e->in[0] || q->editor->constant(q->file, e->in[0], &none) ||
        !read_weights(q, e->in[1], &s.w) || (p->matrix ? s.w.rank != 2 : s.w.rank < 3) ||
        !settle_channels(&s, p->groups))
        return;
    bool has_bias = e->n_in > 2 && *e->in[2];
    if (has_bias && !(read_weights(q, e->in[2], &s.bias) && s.bias.rank == 1 && s.bias.n == s.outs)) {
        s.takes_bias = false; /* computed, or of another shape: it stays as it is */
        s.bias.now = NULL;
    }
    s.edges[0] = edge_of(q, e->in[0]);
    q->edges.data[s.edges[0]].last_axis |= p->matrix;
    VEC_PUSH(&q->ctx->session, &q->sites, s);
}

struct site *plan_site(const struct quantizer *q, uint32_t node)
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
        leads = ROW_NAMED(e->in, e->n_in, name) &&
                (plan_site(q, i) || (depth > 0 && e->n_out && passes(e) && leads_to_site(q, e->out[0], depth - 1)));
    }
    return leads;
}

/* Takes the node as a site where all it reads is computed, and what it makes goes on to one. */
static bool add_map(struct quantizer *q, uint32_t i)
{
    const struct edit_node *e = q->editor->node(q->file, i);
    struct site s = {.node = i, .n_edges = map_operands(e)};
    struct tensor_data none;
    if (plan_site(q, i) || !s.n_edges || s.n_edges > COUNT_OF(s.edges) || e->n_out != 1 ||
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
        if (q->editor->node(q->file, i)->kind == EDIT_PRODUCT)
            add_product(q, i);
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

/* The node after which the value is there: 0 for inputs. */
static uint32_t place_of(const struct quantizer *q, const char *name)
{
    for (uint32_t i = 0; i < q->editor->n_nodes(q->file); i++) {
        const struct edit_node *e = q->editor->node(q->file, i);
        if (ROW_NAMED(e->out, e->n_out, name))
            return i + 1;
    }
    return 0;
}

/* Largest of a window: its results are among its operands, so the same steps serve both. */
static struct range range_of(const struct quantizer *q, const struct edge *e)
{
    const struct site *maker;
    uint32_t place;
    while ((place = place_of(q, e->name)) && (maker = plan_site(q, place - 1)) && !maker->kept &&
           q->editor->node(q->file, maker->node)->kind == EDIT_MAX_POOL && q->edges.data[maker->edges[0]].stored)
        e = &q->edges.data[maker->edges[0]];
    return e->range;
}

static void apply_weights(struct quantizer *q, const struct site *s)
{
    struct arena *arena = &q->ctx->session;
    const int64_t outs = s->outs;
    const char *like = s->w.only ? s->w.name : arena_printf(arena, "%s_%u", s->w.name, s->node);
    const struct tensor_data bytes = {
        .elem = ELEM_I8, .rank = s->w.rank, .dims = s->w.dims, .bytes = {s->bytes, (size_t)s->w.n}};
    const char *wide = q->editor->dequantize(q->file, s->node, like, &bytes, s->scales, s->out_axis);
    q->editor->set_operand(q->file, s->node, 1, wide);
    if (!s->corrected)
        return;
    const float x = range_of(q, &q->edges.data[s->edges[0]]).scale;
    float *scales = NEW_ARRAY(arena, float, s->outs);
    int32_t *whole = NEW_ARRAY(arena, int32_t, s->outs);
    for (uint32_t o = 0; o < s->outs; o++) {
        scales[o] = x * s->scales[o];
        double v = (double)s->corrected[o] / (double)scales[o];
        whole[o] = (int32_t)(v < 0 ? v - 0.5 : v + 0.5);
    }
    const struct tensor_data ints = {
        .elem = ELEM_I32, .rank = 1, .dims = &outs, .bytes = {whole, s->outs * sizeof *whole}};
    wide = q->editor->dequantize(q->file, s->node, arena_printf(arena, "%s_bias", like), &ints, scales, 0);
    q->editor->set_operand(q->file, s->node, 2, wide);
}

/* Constants of a product that stays in f32, where channels were moved. */
static void apply_moved(struct quantizer *q, const struct site *s)
{
    const struct weights *all[] = {&s->w, &s->bias};
    for (size_t i = 0; i < COUNT_OF(all); i++)
        if (all[i]->changed)
            q->editor->set_constant(q->file, all[i]->name,
                                    &(struct tensor_data){.elem = ELEM_F32,
                                                          .rank = all[i]->rank,
                                                          .dims = all[i]->dims,
                                                          .bytes = {all[i]->now, (size_t)all[i]->n * sizeof(float)}});
}

/* Everybody reads an edge's bytes but products that stay in f32. */
static void set_readers(struct quantizer *q)
{
    for (uint32_t i = 0; i < q->editor->n_nodes(q->file); i++) {
        const struct edit_node *n = q->editor->node(q->file, i);
        const struct site *s = plan_site(q, i);
        for (uint32_t k = 0; k < n->n_in && !(s && s->is_product && s->kept); k++) {
            const struct edge *e = plan_edge(q, n->in[k]);
            if (e && e->wide)
                q->editor->set_operand(q->file, i, k, e->wide);
        }
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
    for (uint32_t i = 0; i < q->edges.n; i++) {
        struct edge *e = &q->edges.data[i];
        const struct range range = e->stored ? range_of(q, e) : (struct range){0};
        if (e->stored)
            e->wide = q->editor->requantize(q->file, place_of(q, e->name), e->name, range.scale, range.zero);
    }
    for (uint32_t i = 0; i < q->sites.n; i++) {
        const struct site *s = &q->sites.data[i];
        if (s->is_product && s->kept)
            apply_moved(q, s);
        else if (s->is_product)
            apply_weights(q, s);
    }
    set_readers(q);
}
