/* Dynamic sizes: the file's symbols, and expressions over them.
 *
 * An expression is written as sympy's srepr, Mul(Integer(2), Symbol('s77', positive=True, integer=True)), or by older
 * exporters and in guards in infix form, 2*s77: one grammar takes both. What it does not know is an unknown size.
 */
#include "frontend/pt2/pt2.h"

#include <ctype.h>

enum { NESTING_MAX = 100, ARGS_MAX = 64, NAME_SIZE = 48, PATH_MAX_LENGTH = 500, KNOWN_MAX = 10000 };

struct parser {
    struct pt2 *p;
    const char *at;
    uint32_t depth;
    bool failed, guard; /* guards speak of the sizes of inputs, which are expressions without */
};

static expr_id sum_parse(struct parser *);

static expr_id unknown(struct parser *s)
{
    s->failed = true;
    return (expr_id){0};
}

static void spaces(struct parser *s)
{
    while (*s->at == ' ')
        s->at++;
}

static bool take(struct parser *s, const char *text)
{
    spaces(s);
    size_t n = strlen(text);
    if (strncmp(s->at, text, n) != 0)
        return false;
    s->at += n;
    return true;
}

static bool word_read(struct parser *s, char out[NAME_SIZE])
{
    size_t n = 0;
    while (isalnum((unsigned char)s->at[n]) || s->at[n] == '_')
        n++;
    if (n == 0 || n >= NAME_SIZE || isdigit((unsigned char)*s->at))
        return false;
    memcpy(out, s->at, n);
    out[n] = 0;
    s->at += n;
    return true;
}

static expr_id symbol_of(struct parser *s, const char *name)
{
    const struct binding *b = name_lookup(&s->p->symbols, name);
    return b ? (expr_id){b->value.i} : unknown(s);
}

/* 'name', assumption=value, ...) */
static expr_id symbol_parse(struct parser *s)
{
    char name[NAME_SIZE];
    if (!take(s, "'") || !word_read(s, name) || !take(s, "'"))
        return unknown(s);
    const char *end = strchr(s->at, ')');
    if (!end)
        return unknown(s);
    s->at = end + 1;
    return symbol_of(s, name);
}

static expr_id number_parse(struct parser *s)
{
    int64_t n = 0;
    while (isdigit((unsigned char)*s->at))
        if (!mul_i64(n, 10, &n) || !add_i64(n, *s->at++ - '0', &n))
            return unknown(s);
    return *s->at == '.' ? unknown(s) : ex_const(s->p->ctx->exprs, n);
}

static expr_id power(struct parser *s, expr_id base, expr_id exponent)
{
    struct exprs *ex = s->p->ctx->exprs;
    int64_t n;
    expr_id e = ex_const(ex, 1);
    if (!ex_is_const(ex, exponent, &n) || n < 0 || n > 8)
        return unknown(s);
    while (n-- > 0)
        e = ex_mul(ex, e, base);
    return e;
}

static expr_id apply(struct parser *s, const char *f, const expr_id *a, uint32_t n)
{
    struct exprs *ex = s->p->ctx->exprs;
    static const struct {
        const char *name;
        expr_id (*fold)(struct exprs *, expr_id, expr_id);
        uint32_t most;
    } folds[] = {
        {"Add", ex_add, ARGS_MAX}, {"Mul", ex_mul, ARGS_MAX}, {"Min", ex_min, ARGS_MAX},
        {"Max", ex_max, ARGS_MAX}, {"FloorDiv", ex_div, 2},   {"CleanDiv", ex_div, 2},
        {"Mod", ex_mod, 2},        {"PythonMod", ex_mod, 2},  {"CeilDiv", ex_ceildiv, 2},
    };
    if (n == 1 && (strcmp(f, "Integer") == 0 || strcmp(f, "Identity") == 0))
        return a[0];
    if (n == 2 && (strcmp(f, "Pow") == 0 || strcmp(f, "PowByNatural") == 0))
        return power(s, a[0], a[1]);
    for (uint32_t i = 0; i < COUNT_OF(folds); i++) {
        if (strcmp(f, folds[i].name) != 0 || n < 2 || n > folds[i].most)
            continue;
        if (folds[i].most == 2 && ex_lo(ex, a[1]) < 1)
            return unknown(s);
        expr_id e = a[0];
        for (uint32_t k = 1; k < n; k++)
            e = folds[i].fold(ex, e, a[k]);
        return e;
    }
    return unknown(s);
}

static expr_id call_parse(struct parser *s, const char *f)
{
    expr_id args[ARGS_MAX];
    uint32_t n = 0;
    if (strcmp(f, "Symbol") == 0)
        return symbol_parse(s);
    if (take(s, ")"))
        return unknown(s);
    do {
        if (n == ARGS_MAX)
            return unknown(s);
        args[n++] = sum_parse(s);
    } while (!s->failed && take(s, ","));
    return !s->failed && take(s, ")") ? apply(s, f, args, n) : unknown(s);
}

