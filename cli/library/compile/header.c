/* --emit=header: a C header beside the output with one typed function over the artifact's table,
 *
 *     int digits_run(int64_t n, const float picture[][1][8][8], float probability[][10]);
 *
 * Symbolic dims come first, as arguments of their names. Extents are spelled out where C can (all but the first fixed),
 * else the argument is a pointer. The functions' bodies are in the header too, for the one file that defines
 * NAME_IMPLEMENTATION before it includes it. A network with state has NAME_reset, too. What no C argument can carry
 * (sequences, strings, sub-byte elements, shapes that the data decides) is refused.
 */
#include <ctype.h>

#include "cli/library/compile/header.h"
#include "cli/library/dlpack.h"
#include "ir/base/file.h"

struct names {
    VEC(const char *) items;
};

static const char *c_type(enum elem elem)
{
    static const char *const types[ELEM_COUNT] = {
        [ELEM_F32] = "float",    [ELEM_F64] = "double",   [ELEM_F16] = "uint16_t", [ELEM_BF16] = "uint16_t",
        [ELEM_I8] = "int8_t",    [ELEM_I16] = "int16_t",  [ELEM_I32] = "int32_t",  [ELEM_I64] = "int64_t",
        [ELEM_U8] = "uint8_t",   [ELEM_U16] = "uint16_t", [ELEM_U32] = "uint32_t", [ELEM_U64] = "uint64_t",
        [ELEM_BOOL] = "uint8_t",
    };
    return elem_class(elem) == 'F' && elem_bits(elem) == 8 ? "uint8_t" : types[elem];
}

/* ---- identifiers ---------------------------------------------------------------------------------------------- */

static bool is_reserved(const char *word)
{
    static const char *const words[] = {
        "alignas", "alignof",  "and",       "asm",      "auto",     "bool",      "break",    "case",       "catch",
        "char",    "class",    "const",     "continue", "default",  "delete",    "do",       "double",     "else",
        "enum",    "explicit", "export",    "extern",   "false",    "float",     "for",      "friend",     "goto",
        "if",      "inline",   "int",       "long",     "mutable",  "namespace", "new",      "not",        "operator",
        "or",      "private",  "protected", "public",   "register", "restrict",  "return",   "short",      "signed",
        "sizeof",  "static",   "struct",    "switch",   "template", "this",      "throw",    "true",       "try",
        "typedef", "typename", "union",     "unsigned", "using",    "virtual",   "void",     "volatile",   "while",
        "xor",     "api",      "in",        "out",      "ins",      "outs",      "state",    "code",       "dims",
        "shape",   "in_shape", "out_shape", "arena",    /* the functions' own */
        "int8_t",  "int16_t",  "int32_t",   "int64_t",  "uint8_t",  "uint16_t",  "uint32_t", "uint64_t",   "size_t",
        "mcc_api", "mcc_ctx",  "mcc_error", "mcc_host", "NULL",     "DLTensor",  "DLDevice", "DLDataType", "kDLCPU",
    };
    return ROW_NAMED(words, COUNT_OF(words), word) || strncmp(word, "fn_", 3) == 0 || strcmp(word, "INLINE") == 0 ||
           strcmp(word, "MAY_ALIAS") == 0; /* functions and macros of --emit=c */
}

/* A C identifier that looks like text and is none of the names so far. */
static const char *identifier(struct arena *arena, struct names *taken, const char *text)
{
    char *word = arena_printf(arena, "%s%.60s", isalpha((unsigned char)text[0]) ? "" : "v", text);
    for (char *p = word; *p; p++)
        if (!isalnum((unsigned char)*p) || (unsigned char)*p > 127)
            *p = '_';
    const char *found = is_reserved(word) ? arena_printf(arena, "%s_", word) : word;
    for (uint32_t i = 0, n = 2; taken && i < taken->items.n; i++)
        if (strcmp(taken->items.data[i], found) == 0) {
            found = arena_printf(arena, "%s_%u", word, n++);
            i = UINT32_MAX;      /* from the start */
        }
    if (taken)
        VEC_PUSH(arena, &taken->items, found);
    return found;
}

