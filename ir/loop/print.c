/* Loop IR as text (docs/loop-ir.md): one statement a line, values renumbered in order of definition, floats as exact
 * hexadecimal. So equal functions give equal text whatever order their values were made in, and parsing the text and
 * printing again gives the same bytes. Prints malformed functions too (verifier messages quote them).
 */
#include "ir/loop/internal.h"

#include <inttypes.h>

struct printer {
    const struct lfunc *f;
    struct strbuf *out;
    const uint32_t *number;
    uint32_t depth;
};

/* ---- numbering ------------------------------------------------------------------------------------------------ */

struct numbering {
    const struct lfunc *f;
    uint32_t *number;
    bool *seen;
    uint32_t next;
};

static void number_value(struct numbering *n, lreg v)
{
    if (v.i < n->f->types.n && n->number[v.i] == UINT32_MAX)
        n->number[v.i] = n->next++;
}

static void number_block(struct numbering *n, lblock b, uint32_t depth)
{
    if (b.i == 0 || b.i >= n->f->blocks.n || n->seen[b.i] || depth > LOOP_DEPTH_MAX)
        return;
    n->seen[b.i] = true;
    const struct lblk *blk = &n->f->blocks.data[b.i];
    for (uint32_t i = 0; i < blk->stmts.n; i++) {
        const struct lstmt *s = &blk->stmts.data[i];
        for (int k = 0; k < 2; k++) {
            if (s->block[k].i == 0 || s->block[k].i >= n->f->blocks.n)
                continue;
            const struct lblk *inner = &n->f->blocks.data[s->block[k].i];
            for (uint32_t p = 0; p < inner->params.n; p++)
                number_value(n, inner->params.data[p]);
        }
        for (uint32_t r = 0; r < s->n_out; r++)
            number_value(n, s->out[r]);
        number_block(n, s->block[0], depth + 1);
        number_block(n, s->block[1], depth + 1);
    }
}

uint32_t *loop_numbers(const struct lfunc *f, struct arena *arena)
{
    struct numbering n = {f, NEW_ARRAY(arena, uint32_t, f->types.n), NEW_ARRAY(arena, bool, f->blocks.n), 0};
    memset(n.number, 0xff, f->types.n * sizeof *n.number);
    for (uint32_t i = 0; i < f->args.n; i++)
        number_value(&n, (lreg){i + 1});
    number_block(&n, (lblock){1}, 0);
    return n.number;
}

/* ---- small pieces ----------------------------------------------------------------------------------------------- */

static void put(struct printer *p, const char *s)
{
    strbuf_append(p->out, s, strlen(s));
}

static void put_u64(struct printer *p, uint64_t x)
{
    char digits[20];
    int at = sizeof digits;
    do
        digits[--at] = (char)('0' + x % 10);
    while (x /= 10);
    strbuf_append(p->out, digits + at, sizeof digits - (size_t)at);
}

static void put_i64(struct printer *p, int64_t x)
{
    if (x < 0)
        put(p, "-");
    put_u64(p, x < 0 ? 0 - (uint64_t)x : (uint64_t)x);
}

/* Shortest exact hexadecimal, without the C library: its decimal point depends on the locale. */
static void put_f64(struct printer *p, double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    uint64_t mantissa = bits & 0xfffffffffffffu;
    int exponent = (int)(bits >> 52 & 0x7ff);
    if (exponent == 0x7ff && mantissa != 0) {
        if (bits == UINT64_C(0x7ff8000000000000))
            put(p, "nan");
        else
            strbuf_printf(p->out, "nan(0x%" PRIx64 ")", bits);
        return;
    }
    if (bits >> 63)
        put(p, "-");
    if (exponent == 0x7ff) {
        put(p, "inf");
        return;
    }
    char text[24];
    size_t n = 0;
    text[n++] = '0';
    text[n++] = 'x';
    text[n++] = exponent ? '1' : '0';
    if (mantissa) {
        text[n++] = '.';
        for (int shift = 48; mantissa; shift -= 4) {
            text[n++] = "0123456789abcdef"[mantissa >> shift & 15];
            mantissa &= (UINT64_C(1) << shift) - 1;
        }
    }
    text[n++] = 'p';
    strbuf_append(p->out, text, n);
    int power = exponent ? exponent - 1023 : (bits & 0xfffffffffffffu) ? -1022 : 0;
    put(p, power < 0 ? "" : "+");
    put_i64(p, power);
}