/* L['past'][0].size()[2]: the input's name joins the keys. Where that may be another input's, too, it has a number. */
static expr_id input_size_parse(struct parser *s)
{
    char key[NAME_SIZE];
    const char *name = "", *end;
    int64_t dim = -1;
    do {
        bool quoted = take(s, "'");
        size_t n = strcspn(s->at, quoted ? "'" : "]");
        if (n == 0 || n >= NAME_SIZE || strlen(name) > PATH_MAX_LENGTH)
            return unknown(s);
        for (size_t i = 0; i < n; i++)
            key[i] = isalnum((unsigned char)s->at[i]) ? (char)tolower((unsigned char)s->at[i]) : '_';
        name = arena_printf(&s->p->scratch, "%s%s%.*s", name, *name ? "_" : "", (int)n, key);
        s->at += n + quoted;
        if (!take(s, "]"))
            return unknown(s);
    } while (take(s, "["));
    struct names *inputs = &s->p->inputs;
    if (!take(s, ".size()[") || !name_lookup(inputs, name) ||
        name_lookup(inputs, arena_printf(&s->p->scratch, "%s_1", name)))
        return unknown(s);
    const struct binding *b = name_lookup(&s->p->metas, name);
    const struct json *sizes = b ? json_get(s->p->meta_list.data[b->value.i], "sizes") : NULL,
                      *size = json_first(sizes);
    if (!isdigit((unsigned char)*s->at) || !ex_is_const(s->p->ctx->exprs, number_parse(s), &dim) || !take(s, "]"))
        return unknown(s);
    for (; size && dim > 0; dim--)
        size = size->next;
    end = s->at;
    expr_id e = size ? dim_import(s->p, size) : (expr_id){0};
    s->at = end;
    return e.i ? e : unknown(s);
}

static expr_id primary_parse(struct parser *s)
{
    char word[NAME_SIZE];
    expr_id e;
    if (++s->depth > NESTING_MAX)
        return unknown(s);
    if (take(s, "-")) {
        e = primary_parse(s);
        e = s->failed ? e : ex_mulc(s->p->ctx->exprs, e, -1);
    } else if (take(s, "(")) {
        e = sum_parse(s);
        e = take(s, ")") ? e : unknown(s);
    } else if (isdigit((unsigned char)*s->at)) {
        e = number_parse(s);
    } else if (s->guard && take(s, "L[")) {
        e = input_size_parse(s);
    } else if (take(s, "torch.sym_max(")) {
        e = call_parse(s, "Max");
    } else if (take(s, "torch.sym_min(")) {
        e = call_parse(s, "Min");
    } else if (!word_read(s, word)) {
        e = unknown(s);
    } else {
        e = take(s, "(") ? call_parse(s, word) : symbol_of(s, word);
    }
    if (!s->failed && take(s, "**")) {
        expr_id exponent = primary_parse(s);
        e = s->failed ? e : power(s, e, exponent);
    }
    s->depth--;
    return e;
}

static expr_id product_parse(struct parser *s)
{
    struct exprs *ex = s->p->ctx->exprs;
    expr_id e = primary_parse(s);
    while (!s->failed) {
        bool floor = take(s, "//"), rest = !floor && take(s, "%"), times = !floor && !rest && take(s, "*");
        if (!floor && !rest && !times)
            break;
        expr_id next = primary_parse(s);
        if (s->failed || (!times && ex_lo(ex, next) < 1))
            return unknown(s);
        e = floor ? ex_div(ex, e, next) : rest ? ex_mod(ex, e, next) : ex_mul(ex, e, next);
    }
    return e;
}

static expr_id sum_parse(struct parser *s)
{
    struct exprs *ex = s->p->ctx->exprs;
    expr_id e = product_parse(s);
    while (!s->failed) {
        bool plus = take(s, "+"), minus = !plus && take(s, "-");
        if (!plus && !minus)
            break;
        expr_id next = product_parse(s);
        if (!s->failed)
            e = plus ? ex_add(ex, e, next) : ex_sub(ex, e, next);
    }
    return e;
}

bool size_read(struct pt2 *p, const char **at, expr_id *out)
{
    struct parser s = {.p = p, .at = *at, .guard = true};
    *out = sum_parse(&s);
    *at = s.at;
    return !s.failed;
}

expr_id dim_import(struct pt2 *p, const struct json *size)
{
    const struct json *u = json_only(size);
    int64_t n;
    if (u && strcmp(u->key, "as_int") == 0 && json_as_int(u, &n))
        return ex_const(p->ctx->exprs, n);
    const char *text = u && strcmp(u->key, "as_expr") == 0 ? json_as_text(json_get(u, "expr_str")) : NULL;
    if (!text)
        return (expr_id){0};
    struct parser s = {.p = p, .at = text};
    expr_id e = sum_parse(&s);
    spaces(&s);
    return s.failed || *s.at ? (expr_id){0} : e;
}

/* ---- ranges ---------------------------------------------------------------------------------------------------- */

