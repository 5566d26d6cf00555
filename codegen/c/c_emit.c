/* One loop-IR function -> one C function: control and statements; c_values.c has what values are. What loops carry is
 * assigned at the end of each trip.
 */
#include "codegen/c/c_emit.h"

#include <inttypes.h>

#include "ir/loop/internal.h"

static void block(struct c_emit *, lblock);

static bool is_carried(struct c_emit *e, const struct lstmt *s, uint32_t i)
{
    return ce_live(e, e->f->blocks.data[s->block[0].i].params.data[i + 1]);
}

/* What the trip carries on. An operand that is a carried value itself is kept before the first assignment. */
static void carry(struct c_emit *e, const struct lstmt *loop)
{
    const struct lblk *body = &e->f->blocks.data[loop->block[0].i];
    const struct lstmt *yield = c_yield(e->f, loop->block[0]);
    const char *from[1024];
    uint32_t n = loop->n_in - 2;
    if (n > COUNT_OF(from)) {
        c_fail(e->c, "loops that carry more than 1,024 values");
        return;
    }
    for (uint32_t i = 0; i < n; i++) {
        if (!is_carried(e, loop, i))
            continue;
        from[i] = ce_value(e, yield->in[i])->text;
        for (uint32_t k = 0; k < i; k++)
            if (is_carried(e, loop, k) && strcmp(from[i], ce_value(e, body->params.data[k + 1])->text) == 0) {
                const char *kept = arena_printf(e->c->arena, "old%u", body->params.data[i + 1].i);
                ce_indent(e);
                strbuf_printf(e->out, "%sconst %s = %s;\n", ce_type(e, yield->in[i]), kept, from[i]);
                from[i] = kept;
                break;
            }
    }
    for (uint32_t i = 0; i < n; i++)
        if (is_carried(e, loop, i) && strcmp(from[i], ce_value(e, body->params.data[i + 1])->text) != 0) {
            ce_indent(e);
            strbuf_printf(e->out, "%s = %s;\n", ce_value(e, body->params.data[i + 1])->text, from[i]);
        }
}

static void loop(struct c_emit *e, const struct lstmt *s)
{
    const struct lblk *body = &e->f->blocks.data[s->block[0].i];
    const char *variable = ce_name(e, body->params.data[0]), *first = "";
    ce_value(e, body->params.data[0])->place = true;
    for (uint32_t i = 0; i + 2 < s->n_in; i++) {
        lreg p = body->params.data[i + 1];
        if (!ce_live(e, p))
            continue;
        ce_value(e, p)->is_const = ce_value(e, s->in[i + 2])->is_const;
        const char *type = ce_type(e, p), *name = ce_name(e, p);
        ce_indent(e);
        strbuf_printf(e->out, "%s%s = %s;\n", type, name, ce_in(e, s, i + 2));
        ce_set_text(e, s->out[i], name, ATOM);
        ce_value(e, s->out[i])->is_const = ce_value(e, p)->is_const;
        if (i == 0 && s->flags & L_FLAG_WHILE)
            first = arena_printf(e->c->arena, " && %s", name);
    }
    ce_indent(e);
    strbuf_printf(e->out, "for (i64 %s = %s; %s < %s%s; ", variable, ce_in(e, s, 0), variable, ce_in(e, s, 1), first);
    strbuf_printf(e->out, s->imm == 1 ? "%s++) {\n" : "%s += %" PRId64 ") {\n", variable, s->imm);
    e->depth++;
    block(e, s->block[0]);
    if (s->n_in > 2)
        carry(e, s);
    e->depth--;
    ce_indent(e);
    strbuf_printf(e->out, "}\n");
}

static void branch(struct c_emit *e, const struct lstmt *s)
{
    for (uint32_t i = 0; i < s->n_out; i++) {
        if (!ce_live(e, s->out[i]))
            continue;
        for (uint32_t k = 0; k < 2; k++) {
            const struct lstmt *yield = c_yield(e->f, s->block[k]);
            ce_value(e, s->out[i])->is_const |= yield && ce_value(e, yield->in[i])->is_const;
        }
        const char *type = ce_type(e, s->out[i]);
        ce_indent(e);
        strbuf_printf(e->out, "%s%s;\n", type, ce_name(e, s->out[i]));
    }
    for (uint32_t k = 0; k < 2 && s->block[k].i; k++) {
        const struct lstmt *yield = c_yield(e->f, s->block[k]);
        if (k == 0) {
            ce_indent(e);
            strbuf_printf(e->out, "if (%s) {\n", ce_in(e, s, 0));
        } else {
            strbuf_printf(e->out, " else {\n");
        }
        e->depth++;
        block(e, s->block[k]);
        for (uint32_t i = 0; yield && i < s->n_out; i++)
            if (ce_live(e, s->out[i])) {
                ce_indent(e);
                strbuf_printf(e->out, "%s = %s;\n", ce_value(e, s->out[i])->text, ce_in(e, yield, i));
            }
        e->depth--;
        ce_indent(e);
        strbuf_printf(e->out, "}");
    }
    strbuf_printf(e->out, "\n");
}

