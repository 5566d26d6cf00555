/* Types, literals, comments, and the list of what the file has already. */
#include "codegen/c/c_internal.h"

#include <inttypes.h>
#include <math.h>

void c_fail(struct c_file *c, const char *why)
{
    if (!c->why)
        c->why = why;
}

bool c_is_float(enum elem e)
{
    return e == ELEM_F32 || e == ELEM_F64;
}

char c_class(enum elem e)
{
    if (elem_class(e) == 'F')
        return c_is_float(e) ? 'F' : '-';
    return elem_class(e);
}

const char *c_scalar(struct c_file *c, enum elem e)
{
    if (c_is_float(e))
        return e == ELEM_F32 ? "f32" : "f64";
    bool is_signed = elem_class(e) == 'I';
    switch (elem_size(e)) {
    case 1: return is_signed ? "i8" : "u8";
    case 2: return is_signed ? "i16" : "u16";
    case 4: return is_signed ? "i32" : "u32";
    case 8: return is_signed ? "i64" : "u64";
    default: c_fail(c, "elements of more than 8 bytes"); return "u8";
    }
}

const char *c_name(struct c_file *c, struct ltype t)
{
    return t.lanes == 1 ? elem_name(t.elem) : arena_printf(c->arena, "%sx%u", elem_name(t.elem), t.lanes);
}

const char *c_type(struct c_file *c, struct ltype t)
{
    const char *scalar = c_scalar(c, t.elem), *name;
    if (t.lanes == 1)
        return t.elem == ELEM_BOOL ? "bool" : scalar;
    bool whole = (t.lanes & (t.lanes - 1)) == 0;
    name = t.elem == ELEM_BOOL ? c_name(c, t) : arena_printf(c->arena, "%sx%u", scalar, t.lanes);
    if (!c_first(c, name))
        return name;
    if (whole)
        strbuf_printf(&c->types, "VECTOR(%s, %s, %u);\n", name, scalar, t.lanes);
    else
        strbuf_printf(&c->types, "typedef struct {\n    %s v[%u];\n} %s;\n", scalar, t.lanes, name);
    return name;
}

/* ---- what is there ---- */

bool c_first(struct c_file *c, const char *name)
{
    uint64_t hash = hash_bytes(name, strlen(name)) | 1;
    if (2 * c->n_made >= c->made.n) {
        uint32_t n = c->made.n;
        uint64_t *old = c->made.data;
        uint32_t wider = n ? 2 * n : 1024;
        c->made.data = NEW_ARRAY(c->arena, uint64_t, wider);
        c->made.n = c->made.cap = wider;
        for (uint32_t i = 0; i < n; i++)
            for (uint64_t at = old[i]; old[i];) {
                if (!c->made.data[at % wider]) {
                    c->made.data[at % wider] = old[i];
                    break;
                }
                at++;
            }
    }
    for (uint64_t at = hash;; at++) {
        uint64_t *slot = &c->made.data[at % c->made.n];
        if (*slot == hash)
            return false;
        if (*slot)
            continue;
        *slot = hash;
        c->n_made++;
        return true;
    }
}

void c_text(struct strbuf *out, const char *text, const struct c_var *vars, uint32_t n)
{
    for (const char *p = text; *p; p++) {
        const char *with = NULL;
        for (uint32_t i = 0; *p == '$' && i < n; i++)
            if (vars[i].letter == p[1])
                with = vars[i].text;
        if (with)
            strbuf_append(out, with, strlen(with));
        else
            strbuf_append(out, p, 1);
        p += with != NULL;
    }
}

/* ---- literals ---- */

static const char *real_literal(struct c_file *c, enum elem e, double x)
{
    bool wide = e == ELEM_F64;
    float narrow = (float)x;
    uint64_t bits = 0;
    if (isfinite(x) && (wide || isfinite(narrow)))
        return arena_printf(c->arena, "%a%s", wide ? x : (double)narrow, wide ? "" : "f");
    if (wide)
        memcpy(&bits, &x, sizeof x);
    else
        memcpy(&bits, &narrow, sizeof narrow);
    c_need_real(c, "bits", e);
    return arena_printf(c->arena, wide ? "f64_of(UINT64_C(0x%" PRIx64 "))" : "f32_of(0x%" PRIx64 "u)", bits);
}

const char *c_literal(struct c_file *c, const struct lstmt *s)
{
    enum elem e = s->type.elem;
    unsigned char bytes[16] = {0};
    uint64_t bits = 0;
    if (c_is_float(e))
        return real_literal(c, e, s->fimm);
    if (elem_class(e) == 'F') {
        elem_from_f64(e, s->fimm, bytes);
        memcpy(&bits, bytes, sizeof bits);
        return arena_printf(c->arena, "0x%" PRIx64 "u", bits);
    }
    if (e == ELEM_BOOL)
        return s->imm ? "true" : "false";
    if (elem_class(e) != 'I')
        return arena_printf(c->arena, elem_size(e) == 8 ? "UINT64_C(%" PRIu64 ")" : "%" PRIu64 "u",
                            elem_size(e) == 8 ? (uint64_t)s->imm
                                              : (uint64_t)s->imm & ((UINT64_C(1) << 8 * elem_size(e)) - 1));
    if (s->imm == INT64_MIN)
        return "INT64_MIN";
    if (s->imm < -INT32_MAX || s->imm > INT32_MAX)
        return arena_printf(c->arena, s->imm < 0 ? "(-INT64_C(%" PRId64 "))" : "INT64_C(%" PRId64 ")",
                            s->imm < 0 ? -s->imm : s->imm);
    return arena_printf(c->arena, s->imm < 0 ? "(%" PRId64 ")" : "%" PRId64, s->imm);
}

/* ---- comments ---- */

void c_comment(struct strbuf *out, const char *text)
{
    enum { MOST = 120 };
    size_t n = 0;
    for (const unsigned char *p = (const unsigned char *)text; *p && n < MOST; p++, n++) {
        bool ends = *p == '/' && p > (const unsigned char *)text && p[-1] == '*';
        bool begins = *p == '*' && p > (const unsigned char *)text && p[-1] == '/';
        bool trigraph = *p == '?' && p > (const unsigned char *)text && p[-1] == '?';
        if (*p < 0x20 || *p > 0x7e || *p == '\\' || ends || begins || trigraph)
            strbuf_printf(out, "<%02x>", *p);
        else
            strbuf_append(out, p, 1);
    }
    if (n == MOST)
        strbuf_printf(out, "...");
}
