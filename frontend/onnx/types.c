/* TypeProto -> struct type: element types, dims as expressions, symbols shared by name over the whole model. */
#include "frontend/onnx/import.h"

#include <ctype.h>
#include <stdio.h>
#include <strings.h>

/* ---- symbols ------------------------------------------------------------------------------------------- */

/* Whether a dim_param names anything: exporters write "?", "-1" or a word for "not known" (docs/from-pytorch.md lists
 * them) where a dim is only unknown, and two of those are not one dim. */
static bool is_named(const char *param)
{
    static const char *const words[] = {"none", "null", "nan", "unknown", "unk", "undefined", "any", "dynamic"};
    for (uint32_t i = 0; i < COUNT_OF(words); i++)
        if (strcasecmp(param, words[i]) == 0)
            return false;
    while (*param && !isalpha((unsigned char)*param) && *param != '_')
        param++;
    return *param != 0;
}

/* dim_param is any text; a symbol is an identifier, since it is printed and parsed. */
static char *symbol_name(struct importer *im, const char *param)
{
    char *name = arena_printf(&im->scratch, "%s%s", isalpha((unsigned char)param[0]) ? "" : "_", param);
    for (char *c = name; *c; c++)
        if (!isalnum((unsigned char)*c) && *c != '_')
            *c = '_';
    if (strlen(name) > 64)
        snprintf(name + 40, 24, "_%016llx", (unsigned long long)hash_bytes(param, strlen(param)));
    return name;
}

/* Words of the expression language, which symbols must not be called. */
static bool is_reserved(const char *name)
{
    static const char *const words[] = {"min", "max", "floordiv", "ceildiv", "mod", "select", "and", "or", "not"};
    return ROW_NAMED(words, COUNT_OF(words), name) != NULL;
}

/* The symbol called `name`; the user's input specifications may have made it already. */
static expr_id symbol_by_name(struct exprs *exprs, const char *name)
{
    sym_id s = sym_find(exprs, name);
    return ex_sym(exprs, s.i ? s : sym_new(exprs, SYM_SHAPE, name, 0, INT64_MAX));
}

/* One symbol for each dim_param; texts that only differ in what an identifier cannot hold stay different symbols. */
static expr_id dim_symbol(struct importer *im, const char *param)
{
    struct binding *known = name_lookup(&im->dims, param);
    if (known)
        return (expr_id){known->value.i};
    char *base = symbol_name(im, param), *name = base;
    for (uint32_t k = 2; is_reserved(name) || name_lookup(&im->symbols, name); k++)
        name = k < 10 ? arena_printf(&im->scratch, "%s_%u", base, k)
                      : arena_printf(&im->scratch, "%s_%016llx%u", base,
                                     (unsigned long long)hash_bytes(param, strlen(param)), k);
    name_bind(&im->symbols, name, (value_id){0}, 0);
    expr_id e = symbol_by_name(im->ctx->exprs, name);
    name_bind(&im->dims, param, (value_id){e.i}, 0);
    return e;
}

/* ---- types ---------------------------------------------------------------------------------------------- */

bool rank_allowed(struct importer *im, struct where w, size_t rank)
{
    int32_t most = im->ctx->limits.rank;
    if (rank > RANK_MAX)
        return refuse_as(im, w, FAIL_LIMIT, "the rank is %zu, and at most %d is possible", rank, RANK_MAX);
    return rank <= (size_t)most ||
           refuse_as(im, w, FAIL_LIMIT, "the rank is %zu, and the limit is %d (--limit-rank)", rank, most);
}

