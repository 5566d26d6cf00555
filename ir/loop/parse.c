/* Parses the text form of the loop IR (docs/loop-ir.md), in one pass over the characters: workers read it.
 *
 * Only syntax, names and double definitions are judged here; everything about types and dominance is the verifier's,
 * which runs on the result. Comments run from # to the end of the line. Never recurses deeper than LOOP_DEPTH_MAX.
 */
#include "ir/loop/internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { NUMBER_MAX = 1 << 24, WORD_MAX = 40 };   /* value numbers are dense in printed text; this bounds the table */

struct parser {
    struct context *ctx;
    struct lfunc *f;
    const char *start, *p;
    const char *counted;    /* line is that of this place */
    uint32_t line;
    bool failed;
    uint32_t depth;
    VEC(uint32_t) map;      /* text number -> lreg.i; 0: not seen */
    VEC(lreg) list;         /* operands of the statement being read */
};

/* ---- tokens ------------------------------------------------------------------------------------------------------ */

static bool fail_parse(struct parser *ps, const char *what)
{
    if (ps->failed)
        return false;
    ps->failed = true;
    uint32_t line = 1, column = 1;
    for (const char *c = ps->start; c < ps->p; c++) {
        column = *c == '\n' ? 1 : column + 1;
        line += *c == '\n';
    }
    return error_internal(ps->ctx, (src_id){0}, "loop IR, line %u, column %u: %s", line, column, what);
}

/* The line of the place that the parser has reached. */
static uint32_t line_now(struct parser *ps)
{
    for (; ps->counted < ps->p; ps->counted++)
        ps->line += *ps->counted == '\n';
    return ps->line;
}

static void skip(struct parser *ps)
{
    for (;; ps->p++) {
        if (*ps->p == '#')
            while (*ps->p && *ps->p != '\n')
                ps->p++;
        if (*ps->p != ' ' && *ps->p != '\n' && *ps->p != '\t' && *ps->p != '\r')
            return;
    }
}

static bool is_word_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

static bool take_char(struct parser *ps, char c)
{
    skip(ps);
    if (*ps->p != c)
        return false;
    ps->p++;
    return true;
}

static bool need_char(struct parser *ps, char c)
{
    if (take_char(ps, c))
        return true;
    char what[] = "expected ' '";
    what[10] = c;
    return fail_parse(ps, what);
}

static bool take_word(struct parser *ps, const char *word)
{
    skip(ps);
    size_t n = strlen(word);
    if (strncmp(ps->p, word, n) != 0 || is_word_char(ps->p[n]))
        return false;
    ps->p += n;
    return true;
}

static bool need_word(struct parser *ps, const char *word)
{
    if (take_word(ps, word))
        return true;
    char what[WORD_MAX + 16] = "expected ";
    strncat(what, word, WORD_MAX);
    return fail_parse(ps, what);
}

static bool read_word(struct parser *ps, char word[WORD_MAX])
{
    skip(ps);
    uint32_t n = 0;
    while (n + 1 < WORD_MAX && is_word_char(ps->p[n])) {
        word[n] = ps->p[n];
        n++;
    }
    word[n] = 0;
    if (n == 0 || is_word_char(ps->p[n]))
        return fail_parse(ps, "expected a word");
    ps->p += n;
    return true;
}

static bool read_u64(struct parser *ps, uint64_t *out)
{
    skip(ps);
    uint64_t x = 0;
    const char *c = ps->p;
    for (; *c >= '0' && *c <= '9'; c++)
        if (__builtin_mul_overflow(x, 10u, &x) || __builtin_add_overflow(x, (uint64_t)(*c - '0'), &x))
            return fail_parse(ps, "integer out of range");
    if (c == ps->p)
        return fail_parse(ps, "expected an integer");
    ps->p = c;
    *out = x;
    return true;
}

static bool read_u32(struct parser *ps, uint32_t *out)
{
    uint64_t x;
    if (!read_u64(ps, &x))
        return false;
    *out = (uint32_t)x;
    return x <= UINT32_MAX || fail_parse(ps, "integer out of range");
}