static void type_put(struct printer *p, struct ltype t)
{
    if (t.elem == ELEM_I64 && t.lanes == 1) {
        put(p, "index");
        return;
    }
    if (t.lanes == 0)
        put(p, "buffer ");
    put(p, t.elem > ELEM_NONE && t.elem < ELEM_COUNT ? elem_name(t.elem) : "none");
    if (t.lanes > 1) {
        put(p, "x");
        put_u64(p, t.lanes);
    }
}

static void put_value(struct printer *p, lreg v)
{
    if (v.i > 0 && v.i < p->f->types.n && p->number[v.i] != UINT32_MAX) {
        put(p, "%");
        put_u64(p, p->number[v.i]);
    } else {
        put(p, "%?");
        put_u64(p, v.i);
    }
}

static void put_values(struct printer *p, const lreg *v, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        put(p, i ? ", " : "");
        put_value(p, v[i]);
    }
}

static void put_name(struct printer *p, const char *name)
{
    bool plain = name && *name;
    for (const char *c = name; plain && *c; c++)
        plain = (*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') || (*c >= '0' && *c <= '9') || *c == '_' ||
                *c == '.' || *c == '$';
    put(p, "@");
    if (plain)
        put(p, name);
    else
        strbuf_quoted(p->out, name ? name : "");
}

static void put_indent(struct printer *p)
{
    for (uint32_t i = 0; i <= p->depth; i++)
        put(p, "  ");
}

/* ---- statements ------------------------------------------------------------------------------------------------- */

static void print_block(struct printer *p, lblock b);

static void suffix_u64(struct printer *p, const char *word, uint64_t x)
{
    put(p, word);
    put_u64(p, x);
}

static void put_constant(struct printer *p, const struct lstmt *s)
{
    const bool is_float = !(s->flags & L_FLAG_DATA) && s->type.elem < ELEM_COUNT && elem_class(s->type.elem) == 'F';
    put(p, s->flags & L_FLAG_DATA ? "data " : "");
    if (is_float)
        put_f64(p, s->fimm);
    if (s->flags & L_FLAG_RESIDUE)
        put(p, " residue ");
    if (!is_float || s->flags & L_FLAG_RESIDUE)
        put_i64(p, s->imm);
}

static void put_body(struct printer *p, lblock b)
{
    put(p, "{\n");
    p->depth++;
    print_block(p, b);
    p->depth--;
    put_indent(p);
    put(p, "}");
}

static void put_for(struct printer *p, const struct lstmt *s)
{
    const struct lblk *body = s->block[0].i < p->f->blocks.n ? &p->f->blocks.data[s->block[0].i] : NULL;
    uint32_t n_params = body ? body->params.n : 0;
    put_value(p, n_params ? body->params.data[0] : (lreg){0});
    put(p, " = ");
    put_value(p, s->n_in > 0 ? s->in[0] : (lreg){0});
    put(p, " to ");
    put_value(p, s->n_in > 1 ? s->in[1] : (lreg){0});
    if (s->op == L_FOR) {
        put(p, " step ");
        put_i64(p, s->imm);
    }
    for (uint32_t i = 2; i < s->n_in; i++) {
        put(p, i == 2 ? " carry(" : ", ");
        put_value(p, i - 1 < n_params ? body->params.data[i - 1] : (lreg){0});
        put(p, " = ");
        put_value(p, s->in[i]);
    }
    put(p, s->n_in > 2 ? ")" : "");
    put(p, s->flags & L_FLAG_WHILE ? " while" : "");
    put(p, s->flags & L_FLAG_UNROLL ? " unroll" : "");
    put(p, " ");
    put_body(p, s->block[0]);
}

static void put_if(struct printer *p, const struct lstmt *s)
{
    put_value(p, s->n_in ? s->in[0] : (lreg){0});
    put(p, " ");
    put_body(p, s->block[0]);
    if (s->block[1].i && s->block[1].i < p->f->blocks.n && p->f->blocks.data[s->block[1].i].stmts.n) {
        put(p, " else ");
        put_body(p, s->block[1]);
    }
}

/* [mask m] [align n] [flags] */
static void put_access(struct printer *p, const struct lstmt *s)
{
    const int mask = lstmt_mem(s).mask;
    if (mask > 0) {
        put(p, " mask ");
        put_value(p, s->in[mask]);
    }
    if (s->align)
        suffix_u64(p, " align ", s->align);
    put(p, s->flags & L_FLAG_NONTEMPORAL ? " nontemporal" : "");
    put(p, s->flags & L_FLAG_INVARIANT ? " invariant" : "");
}

static void put_conversion(struct printer *p, const struct lstmt *s)
{
    put(p, s->imm ? " saturate" : "");
    if (s->name) {
        put(p, " round ");
        strbuf_quoted(p->out, s->name);
    }
}

/* The statement after its name (ir/loop/loop.c). A blank waits for what it parts. */
static void put_form(struct printer *p, const struct lstmt *s, const char *form)
{
    const uint32_t n = s->n_in - (s->op == L_LAUNCH && s->n_in);
    uint32_t at = 0;
    for (bool blank = true; *form; form++) {
        if (*form == ' ' || (*form == 'T' && lop_table[s->op].n_out != 1) || (*form == 'V' && n == 0)) {
            blank |= *form == ' ';
            continue;
        }
        put(p, blank ? " " : "");
        blank = false;
        switch (*form) {
        case 'T': type_put(p, s->type); break;
        case 'V':
            put_values(p, s->in, n);
            at = n;
            break;
        case '%': put_value(p, at < s->n_in ? s->in[at++] : (lreg){0}); break;
        case 'I': put_i64(p, s->imm); break;
        case 'N': put_u64(p, s->node); break;
        case '@': put_name(p, s->name); break;
        case 'S': strbuf_quoted(p->out, s->name ? s->name : ""); break;
        case 'O': put(p, s->imm >= 0 && s->imm < L_COUNT ? lop_name((enum lop)s->imm) : "none"); break;
        case 'L':
            for (uint32_t i = 0; i < s->n_aux; i++)
                suffix_u64(p, i ? ", " : "", s->aux[i]);
            break;
        case 'C': put_constant(p, s); break;
        case 'X': put_conversion(p, s); break;
        case 'A': put_access(p, s); break;
        case 'R': put(p, s->flags & L_FLAG_ROW ? "row" : "grain"); break;
        case 'M': put(p, s->flags & L_FLAG_MAYFAIL ? " mayfail" : ""); break;
        case 'F': put_for(p, s); break;
        case 'B': put_if(p, s); break;
        default: strbuf_append(p->out, form, 1);
        }
    }
}

static void print_block(struct printer *p, lblock b)
{
    if (b.i == 0 || b.i >= p->f->blocks.n)
        return;
    if (p->depth > LOOP_DEPTH_MAX) {
        put(p, "...\n");
        return;
    }
    const struct lblk *blk = &p->f->blocks.data[b.i];
    for (uint32_t i = 0; i < blk->stmts.n; i++) {
        const struct lstmt *s = &blk->stmts.data[i];
        put_indent(p);
        if (s->n_out) {
            put_values(p, s->out, s->n_out);
            put(p, " = ");
        }
        put(p, lop_name(s->op));
        if (s->op < L_COUNT)
            put_form(p, s, lop_table[s->op].form);
        put(p, "\n");
    }
}

static void print_arg(struct printer *p, uint32_t i)
{
    const struct larg *a = &p->f->args.data[i];
    put(p, "  arg ");
    put_value(p, (lreg){i + 1});
    put(p, " : ");
    type_put(p, a->type);
    put(p, a->flags & LARG_IN ? " in" : "");
    put(p, a->flags & LARG_OUT ? " out" : "");
    if (a->align)
        suffix_u64(p, " align ", a->align);
    put(p, a->flags & LARG_NOALIAS ? " noalias" : "");
    if (a->label) {
        put(p, " ");
        strbuf_quoted(p->out, a->label);
    }
    put(p, "\n");
}

void lf_print(const struct lfunc *f, struct strbuf *out)
{
    static const char *const roles[] = {"kernel ", "program ", "plan ", "entry ", "value "};
    struct printer p = {f, out, loop_numbers(f, out->arena), 0};
    put(&p, roles[f->role]);
    put_name(&p, f->name);
    if (f->nodes.n) {
        for (uint32_t i = 0; i < f->nodes.n; i++)
            suffix_u64(&p, i ? ", " : " nodes(", f->nodes.data[i]);
        put(&p, ")");
    }
    put(&p, " {\n");
    for (uint32_t i = 0; i < f->args.n; i++)
        print_arg(&p, i);
    print_block(&p, (lblock){1});
    put(&p, "}\n");
    for (uint32_t i = 0; i < f->parts.n; i++)
        lf_print(f->parts.data[i], out);
}