static void check(struct c_emit *e, const struct lstmt *s)
{
    struct ltype t = lf_type(e->f, s->in[0]);
    const char *cond = t.lanes == 1 ? ce_text(e, s->in[0], ATOM) : ce_call(e, c_hreduce(e->c, L_AND, t), s, 1);
    ce_indent(e);
    strbuf_printf(e->out, "if (!%s)\n", cond);
    e->depth++;
    ce_indent(e);
    e->depth--;
    strbuf_printf(e->out, "return %" PRId64 "; /* ", s->imm);
    c_comment(e->out, s->name ? s->name : "");
    strbuf_printf(e->out, " */\n");
}

static void launch(struct c_emit *e, const struct lstmt *s)
{
    const struct c_function *k = c_function_find(e->c, s->name);
    if (!k) {
        c_fail(e->c, "a launch of what is not there");
        return;
    }
    ce_indent(e);
    strbuf_printf(e->out, k->fails ? "code = %s(" : "%s(", k->name);
    for (uint32_t i = 0; i < s->n_in; i++)
        if (i + 1 < s->n_in || k->counts)
            strbuf_printf(e->out, "%s%s", i ? ", " : "", ce_in(e, s, i));
    strbuf_printf(e->out, k->scratch ? ", scratch);\n" : ");\n");
    if (!k->fails)
        return;
    ce_indent(e);
    strbuf_printf(e->out, "if (code != 0)\n");
    e->depth++;
    ce_indent(e);
    e->depth--;
    strbuf_printf(e->out, "return code;\n");
}

/* Of the runtime, what one thread needs none for. */
static void call_runtime(struct c_emit *e, const struct lstmt *s)
{
    const char *result = NULL;
    if (strcmp(s->name, "mcc_rt_kept") == 0 && s->n_in == 2)
        result = arena_printf(e->c->arena, "kept(&made, &tag, %s)", ce_in(e, s, 1));
    else if (strcmp(s->name, "mcc_rt_arrive") == 0 && s->n_in == 2)
        result = arena_printf(e->c->arena, "arrive(%s, %s)", ce_in(e, s, 0), ce_in(e, s, 1));
    else if (strcmp(s->name, "mcc_rt_poll") == 0) /* nobody cancels */
        result = "0";
    if (!result) {
        c_fail(e->c, arena_printf(e->c->arena, "the runtime's function %s", s->name));
        return;
    }
    if (s->n_out && ce_live(e, s->out[0])) {
        ce_define(e, s->out[0], result);
        return;
    }
    ce_indent(e);
    strbuf_printf(e->out, "(void)%s;\n", result);
}

/* ---- statements -------------------------------------------------------------------------------------------------- */

static bool gives_place(enum lop op)
{
    return op == L_FLOORDIV || op == L_FLOORMOD || op == L_MIN || op == L_MAX || op == L_AND || op == L_SHR ||
           op == L_DIV || op == L_REM;
}

