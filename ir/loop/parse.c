/* Parses the text form of the loop IR (docs/loop-ir.md), in one pass over the characters: workers read it.
 *
 * Only syntax, names and double definitions are judged here; everything about types and dominance is the verifier's,
 * which runs on the result. Comments run from # to the end of the line. Never recurses deeper than LOOP_DEPTH_MAX.
 */
#include "ir/loop/tokens.h"

enum { NUMBER_MAX = 1 << 24 };   /* value numbers are dense in printed text; this bounds the table */

/* ---- values and types -------------------------------------------------------------------------------------------- */

static bool read_number(struct parser *ps, uint32_t **slot)
{
    uint32_t number;
    if (!token_need(ps, "%") || !token_u32(ps, &number))
        return false;
    if (number >= NUMBER_MAX)
        return token_fail(ps, "value number too large");
    while (ps->map.n <= number)
        VEC_PUSH(ps->f->arena, &ps->map, 0);
    *slot = &ps->map.data[number];
    return true;
}

static bool read_value(struct parser *ps, lreg *out)
{
    uint32_t *slot;
    if (!read_number(ps, &slot))
        return false;
    *out = (lreg){*slot};
    return *slot != 0 || token_fail(ps, "this value has no definition above");
}

/* A value that comes into being here; its type may be set later through f->types. */
static bool read_new_value(struct parser *ps, struct ltype type, lreg *out)
{
    uint32_t *slot;
    if (!read_number(ps, &slot))
        return false;
    if (*slot != 0)
        return token_fail(ps, "this value is defined twice");
    *out = lf_value(ps->f, type);
    *slot = out->i;
    return true;
}

/* Appends values to ps->list until there is no further comma. */
static bool read_values(struct parser *ps)
{
    do {
        lreg v;
        if (!read_value(ps, &v))
            return false;
        VEC_PUSH(ps->f->arena, &ps->list, v);
    } while (token_take(ps, ","));
    return true;
}

static bool read_type(struct parser *ps, struct ltype *t)
{
    char word[WORD_MAX];
    if (token_take(ps, "index")) {
        *t = (struct ltype){ELEM_I64, 1};
        return true;
    }
    bool buffer = token_take(ps, "buffer");
    if (!token_word(ps, word))
        return false;
    t->lanes = buffer ? 0 : 1;
    char *x = buffer ? NULL : strrchr(word, 'x');
    if (x && x > word && x[1] >= '1' && x[1] <= '9') {
        unsigned long lanes = strtoul(x + 1, NULL, 10);
        t->lanes = lanes <= LOOP_LANES_MAX ? (uint32_t)lanes : LOOP_LANES_MAX + 1;
        *x = 0;
    }
    t->elem = elem_by_name(word);
    if (t->elem == ELEM_NONE)
        return token_fail(ps, "unknown type");
    return t->lanes <= LOOP_LANES_MAX || token_fail(ps, "too many lanes");
}

/* ---- statements: s is on the stack and appended when complete ---------------------------------------------------- */

static bool parse_block(struct parser *ps, lblock b);

static bool read_constant(struct parser *ps, struct lstmt *s)
{
    s->flags |= token_take(ps, "data") ? L_FLAG_DATA : 0;
    if (elem_class(s->type.elem) != 'F' || s->flags & L_FLAG_DATA)
        return token_i64(ps, &s->imm);
    if (!token_f64(ps, &s->fimm))
        return false;
    s->flags |= token_take(ps, "residue") ? L_FLAG_RESIDUE : 0;
    return !(s->flags & L_FLAG_RESIDUE) || token_i64(ps, &s->imm);
}

static bool read_lanes(struct parser *ps, struct lstmt *s)
{
    uint8_t lanes[LOOP_LANES_MAX];
    do {
        uint32_t lane;
        if (!token_u32(ps, &lane))
            return false;
        if (lane > UINT8_MAX || s->n_aux == LOOP_LANES_MAX)
            return token_fail(ps, "bad lane list");
        lanes[s->n_aux++] = (uint8_t)lane;
    } while (token_take(ps, ","));
    s->aux = arena_copy(ps->f->arena, lanes, s->n_aux);
    return true;
}

static bool read_operand(struct parser *ps)
{
    lreg v;
    if (!read_value(ps, &v))
        return false;
    VEC_PUSH(ps->f->arena, &ps->list, v);
    return true;
}

static bool read_access(struct parser *ps, struct lstmt *s)
{
    if ((token_take(ps, "mask") && !read_operand(ps)) || (token_take(ps, "align") && !token_u32(ps, &s->align)))
        return false;
    s->flags |= token_take(ps, "nontemporal") ? L_FLAG_NONTEMPORAL : 0;
    s->flags |= token_take(ps, "invariant") ? L_FLAG_INVARIANT : 0;
    return true;
}

static bool read_body(struct parser *ps, lblock b)
{
    if (!token_need(ps, "{"))
        return false;
    if (++ps->depth > LOOP_DEPTH_MAX)
        return token_fail(ps, "blocks nest too deeply");
    bool ok = parse_block(ps, b);
    ps->depth--;
    return ok;
}