/* Signed; values of u64 above INT64_MAX are written as their two's complement. */
static bool read_i64(struct parser *ps, int64_t *out)
{
    bool negative = take_char(ps, '-');
    uint64_t x;
    if (!read_u64(ps, &x))
        return false;
    if (x > (uint64_t)INT64_MAX + negative)
        return fail_parse(ps, "integer out of range");
    *out = (int64_t)(negative ? 0 - x : x);
    return true;
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool read_hex(struct parser *ps, uint64_t *out)
{
    uint32_t digits = 0;
    *out = 0;
    for (; hex_digit(*ps->p) >= 0 && digits < 16; digits++)
        *out = *out << 4 | (uint64_t)hex_digit(*ps->p++);
    return digits > 0 || fail_parse(ps, "expected hexadecimal digits");
}

/* 0x1.8p+1, without strtod: exact, quick, and blind to the locale. */
static bool read_hex_float(struct parser *ps, double *out)
{
    uint64_t mantissa;
    int power = 0, exponent = 0;
    if (!read_hex(ps, &mantissa))
        return false;
    if (*ps->p == '.') {
        ps->p++;
        for (; hex_digit(*ps->p) >= 0; power -= 4) {
            if (mantissa >> 60)
                return fail_parse(ps, "too many digits");
            mantissa = mantissa << 4 | (uint64_t)hex_digit(*ps->p++);
        }
    }
    if (*ps->p == 'p') {
        ps->p++;
        bool negative = *ps->p == '-';
        ps->p += *ps->p == '-' || *ps->p == '+';
        while (*ps->p >= '0' && *ps->p <= '9' && exponent < 100000)
            exponent = exponent * 10 + (*ps->p++ - '0');
        power += negative ? -exponent : exponent;
    }
    *out = ldexp((double)mantissa, power);
    return true;
}

static bool read_f64(struct parser *ps, double *out)
{
    bool negative = take_char(ps, '-');
    if (take_word(ps, "inf")) {
        *out = INFINITY;
    } else if (take_word(ps, "nan")) {
        uint64_t bits = UINT64_C(0x7ff8000000000000);
        if (*ps->p == '(') {
            if (strncmp(ps->p, "(0x", 3) != 0)
                return fail_parse(ps, "expected nan(0x...)");
            ps->p += 3;
            if (!read_hex(ps, &bits) || !need_char(ps, ')'))
                return false;
        }
        memcpy(out, &bits, sizeof bits);
        return isnan(*out) || fail_parse(ps, "these bits are not a NaN");
    } else if (ps->p[0] == '0' && ps->p[1] == 'x') {
        ps->p += 2;
        if (!read_hex_float(ps, out))
            return false;
    } else { /* written by hand: 0.5, 1e-3 */
        char *end;
        *out = *ps->p >= '0' && *ps->p <= '9' ? strtod(ps->p, &end) : (end = (char *)(uintptr_t)ps->p, 0.0);
        if (end == ps->p)
            return fail_parse(ps, "expected a number");
        ps->p = end;
    }
    *out = negative ? -*out : *out;
    return true;
}

static bool read_string(struct parser *ps, const char **out)
{
    struct strbuf text;
    strbuf_init(&text, ps->f->arena);
    if (!need_char(ps, '"'))
        return false;
    for (; *ps->p && *ps->p != '"' && *ps->p != '\n'; ps->p++) {
        char c = *ps->p;
        if (c == '\\') {
            c = *++ps->p;
            if (c == 'n') {
                c = '\n';
            } else if (c == 'x') {
                int high = hex_digit(ps->p[1]), low = high < 0 ? -1 : hex_digit(ps->p[2]);
                if (low < 0 || high + low == 0)
                    return fail_parse(ps, "bad escape");
                c = (char)(high * 16 + low);
                ps->p += 2;
            } else if (c != '\\' && c != '"') {
                return fail_parse(ps, "bad escape");
            }
        }
        strbuf_append(&text, &c, 1);
    }
    *out = text.data ? text.data : "";
    return need_char(ps, '"');
}

static bool read_name(struct parser *ps, const char **out)
{
    if (!need_char(ps, '@'))
        return false;
    if (*ps->p == '"')
        return read_string(ps, out);
    const char *begin = ps->p;
    while (is_word_char(*ps->p) || *ps->p == '.' || *ps->p == '$')
        ps->p++;
    *out = arena_strndup(ps->f->arena, begin, (size_t)(ps->p - begin));
    return ps->p > begin || fail_parse(ps, "expected a name");
}

/* ---- values and types -------------------------------------------------------------------------------------------- */

static bool read_number(struct parser *ps, uint32_t **slot)
{
    uint32_t number;
    if (!need_char(ps, '%') || !read_u32(ps, &number))
        return false;
    if (number >= NUMBER_MAX)
        return fail_parse(ps, "value number too large");
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
    return *slot != 0 || fail_parse(ps, "this value has no definition above");
}

/* A value that comes into being here; its type may be set later through f->types. */
static bool read_new_value(struct parser *ps, struct ltype type, lreg *out)
{
    uint32_t *slot;
    if (!read_number(ps, &slot))
        return false;
    if (*slot != 0)
        return fail_parse(ps, "this value is defined twice");
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
    } while (take_char(ps, ','));
    return true;
}

