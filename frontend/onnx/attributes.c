/* AttributeProto -> struct attr. The type field says which value counts; an attribute that carries another one as well,
 * or none of a kind, is refused, since readers would differ on what it means.
 */
#include "frontend/onnx/import.h"

#define KIND_MAX (ONNX_ATTR_TYPES + 1)
static const char *const kind_names[KIND_MAX] = {
    "UNDEFINED", "FLOAT",   "INT",    "STRING",        "TENSOR",         "GRAPH",      "FLOATS",      "INTS",
    "STRINGS",   "TENSORS", "GRAPHS", "SPARSE_TENSOR", "SPARSE_TENSORS", "TYPE_PROTO", "TYPE_PROTOS",
};
/* What each type of attribute is in the graph; 0: no operator of ONNX has one. */
static const char kind_of[KIND_MAX] = {
    [ONNX_ATTR_FLOAT] = ATTR_FLOAT,   [ONNX_ATTR_INT] = ATTR_INT,      [ONNX_ATTR_STRING] = ATTR_STR,
    [ONNX_ATTR_TENSOR] = ATTR_TENSOR, [ONNX_ATTR_GRAPH] = ATTR_REGION, [ONNX_ATTR_FLOATS] = ATTR_FLOATS,
    [ONNX_ATTR_INTS] = ATTR_INTS,     [ONNX_ATTR_STRINGS] = ATTR_STRS, [ONNX_ATTR_TENSORS] = ATTR_TENSORS,
    [ONNX_ATTR_SPARSE] = ATTR_TENSOR, [ONNX_ATTR_TYPE] = ATTR_TYPE,
};

/* Bit k: the field of type k is there. */
static uint32_t fields_present(const Onnx__AttributeProto *a)
{
    const bool has[KIND_MAX] = {
        [ONNX_ATTR_FLOAT] = a->has_f,
        [ONNX_ATTR_INT] = a->has_i,
        [ONNX_ATTR_STRING] = a->has_s,
        [ONNX_ATTR_TENSOR] = a->t,
        [ONNX_ATTR_GRAPH] = a->g,
        [ONNX_ATTR_FLOATS] = a->n_floats,
        [ONNX_ATTR_INTS] = a->n_ints,
        [ONNX_ATTR_STRINGS] = a->n_strings,
        [ONNX_ATTR_TENSORS] = a->n_tensors,
        [ONNX_ATTR_GRAPHS] = a->n_graphs,
        [ONNX_ATTR_SPARSE] = a->sparse_tensor,
        [ONNX_ATTR_SPARSES] = a->n_sparse_tensors,
        [ONNX_ATTR_TYPE] = a->tp,
        [ONNX_ATTR_TYPES] = a->n_type_protos,
    };
    uint32_t bits = 0;
    for (uint32_t k = 0; k < KIND_MAX; k++)
        bits |= has[k] ? 1u << k : 0;
    return bits;
}

static uint32_t lowest_bit(uint32_t bits)
{
    return (uint32_t)__builtin_ctz(bits);
}

/* The attribute's type; 0 after a diagnostic. IR versions 1 wrote no type. */
static uint32_t kind_check(struct importer *im, const Onnx__AttributeProto *a, struct where w)
{
    uint32_t present = fields_present(a);
    int64_t type = a->has_type ? a->type : 0;
    if (type < 0 || type >= KIND_MAX) {
        refuse(im, w, "attribute '%s' has the unknown type %lld", a->name, (long long)type);
        return 0;
    }
    if (type == 0 && im->g->ir_version < 2 && present && (present & (present - 1)) == 0)
        return lowest_bit(present);
    if (type == 0) {
        refuse(im, w, "attribute '%s' has no type", a->name);
        return 0;
    }
    uint32_t others = present & ~(1u << type);
    if (others) {
        refuse(im, w, "attribute '%s' is declared as %s and holds %s", a->name, kind_names[type],
               kind_names[lowest_bit(others)]);
        return 0;
    }
    bool list = type >= ONNX_ATTR_FLOATS && type <= ONNX_ATTR_GRAPHS;
    bool number = type == ONNX_ATTR_FLOAT || type == ONNX_ATTR_INT || type == ONNX_ATTR_STRING;
    /* proto3 writers leave out zeros and empty texts */
    if (!present && !list && !number) {
        refuse(im, w, "attribute '%s' is declared as %s and holds nothing", a->name, kind_names[type]);
        return 0;
    }
    if (!kind_of[type]) {
        refuse(im, w, "attribute '%s' is of type %s, which is not supported", a->name, kind_names[type]);
        return 0;
    }
    return (uint32_t)type;
}

