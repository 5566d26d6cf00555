/* module_parse (text.h): what module_print wrote, or what was changed by hand for a test. */
#include "tests/text/text.h"

#include <string.h>

#include "ir/base/scan.h"
#include "passes/module/attention.h"
#include "passes/module/choices.h"
#include "passes/module/module_text.h"

struct reader {
    struct context *ctx;
    struct module *m;
    struct scan s;
    uint32_t lines;              /* of the graph before it */
    VEC(value_id) values;        /* by number in the graph's text */
    uint32_t n_nodes, n_regions; /* their numbers are their ids */
};

static bool fail(struct reader *r, const char *what)
{
    return error_model(r->ctx, (src_id){0}, "line %u: %s", r->lines + scan_line(&r->s), what);
}

/* ---- tokens ------------------------------------------------------------------------------------------------------ */

/* why: what is wrong, NULL: nothing. */
static bool fine(struct reader *r, const char *why)
{
    return !why || fail(r, why);
}

static bool at_end(struct reader *r)
{
    scan_blanks(&r->s);
    return *r->s.p == '\n' || !*r->s.p;
}

static bool accept(struct reader *r, const char *token)
{
    return scan_take(&r->s, token);
}

static bool expect(struct reader *r, const char *token)
{
    return fine(r, scan_need(&r->s, token, &r->ctx->session));
}

static bool read_i64(struct reader *r, int64_t *out)
{
    return fine(r, scan_i64(&r->s, out));
}

static bool read_u32(struct reader *r, uint32_t *out)
{
    return fine(r, scan_u32(&r->s, INT32_MAX - 1, out));
}

static bool read_u64(struct reader *r, uint64_t *out)
{
    return fine(r, scan_digits(&r->s, INT64_MAX, out));
}

/* Its place in a list of words. */
static bool read_choice(struct reader *r, const char *const *words, uint32_t n, uint32_t *out)
{
    const char *from = r->s.p, *end = from; /* the longest: f16 is the beginning of f16-sums */
    *out = 0;
    for (uint32_t i = 0; i < n; i++, r->s.p = from)
        if (accept(r, words[i]) && r->s.p > end) {
            end = r->s.p;
            *out = i;
        }
    r->s.p = end;
    return end > from || fail(r, "unknown word");
}

static bool is_value(struct reader *r)
{
    scan_blanks(&r->s);
    return *r->s.p == '%';
}
static bool is_node(struct reader *r)
{
    return is_value(r) || *r->s.p == '#';
}

static bool read_value(struct reader *r, value_id *v)
{
    uint32_t k;
    if (!expect(r, "%") || !read_u32(r, &k))
        return false;
    if (k >= r->values.n || !r->values.data[k].i)
        return fail(r, "the graph has no such value");
    *v = r->values.data[k];
    return true;
}

static bool read_node(struct reader *r, node_id *id)
{
    value_id v;
    if (accept(r, "#"))
        return read_u32(r, &id->i) && ((id->i >= 1 && id->i <= r->n_nodes) || fail(r, "the graph has no such node"));
    if (!read_value(r, &v))
        return false;
    *id = graph_value(r->m->g, v)->def;
    return id->i || fail(r, "no node makes this value");
}

static bool read_expression(struct reader *r, expr_id *e)
{
    scan_blanks(&r->s);
    *e = ex_parse(r->ctx->exprs, &r->s.p, false);
    return e->i || fail(r, "expected an expression of symbols that the graph declares");
}

/* [0 2]: bits. */
static bool read_mask(struct reader *r, uint32_t *mask)
{
    uint32_t d;
    *mask = 0;
    if (!expect(r, "["))
        return false;
    while (!accept(r, "]")) {
        if (!read_u32(r, &d))
            return false;
        if (d >= 32)
            return fail(r, "a dim is below 32");
        *mask |= 1u << d;
    }
    return true;
}

static bool read_i64s(struct reader *r, int64_t *out, uint32_t n)
{
    bool ok = expect(r, "[");
    for (uint32_t i = 0; ok && i < n; i++)
        ok = read_i64(r, &out[i]);
    return ok && expect(r, "]");
}

/* Lines of one kind are numbered from 0. */
static bool read_index(struct reader *r, uint32_t next)
{
    uint32_t k;
    return read_u32(r, &k) && (k == next || fail(r, "numbers come in order, from 0"));
}

