/* Input specifications: NAME[:[TYPE][\[DIM,DIM,...\]]], of the command line and of the configuration file.
 *
 * A name may itself hold colons and brackets, so the text is read from its end. Symbols are shared by name with the
 * model's own dim_params: the specification is parsed first, and gives them their ranges.
 */
#include "cli/library/compile/compile.h"
#include "ir/base/scan.h"

struct parse {
    struct context *ctx;
    const char *spec;
    char *copy;
};

/* where: a part of the copy, which says where in the text; NULL: none. */
static bool spec_error(const struct parse *p, const char *what, const char *where)
{
    size_t at = where ? (size_t)(where - p->copy) + 1 : 0;
    return error_usage(p->ctx,
                       where ? "input specification '%s': %s '%s' (character %zu)" : "input specification '%s': %s",
                       p->spec, what, where, at);
}

static const char *skip_spaces(const char *s)
{
    return s + strspn(s, " ");
}

/* Digits; false when there are none or they do not fit. */
static bool parse_int(struct scan *s, int64_t *out)
{
    uint64_t n;
    const char *why = scan_digits(s, INT64_MAX, &n);
    *out = (int64_t)n;
    return !why;
}

/* name=least..most, most may be missing; then optionally %divisor. */
static bool parse_range(struct parse *p, const char *text, const char *equals, expr_id *e)
{
    struct exprs *exprs = p->ctx->exprs;
    sym_id sym = ex_as_sym(exprs, *e);
    if (!sym.i)
        return spec_error(p, "only a name can have a range", text);
    int64_t lo, hi = INT64_MAX, divisor = 1;
    struct scan s = {.p = skip_spaces(equals + 1), .blanks = ""};
    if (!parse_int(&s, &lo) || !scan_take(&s, "..") || (*s.p && *s.p != '%' && !parse_int(&s, &hi)))
        return spec_error(p, "a range is least..most, as in n=1..64, not", text);
    if (scan_take(&s, "%") && (!parse_int(&s, &divisor) || divisor < 1))
        return spec_error(p, "a divisor is a number from 1, as in n=32..1024%32, not", text);
    if (*skip_spaces(s.p))
        return spec_error(p, "a range is least..most, as in n=1..64, not", text);
    if (lo > hi)
        return spec_error(p, "the range is empty:", text);
    if (sym_get(exprs, sym)->room && hi < sym_get(exprs, sym)->hi)
        return spec_error(p, "two maxima of one name exclude each other:", text);
    sym_narrow(exprs, sym, lo, hi, divisor);
    if (sym_get(exprs, sym)->lo > sym_get(exprs, sym)->hi)
        return spec_error(p, "two ranges of one name exclude each other:", text);
    *e = ex_sym(exprs, sym);
    return true;
}

/* name<=most: memory has room for `most` of them, and a run says how many there are. */
static bool parse_room(struct parse *p, const char *text, const char *sign, expr_id *e)
{
    struct exprs *exprs = p->ctx->exprs;
    sym_id sym = ex_as_sym(exprs, *e);
    int64_t most;
    struct scan s = {.p = skip_spaces(sign + 2), .blanks = ""};
    if (!sym.i)
        return spec_error(p, "only a name can have a maximum", text);
    if (!parse_int(&s, &most) || most < 1 || most > INT32_MAX || *skip_spaces(s.p))
        return spec_error(p, "a maximum is a number from 1 to 2147483647, as in n<=2048, not", text);
    int64_t hi = sym_get(exprs, sym)->hi;
    if (hi != INT64_MAX && hi != most)
        return spec_error(p, "two maxima of one name exclude each other:", text);
    sym_narrow(exprs, sym, 0, most, 1);
    sym_get(exprs, sym)->room = true;
    *e = ex_sym(exprs, sym);
    return true;
}