static bool dims_import(struct importer *im, const Onnx__TensorShapeProto *shape, struct where w, struct type *out)
{
    if (!rank_allowed(im, w, shape->n_dim))
        return false;
    expr_id *dims = NEW_ARRAY(&im->ctx->session, expr_id, shape->n_dim);
    int64_t bytes = elem_size(out->elem);
    bool fits = true;
    for (size_t i = 0; i < shape->n_dim; i++) {
        const Onnx__TensorShapeProto__Dimension *d = shape->dim[i];
        if (d->has_dim_value && d->dim_value == -1) /* what some exporters write for "unknown" */
            continue;
        if (d->has_dim_value && d->dim_value < 0)
            return refuse(im, w, "dim %zu is %lld", i, (long long)d->dim_value);
        if (d->has_dim_value) {
            dims[i] = ex_const(im->ctx->exprs, d->dim_value);
            fits = fits && (d->dim_value == 0 || mul_i64(bytes, d->dim_value, &bytes));
        } else if (d->dim_param && is_named(d->dim_param)) {
            dims[i] = dim_symbol(im, d->dim_param);
        }
    }
    if (!fits || bytes > im->ctx->limits.tensor_bytes)
        return refuse_as(im, w, FAIL_LIMIT,
                         "the declared dims make more than %lld bytes, the limit for one tensor (--limit-tensor-bytes)",
                         (long long)im->ctx->limits.tensor_bytes);
    out->rank = (int32_t)shape->n_dim;
    out->dims = dims;
    return true;
}

static bool elem_import(struct importer *im, bool has, int64_t data_type, struct where w, enum elem *out)
{
    *out = has && data_type > 0 && data_type < 1000 ? elem_by_onnx((int32_t)data_type) : ELEM_NONE;
    return *out != ELEM_NONE || (has ? refuse(im, w, "element type %lld is unknown", (long long)data_type)
                                     : refuse(im, w, "the type has no element type"));
}

static bool tensor_type_import(struct importer *im, const Onnx__TypeProto__Tensor *t, struct where w, struct type *out)
{
    out->kind = TYPE_TENSOR;
    out->rank = RANK_UNKNOWN;
    return elem_import(im, t->has_elem_type, t->elem_type, w, &out->elem) &&
           (!t->shape || dims_import(im, t->shape, w, out));
}

/* Descends from the outside; the scanner bounds how deep types nest. */
bool type_import(struct importer *im, const Onnx__TypeProto *t, struct where w, struct type *out)
{
    *out = (struct type){.kind = TYPE_UNKNOWN, .rank = RANK_UNKNOWN};
    for (struct type *to = out; t;) {
        const Onnx__TypeProto *inner = NULL;
        switch (t->value_case) {
        case ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE: return tensor_type_import(im, t->tensor_type, w, to);
        case ONNX__TYPE_PROTO__VALUE_SEQUENCE_TYPE:
            to->kind = TYPE_SEQUENCE;
            inner = t->sequence_type->elem_type;
            break;
        case ONNX__TYPE_PROTO__VALUE_OPTIONAL_TYPE:
            to->kind = TYPE_OPTIONAL;
            inner = t->optional_type->elem_type;
            break;
        case ONNX__TYPE_PROTO__VALUE_MAP_TYPE:
            to->kind = TYPE_MAP;
            if (!elem_import(im, t->map_type->has_key_type, t->map_type->key_type, w, &to->elem))
                return false;
            inner = t->map_type->value_type;
            break;
        case ONNX__TYPE_PROTO__VALUE_SPARSE_TENSOR_TYPE:
            return refuse(
                im, w,
                "sparse inputs and outputs are not supported: declare a dense tensor (sparse initializers and constants are "
                "supported)");
        case ONNX__TYPE_PROTO__VALUE_OPAQUE_TYPE: return refuse(im, w, "opaque types are not supported");
        default: return refuse(im, w, to == out ? "no type" : "a container type without the type of its elements");
        }
        struct type *next = NEW(&im->ctx->session, struct type);
        next->rank = RANK_UNKNOWN;
        to->inner = next;
        to = next;
        t = inner;
        if (!t)
            return refuse(im, w, "a container type without the type of its elements");
    }
    return refuse(im, w, "no type");
}