/* The exporter's smallest size of 2 is a convention: it traces 1 apart, and what it traced holds for 1 too. */
static int64_t least_of(int64_t min)
{
    return min == 2 ? 1 : min < 0 ? 0 : min;
}

/* A dim of an input that is a symbol, or a multiple of one: only their values are known at run time. */
struct known {
    const char *input;
    int axis;
    int64_t factor;
};

/* Mul(Integer(2), Symbol('s77', ...)), Symbol('s77', ...), 2*s77 or s77, and nothing else. */
static bool multiple_read(struct pt2 *p, const char *text, char word[NAME_SIZE], int64_t *factor)
{
    struct parser s = {.p = p, .at = text};
    bool mul = take(&s, "Mul(Integer("), srepr = mul || strncmp(text, "Symbol(", 7) == 0;
    *factor = 1;
    if ((mul || isdigit((unsigned char)*s.at)) && !ex_is_const(p->ctx->exprs, number_parse(&s), factor))
        return false;
    if ((mul && !take(&s, "), ")) || (!mul && s.at != text && !take(&s, "*")))
        return false;
    if ((srepr && !take(&s, "Symbol('")) || !word_read(&s, word))
        return false;
    const char *end = srepr ? strchr(s.at, ')') : s.at - 1;
    return end && strcmp(end + 1, mul ? ")" : "") == 0;
}

static void symbols_of_inputs(struct pt2 *p, struct names *found, struct known *known)
{
    uint32_t n = 0;
    for (const struct json *i = json_first(json_get(p->graph, "inputs")); i && n < KNOWN_MAX; i = i->next) {
        const char *name = json_as_text(json_get(json_get(i, "as_tensor"), "name"));
        const struct binding *b = name ? name_lookup(&p->metas, name) : NULL;
        const struct json *sizes = b ? json_get(p->meta_list.data[b->value.i], "sizes") : NULL;
        struct known k = {.input = name};
        if (name)
            name_bind(&p->inputs, name, (value_id){1}, 0);
        for (const struct json *s = json_first(sizes); s && n < KNOWN_MAX; s = s->next, k.axis++) {
            const char *text = json_as_text(json_get(json_get(s, "as_expr"), "expr_str"));
            char word[NAME_SIZE];
            if (!text || !multiple_read(p, text, word, &k.factor) || k.factor < 1)
                continue;
            struct binding *old = name_lookup(found, word);
            if (old && (k.factor != 1 || known[old->value.i].factor == 1))
                continue;
            known[n] = k;
            if (old)
                old->value.i = n++;
            else
                name_bind(found, arena_strdup(&p->scratch, word), (value_id){n++}, 0);
        }
    }
}

/* The value of a symbol that is a dim of an input; of a dim that is a multiple of it, a part. */
static expr_id symbol_known(struct pt2 *p, const char *name, const struct known *k, int64_t min, int64_t max)
{
    struct exprs *ex = p->ctx->exprs;
    if (k->factor != 1)
        name = arena_printf(&p->ctx->session, "%s_d%d", k->input, k->axis);
    sym_id s = sym_find(ex, name);
    if (!s.i && mul_i64(min, k->factor, &min)) {
        max = max >= INT64_MAX - 1 || !mul_i64(max, k->factor, &max) ? INT64_MAX : max;
        s = sym_new(ex, SYM_SHAPE, name, min, max);
        sym_narrow(ex, s, min, max, k->factor);
    }
    return s.i ? ex_div(ex, ex_sym(ex, s), ex_const(ex, k->factor)) : (expr_id){0};
}

bool symbols_import(struct pt2 *p)
{
    struct names found;
    struct known *known = NEW_ARRAY(&p->scratch, struct known, KNOWN_MAX);
    names_init(&found, &p->scratch);
    pt2_metas(p, p->graph);
    symbols_of_inputs(p, &found, known);
    const struct json *ranges = json_get(p->program, "range_constraints");
    for (const struct json *r = json_first(ranges); r; r = r->next) {
        int64_t min = 0, max = INT64_MAX;
        bool symbol = r->key && (r->key[0] == 's' || r->key[0] == 'u') && strlen(r->key) < NAME_SIZE;
        for (const char *c = symbol ? r->key : ""; *c; c++)
            symbol = symbol && (isalnum((unsigned char)*c) || *c == '_');
        if (!symbol)
            continue; /* an expression, 2*s0: its symbols have their own */
        json_as_int(json_get(r, "min_val"), &min);
        json_as_int(json_get(r, "max_val"), &max);
        if (least_of(min) > max)
            return pt2_refuse(p, "symbol %s is from %lld to %lld", r->key, (long long)min, (long long)max);
        const struct binding *b = name_lookup(&found, r->key);
        if (r->key[0] == 'u' || !b)
            continue; /* the run computes it, and so does the graph; or no dim of an input says what it is */
        const char *name = arena_strdup(&p->ctx->session, r->key);
        expr_id e = symbol_known(p, name, &known[b->value.i], least_of(min), max);
        if (e.i)
            name_bind(&p->symbols, name, (value_id){e.i}, 0);
    }
    guards_narrow(p);
    return true;
}