/* ---- lines ------------------------------------------------------------------------------------------------------- */

static bool read_best(struct reader *r)
{
    const char *name;
    if (!fine(r, scan_quoted(&r->s, r->m->arena, &name, NULL)))
        return false;
    r->m->asked.best = target_find(name);
    return r->m->asked.best || fail(r, "expected the name of a CPU (mcc -mcpu=help)");
}

static bool read_options(struct reader *r)
{
    struct module *m = r->m;
    int64_t level;
    uint32_t layout, precision, constants;
    if (!expect(r, "1") || !expect(r, "level") || !read_i64(r, &level) || !expect(r, "layout") ||
        !read_choice(r, layout_words, LAYOUT_NC16C + 1, &layout) || !expect(r, "winograd") ||
        !read_u32(r, &m->asked.winograd))
        return false;
    m->asked.opt_level = (int)level;
    m->asked.layout = (enum layout_choice)layout;
    m->asked.attention = accept(r, "attention");
    m->asked.sparse = accept(r, "sparse");
    m->asked.always = accept(r, "always");
    if (accept(r, "precision")) {
        if (!read_choice(r, precision_words, PRECISION_F16_SUMS + 1, &precision))
            return false;
        m->asked.precision = (enum precision)precision;
    }
    if (accept(r, "constants")) {
        const char *words[WEIGHTS_TYPES];
        for (uint32_t i = 0; i < WEIGHTS_TYPES; i++)
            words[i] = weights_rows[i].word;
        if (!read_choice(r, words, WEIGHTS_TYPES, &constants))
            return false;
        m->asked.weights_type = (enum weights_type)constants;
    }
    if (accept(r, "for") && !read_best(r))
        return false;
    if (accept(r, "matdot") && !read_u32(r, &m->asked.matdot))
        return false;
    m->asked.pairs = accept(r, "pairs");
    m->asked.strict = accept(r, "strict");
    return true;
}

static bool read_override(struct reader *r)
{
    struct choice c = {.key = CHOOSE_FIELD};
    if (!fine(r, scan_quoted(&r->s, r->m->arena, &c.node, NULL)))
        return false;
    scan_blanks(&r->s);
    c.field = arena_strndup(r->m->arena, r->s.p, strcspn(r->s.p, " \n"));
    r->s.p += strlen(c.field);
    for (uint32_t key = 0; key < CHOOSE_FIELD && c.field; key++)
        if (strcmp(choice_words[key], c.field) == 0) {
            c.key = (enum choice_key)key;
            c.field = NULL;
        }
    if (!read_i64(r, &c.n[0]) || !read_i64(r, &c.n[1]) || !read_i64(r, &c.n[2]))
        return false;
    c.text = c.node;
    choice_add(r->m, c);
    return true;
}

/* 0: there is none of this name. */
static uint32_t fact_by_name(struct reader *r, const char *name)
{
    struct strbuf text = strbuf_of(&r->ctx->session);
    for (uint32_t fact = 1; fact & TEXT_FACTS; fact <<= 1, text.n = 0) {
        facts_print(fact, &text);
        if (strcmp(text.data, name) == 0)
            return fact;
    }
    return 0;
}

static bool read_facts(struct reader *r)
{
    struct module *m = r->m;
    while (!at_end(r)) {
        size_t n = scan_word(&r->s);
        uint32_t fact = fact_by_name(r, arena_strndup(&r->ctx->session, r->s.p, n));
        if (!fact)
            return fail(r, "unknown fact");
        m->facts |= fact;
        r->s.p += n;
    }
    if (!(m->facts & HAS_KERNELS))
        return true;
    m->fused.n_values = m->g->values.n;
    m->fused.stored = NEW_ARRAY(m->arena, bool, m->fused.n_values);
    m->fused.kernel_of = NEW_ARRAY(m->arena, uint32_t, m->g->nodes.n);
    m->fused.storage = m->facts & HAS_PLACES ? NEW_ARRAY(m->arena, struct storage, m->fused.n_values) : NULL;
    m->fused.constraint = m->facts & HAS_PLACES ? NEW_ARRAY(m->arena, struct layout_constraint, m->fused.n_values)
                                                : NULL;
    for (uint32_t k = 0; m->fused.storage && k < m->g->outputs.n; k++)
        m->fused.storage[m->g->outputs.data[k].value.i].port = k;
    for (uint32_t k = 0; m->fused.storage && k < m->g->inputs.n; k++)
        m->fused.storage[m->g->inputs.data[k].value.i].port = k;
    return true;
}