static void add_param(struct parser *ps, lblock b, lreg v)
{
    VEC_PUSH(ps->f->arena, &ps->f->blocks.data[b.i].params, v);
}

/* The operand list is copied out first: the body uses ps->list for its own statements. */
static void keep_operands(struct parser *ps, struct lstmt *s)
{
    s->in = lf_lregs(ps->f, ps->list.data, ps->list.n);
    s->n_in = ps->list.n;
    ps->list.n = 0;
}

static bool read_for(struct parser *ps, struct lstmt *s)
{
    lreg v;
    s->block[0] = lf_block(ps->f);
    if (!read_new_value(ps, (struct ltype){ELEM_I64, 1}, &v))
        return false;
    add_param(ps, s->block[0], v);
    if (!token_need(ps, "=") || !read_operand(ps) || !token_need(ps, "to") || !read_operand(ps))
        return false;
    if (s->op == L_FOR && (!token_need(ps, "step") || !token_i64(ps, &s->imm)))
        return false;
    if (s->op == L_FOR && token_take(ps, "carry")) {
        const char *open = "(";
        do {
            if (!token_need(ps, open) || !read_new_value(ps, (struct ltype){0}, &v) || !token_need(ps, "=") ||
                !read_operand(ps))
                return false;
            add_param(ps, s->block[0], v);
            ps->f->types.data[v.i] = lf_type(ps->f, ps->list.data[ps->list.n - 1]);
            open = ",";
            scan_blanks(&ps->s);
        } while (*ps->s.p == ',');
        if (!token_need(ps, ")"))
            return false;
    }
    s->flags |= token_take(ps, "while") ? L_FLAG_WHILE : 0;
    s->flags |= token_take(ps, "unroll") ? L_FLAG_UNROLL : 0;
    keep_operands(ps, s);
    for (uint32_t i = 0; i < s->n_out && i + 2 < s->n_in; i++)
        ps->f->types.data[s->out[i].i] = lf_type(ps->f, s->in[i + 2]);
    return read_body(ps, s->block[0]);
}

static bool read_if(struct parser *ps, struct lstmt *s)
{
    s->block[0] = lf_block(ps->f);
    s->block[1] = lf_block(ps->f);
    if (!read_operand(ps))
        return false;
    keep_operands(ps, s);
    if (!read_body(ps, s->block[0]) || (token_take(ps, "else") && !read_body(ps, s->block[1])))
        return false;
    const struct lblk *then = &ps->f->blocks.data[s->block[0].i];
    const struct lstmt *last = then->stmts.n ? &then->stmts.data[then->stmts.n - 1] : NULL;
    for (uint32_t i = 0; i < s->n_out; i++) {
        if (!last || last->op != L_YIELD || i >= last->n_in)
            return token_fail(ps, "this if has more results than its block yields");
        ps->f->types.data[s->out[i].i] = lf_type(ps->f, last->in[i]);
    }
    return true;
}

/* A part of a form (ir/loop/loop.c); what stands for itself: so many characters. */
static bool read_part(struct parser *ps, struct lstmt *s, const char *part, size_t n)
{
    char word[WORD_MAX];
    switch (*part) {
    case 'T': return lop_table[s->op].n_out != 1 || read_type(ps, &s->type);
    case 'V': scan_blanks(&ps->s); return *ps->s.p != '%' || lop_table[s->op].max_in == 0 || read_values(ps);
    case '%': return read_operand(ps);
    case 'I': return token_i64(ps, &s->imm);
    case 'N': return token_u32(ps, &s->node);
    case '@': return token_name(ps, &s->name);
    case 'S': return token_string(ps, &s->name);
    case 'O': return token_word(ps, word) && ((s->imm = lop_by_name(word)), true);
    case 'L': return read_lanes(ps, s);
    case 'C': return read_constant(ps, s);
    case 'X': s->imm = token_take(ps, "saturate"); return !token_take(ps, "round") || token_string(ps, &s->name);
    case 'A': return read_access(ps, s);
    case 'R':
        s->flags |= token_take(ps, "row") ? L_FLAG_ROW : 0;
        return s->flags & L_FLAG_ROW || token_need(ps, "grain");
    case 'M':
        s->type = (struct ltype){ELEM_I64, 1}; /* of its result */
        s->flags |= token_take(ps, "mayfail") ? L_FLAG_MAYFAIL : 0;
        return true;
    case 'F': return read_for(ps, s);
    case 'B': return read_if(ps, s);
    default:
        memcpy(word, part, n);
        word[n] = 0;
        return token_need(ps, word);
    }
}

static bool read_form(struct parser *ps, struct lstmt *s, const char *form)
{
    for (; *form; form++) {
        const size_t n = strspn(form, "abcdefghijklmnopqrstuvwxyz");
        if (*form != ' ' && !read_part(ps, s, form, n ? n : 1))
            return false;
        form += n ? n - 1 : 0;
    }
    return true;
}