static bool read_type(struct parser *ps, struct ltype *t)
{
    char word[WORD_MAX];
    if (take_word(ps, "index")) {
        *t = (struct ltype){ELEM_I64, 1};
        return true;
    }
    bool buffer = take_word(ps, "buffer");
    if (!read_word(ps, word))
        return false;
    t->lanes = buffer ? 0 : 1;
    char *x = buffer ? NULL : strrchr(word, 'x');
    if (x && x > word && x[1] >= '1' && x[1] <= '9') {
        unsigned long lanes = strtoul(x + 1, NULL, 10);
        t->lanes = lanes <= LANES_MAX ? (uint32_t)lanes : LANES_MAX + 1;
        *x = 0;
    }
    t->elem = elem_by_name(word);
    if (t->elem == ELEM_NONE)
        return fail_parse(ps, "unknown type");
    return t->lanes <= LANES_MAX || fail_parse(ps, "too many lanes");
}

/* ---- statements: one function per text form; s is on the stack and appended when complete ------------------------ */

static bool parse_block(struct parser *ps, lblock b);

static bool form_const(struct parser *ps, struct lstmt *s)
{
    if (!read_type(ps, &s->type))
        return false;
    return elem_class(s->type.elem) == 'F' ? read_f64(ps, &s->fimm) : read_i64(ps, &s->imm);
}

static bool form_plain(struct parser *ps, struct lstmt *s)
{
    if (lop_table[s->op].n_out == 1 && !read_type(ps, &s->type))
        return false;
    skip(ps);
    return *ps->p != '%' || lop_table[s->op].max_in == 0 || read_values(ps);
}

static bool form_convert(struct parser *ps, struct lstmt *s)
{
    if (!form_plain(ps, s))
        return false;
    s->imm = take_word(ps, "saturate");
    return !take_word(ps, "round") || read_string(ps, &s->name);
}

static bool form_lane(struct parser *ps, struct lstmt *s)
{
    return form_plain(ps, s) && need_word(ps, "lane") && read_i64(ps, &s->imm);
}

static bool form_shuffle(struct parser *ps, struct lstmt *s)
{
    uint8_t lanes[LANES_MAX];
    if (!form_plain(ps, s) || !need_char(ps, '['))
        return false;
    do {
        uint32_t lane;
        if (!read_u32(ps, &lane))
            return false;
        if (lane > UINT8_MAX || s->n_aux == LANES_MAX)
            return fail_parse(ps, "bad lane list");
        lanes[s->n_aux++] = (uint8_t)lane;
    } while (take_char(ps, ','));
    s->aux = arena_copy(ps->f->arena, lanes, s->n_aux);
    return need_char(ps, ']');
}

static bool form_hreduce(struct parser *ps, struct lstmt *s)
{
    char word[WORD_MAX];
    if (!read_type(ps, &s->type) || !read_word(ps, word))
        return false;
    s->imm = lop_by_name(word);
    return read_values(ps);
}

static bool read_operand(struct parser *ps)
{
    lreg v;
    if (!read_value(ps, &v))
        return false;
    VEC_PUSH(ps->f->arena, &ps->list, v);
    return true;
}

static bool form_access(struct parser *ps, struct lstmt *s)
{
    bool strided = s->op == L_LOADS || s->op == L_STORES, stores = lop_table[s->op].form == LFORM_STORE;
    if (!stores && !read_type(ps, &s->type))
        return false;
    if (!read_operand(ps) || !need_char(ps, '[') || !read_operand(ps) || !need_char(ps, ']'))
        return false;
    if (strided && (!need_word(ps, "stride") || !read_operand(ps)))
        return false;
    if (stores && (!need_char(ps, ',') || !read_operand(ps)))
        return false;
    if (take_word(ps, "mask") && !read_operand(ps))
        return false;
    if (take_word(ps, "align") && !read_u32(ps, &s->align))
        return false;
    s->flags |= take_word(ps, "nontemporal") ? L_FLAG_NONTEMPORAL : 0;
    s->flags |= take_word(ps, "invariant") ? L_FLAG_INVARIANT : 0;
    return true;
}

