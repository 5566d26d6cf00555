/* Element types and shapes of tensors as the file describes them. */
#include "frontend/pt2/pt2.h"

enum { LAYOUT_STRIDED = 7 };

enum elem elem_by_torch(int64_t code)
{
    static const enum elem elems[] = {
        [1] = ELEM_U8,          [2] = ELEM_I8,          [3] = ELEM_I16,     [4] = ELEM_I32,       [5] = ELEM_I64,
        [6] = ELEM_F16,         [7] = ELEM_F32,         [8] = ELEM_F64,     [10] = ELEM_C64,      [11] = ELEM_C128,
        [12] = ELEM_BOOL,       [13] = ELEM_BF16,       [28] = ELEM_U16,    [29] = ELEM_F8E4M3FN, [30] = ELEM_F8E5M2,
        [31] = ELEM_F8E4M3FNUZ, [32] = ELEM_F8E5M2FNUZ, [33] = ELEM_F8E8M0, [34] = ELEM_U32,      [35] = ELEM_U64,
    };
    return code > 0 && code < (int64_t)COUNT_OF(elems) ? elems[code] : ELEM_NONE;
}

int64_t elem_torch(enum elem e)
{
    int64_t code = 1;
    while (elem_by_torch(code) != e)
        code++;
    return code;
}

bool meta_type(struct pt2 *p, const struct json *meta, const char *name, bool dims, struct type *out)
{
    int64_t code = 0, layout = LAYOUT_STRIDED;
    const struct json *sizes = json_get(meta, "sizes");
    json_as_int(json_get(meta, "layout"), &layout);
    *out = (struct type){.kind = TYPE_TENSOR, .rank = sizes ? (int32_t)sizes->n : 0};
    if (!json_as_int(json_get(meta, "dtype"), &code) || !json_is(sizes, JSON_LIST))
        return error_at(p->ctx, FAIL_MODEL, (src_id){0}, name, "the file has no type and sizes of this tensor");
    out->elem = elem_by_torch(code);
    if (out->elem == ELEM_NONE)
        return error_at(p->ctx, FAIL_MODEL, (src_id){0}, name, "element type %lld (torch.export's number) is unknown",
                        (long long)code);
    if (layout != LAYOUT_STRIDED)
        return error_at(p->ctx, FAIL_MODEL, (src_id){0}, name, "the tensor is sparse; make it dense before the export");
    if (sizes->n > (uint32_t)p->ctx->limits.rank || sizes->n > RANK_MAX)
        return error_at(p->ctx, FAIL_LIMIT, (src_id){0}, name, "the rank is %u, and the limit is %d (--limit-rank)",
                        sizes->n, p->ctx->limits.rank);
    expr_id *list = NEW_ARRAY(&p->ctx->session, expr_id, sizes->n);
    int64_t bytes = elem_size(out->elem), known;
    bool fits = true;
    uint32_t i = 0;
    for (const struct json *s = json_first(sizes); dims && s; s = s->next, i++) {
        list[i] = dim_import(p, s);
        if (!list[i].i || !ex_is_const(p->ctx->exprs, list[i], &known))
            continue;
        if (known < 0)
            return error_at(p->ctx, FAIL_MODEL, (src_id){0}, name, "dimension %u is %lld", i, (long long)known);
        fits = fits && (known == 0 || mul_i64(bytes, known, &bytes));
    }
    if (!fits || bytes > p->ctx->limits.tensor_bytes)
        return error_at(p->ctx, FAIL_LIMIT, (src_id){0}, name,
                        "the sizes make more than %lld bytes, the limit for one tensor (--limit-tensor-bytes)",
                        (long long)p->ctx->limits.tensor_bytes);
    out->dims = list;
    return true;
}
