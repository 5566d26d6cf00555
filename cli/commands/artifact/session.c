/* Loading artifacts and feeding them: files, raw bytes or drawn values for each input port. */
#include "cli/commands/artifact/session.h"

#include "cli/commands/artifact/artifact.h"

enum { SPECIAL = MCC_PORT_SEQUENCE | MCC_PORT_OPTIONAL | MCC_PORT_MAP | MCC_PORT_STRING };
enum { NAME_MOST = 60 }; /* bytes of a size's name in a message */

/* The class of an artifact's error code: what the caller can do about it. */
static enum fail error_class(int code)
{
    switch (code) {
    case MCC_E_IO:
    case MCC_E_CPU: return FAIL_ENV;
    case MCC_E_NOMEM: return FAIL_LIMIT;
    default: return FAIL_MODEL;
    }
}

/* Appends the sizes that the user did not give, if the run found sizes that do not fit. */
static void put_least_sizes(const struct session *s, struct strbuf *out)
{
    uint32_t n = 0;
    for (uint32_t i = 0; s->error.code == MCC_E_SHAPE && s->api && i < s->api->n_sym; i++)
        if (session_is_free(s, s->options, i)) {
            strbuf_printf(out, "%s", n++ ? ", " : "; sizes that were not given, by --dim=NAME=N, are the least: ");
            strbuf_escaped(out, s->api->sym[i].name, NAME_MOST);
            strbuf_printf(out, "=%lld", (long long)symbol_least(&s->api->sym[i]));
        }
}

bool session_error(struct session *s, const char *doing)
{
    struct strbuf least = strbuf_of(&s->ctx->session);
    put_least_sizes(s, &least);
    return error_at(s->ctx, error_class(s->error.code), (src_id){0}, NULL, "%s: %s (code %d)%s", doing, s->error.text,
                    s->error.code, least.data ? least.data : "");
}

bool session_open(struct session *s, struct context *ctx, const struct options *o, const char *path,
                  const mcc_host *host)
{
    *s = (struct session){.ctx = ctx, .options = o};
    ctx->model_path = path;
    if (artifact_is_wasm(path))
        return error_env(ctx, ARTIFACT_WASM_REFUSED);
    if (mcc_load(path, host, &s->lib, &s->error) != MCC_OK)
        return session_error(s, "cannot load");
    s->api = s->lib->api;
    if (s->api->ctx_new(s->lib->model, NULL, 0, &s->run, &s->error) != MCC_OK)
        return session_error(s, "cannot make a context");
    return true;
}

void session_close(struct session *s)
{
    if (s->run)
        s->api->ctx_free(s->run);
    mcc_unload(s->lib);
    s->lib = NULL;
    s->run = NULL;
}

int64_t symbol_least(const mcc_symbol *sym)
{
    int64_t step = sym->step > 1 ? sym->step : 1, least = sym->min > 1 ? sym->min : 1;
    return (least + step - 1) / step * step;
}

bool session_symbols(struct session *s, int64_t *out)
{
    const char **names = NEW_ARRAY(&s->ctx->session, const char *, s->api->n_sym + 1);
    for (uint32_t i = 0; i < s->api->n_sym; i++)
        names[i] = s->api->sym[i].name;
    if (!dims_known(s->ctx, &s->options->dims, names, s->api->n_sym))
        return false;
    for (uint32_t i = 0; i < s->api->n_sym; i++) {
        out[i] = symbol_least(&s->api->sym[i]);
        if (!dim_find(s->ctx, &s->options->dims, s->api->sym[i].name, &out[i]))
            return false;
    }
    return true;
}

bool session_is_free(const struct session *s, const struct options *given, uint32_t symbol)
{
    bool of_input = false;
    for (uint32_t i = 0; i < s->api->n_in; i++)
        for (int32_t d = 0; d < s->api->in[i].ndim; d++)
            of_input |= s->api->in[i].dims[d].extent == -1 && s->api->in[i].dims[d].symbol == (int32_t)symbol;
    return of_input && !feed_find(&given->dims, s->api->sym[symbol].name);
}

uint64_t session_elements(const struct session *s)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < s->api->n_in; i++)
        n += s->in[i].size / elem_size(s->in[i].elem);
    return n;
}

/* The dim where the symbols have these values; 1: nothing says what it is. */
static int64_t dim_extent(struct session *s, const mcc_dim *dim, const int64_t *symbols)
{
    struct exprs *x = s->ctx->exprs;
    const char *text = dim->expr ? dim->expr : "";
    int64_t n = dim->extent;
    if (n >= 0)
        return n;
    if (n == -1 && dim->symbol >= 0)
        return symbols[dim->symbol];
    expr_id e = *text ? ex_parse(x, &text, true) : (expr_id){0};
    for (uint32_t i = 0; e.i && i < s->api->n_sym; i++) {
        sym_id sym = sym_find(x, s->api->sym[i].name);
        expr_id to = ex_const(x, symbols[i]);
        if (sym.i)
            e = ex_subst(x, e, &sym, &to, 1);
    }
    return e.i && ex_is_const(x, e, &n) && n >= 0 ? n : 1;
}