/* One dim; *out = {0} for "as the file says". */
static bool parse_dim(struct parse *p, const char *text, expr_id *out)
{
    text = skip_spaces(text);
    if (strcmp(text, "?") == 0) {
        *out = (expr_id){0};
        return true;
    }
    const char *sign = text + strcspn(text, "<=");
    if (*sign && strncmp(sign, "<=", 2) != 0 && strchr(text, '<'))
        return spec_error(p, "a maximum is written with <=, as in n<=2048, not", text);
    const char *s = arena_strndup(&p->ctx->session, text, (size_t)(sign - text));
    const char *at = s;
    expr_id e = ex_parse(p->ctx->exprs, &at, true);
    if (!e.i || *skip_spaces(at))
        return spec_error(
            p, "a dimension is a number, a name, a name with a range (n=1..64) or a maximum (n<=2048), or ?, not",
            text);
    int64_t value;
    if (ex_is_const(p->ctx->exprs, e, &value) && value < 0)
        return spec_error(p, "a dimension cannot be negative:", text);
    *out = e;
    return !*sign || (*sign == '<' ? parse_room : parse_range)(p, text, sign, out);
}

/* The text between the brackets, which is cut up in place. */
static bool parse_dims(struct parse *p, char *text, struct input_spec *out)
{
    expr_id dims[RANK_MAX];
    int32_t rank = 0;
    if (*skip_spaces(text))
        for (char *next; text; text = next) {
            if (rank == RANK_MAX)
                return spec_error(p, "more than 32 dimensions", NULL);
            next = strchr(text, ',');
            if (next)
                *next++ = 0;
            if (!parse_dim(p, text, &dims[rank++]))
                return false;
        }
    out->rank = rank;
    out->dims = arena_copy(&p->ctx->session, dims, sizeof dims[0] * (size_t)(rank ? rank : 1));
    return true;
}

/* Does text read as NAME:TYPE[ or NAME[ without its closing bracket? What follows then is not part of a name. */
static bool brackets_check(const struct parse *p, const char *text)
{
    const char *open = strrchr(text, '['), *colon = strrchr(text, ':');
    if (!open || (colon && open < colon) || text[strlen(text) - 1] == ']')
        return true;
    const char *close = strchr(open, ']');
    bool typed = colon && (open == colon + 1 || elem_by_name(arena_strndup(&p->ctx->session, colon + 1,
                                                                           (size_t)(open - colon - 1))) != ELEM_NONE);
    if (!close)
        return spec_error(p, "no ']' closes", open);
    return !typed || spec_error(p, "after the dimensions nothing may follow, not", close + 1);
}

static bool parse_spec(struct context *ctx, const char *spec, struct input_spec *out)
{
    char *text = arena_strdup(&ctx->session, spec);
    struct parse p = {ctx, spec, text};
    size_t n = strlen(text);
    if (!brackets_check(&p, text))
        return false;
    *out = (struct input_spec){.elem = ELEM_NONE, .rank = RANK_UNKNOWN};
    bool has_dims = n && text[n - 1] == ']';
    char *dims = has_dims ? strrchr(text, '[') : NULL;
    if (has_dims && !dims)
        return spec_error(&p, "']' without '['", NULL);
    if (dims) {
        text[n - 1] = 0;
        *dims++ = 0;
    }
    char *colon = strrchr(text, ':');
    enum elem elem = colon ? elem_by_name(colon + 1) : ELEM_NONE;
    if (colon && (elem != ELEM_NONE || colon[1] == 0)) {
        out->elem = elem;
        *colon = 0;
    } else if (colon && dims && !strchr(colon + 1, '/') && strlen(colon + 1) <= 8 && colon > text && colon[-1] != ':') {
        return spec_error(&p, "unknown element type", colon + 1);
    }
    if (*text == 0)
        return spec_error(&p, "an input needs a name", NULL);
    out->name = text;
    return !dims || parse_dims(&p, dims, out);
}

bool input_specs_parse(struct context *ctx, const struct text_list *texts, struct input_spec **out, uint32_t *n)
{
    *out = NEW_ARRAY(&ctx->session, struct input_spec, texts->items.n + 1);
    *n = 0;
    for (uint32_t i = 0; i < texts->items.n; i++) {
        struct input_spec spec;
        if (!parse_spec(ctx, texts->items.data[i], &spec)) {
            *n = i;
            return false;
        }
        uint32_t k = 0;
        while (k < *n && strcmp((*out)[k].name, spec.name) != 0)
            k++;
        (*out)[k] = spec;
        *n += k == *n;
    }
    return true;
}