const char *header_name(const struct compilation *c)
{
    struct arena *arena = &c->ctx->session;
    const char *path = c->output ? c->output : "net", *stem = path_name(path);
    const char *prefix = c->options->prefix;
    return identifier(arena, NULL, prefix && *prefix ? prefix : arena_strndup(arena, stem, strcspn(stem, ".")));
}

static void name_all(struct header *h)
{
    struct arena *arena = &h->c->ctx->session;
    struct names taken = {0};
    static const char *const own[] = {"run", "open", "close", "error", "state", "reset"};
    h->name = header_name(h->c);
    for (size_t i = 0; i < COUNT_OF(own); i++)
        VEC_PUSH(arena, &taken.items, arena_printf(arena, "%s_%s", h->name, own[i]));
    if (h->is_static)
        VEC_PUSH(arena, &taken.items, "arena");
    char *upper = arena_strdup(arena, h->name);
    for (char *p = upper; *p; p++)
        *p = (char)toupper((unsigned char)*p);
    h->upper = upper;
    h->sym = NEW_ARRAY(arena, const char *, h->a->n_sym + 1);
    h->in = NEW_ARRAY(arena, const char *, h->n_in + 1);
    h->outs = NEW_ARRAY(arena, const char *, h->n_out + 1);
    for (uint32_t i = 0; i < h->a->n_sym; i++)
        h->sym[i] = identifier(arena, &taken, h->a->sym[i].name);
    for (uint32_t i = 0; i < h->n_in; i++)
        h->in[i] = identifier(arena, &taken, h->a->in[i].name);
    for (uint32_t i = 0; i < h->n_out; i++)
        h->outs[i] = identifier(arena, &taken, h->a->out[i].name);
}

/* ---- what can be served ------------------------------------------------------------------------------------------ */

static bool port_serves(struct header *h, const struct art_port *p, bool output)
{
    bool plain = !(p->flags & ~(uint64_t)MCC_PORT_DYNAMIC) && p->rank >= 0;
    const char *why = !plain             ? "is not a plain tensor of known rank"
                      : !c_type(p->elem) ? "has no element type of C"
                                         : NULL;
    for (int32_t d = 0; !why && d < p->rank; d++) {
        if (p->flags & MCC_PORT_DYNAMIC)
            why = "has a shape that the data decides";
        if (!output && p->dims[d].extent == -2 && !h->is_static)
            why = "has a derived dimension";
        h->derived |= p->dims[d].extent == -2;
    }
    return !why || error_at(h->c->ctx, FAIL_MODEL, (src_id){0}, p->name, "--emit=%s: %s",
                            h->c->options->emit == OPT_EMIT_C ? "c"
                            : h->is_static                    ? "static"
                                                              : "header",
                            why);
}

/* ---- the text ---------------------------------------------------------------------------------------------------- */

static void put_argument(struct header *h, const struct art_port *p, const char *name, const char *constant)
{
    bool spelled = p->rank > 0;
    for (int32_t d = 0; d < p->rank; d++)
        spelled &= d == 0 ? p->dims[d].extent != 0 : p->dims[d].extent > 0;
    strbuf_printf(&h->out, ", %s%s %s%s", constant, c_type(p->elem), spelled ? "" : "*", name);
    for (int32_t d = 0; spelled && d < p->rank; d++) {
        if (p->dims[d].extent > 0)
            strbuf_printf(&h->out, "[%lld]", (long long)p->dims[d].extent);
        else
            strbuf_printf(&h->out, "[]");
    }
}

void header_prototype(struct header *h)
{
    const struct artifact *a = h->a;
    size_t at;
    strbuf_printf(&h->out, "int %s_run(", h->name);
    at = h->out.n;
    for (uint32_t i = 0; i < a->n_sym; i++)
        if (!h->is_static || h->takes[i])
            strbuf_printf(&h->out, ", int64_t %s", h->sym[i]);
    for (uint32_t i = 0; i < h->n_in; i++)
        put_argument(h, &a->in[i], h->in[i], "const ");
    for (uint32_t i = 0; i < h->n_out; i++)
        put_argument(h, &a->out[i], h->outs[i], "");
    if (h->is_static)
        strbuf_printf(&h->out, ", void *arena");
    if (h->out.n == at) {
        strbuf_printf(&h->out, "void");
    } else {
        memmove(h->out.data + at, h->out.data + at + 2, h->out.n - at - 1); /* the first ", " */
        h->out.n -= 2;
    }
    strbuf_printf(&h->out, ")");
}

