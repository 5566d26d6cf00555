/* Binding nodes to operator versions, and checking them against schemas.def.
 *
 * Exporters often write what only a later version of an operator allows (an element type, an operand left out). Where
 * the newest version allows it, so do we: later versions mostly just permit more.
 */
#include "frontend/onnx/hooks.h"
#include "frontend/onnx/schemas.h"

static const struct schema schemas[] = {
#define DOMAIN(...)
#define TYPES(...)
#define FAMILY(...) __VA_ARGS__
#define SCHEMA(of, since, operands) {FAMILY of, since, operands},
#include "frontend/onnx/schemas.def"
};
static const uint64_t type_sets[] = {
#define DOMAIN(...)
#define TYPES(number, mask) [number] = mask,
#define SCHEMA(...)
#include "frontend/onnx/schemas.def"
};
static const struct domain {
    const char *name;
    int32_t newest;
} domains[] = {
#define DOMAIN(name, newest) {name, newest},
#define TYPES(...)
#define SCHEMA(...)
#include "frontend/onnx/schemas.def"
};

/* ---- lookup --------------------------------------------------------------------------------------------------- */

int32_t domain_newest(const char *domain)
{
    const struct domain *row = ROW_NAMED(domains, COUNT_OF(domains), domain);
    return row ? row->newest : 0;
}

int64_t opset_of(const struct importer *im, const char *domain)
{
    const struct opset *opset = ROW_NAMED(im->opsets.data, im->opsets.n, domain);
    return opset ? opset->version : 0;
}

static int schema_compare(const struct schema *s, const char *domain, const char *op, int64_t version)
{
    int c = strcmp(s->domain, domain);
    if (!c)
        c = strcmp(s->op, op);
    return c ? c : (s->since > version) - (s->since < version);
}