static bool read_nodes(struct reader *r, node_list *nodes)
{
    while (is_node(r)) {
        node_id id;
        if (!read_node(r, &id))
            return false;
        VEC_PUSH(r->m->arena, nodes, id);
    }
    return true;
}

static bool read_step(struct reader *r, struct attention_step *s)
{
    return read_node(r, &s->node) && read_u32(r, &s->operand) &&
           (s->operand < graph_node(r->m->g, s->node)->n_in || fail(r, "the node has no such operand"));
}

static bool read_steps(struct reader *r, const char *word, attention_steps *steps)
{
    struct attention_step s;
    for (bool more = accept(r, word); more && is_node(r);) {
        if (!read_step(r, &s))
            return false;
        VEC_PUSH(r->m->arena, steps, s);
    }
    return true;
}

static bool read_attention(struct reader *r)
{
    struct attention a = {.rows_of = 0};
    return read_node(r, &a.values) && expect(r, "scores") && read_node(r, &a.scores) && expect(r, "rows") &&
           read_u32(r, &a.rows_of) && expect(r, "z") && read_value(r, &a.z) && expect(r, "max") &&
           read_value(r, &a.max) && expect(r, "terms") && read_value(r, &a.terms) &&
           (!accept(r, "sink") || read_step(r, &a.sink)) && (!accept(r, "least") || read_step(r, &a.least)) &&
           (!accept(r, "cleared") || read_step(r, &a.cleared)) && read_steps(r, "to_z", &a.to_z) &&
           read_steps(r, "to_max", &a.to_max) && read_steps(r, "to_scores", &a.to_scores) && expect(r, "computes") &&
           read_nodes(r, &a.nodes) && (attention_record(r->m, &a) || fail(r, "the node belongs to another attention"));
}

/* What the kernel computes, that is, the next one. */
static bool read_computed(struct reader *r, struct kernel *k)
{
    uint32_t from = k->nodes.n;
    if (!read_nodes(r, &k->nodes))
        return false;
    for (uint32_t i = from; i < k->nodes.n; i++)
        r->m->fused.kernel_of[k->nodes.data[i].i] = r->m->fused.kernels.n + 1;
    return true;
}

static bool read_outs(struct reader *r, struct kernel *k)
{
    while (is_value(r)) {
        value_id v;
        if (!read_value(r, &v))
            return false;
        VEC_PUSH(r->m->arena, &k->outs, v);
    }
    return true;
}

static bool read_local(struct reader *r, struct kernel *k, bool in_result)
{
    struct row_local local = {.in_result = in_result};
    if (!read_value(r, &local.value) || !read_mask(r, &local.inner))
        return false;
    VEC_PUSH(r->m->arena, &k->locals, local);
    return true;
}

static bool read_clause(struct reader *r, struct kernel *k)
{
    if (accept(r, "region"))
        return read_u32(r, &k->region.i) &&
               ((k->region.i >= 1 && k->region.i <= r->n_regions) || fail(r, "the graph has no such region"));
    if (accept(r, "at"))
        return read_u32(r, &k->order);
    if (accept(r, "stores"))
        return read_outs(r, k);
    if (accept(r, "piece"))
        return read_u32(r, &k->piece) && ++k->piece;
    if (accept(r, "shares"))
        return read_u32(r, &k->shares) && ++k->shares;
    if (accept(r, "over"))
        return read_value(r, &k->domain);
    if (accept(r, "anchor"))
        return read_node(r, &k->anchor);
    if (accept(r, "path"))
        return read_nodes(r, &k->path);
    if (accept(r, "rows"))
        return (k->has_rows = true) && read_mask(r, &k->row_mask);
    if (accept(r, "keeps-in-result"))
        return read_local(r, k, true);
    if (accept(r, "keeps"))
        return read_local(r, k, false);
    if (accept(r, "stages"))
        return read_value(r, &k->form.staged);
    if (accept(r, "product"))
        return read_node(r, &k->form.product);
    if (accept(r, "winograd"))
        return read_u32(r, &k->form.winograd);
    if (accept(r, "attention")) {
        k->form.attention = attention_of_values(r->m, k->anchor);
        return k->form.attention || fail(r, "the anchor makes no attention's results");
    }
    return expect(r, "computes") && read_computed(r, k);
}