static void put_tensors(struct header *h, const struct art_port *ports, const char **names, uint32_t n,
                        const char *array)
{
    for (uint32_t i = 0; i < n; i++) {
        DLDataType type = elem_dlpack(ports[i].elem);
        for (int32_t d = 0; d < ports[i].rank; d++) {
            const mcc_dim *dim = &ports[i].dims[d];
            if (dim->extent >= 0)
                strbuf_printf(&h->out, "    %s_shape[%u][%d] = %lld;\n", array, i, d, (long long)dim->extent);
            else if (dim->extent == -1)
                strbuf_printf(&h->out, "    %s_shape[%u][%d] = %s;\n", array, i, d, h->sym[dim->symbol]);
        }
        strbuf_printf(
            &h->out,
            "    %s[%u].data = (void *)%s;\n    %s[%u].device.device_type = kDLCPU;\n    %s[%u].device.device_id = 0;\n"
            "    %s[%u].ndim = %d;\n    %s[%u].strides = NULL;\n    %s[%u].byte_offset = 0;\n",
            array, i, names[i], array, i, array, i, array, i, ports[i].rank, array, i, array, i);
        strbuf_printf(&h->out,
                      "    %s[%u].dtype.code = %u;\n    %s[%u].dtype.bits = %u;\n    %s[%u].dtype.lanes = 1;\n", array,
                      i, type.code, array, i, type.bits, array, i);
        strbuf_printf(&h->out, "    %s[%u].shape = %s_shape[%u];\n    %ss[%u] = &%s[%u];\n", array, i, array, i, array,
                      i, array, i);
    }
}

static int32_t most_dims(const struct art_port *ports, uint32_t n)
{
    int32_t most = 1;
    for (uint32_t i = 0; i < n; i++)
        most = ports[i].rank > most ? ports[i].rank : most;
    return most;
}

static void put_run(struct header *h)
{
    const struct artifact *a = h->a;
    uint32_t n_in = h->n_in ? h->n_in : 1, n_out = h->n_out ? h->n_out : 1;
    header_prototype(h);
    strbuf_printf(&h->out,
                  "\n{\n    DLTensor in[%u], out[%u];\n    const DLTensor *ins[%u];\n    DLTensor *outs[%u];\n", n_in,
                  n_out, n_in, n_out);
    strbuf_printf(&h->out, "    int64_t in_shape[%u][%d], out_shape[%u][%d];\n", n_in, most_dims(a->in, h->n_in), n_out,
                  most_dims(a->out, h->n_out));
    strbuf_printf(&h->out, "    int code = %s_open(NULL);\n    if (code)\n        return code;\n", h->name);
    put_tensors(h, a->in, h->in, h->n_in, "in");
    if (h->derived) {
        strbuf_printf(&h->out, "    int64_t *shape[%u];\n", n_out);
        for (uint32_t i = 0; i < h->n_out; i++)
            strbuf_printf(&h->out, "    shape[%u] = out_shape[%u];\n", i, i);
        strbuf_printf(&h->out,
                      "    code = %s_state.api->plan(%s_state.model, ins, shape, NULL, &%s_state.error);\n"
                      "    if (code)\n        return code;\n",
                      h->name, h->name, h->name);
    }
    put_tensors(h, a->out, h->outs, h->n_out, "out");
    strbuf_printf(&h->out, "    return %s_state.api->run(%s_state.ctx, ins, outs, &%s_state.error);\n}\n\n", h->name,
                  h->name, h->name);
}