static void strings_fill(struct importer *im, const Onnx__AttributeProto *a, struct attr *out)
{
    const char **strs = NEW_ARRAY(im->keep, const char *, a->n_strings);
    for (size_t i = 0; i < a->n_strings; i++)
        strs[i] = arena_strndup(im->keep, (const char *)a->strings[i].data, a->strings[i].len);
    out->n = (uint32_t)a->n_strings;
    out->u.strs = strs;
}

static void floats_fill(struct importer *im, const Onnx__AttributeProto *a, struct attr *out)
{
    double *floats = NEW_ARRAY(im->keep, double, a->n_floats);
    for (size_t i = 0; i < a->n_floats; i++)
        floats[i] = (double)a->floats[i];
    out->n = (uint32_t)a->n_floats;
    out->u.floats = floats;
}

static bool tensors_fill(struct importer *im, const Onnx__AttributeProto *a, struct where w, uint32_t kind,
                         struct attr *out)
{
    uint32_t n = kind == ONNX_ATTR_TENSORS ? (uint32_t)a->n_tensors : 1;
    struct tensor_data *data = NEW_ARRAY(&im->ctx->session, struct tensor_data, n);
    out->n = n;
    out->u.tensor = data;
    if (!w.tensor)
        w.tensor = a->name;
    if (kind == ONNX_ATTR_SPARSE)
        return sparse_import(im, a->sparse_tensor, w, data);
    for (uint32_t i = 0; i < n; i++)
        if (!tensor_import(im, kind == ONNX_ATTR_TENSORS ? a->tensors[i] : a->t, w, &data[i]))
            return false;
    return true;
}

static bool value_fill(struct importer *im, const Onnx__AttributeProto *a, struct where w, uint32_t kind,
                       struct attr *out)
{
    switch (kind) {
    case ONNX_ATTR_FLOAT: out->u.f = (double)a->f; return true;
    case ONNX_ATTR_INT: out->u.i = a->i; return true;
    case ONNX_ATTR_STRING:
        out->n = (uint32_t)a->s.len;
        out->u.s = arena_strndup(im->keep, a->s.data ? (const char *)a->s.data : "", a->s.len);
        return true;
    case ONNX_ATTR_FLOATS: floats_fill(im, a, out); return true;
    case ONNX_ATTR_INTS:
        out->n = (uint32_t)a->n_ints;
        out->u.ints = arena_copy(im->keep, a->ints, a->n_ints * sizeof *a->ints);
        return true;
    case ONNX_ATTR_STRINGS: strings_fill(im, a, out); return true;
    case ONNX_ATTR_TYPE: {
        struct type *type = NEW(&im->ctx->session, struct type);
        out->u.type = type;
        return type_import(im, a->tp, w, type);
    }
    case ONNX_ATTR_GRAPH: out->u.region = (region_id){0}; return true;
    default: return tensors_fill(im, a, w, kind, out);
    }
}

bool attribute_import(struct importer *im, const Onnx__AttributeProto *a, struct where w, struct attr *out)
{
    *out = (struct attr){0};
    if (!a->name || !*a->name)
        return refuse(im, w, "an attribute has no name");
    out->name = arena_strdup(im->keep, a->name);
    if (a->ref_attr_name && *a->ref_attr_name) {
        if (!im->in_function)
            return refuse(im, w, "attribute '%s' refers to a function's attribute '%s' outside any function", a->name,
                          a->ref_attr_name);
        if (fields_present(a))
            return refuse(im, w, "attribute '%s' has a value and refers to a function's attribute", a->name);
        out->kind = ATTR_REF;
        out->u.s = arena_strdup(im->keep, a->ref_attr_name);
        return true;
    }
    uint32_t kind = kind_check(im, a, w);
    if (!kind)
        return false;
    out->kind = (enum attr_kind)kind_of[kind];
    return value_fill(im, a, w, kind, out);
}
