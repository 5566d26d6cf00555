/* Cast between numbers and strings: the runtime writes and reads f64, i64 and u64; the rest is a conversion of
 * numbers. */
#include "passes/legalize/legalize.h"

/* The type that the runtime has for numbers of this one; ELEM_NONE: none. */
static enum elem text_elem(enum elem elem)
{
    switch (elem_class(elem)) {
    case 'F': return ELEM_F64;
    case 'I': return ELEM_I64;
    case 'U':
    case 'B': return ELEM_U64;
    default: return ELEM_NONE;
    }
}

bool rule_cast_text(struct rule *r, value_id x, enum elem to)
{
    struct builder *b = r->b;
    bool write = to == ELEM_STR;
    enum elem number = write ? v_elem(b, x) : to, wide = text_elem(number);
    if (wide == ELEM_NONE)
        return rule_refuse(r, "there is no conversion between %s and strings", elem_name(number));
    x = write ? b_convert(b, x, wide) : rule_strings(r, 0);
    const struct dims dims = b_dims(b, x);
    struct attr attrs[] = {attr_str("fn", write ? "format" : "parse"), attr_elem("elem", write ? ELEM_STR : wide),
                           attr_exprs("dims", dims.d, (uint32_t)dims.rank)};
    value_id y = dims.d ? b_op(b, OP_STRING, &x, 1, attrs, 3) : (value_id){0};
    return rule_result(r, write ? y : b_convert(b, y, to));
}