static void put_declarations(struct header *h)
{
    const char *n = h->name;
    strbuf_printf(
        &h->out,
        "/* Made by mcc. One file of the program defines %s_IMPLEMENTATION before it includes this; the program is linked with\n"
        " * the compiled network (or its object or archive) and includes mcc.h from its include path.\n"
        " *\n * %s_run returns MCC_OK or a negative MCC_E_*, %s_error says what went wrong. It opens the network on its first call;\n"
        " * %s_open does that earlier, with a host's services. One run at a time: another one meanwhile gives MCC_E_BUSY.\n */\n"
        "#ifndef %s_MCC_H\n#define %s_MCC_H\n\n#include \"mcc.h\"\n\n#ifdef __cplusplus\nextern \"C\" {\n#endif\n\n",
        h->upper, n, n, n, h->upper, h->upper);
    header_prototype(h);
    strbuf_printf(&h->out, ";\nint %s_open(const mcc_host *host);\nvoid %s_close(void);\nconst char *%s_error(void);\n",
                  n, n, n);
    if (h->a->n_state)
        strbuf_printf(&h->out,
                      "/* The state as the network begins with: each run continues with it. */\nint %s_reset(void);\n",
                      n);
    strbuf_printf(&h->out, "\n");
}

static void put_bodies(struct header *h, const char *query)
{
    const char *n = h->name;
    strbuf_printf(&h->out,
                  "#ifdef __cplusplus\n}\n#endif\n#endif\n\n#if defined(%s_IMPLEMENTATION) && !defined(%s_MCC_BODIES)\n"
                  "#define %s_MCC_BODIES\n\n#ifdef __cplusplus\nextern \"C\" {\n#endif\n\n",
                  h->upper, h->upper, h->upper);
    if (strcmp(query, "mcc_query") != 0)
        strbuf_printf(&h->out, "const mcc_api *%s(uint32_t abi);\n", query);
    strbuf_printf(
        &h->out, "static struct { const mcc_api *api; mcc_model *model; mcc_ctx *ctx; mcc_error error; } %s_state;\n\n",
        n);
    strbuf_printf(
        &h->out,
        "int %s_open(const mcc_host *host)\n{\n    int code;\n    if (%s_state.ctx)\n        return MCC_OK;\n"
        "    %s_state.api = %s(MCC_ABI);\n    if (!%s_state.api)\n        return MCC_E_IO;\n"
        "    code = %s_state.api->open(host, &%s_state.model, &%s_state.error);\n    if (code)\n        return code;\n"
        "    code = %s_state.api->ctx_new(%s_state.model, NULL, 0, &%s_state.ctx, &%s_state.error);\n"
        "    if (code)\n        %s_state.api->close(%s_state.model);\n    return code;\n}\n\n",
        n, n, n, query, n, n, n, n, n, n, n, n, n, n);
    strbuf_printf(
        &h->out,
        "void %s_close(void)\n{\n    if (!%s_state.ctx)\n        return;\n    %s_state.api->ctx_free(%s_state.ctx);\n"
        "    %s_state.api->close(%s_state.model);\n    %s_state.ctx = NULL;\n}\n\n"
        "const char *%s_error(void)\n{\n    return %s_state.error.text;\n}\n\n",
        n, n, n, n, n, n, n, n, n);
    if (h->a->n_state)
        strbuf_printf(
            &h->out,
            "int %s_reset(void)\n{\n    int code = %s_open(NULL);\n"
            "    return code ? code : mcc_state_of(%s_state.api)->reset(%s_state.ctx, &%s_state.error);\n}\n\n",
            n, n, n, n, n);
    put_run(h);
}

bool header_begin(struct header *h)
{
    bool ok = true;
    h->n_in = h->a->n_in - h->a->n_state;
    h->n_out = h->a->n_out - h->a->n_state;
    for (uint32_t i = 0; i < h->n_in; i++)
        ok &= port_serves(h, &h->a->in[i], false);
    for (uint32_t i = 0; i < h->n_out; i++)
        ok &= port_serves(h, &h->a->out[i], true);
    strbuf_init(&h->out, &h->c->ctx->session);
    name_all(h);
    return ok;
}

bool header_write(struct compilation *c, const struct artifact *a)
{
    struct header h = {.c = c, .a = a};
    if (!header_begin(&h))
        return false;
    put_declarations(&h);
    put_bodies(&h, a->prefix && *a->prefix ? arena_printf(&c->ctx->session, "%s_mcc_query", a->prefix) : "mcc_query");
    strbuf_printf(&h.out, "\n#ifdef __cplusplus\n}\n#endif\n#endif\n");
    return side_write(c, output_beside(c->ctx, c->output, "h"), h.out.data, h.out.n);
}