static bool read_kernel(struct reader *r)
{
    struct kernel k = {.region = {1}};
    uint32_t kind;
    if (!r->m->fused.kernel_of)
        return fail(r, "kernels need the fact 'kernels'");
    if (!read_index(r, r->m->fused.kernels.n) || !read_choice(r, kernel_words, KERNEL_HALO + 1, &kind))
        return false;
    k.kind = (enum kernel_kind)kind;
    while (!at_end(r))
        if (!read_clause(r, &k))
            return false;
    VEC_PUSH(r->m->arena, &r->m->fused.kernels, k);
    return true;
}

static bool read_dims(struct reader *r, struct storage *s)
{
    s->dim = NEW_ARRAY(r->m->arena, struct dim_layout, s->rank + 1);
    s->origin = ex_const(r->ctx->exprs, 0);
    if (!expect(r, "["))
        return false;
    for (int32_t d = 0; d < s->rank; d++) {
        if ((d && !expect(r, ",")) || !read_expression(r, &s->dim[d].outer))
            return false;
        if (accept(r, "/") && (!read_i64(r, &s->dim[d].block) || !expect(r, "*") || !read_i64(r, &s->dim[d].inner)))
            return false;
    }
    return expect(r, "]") && expect(r, "size") && read_expression(r, &s->size) &&
           (!accept(r, "origin") || read_expression(r, &s->origin));
}

static bool read_room(struct reader *r, struct layout_constraint *w, const struct type *t)
{
    uint32_t dim, room;
    if (!read_u32(r, &dim) || !read_u32(r, &room))
        return false;
    if (t->kind != TYPE_TENSOR || t->rank < 0 || dim >= (uint32_t)t->rank || room < 1 || room > INT32_MAX)
        return fail(r, "there is no such room");
    w->grows = (int32_t)dim + 1;
    w->room = room;
    return true;
}

static bool read_storage(struct reader *r, value_id v, const struct type *t)
{
    struct storage *s = &r->m->fused.storage[v.i];
    struct layout_constraint *w = &r->m->fused.constraint[v.i];
    for (uint32_t place = PLACE_INPUT; place <= PLACE_SEGMENT && s->place == PLACE_NONE; place++)
        if (accept(r, place_words[place]))
            s->place = (enum place)place;
    scan_blanks(&r->s);
    if (*r->s.p >= '0' && *r->s.p <= '9' && !read_u32(r, &s->buffer))
        return false;
    w->plain = accept(r, "plain");
    w->blocked = accept(r, "blocked");
    uint32_t fastest = 0;
    if (accept(r, "fastest") && (!read_u32(r, &fastest) || !++fastest))
        return false;
    w->fastest = (int32_t)fastest;
    if (accept(r, "room") && !read_room(r, w, t))
        return false;
    if (at_end(r))
        return true;
    if (t->kind != TYPE_TENSOR || t->rank < 0)
        return fail(r, "only a tensor of known rank has a storage");
    if (accept(r, "halo")) {
        s->halo = NEW_ARRAY(r->m->arena, int64_t, 2 * t->rank + 1);
        if (!read_i64s(r, s->halo, 2 * (uint32_t)t->rank))
            return false;
    }
    if (at_end(r))
        return true;
    s->rank = t->rank;
    return read_dims(r, s);
}

static bool read_value_line(struct reader *r)
{
    value_id v;
    if (!r->m->fused.stored)
        return fail(r, "stored values need the fact 'kernels'");
    if (!read_value(r, &v))
        return false;
    r->m->fused.stored[v.i] = accept(r, "stored");
    const struct type *t = value_type(r->m->g, v);
    if (at_end(r))
        return true;
    if (!r->m->fused.storage)
        return fail(r, "places need the fact 'places'");
    return read_storage(r, v, t);
}