static bool feed_port(struct session *s, uint32_t index, const int64_t *symbols, bool random)
{
    const mcc_port *port = &s->api->in[index];
    const char *feed = feed_find(&s->options->feeds, port->name);
    struct file_tensor *b = &s->in[index];
    b->elem = elem_by_dlpack(port->dtype);
    b->rank = port->ndim;
    if ((port->flags & SPECIAL) || port->ndim < 0 || port->ndim > RANK_MAX || b->elem == ELEM_NONE)
        return error_at(
            s->ctx, FAIL_USAGE, (src_id){0}, port->name,
            "this input is not a tensor of known rank, which is all that mcc can feed; call it from a program");
    if (!feed && !random)
        return error_at(s->ctx, FAIL_USAGE, (src_id){0}, port->name,
                        "this input has no value; give one with -i NAME=FILE or -i NAME=random");
    for (int32_t i = 0; i < port->ndim; i++)
        b->dims[i] = dim_extent(s, &port->dims[i], symbols);
    bool drawn = !feed || (strncmp(feed, "random", 6) == 0 && (feed[6] == 0 || feed[6] == ':'));
    if (!drawn)
        return file_tensor_read(s->ctx, feed, b);
    if (!file_tensor_alloc(s->ctx, b))
        return false;
    uint64_t seed;
    if (!feed_seed(s->ctx, feed, index + 1, &seed))
        return false;
    file_tensor_random(b, seed);
    return true;
}

bool session_reset(struct session *s)
{
    const mcc_state *state = mcc_state_of(s->api);
    return !state || state->reset(s->run, &s->error) == MCC_OK || session_error(s, "reset");
}

bool session_feed(struct session *s, bool random)
{
    struct arena *arena = &s->ctx->session;
    uint32_t n = s->api->n_in;
    const char **names = NEW_ARRAY(arena, const char *, n + 1);
    int64_t *symbols = NEW_ARRAY(arena, int64_t, s->api->n_sym + 1);
    s->in = NEW_ARRAY(arena, struct file_tensor, n + 1);
    s->in_tensor = NEW_ARRAY(arena, DLTensor, n + 1);
    s->in_pointer = NEW_ARRAY(arena, const DLTensor *, n + 1);
    for (uint32_t i = 0; i < n; i++)
        names[i] = s->api->in[i].name;
    if (!feeds_known(s->ctx, &s->options->feeds, names, n) || !session_symbols(s, symbols))
        return false;
    for (uint32_t i = 0; i < n; i++) {
        if (!feed_port(s, i, symbols, random))
            return false;
        s->in_tensor[i] = (DLTensor){
            .data = s->in[i].data,
            .device = {kDLCPU, 0},
            .ndim = s->in[i].rank,
            .dtype = elem_dlpack(s->in[i].elem),
            .shape = s->in[i].dims,
        };
        s->in_pointer[i] = &s->in_tensor[i];
    }
    return true;
}

/* An extent that is computed: as it is where that reads well, else by a number that stands with it in *extents. */
static void put_expression(const char *expr, struct strbuf *extents, uint32_t *n, struct strbuf *out)
{
    enum { READS_WELL = 24 };
    if (strlen(expr) <= READS_WELL && !strchr(expr, '(')) {
        strbuf_escaped(out, expr, 4 * READS_WELL);
        return;
    }
    strbuf_printf(out, "?%u", ++*n);
    strbuf_printf(extents, "extent   ?%u: ", *n);
    strbuf_escaped(extents, expr, 4 * strlen(expr));
    strbuf_printf(extents, "\n");
}

void port_describe(const mcc_api *api, const mcc_port *port, struct strbuf *extents, uint32_t *n, struct strbuf *out)
{
    static const struct {
        uint64_t flag;
        const char *word;
    } words[] = {
        {MCC_PORT_OPTIONAL, "optional "},
        {MCC_PORT_SEQUENCE, "sequence of "},
        {MCC_PORT_MAP, "map to "},
    };
    for (size_t i = 0; i < COUNT_OF(words); i++)
        if (port->flags & words[i].flag)
            strbuf_printf(out, "%s", words[i].word);
    enum elem elem = elem_by_dlpack(port->dtype);
    strbuf_printf(out, "%s[", elem == ELEM_NONE ? "?" : elem_name(elem));
    if (port->ndim < 0)
        strbuf_printf(out, "...");
    for (int32_t i = 0; i < port->ndim; i++) {
        const mcc_dim *dim = &port->dims[i];
        strbuf_printf(out, "%s", i ? "," : "");
        if (dim->extent >= 0)
            strbuf_printf(out, "%lld", (long long)dim->extent);
        else if (dim->extent == -1 && dim->symbol >= 0)
            strbuf_escaped(out, api->sym[dim->symbol].name, 200);
        else if (dim->expr && *dim->expr)
            put_expression(dim->expr, extents, n, out);
        else
            strbuf_printf(out, "?");
        if (dim->room > 0)
            strbuf_printf(out, "<=%lld", (long long)dim->room);
    }
    strbuf_printf(out, "]");
}

static void node_put(const mcc_node *node, struct strbuf *out)
{
    strbuf_escaped(out, node->name, 200);
    strbuf_printf(out, " (");
    strbuf_escaped(out, node->op, 60);
    strbuf_printf(out, "%s", node->source && *node->source ? ", " : "");
    strbuf_escaped(out, origin_short(node->source), 60);
    strbuf_printf(out, ")");
}

void node_describe(const mcc_api *api, const mcc_node *node, struct strbuf *out)
{
    node_put(node, out);
    for (uint64_t i = node->next; i; i = api->node[i].next) {
        strbuf_printf(out, " + ");
        node_put(&api->node[i], out);
    }
}