/* The results' names stand before the operation, so their values are made first and typed afterwards. */
static bool read_results(struct parser *ps, struct lstmt *s)
{
    scan_blanks(&ps->s);
    if (*ps->s.p != '%')
        return true;
    VEC(lreg) out = {0};
    do {
        lreg v;
        if (!read_new_value(ps, (struct ltype){0}, &v))
            return false;
        VEC_PUSH(ps->f->arena, &out, v);
    } while (token_take(ps, ","));
    s->out = out.data;
    s->n_out = out.n;
    return token_need(ps, "=");
}

static bool parse_stmt(struct parser *ps, lblock b)
{
    char word[WORD_MAX];
    struct lstmt s = {0};
    scan_blanks(&ps->s);
    s.line = token_line(ps);
    ps->list.n = 0;
    if (!read_results(ps, &s) || !token_word(ps, word))
        return false;
    s.op = lop_by_name(word);
    if (s.op == L_NONE)
        return token_fail(ps, "unknown statement");
    const struct lop_info *info = &lop_table[s.op];
    if (info->n_out >= 0 && s.n_out != (uint32_t)info->n_out)
        return token_fail(ps, "wrong number of results");
    if (!read_form(ps, &s, info->form))
        return false;
    if (!lop_has_blocks(s.op)) {
        keep_operands(ps, &s);
        for (uint32_t i = 0; i < s.n_out; i++)
            ps->f->types.data[s.out[i].i] = s.type;
    }
    *lf_stmt(ps->f, b, s.op, NULL, 0) = s;
    return true;
}

static bool parse_block(struct parser *ps, lblock b)
{
    while (!token_take(ps, "}"))
        if (!parse_stmt(ps, b))
            return false;
    return true;
}

/* ---- functions --------------------------------------------------------------------------------------------------- */

static bool parse_arg(struct parser *ps)
{
    struct larg a = {0};
    uint32_t *slot;
    if (!read_number(ps, &slot))
        return false;
    if (*slot != 0)
        return token_fail(ps, "this value is defined twice");
    *slot = ps->f->types.n;
    if (!token_need(ps, ":") || !read_type(ps, &a.type))
        return false;
    a.flags |= token_take(ps, "in") ? LARG_IN : 0;
    a.flags |= token_take(ps, "out") ? LARG_OUT : 0;
    if (token_take(ps, "align") && !token_u32(ps, &a.align))
        return false;
    a.flags |= token_take(ps, "noalias") ? LARG_NOALIAS : 0;
    scan_blanks(&ps->s);
    if (*ps->s.p == '"' && !token_string(ps, &a.label))
        return false;
    lf_arg(ps->f, a.type, a.flags, a.align, a.label);
    return true;
}

static bool parse_role(struct parser *ps)
{
    if (token_take(ps, "kernel"))
        ps->f->role = LROLE_KERNEL;
    else if (token_take(ps, "program"))
        ps->f->role = LROLE_PROGRAM;
    else if (token_take(ps, "plan"))
        ps->f->role = LROLE_PLAN;
    else if (token_take(ps, "entry"))
        ps->f->role = LROLE_ENTRY;
    else if (token_take(ps, "value"))
        ps->f->role = LROLE_VALUE;
    else
        return token_fail(ps, "expected kernel, program, plan, entry or value");
    return true;
}

static bool parse_head(struct parser *ps)
{
    if (!token_name(ps, &ps->f->name))
        return false;
    if (token_take(ps, "nodes")) {
        if (!token_need(ps, "("))
            return false;
        do {
            uint32_t node;
            if (!token_u32(ps, &node))
                return false;
            VEC_PUSH(ps->f->arena, &ps->f->nodes, node);
        } while (token_take(ps, ","));
        if (!token_need(ps, ")"))
            return false;
    }
    return token_need(ps, "{");
}

/* What follows the word of its role. */
static bool parse_function(struct parser *ps)
{
    bool ok = parse_head(ps);
    while (ok && token_take(ps, "arg"))
        ok = parse_arg(ps);
    ok = ok && parse_block(ps, (lblock){1});
    if (ok)
        loop_layout_locals(ps->f);
    return ok;
}

struct lfunc *lf_parse(struct context *ctx, struct arena *arena, const char **text)
{
    struct parser ps = {.ctx = ctx, .s = {*text, *text, " \t\r\n", '#'}, .counted = *text, .line = 1};
    struct lfunc *f = ps.f = lf_new(ctx, arena, LROLE_KERNEL, "");
    bool ok = parse_role(&ps) && parse_function(&ps);
    while (ok && token_take(&ps, "value")) {
        ps.f = lf_new(ctx, arena, LROLE_VALUE, "");
        ps.f->of = f;
        for (uint32_t i = 0; i < ps.map.n; i++)
            ps.map.data[i] = 0;
        ok = parse_function(&ps);
        VEC_PUSH(arena, &f->parts, ps.f);
    }
    *text = ps.s.p;
    return ok ? f : NULL;
}
