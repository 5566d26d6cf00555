/* Names of functions for people (names.h). */
#include "codegen/names.h"

#include <ctype.h>

enum { NODE_BYTES_MAX = 48, NODES_MAX = 3 };

ASCENDING_TEXTS(by_symbol, struct function_name, symbol);

static void put_name(struct strbuf *out, const mcc_node *node)
{
    const char *name = node->name && *node->name ? node->name : node->op ? node->op : "";
    size_t n = strlen(name);
    strbuf_printf(out, ".%s", n > NODE_BYTES_MAX ? name + n - NODE_BYTES_MAX : name + strspn(name, "/"));
}

static bool is_contraction(const char *op)
{
    static const char *const ops[] = {"Conv", "ConvTranspose", "Gemm", "MatMul"};
    return ROW_NAMED(ops, COUNT_OF(ops), op) != NULL;
}

/* The leading node, and the further contractions of a kernel that holds several. */
static const char *spell(struct arena *arena, const char *symbol, const struct artifact *a, const mcc_node *node)
{
    struct strbuf all = strbuf_of(arena);
    strbuf_printf(&all, "%s", symbol);
    put_name(&all, node);
    uint32_t named = 1;
    for (uint64_t i = node->next; i && named < NODES_MAX; i = a->node[i].next)
        if (is_contraction(a->node[i].op)) {
            put_name(&all, &a->node[i]);
            named++;
        }
    strbuf_printf(&all, "_");
    char *text = all.data, *to = text + strlen(symbol) + 1;
    for (const char *p = to; *p; p++) {
        bool plain = (unsigned char)*p < 127 && isalnum((unsigned char)*p);
        char c = *p;
        if (!plain)
            c = c == '/' || c == '.' || c == ':' ? '.' : '_';
        if (plain || to[-1] != c)         /* one of a row of them is enough */
            *to++ = c;
    }
    *to = 0;
    return text;
}

struct function_names names_make(struct arena *arena, const struct artifact *a)
{
    struct function_name *rows = NEW_ARRAY(arena, struct function_name, a->n_kernels + 1);
    size_t n = 0;
    for (uint32_t i = 0; i < a->n_kernels; i++)
        if (a->kernels[i].node < a->n_node)
            rows[n++] = (struct function_name){a->kernels[i].name,
                                               spell(arena, a->kernels[i].name, a, &a->node[a->kernels[i].node])};
    qsort(rows, n, sizeof *rows, by_symbol);
    return (struct function_names){rows, n};
}

const char *names_find(const struct function_names *names, const char *symbol)
{
    const struct function_name key = {symbol, NULL};
    const struct function_name *row = names->n ? bsearch(&key, names->rows, names->n, sizeof key, by_symbol) : NULL;
    return row ? row->text : symbol;
}
