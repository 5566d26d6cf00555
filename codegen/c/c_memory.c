/* Functions that move vectors to and from memory: consecutive lanes, lanes a stride apart, lanes at indices; all of
 * them or those of a mask.
 */
#include "codegen/c/c_internal.h"

const char *c_memory(struct c_file *c, enum lop op, struct ltype t, enum elem by, bool masked)
{
    bool stores = op == L_STORE || op == L_STORES || op == L_SCATTER, flag = t.elem == ELEM_BOOL;
    bool strided = op == L_LOADS || op == L_STORES, indexed = op == L_GATHER || op == L_SCATTER;
    const struct ltype mask = {ELEM_BOOL, t.lanes}, index = {by, t.lanes};
    const char *type = c_type(c, t), *scalar = c_scalar(c, t.elem);
    const char *name = arena_printf(c->arena, "%s_%s%s%s", type, lop_name(op), by == ELEM_U8 ? "_bytes" : "",
                                    masked ? "_masked" : "");
    const char *at = indexed ? "p[at.v[i]]" : strided ? "p[i * stride]" : "p[i]";
    struct strbuf *out = &c->helpers;
    if (!c_first(c, arena_printf(c->arena, "f %s", name)))
        return name;
    const char *mask_type = masked ? c_type(c, mask) : "", *index_type = indexed ? c_type(c, index) : "";
    strbuf_printf(out, "INLINE %s %s(%s%s *p", stores ? "void" : type, name, stores ? "" : "const ", scalar);
    if (strided || indexed)
        strbuf_printf(out, strided ? ", i64 stride" : ", %s at", index_type);
    if (stores)
        strbuf_printf(out, ", %s x", type);
    strbuf_printf(out, masked ? ", %s m)\n{\n" : ")\n{\n", mask_type);
    if (!stores)
        strbuf_printf(out, "    %s r;\n", type);
    if (stores && op == L_STORE && !masked)
        strbuf_printf(out, "    memcpy(p, &x, sizeof x);\n}\n");
    else if (stores)
        strbuf_printf(out, masked ? "    LANES(%u) if (m.v[i]) %s = x.v[i];\n}\n" : "    LANES(%u) %s = x.v[i];\n}\n",
                      t.lanes, at);
    else if (op == L_LOAD && !masked && !flag)
        strbuf_printf(out, "    memcpy(&r, p, sizeof r);\n    return r;\n}\n");
    else
        strbuf_printf(out,
                      masked ? "    LANES(%u) r.v[i] = m.v[i] ? %s%s : 0;\n    return r;\n}\n"
                             : "    LANES(%u) r.v[i] = %s%s;\n    return r;\n}\n",
                      t.lanes, at, flag ? " != 0" : "");
    return name;
}