static bool read_buffer(struct reader *r)
{
    struct buffer b = {.first = UINT32_MAX};
    if (!r->m->fused.storage)
        return fail(r, "buffers need the fact 'places'");
    if (!read_index(r, r->m->plan.buffers.n) || !expect(r, "of") || !read_value(r, &b.value) ||
        (accept(r, "lives") && (!read_u32(r, &b.first) || !read_u32(r, &b.last))))
        return false;
    const struct storage *s = &r->m->fused.storage[b.value.i];
    if (!s->size.i)
        return fail(r, "the buffer's value has no size");
    b.bytes = ex_mulc(r->ctx->exprs, s->size, elem_size(value_type(r->m->g, b.value)->elem));
    b.segment = accept(r, "segment");
    if (accept(r, "offset") && !read_expression(r, &b.offset))
        return false;
    VEC_PUSH(r->m->arena, &r->m->plan.buffers, b);
    return true;
}

static bool read_weight(struct reader *r)
{
    struct module *m = r->m;
    struct weight w = {0};
    if (!m->fused.storage)
        return fail(r, "weights need the fact 'places'");
    if (!read_index(r, m->plan.weights.n) || !expect(r, "of") || !read_value(r, &w.value))
        return false;
    if (accept(r, "offset") && (!read_u64(r, &w.offset) || !expect(r, "bytes") || !read_u64(r, &w.bytes)))
        return false;
    VEC_PUSH(m->arena, &m->plan.weights, w);
    return true;
}

static bool read_order(struct reader *r)
{
    while (!at_end(r)) {
        uint32_t k;
        if (!read_u32(r, &k))
            return false;
        VEC_PUSH(r->m->arena, &r->m->fused.order, k);
    }
    return true;
}

static bool read_workspace(struct reader *r)
{
    return read_expression(r, &r->m->plan.arena_bytes);
}
static bool read_segment(struct reader *r)
{
    return read_u64(r, &r->m->plan.weights_bytes);
}

static bool read_line(struct reader *r)
{
    static const struct {
        const char *word;
        bool (*read)(struct reader *);
    } lines[] = {
        {"choose", read_override},  {"facts", read_facts},   {"attention", read_attention}, {"kernel", read_kernel},
        {"value", read_value_line}, {"buffer", read_buffer}, {"workspace", read_workspace}, {"weight", read_weight},
        {"segment", read_segment},  {"order", read_order},
    };
    for (size_t i = 0; i < COUNT_OF(lines); i++)
        if (accept(r, lines[i].word))
            return lines[i].read(r) && (at_end(r) || fail(r, "something is left of the line"));
    return fail(r, "expected choose, facts, attention, kernel, value, buffer, workspace, weight, segment or order");
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

/* The graph of the text, and what the numbers of its text mean. */
static bool read_graph(struct reader *r, const char *text, size_t n)
{
    r->m->g = graph_parse(r->ctx, arena_strndup(&r->ctx->session, text, n));
    if (!r->m->g)
        return false;
    struct graph_numbers numbers = graph_numbers(r->m->g, &r->ctx->session);
    for (uint32_t v = 1; v < r->m->g->values.n; v++) {
        while (r->values.n <= numbers.value[v])
            VEC_PUSH(&r->ctx->session, &r->values, (value_id){0});
        if (numbers.value[v])
            r->values.data[numbers.value[v]] = (value_id){v};
    }
    r->n_nodes = r->m->g->nodes.n - 1;
    r->n_regions = r->m->g->regions.n - 1;
    return true;
}

struct module *module_parse(struct context *ctx, const char *text)
{
    static const char head[] = "\nmodule ";
    struct module *m = NEW(&ctx->session, struct module);
    struct reader r = {.ctx = ctx, .m = m, .s = {.blanks = " \t\r", .comment = ';'}};
    const char *at = strstr(text, head); /* quoted text has no ends of lines */
    *m = (struct module){.ctx = ctx, .arena = &ctx->session, .asked.best = target_find(BEST_BY_DEFAULT)};
    r.s.start = r.s.p = at ? at + 1 : text;
    r.lines = scan_line(&(struct scan){.start = text, .p = r.s.p}) - 1;
    if (!at)
        return fail(&r, "expected the graph, and behind it a line that begins with 'module'") ? m : NULL;
    if (!read_graph(&r, text, (size_t)(r.s.start - text)) || !expect(&r, "module") || !read_options(&r))
        return NULL;
    for (;;) {
        if (!at_end(&r) && !read_line(&r))
            return NULL;
        if (!*r.s.p++)
            return m;
    }
}