static bool form_local(struct parser *ps, struct lstmt *s)
{
    return read_type(ps, &s->type) && read_i64(ps, &s->imm);
}

static bool read_body(struct parser *ps, lblock b)
{
    if (!need_char(ps, '{'))
        return false;
    if (++ps->depth > LOOP_DEPTH_MAX)
        return fail_parse(ps, "blocks nest too deeply");
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

static bool form_for(struct parser *ps, struct lstmt *s)
{
    lreg v;
    s->block[0] = lf_block(ps->f);
    if (!read_new_value(ps, (struct ltype){ELEM_I64, 1}, &v))
        return false;
    add_param(ps, s->block[0], v);
    if (!need_char(ps, '=') || !read_operand(ps) || !need_word(ps, "to") || !read_operand(ps))
        return false;
    if (s->op == L_FOR && (!need_word(ps, "step") || !read_i64(ps, &s->imm)))
        return false;
    if (s->op == L_FOR && take_word(ps, "carry")) {
        char close = '(';
        do {
            if (!need_char(ps, close) || !read_new_value(ps, (struct ltype){0}, &v) || !need_char(ps, '=') ||
                !read_operand(ps))
                return false;
            add_param(ps, s->block[0], v);
            ps->f->types.data[v.i] = lf_type(ps->f, ps->list.data[ps->list.n - 1]);
            close = ',';
            skip(ps);
        } while (*ps->p == ',');
        if (!need_char(ps, ')'))
            return false;
    }
    s->flags |= take_word(ps, "while") ? L_FLAG_WHILE : 0;
    s->flags |= take_word(ps, "unroll") ? L_FLAG_UNROLL : 0;
    keep_operands(ps, s);
    for (uint32_t i = 0; i < s->n_out && i + 2 < s->n_in; i++)
        ps->f->types.data[s->out[i].i] = lf_type(ps->f, s->in[i + 2]);
    return read_body(ps, s->block[0]);
}

static bool form_if(struct parser *ps, struct lstmt *s)
{
    s->block[0] = lf_block(ps->f);
    s->block[1] = lf_block(ps->f);
    if (!read_operand(ps))
        return false;
    keep_operands(ps, s);
    if (!read_body(ps, s->block[0]) || (take_word(ps, "else") && !read_body(ps, s->block[1])))
        return false;
    const struct lblk *then = &ps->f->blocks.data[s->block[0].i];
    const struct lstmt *last = then->stmts.n ? &then->stmts.data[then->stmts.n - 1] : NULL;
    for (uint32_t i = 0; i < s->n_out; i++) {
        if (!last || last->op != L_YIELD || i >= last->n_in)
            return fail_parse(ps, "this if has more results than its block yields");
        ps->f->types.data[s->out[i].i] = lf_type(ps->f, last->in[i]);
    }
    return true;
}

static bool form_check(struct parser *ps, struct lstmt *s)
{
    return read_operand(ps) && need_word(ps, "code") && read_i64(ps, &s->imm) && need_word(ps, "node") &&
           read_u32(ps, &s->node) && read_string(ps, &s->name);
}

static bool form_call(struct parser *ps, struct lstmt *s)
{
    if (!read_name(ps, &s->name) || !need_char(ps, '('))
        return false;
    skip(ps);
    if (*ps->p == '%' && !read_values(ps))
        return false;
    if (!need_char(ps, ')'))
        return false;
    s->type = (struct ltype){ELEM_I64, 1};
    if (s->op == L_LAUNCH && (!need_word(ps, "count") || !read_operand(ps) || !need_word(ps, "grain") ||
                              !read_i64(ps, &s->imm) || !need_word(ps, "node") || !read_u32(ps, &s->node)))
        return false;
    s->flags |= take_word(ps, "mayfail") ? L_FLAG_MAYFAIL : 0;
    return true;
}

static bool (*const parse_form[LFORM_COUNT])(struct parser *, struct lstmt *) = {
    [LFORM_CONST] = form_const, [LFORM_PLAIN] = form_plain,     [LFORM_CONVERT] = form_convert,
    [LFORM_LANE] = form_lane,   [LFORM_SHUFFLE] = form_shuffle, [LFORM_HREDUCE] = form_hreduce,
    [LFORM_LOAD] = form_access, [LFORM_STORE] = form_access,    [LFORM_LOCAL] = form_local,
    [LFORM_FOR] = form_for,     [LFORM_IF] = form_if,           [LFORM_CHECK] = form_check,
    [LFORM_CALL] = form_call,
};

/* The results' names stand before the operation, so their values are made first and typed afterwards. */
static bool read_results(struct parser *ps, struct lstmt *s)
{
    skip(ps);
    if (*ps->p != '%')
        return true;
    VEC(lreg) out = {0};
    do {
        lreg v;
        if (!read_new_value(ps, (struct ltype){0}, &v))
            return false;
        VEC_PUSH(ps->f->arena, &out, v);
    } while (take_char(ps, ','));
    s->out = out.data;
    s->n_out = out.n;
    return need_char(ps, '=');
}

static bool parse_stmt(struct parser *ps, lblock b)
{
    char word[WORD_MAX];
    struct lstmt s = {0};
    skip(ps);
    s.line = line_now(ps);
    ps->list.n = 0;
    if (!read_results(ps, &s) || !read_word(ps, word))
        return false;
    s.op = lop_by_name(word);
    if (s.op == L_NONE)
        return fail_parse(ps, "unknown statement");
    const struct lop_info *info = &lop_table[s.op];
    if (info->n_out >= 0 && s.n_out != (uint32_t)info->n_out)
        return fail_parse(ps, "wrong number of results");
    if (!parse_form[info->form](ps, &s))
        return false;
    if (info->form != LFORM_FOR && info->form != LFORM_IF) {
        keep_operands(ps, &s);
        for (uint32_t i = 0; i < s.n_out; i++)
            ps->f->types.data[s.out[i].i] = s.type;
    }
    *lf_stmt(ps->f, b, s.op) = s;
    return true;
}

static bool parse_block(struct parser *ps, lblock b)
{
    while (!take_char(ps, '}'))
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
        return fail_parse(ps, "this value is defined twice");
    *slot = ps->f->types.n;
    if (!need_char(ps, ':') || !read_type(ps, &a.type))
        return false;
    a.flags |= take_word(ps, "in") ? LARG_IN : 0;
    a.flags |= take_word(ps, "out") ? LARG_OUT : 0;
    if (take_word(ps, "align") && !read_u32(ps, &a.align))
        return false;
    a.flags |= take_word(ps, "noalias") ? LARG_NOALIAS : 0;
    skip(ps);
    if (*ps->p == '"' && !read_string(ps, &a.label))
        return false;
    lf_arg(ps->f, a.type, a.flags, a.align, a.label);
    return true;
}

static bool parse_head(struct parser *ps)
{
    if (take_word(ps, "kernel"))
        ps->f->role = LROLE_KERNEL;
    else if (take_word(ps, "program"))
        ps->f->role = LROLE_PROGRAM;
    else if (take_word(ps, "plan"))
        ps->f->role = LROLE_PLAN;
    else
        return fail_parse(ps, "expected kernel, program or plan");
    if (!read_name(ps, &ps->f->name))
        return false;
    if (take_word(ps, "nodes")) {
        if (!need_char(ps, '('))
            return false;
        do {
            uint32_t node;
            if (!read_u32(ps, &node))
                return false;
            VEC_PUSH(ps->f->arena, &ps->f->nodes, node);
        } while (take_char(ps, ','));
        if (!need_char(ps, ')'))
            return false;
    }
    return need_char(ps, '{');
}

struct lfunc *lf_parse(struct context *ctx, struct arena *arena, const char **text)
{
    struct parser ps = {.ctx = ctx, .start = *text, .p = *text, .counted = *text, .line = 1};
    ps.f = lf_new(ctx, arena, LROLE_KERNEL, "");
    bool ok = parse_head(&ps);
    while (ok && take_word(&ps, "arg"))
        ok = parse_arg(&ps);
    ok = ok && parse_block(&ps, (lblock){1});
    *text = ps.p;
    if (!ok)
        return NULL;
    loop_layout_locals(ps.f);
    return ps.f;
}