static const char *expression(struct c_emit *e, const struct lstmt *s)
{
    struct c_file *c = e->c;
    struct ltype t = s->type, from = s->n_in ? lf_type(e->f, s->in[0]) : t;
    switch (s->op) {
    case L_DOT:
    case L_MATDOT: return ce_call(e, c_dot(c, e->f, s), s, 3);
    case L_SELECT:
        if (from.lanes == 1)
            return arena_printf(c->arena, "%s ? %s : %s", ce_text(e, s->in[0], ATOM), ce_text(e, s->in[1], ATOM),
                                ce_text(e, s->in[2], ATOM));
        return ce_call(e, c_select(c, from, t), s, 3);
    case L_CONVERT:
        return from.elem == t.elem ? ce_in(e, s, 0) : ce_call(e, c_conversion(c, from, t, s->imm != 0, s->name), s, 1);
    case L_BITCAST:
        return strcmp(c_type(c, from), c_type(c, t)) == 0 ? ce_in(e, s, 0) : ce_call(e, c_bitcast(c, from, t), s, 1);
    case L_SPLAT: return t.lanes == 1 ? ce_in(e, s, 0) : ce_call(e, c_splat(c, t), s, 1);
    case L_IOTA: return t.lanes == 1 ? "0" : arena_printf(c->arena, "%s()", c_iota(c, t));
    case L_EXTRACT:
        return from.lanes == 1 ? ce_in(e, s, 0)
                               : arena_printf(c->arena, "%s.v[%" PRId64 "]%s", ce_text(e, s->in[0], ATOM), s->imm,
                                              t.elem == ELEM_BOOL ? " != 0" : "");
    case L_INSERT:
        return t.lanes == 1 ? ce_in(e, s, 1)
                            : arena_printf(c->arena, "%s(%s, %s, %" PRId64 ")", c_insert(c, t), ce_in(e, s, 0),
                                           ce_in(e, s, 1), s->imm);
    case L_SHUFFLE: return ce_call(e, c_shuffle(c, from, (struct ltype){t.elem, s->n_aux}, s->aux), s, 2);
    case L_HREDUCE: return from.lanes == 1 ? ce_in(e, s, 0) : ce_call(e, c_hreduce(c, (enum lop)s->imm, from), s, 1);
    case L_LOAD:
    case L_LOADS:
    case L_GATHER: return ce_load(e, s);
    case L_SHARED:
        return arena_printf(c->arena, "(const void *)%s == (const void *)%s", ce_text(e, s->in[0], ATOM),
                            ce_text(e, s->in[1], ATOM));
    default: return ce_arithmetic(e, s);
    }
}

static void statement(struct c_emit *e, const struct lstmt *s)
{
    if (s->op == L_YIELD || !c_is_used(&e->uses, s))
        return;
    switch (s->op) {
    case L_CONST: ce_constant(e, s); return;
    case L_STORE:
    case L_STORES:
    case L_SCATTER: ce_store(e, s); return;
    case L_LOCAL: ce_local(e, s); return;
    case L_OFFSET: ce_offset(e, s); return;
    case L_PREFETCH:
    case L_PREFETCH2:
        ce_indent(e);
        strbuf_printf(e->out, "PREFETCH(%s, %s, %d);\n", ce_in(e, s, 0), ce_in(e, s, 1), s->op == L_PREFETCH ? 3 : 2);
        return;
    case L_FOR: loop(e, s); return;
    case L_PARALLEL: {
        lreg i = e->f->blocks.data[s->block[0].i].params.data[0];
        ce_value(e, i)->place = true;
        const char *name = ce_name(e, i);
        ce_indent(e);
        strbuf_printf(e->out, "for (i64 %s = 0; %s < count; %s++) {\n", name, name, name);
        e->depth++;
        block(e, s->block[0]);
        e->depth--;
        ce_indent(e);
        strbuf_printf(e->out, "}\n");
        return;
    }
    case L_IF: branch(e, s); return;
    case L_CHECK: check(e, s); return;
    case L_CALL: call_runtime(e, s); return;
    case L_LAUNCH: launch(e, s); return;
    case L_GLOBAL:
        ce_value(e, s->out[0])->is_const = true;
        ce_define(e, s->out[0], "(const u8 *)weights");
        return;
    case L_ADDRESS: c_fail(e->c, "memory that is asked for at run time"); return;
    default: break;
    }
    if (ce_place_arithmetic(e, s))
        return;
    const char *t = expression(e, s);
    struct c_value *r = ce_value(e, s->out[0]);
    r->place = ltype_is_index(s->type) && gives_place(s->op) && ce_value(e, s->in[0])->place &&
               ce_value(e, s->in[1])->place;
    r->is_const = s->op == L_SELECT && (ce_value(e, s->in[1])->is_const || ce_value(e, s->in[2])->is_const);
    r->known = (s->op == L_SPLAT || s->op == L_SHUFFLE) && ce_value(e, s->in[0])->known &&
               (s->op == L_SPLAT || ce_value(e, s->in[1])->known);
    ce_define(e, s->out[0], t);
}

static void block(struct c_emit *e, lblock b)
{
    const struct lblk *blk = &e->f->blocks.data[b.i];
    for (uint32_t i = 0; i < blk->stmts.n && !e->c->why; i++)
        statement(e, &blk->stmts.data[i]);
}

/* ---- the function ------------------------------------------------------------------------------------------------ */