/* Rows are sorted by domain, operator, version: the last row not above the one asked for, if it is of the operator. */
const struct schema *schema_find(const char *domain, const char *op, int64_t opset)
{
    size_t lo = 0, hi = COUNT_OF(schemas);
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (schema_compare(&schemas[mid], domain, op, opset) <= 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    if (lo == 0 || schema_compare(&schemas[lo - 1], domain, op, schemas[lo - 1].since) != 0)
        return NULL;
    return &schemas[lo - 1];
}

/* ---- operands ---------------------------------------------------------------------------------------------------- */

struct operand {
    char variable, mark;
    uint32_t set;
};

/* Operand k of a schema: the k-th word, or the last one when that is variadic. */
static struct operand operand_get(const struct schema *s, uint32_t k)
{
    struct operand o = {0};
    const char *p = s->operands;
    for (uint32_t i = 0; *p && i <= k; i++) {
        char *end;
        o.variable = *p;
        o.set = (uint32_t)strtoul(p + 1, &end, 10);
        o.mark = *end && *end != ' ' ? *end++ : 0;
        p = *end ? end + 1 : end;
        if (o.mark == '*' || o.mark == '+' || i == k)
            return o;
    }
    return (struct operand){0};
}

static const struct schema *schema_newest(const struct schema *s)
{
    return schema_find(s->domain, s->op, INT32_MAX);
}

static bool counts_check(struct importer *im, const struct schema *s, const Onnx__NodeProto *node, src_id src)
{
    bool ok = true;
    const struct {
        const char *what;
        size_t n;
        int32_t min, max;
    } sides[] = {
        {"input", node->n_input, s->min_in, s->max_in},
        {"output", node->n_output, s->min_out, s->max_out},
    };
    for (uint32_t i = 0; i < COUNT_OF(sides); i++) {
        if (sides[i].n < (size_t)sides[i].min)
            ok = error_model(im->ctx, src, "the node has %zu %ss, and %s-%d needs at least %d", sides[i].n,
                             sides[i].what, s->op, s->since, sides[i].min);
        else if (sides[i].max >= 0 && sides[i].n > (size_t)sides[i].max)
            ok = error_model(im->ctx, src, "the node has %zu %ss, and %s-%d takes at most %d", sides[i].n,
                             sides[i].what, s->op, s->since, sides[i].max);
    }
    if (node->n_output == 0 && s->max_out != 0)
        ok = error_model(im->ctx, src, "the node has no outputs");
    return ok;
}

static bool omissions_check(struct importer *im, const struct schema *s, const Onnx__NodeProto *node, src_id src)
{
    bool ok = true;
    for (uint32_t i = 0; i < node->n_input; i++)
        if (!*node->input[i] && !operand_get(s, i).mark && !operand_get(schema_newest(s), i).mark)
            ok = error_model(im->ctx, src, "input %u is empty but %s-%d needs it", i, s->op, s->since);
    return ok;
}

static bool type_allowed(const struct schema *s, uint32_t k, enum elem elem)
{
    const struct operand o = operand_get(s, k), latest = operand_get(schema_newest(s), k);
    uint64_t bit = (uint64_t)1 << elem_onnx(elem);
    return !o.variable || ((type_sets[o.set] | (latest.variable ? type_sets[latest.set] : 0)) & bit);
}

/* The element types that the file itself tells: of ports and initializers. */
static bool types_check(struct importer *im, const struct schema *s, src_id src, const value_id *in, uint32_t n_in)
{
    struct {
        enum elem elem;
        uint32_t operand;
    } bound['Z' - 'A' + 1] = {0};
    bool ok = true;
    for (uint32_t i = 0; i < n_in; i++) {
        const struct type *t = in[i].i ? value_type(im->g, in[i]) : NULL;
        const struct operand o = operand_get(s, i);
        if (!t || t->kind != TYPE_TENSOR || o.variable < 'A' || o.variable > 'Z' || o.mark == '+')
            continue;
        uint32_t v = (uint32_t)(o.variable - 'A');
        if (!type_allowed(s, i, t->elem))
            ok = error_model(im->ctx, src, "input %u is a tensor of %s, which %s-%d does not take", i,
                             elem_name(t->elem), s->op, s->since);
        else if (bound[v].elem && bound[v].elem != t->elem)
            ok = error_model(im->ctx, src,
                             "input %u is a tensor of %s and input %u one of %s; their types must be equal",
                             bound[v].operand, elem_name(bound[v].elem), i, elem_name(t->elem));
        else
            bound[v].elem = t->elem, bound[v].operand = i;
    }
    return ok;
}

/* ---- attributes -------------------------------------------------------------------------------------------------- */

static const struct {
    char kind;
    const char *name;
} kinds[] = {
    {'f', "FLOAT"}, {'i', "INT"},     {'s', "STRING"},  {'t', "TENSOR"}, {'g', "GRAPH"},         {'F', "FLOATS"},
    {'I', "INTS"},  {'S', "STRINGS"}, {'T', "TENSORS"}, {'G', "GRAPHS"}, {'p', "SPARSE_TENSOR"}, {'y', "TYPE_PROTO"},
};

static const char *kind_name(char kind)
{
    for (uint32_t i = 0; i < COUNT_OF(kinds); i++)
        if (kinds[i].kind == kind)
            return kinds[i].name;
    return "?";
}

/* Whether an attribute as imported is of a schema's kind. */
static bool kind_fits(char kind, enum attr_kind attr)
{
    switch (kind) {
    case 'g': return attr == ATTR_REGION;
    case 't':
    case 'p': return attr == ATTR_TENSOR;
    case 'T': return attr == ATTR_TENSORS;
    case 'y': return attr == ATTR_TYPE;
    default: return (char)attr == kind;
    }
}

struct attr_spec {
    const char *name;
    uint32_t length;
    char kind;
    bool required;
};

/* The next word of "axis:i! name:s"; false at the end. */
static bool spec_next(const char **p, struct attr_spec *out)
{
    if (!**p)
        return false;
    const char *colon = strchr(*p, ':');
    *out = (struct attr_spec){*p, (uint32_t)(colon - *p), colon[1], colon[2] == '!'};
    *p = colon + 2 + out->required;
    *p += **p == ' ';
    return true;
}

static bool spec_is(const struct attr_spec *s, const char *name)
{
    return strncmp(s->name, name, s->length) == 0 && !name[s->length];
}

/* consumed_inputs: a memory hint of opset 1 without any effect, which exporters kept writing. */
static bool attribute_known(struct importer *im, const struct schema *s, src_id src, const struct attr *a)
{
    struct attr_spec spec;
    for (const char *p = s->attributes; spec_next(&p, &spec);) {
        if (!spec_is(&spec, a->name))
            continue;
        if (a->kind == ATTR_REF || kind_fits(spec.kind, a->kind))
            return true;
        return error_model(im->ctx, src, "attribute '%s' must be of type %s", a->name, kind_name(spec.kind));
    }
    if (strcmp(a->name, "consumed_inputs") == 0)
        return true;
    return error_model(im->ctx, src, "%s-%d has no attribute '%s'", s->op, s->since, a->name);
}

static bool attributes_check(struct importer *im, const struct schema *s, src_id src, const Onnx__NodeProto *node,
                             const struct attr *attrs, uint32_t n)
{
    bool ok = true;
    struct attr_spec spec;
    for (uint32_t i = 0; i < n; i++)
        ok = attribute_known(im, s, src, &attrs[i]) && ok;
    for (const char *p = s->attributes; spec_next(&p, &spec);) {
        bool found = !spec.required;
        /* in the message: one that could not be read has its error already */
        for (size_t i = 0; i < node->n_attribute && !found; i++)
            found = node->attribute[i]->name && spec_is(&spec, node->attribute[i]->name);
        if (!found)
            ok = error_model(im->ctx, src, "%s-%d needs attribute '%.*s'", s->op, s->since, (int)spec.length,
                             spec.name);
    }
    return ok;
}

bool schema_check(struct importer *im, const struct schema *s, const Onnx__NodeProto *node, src_id src,
                  const value_id *in, const struct attr *attrs, uint32_t n_attr)
{
    bool ok = counts_check(im, s, node, src) && omissions_check(im, s, node, src) &&
              types_check(im, s, src, in, (uint32_t)node->n_input);
    ok = attributes_check(im, s, src, node, attrs, n_attr) && ok;
    if (s->state == SCHEMA_DEPRECATED)
        warn_at(im->ctx, src, "deprecated", "%s is deprecated since version %d", s->op, s->since);
    return ok;
}

/* ---- regions ----------------------------------------------------------------------------------------------------- */

/* How many parameters and results the bodies of control flow have, given the node's operands and results. */
static const struct control {
    const char *op;
    int32_t since, params_per_input, params_extra, results_extra;
} controls[] = {
    {"If", 1, 0, 0, 0}, /* () -> results */
    {"Loop", 1, 1, 0, 1}, /* (trip, condition, carried) for (M, cond, carried); condition + carried + scanned */
    {"Scan", 9, 1, 0, 0}, /* one for each state and scanned input */
    {"Scan", 8, 1, -1, 0}, /* the first operand is the lengths of the sequences */
};

static const struct control *control_find(const struct schema *s)
{
    for (uint32_t i = 0; i < COUNT_OF(controls); i++)
        if (!*s->domain && strcmp(s->op, controls[i].op) == 0 && s->since >= controls[i].since)
            return &controls[i];
    return NULL;
}

bool schema_check_regions(struct importer *im, const struct schema *s, node_id id, src_id src)
{
    const struct control *c = control_find(s);
    const struct node *n = graph_node(im->g, id);
    bool ok = true;
    if (!c)
        return true;
    int64_t params = (int64_t)n->n_in * c->params_per_input + c->params_extra;
    int64_t results = (int64_t)n->n_out + c->results_extra;
    for (uint32_t i = 0; i < n->n_attr; i++) {
        if (n->attr[i].kind != ATTR_REGION || !n->attr[i].u.region.i)
            continue;
        const struct region *r = graph_get_region(im->g, n->attr[i].u.region);
        if (r->params.n != params)
            ok = error_model(im->ctx, src, "%s has %u inputs, %lld are wanted", n->attr[i].name, r->params.n,
                             (long long)params);
        if (r->results.n != results)
            ok = error_model(im->ctx, src, "%s has %u outputs, %lld are wanted", n->attr[i].name, r->results.n,
                             (long long)results);
    }
    return ok;
}

/* ---- for --list-ops ---------------------------------------------------------------------------------------------- */

static int32_t version_after(const char *domain, const char *op, int32_t version)
{
    for (uint32_t i = 0; i < COUNT_OF(schemas); i++)
        if (schemas[i].since > version && schemas[i].state != SCHEMA_DEPRECATED &&
            strcmp(schemas[i].domain, domain) == 0 && strcmp(schemas[i].op, op) == 0)
            return schemas[i].since;
    return 0;
}

/* "(ai.onnx)": exporters write it in the default domain, but ONNX does not have it, or not that version of it. */
static const char *domain_shown(const char *domain, const char *op, int32_t version)
{
    const struct schema *s = schema_find(domain, op, version);
    bool foreign = s && s->state == SCHEMA_FOREIGN;
    return *domain ? domain : foreign ? "(ai.onnx)" : "ai.onnx";
}

static void type_set_print(uint64_t set, bool (*has)(enum elem, const void *), const void *data, struct strbuf *out)
{
    static const char *const others[] = {"sequence", "optional", "map"};
    bool any = false;
    for (int32_t bit = 0; bit < 32 + (int32_t)COUNT_OF(others); bit++) {
        enum elem e = bit < 32 ? elem_by_onnx(bit) : ELEM_NONE;
        if (!(set >> bit & 1) || (bit < 32 && (e == ELEM_NONE || !has(e, data))))
            continue;
        strbuf_printf(out, "%s%s", any ? "," : "", bit < 32 ? elem_name(e) : others[bit - 32]);
        any = true;
    }
    strbuf_printf(out, "%s", any ? "" : "-");
}

static void types_print(const char *domain, const char *op, int32_t version, bool (*has)(enum elem, const void *),
                        const void *data, struct strbuf *out)
{
    const struct schema *s = schema_find(domain, op, version);
    char last = 0;
    for (uint32_t k = 0; s; k++) {
        struct operand o = operand_get(s, k);
        if (!o.variable)
            break;
        if (o.variable > last) { /* letters are given in order */
            strbuf_printf(out, "%s", last ? "/" : "");
            type_set_print(type_sets[o.set], has, data, out);
            last = o.variable;
        }
        if (o.mark == '*' || o.mark == '+')
            break;
    }
    strbuf_printf(out, "%s", last ? "" : "-");
}

const struct operator_facts onnx_operator_facts = {version_after, domain_shown, types_print};