/* What the function calls for: a result, the scratch, what mcc_rt_kept remembers. */
static void look(const struct c_emit *e, struct c_function *made, bool *keeps)
{
    for (uint32_t b = 1; b < e->f->blocks.n; b++)
        for (uint32_t i = 0; i < e->f->blocks.data[b].stmts.n; i++) {
            const struct lstmt *s = &e->f->blocks.data[b].stmts.data[i];
            const struct c_function *k = s->op == L_LAUNCH ? c_function_find(e->c, s->name) : NULL;
            made->fails |= s->op == L_CHECK || (k && k->fails);
            made->scratch |= (s->op == L_LOCAL && e->f->role == LROLE_KERNEL && ce_live(e, s->out[0])) ||
                             (k && k->scratch);
            made->launches |= k && k->fails;
            *keeps |= s->op == L_CALL && strcmp(s->name, "mcc_rt_kept") == 0;
        }
}

static void put_nodes(struct c_emit *e)
{
    struct context *ctx = e->c->ctx;
    strbuf_printf(e->out, "\n");
    for (uint32_t i = 0; i < e->f->nodes.n; i++) {
        if (e->f->nodes.data[i] >= ctx->sources.n)
            continue;
        const struct source *s = &ctx->sources.data[e->f->nodes.data[i]];
        strbuf_printf(e->out, "/* ");
        c_comment(e->out, s->op ? s->op : "");
        strbuf_printf(e->out, " ");
        c_comment(e->out, source_label(s));
        strbuf_printf(e->out, " */\n");
    }
}

static void put_parameters(struct c_emit *e, const struct c_function *made)
{
    const char *comma = "";
    for (uint32_t i = 0; i < e->f->args.n; i++, comma = ", ") {
        const struct larg *a = &e->f->args.data[i];
        lreg r = {i + 1};
        ce_value(e, r)->is_const = a->type.lanes == 0 && !(a->flags & LARG_OUT);
        ce_value(e, r)->place = a->type.lanes == 1;
        const char *type = ce_type(e, r);
        if (e->f->role == LROLE_ENTRY && a->type.lanes == 0) /* C's arrays are pointers to rows */
            type = ce_value(e, r)->is_const ? "const void *" : "void *";
        strbuf_printf(e->out, "%s%s%s%s", comma, type, a->flags & LARG_NOALIAS && a->type.lanes == 0 ? "restrict " : "",
                      ce_name(e, r));
    }
    if (made->counts)
        strbuf_printf(e->out, "%si64 count", comma);
    if (made->scratch && e->f->role != LROLE_ENTRY)
        strbuf_printf(e->out, "%su8 *scratch", made->counts ? ", " : comma);
    if (!e->f->args.n && !made->counts && !made->scratch)
        strbuf_printf(e->out, "void");
}

static void put_function(struct c_emit *e, struct c_function *made)
{
    bool keeps = false, entry = e->f->role == LROLE_ENTRY;
    look(e, made, &keeps);
    made->fails |= entry;
    put_nodes(e);
    strbuf_printf(e->out, "static %s %s(", made->fails ? "int" : "void", made->name);
    put_parameters(e, made);
    strbuf_printf(e->out, ")\n{\n");
    e->depth = 1;
    for (uint32_t i = 0; i < e->f->args.n; i++)
        if (!e->uses.of[i + 1].n) {
            ce_indent(e);
            strbuf_printf(e->out, "(void)%s;\n", e->v[i + 1].text);
        }
    if (made->launches)
        strbuf_printf(e->out, "    int code;\n");
    if (entry && made->scratch) /* the memory begins with it */
        strbuf_printf(e->out, "    u8 *const scratch = (u8 *)%s;\n", e->v[e->f->args.n].text);
    if (keeps)
        strbuf_printf(e->out, "    bool made = false;\n    i64 tag = 0;\n");
    block(e, (lblock){1});
    strbuf_printf(e->out, made->fails ? "    return 0;\n}\n" : "}\n");
}

bool c_function(struct c_file *c, const struct lfunc *f)
{
    struct c_emit e = {.c = c, .f = f, .out = &c->body, .uses = c_uses(c->arena, f)};
    struct c_function made = {.of = f->name, .name = c_function_name(c, f->name), .counts = f->role == LROLE_KERNEL};
    e.v = NEW_ARRAY(c->arena, struct c_value, f->types.n);
    put_function(&e, &made);
    VEC_PUSH(c->arena, &c->functions, made);
    return !c->why || error_at(c->ctx, FAIL_MODEL, (src_id){f->nodes.n ? f->nodes.data[0] : 0}, NULL,
                               "--emit=c does not support %s; --emit=static may", c->why);
}
