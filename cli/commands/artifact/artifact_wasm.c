/* A WebAssembly module as an artifact: its sections' sizes, and the description in its first section (artifact.h). The
 * sum covers all bytes after it and proves no author: the reader checks everything in the description.
 */
#include "cli/commands/artifact/artifact_reader.h"
#include "cli/library/dlpack.h"
#include "codegen/container/wasm.h"
#include "frontend/json.h"
#include "ir/base/file.h"

enum { DESCRIPTION_MAX = 1 << 24, RANK_MAX = 32, PIECE = 1 << 16, HEAD_MAX = 11 };

static bool damaged(struct reader *r, const char *what)
{
    return error_env(r->f.ctx, "truncated or damaged: %s", what);
}

/* ---- the file ---- */

static bool sum_holds(struct reader *r, uint64_t from, uint32_t expected)
{
    unsigned char buffer[PIECE];
    uint32_t sum = WASM_SUM_BEGIN;
    while (from < r->f.size) {
        size_t n = r->f.size - from < sizeof buffer ? (size_t)(r->f.size - from) : sizeof buffer;
        if (!fd_pread(r->f.fd, buffer, n, from))
            return false;
        sum = wasm_sum(sum, buffer, n);
        from += n;
    }
    return sum == expected;
}

/* The kind and the bytes of the section at *at, which moves to its content. */
static bool section_head(struct reader *r, uint64_t *at, uint64_t *kind, uint64_t *bytes)
{
    unsigned char head[HEAD_MAX];
    size_t n = r->f.size - *at < sizeof head ? (size_t)(r->f.size - *at) : sizeof head;
    struct span left = {head, n};
    if (!fd_pread(r->f.fd, head, n, *at) || !span_varint(&left, kind) || !span_varint(&left, bytes))
        return false;
    *at += n - left.size;
    return *kind <= WASM_DATA_COUNT && *bytes <= r->f.size - *at;
}

static bool measure(struct reader *r)
{
    struct sizes *s = &r->out->sizes;
    uint64_t kind, bytes;
    for (uint64_t at = WASM_HEAD_BYTES; at < r->f.size; at += bytes) {
        if (!section_head(r, &at, &kind, &bytes))
            return damaged(r, "a section");
        if (kind == WASM_DATA && bytes >= s->weights)
            r->out->weights_at = at + bytes - s->weights; /* the last bytes of memory */
        if (kind == WASM_CODE)
            s->code = s->variant[0] = bytes;
        else if (kind == WASM_DATA && bytes >= s->weights)
            s->tables += bytes - s->weights;
        else if (kind == WASM_DATA)
            return damaged(r, "the weights");
        else
            s->headers += bytes;
    }
    return true;
}

static bool read_sum(const char *digits, uint32_t *sum)
{
    static const char hex[] = "0123456789abcdef";
    *sum = 0;
    for (int i = 0; i < WASM_SUM_DIGITS; i++) {
        const char *digit = memchr(hex, digits[i], 16);
        if (!digit)
            return false;
        *sum = *sum << 4 | (uint32_t)(digit - hex);
    }
    return true;
}

/* Of a whole file; NULL after a diagnostic. */
static struct json *read_description(struct reader *r)
{
    char begin[WASM_SUM_AT + WASM_SUM_DIGITS];
    const uint64_t from = sizeof begin, name = WASM_SUM_AT - strlen(WASM_DESCRIPTION);
    uint64_t kind, bytes, at = WASM_HEAD_BYTES;
    uint32_t sum;
    if (r->f.size < from || !fd_pread(r->f.fd, begin, sizeof begin, 0) ||
        memcmp(begin, WASM_HEAD, WASM_HEAD_BYTES) != 0)
        return damaged(r, "its head"), NULL;
    if (!section_head(r, &at, &kind, &bytes) || kind != WASM_CUSTOM || at != name || bytes < from - name ||
        memcmp(begin + name, WASM_DESCRIPTION, strlen(WASM_DESCRIPTION)) != 0)
        return error_env(r->f.ctx, "not made by mcc, or damaged"), NULL;
    if (!read_sum(begin + WASM_SUM_AT, &sum) || !sum_holds(r, from, sum))
        return error_env(r->f.ctx, "damaged, the sum differs"), NULL;
    uint64_t size = bytes - (from - name);
    if (size > DESCRIPTION_MAX)
        return damaged(r, "a description of more than 16 MiB"), NULL;
    char *text = arena_alloc(r->f.arena, size + 1);
    if (!fd_pread(r->f.fd, text, (size_t)size, from))
        return damaged(r, "it cannot be read"), NULL;
    return json_parse(r->f.ctx, r->f.arena, text, size, "the description");
}

/* ---- the description ---- */

static const char *text_of(const struct json *object, const char *key)
{
    const char *text = json_as_text(json_get(object, key));
    return text ? text : "";
}

static int32_t symbol_of(const mcc_api *api, const char *name)
{
    const mcc_symbol *symbol = ROW_NAMED(api->sym, api->n_sym, name);
    return symbol ? (int32_t)(symbol - api->sym) : -1;
}

static bool read_dims(struct reader *r, const struct json *list, mcc_port *port)
{
    mcc_dim dims[RANK_MAX];
    int32_t n = 0;
    for (const struct json *d = json_first(list); d; d = d->next, n++) {
        const char *text = json_as_text(d);
        if (n == RANK_MAX)
            return damaged(r, "a port of more than 32 dims");
        dims[n] = (mcc_dim){.symbol = -1};
        if (!text && (!json_as_int(d, &dims[n].extent) || dims[n].extent < 0))
            return damaged(r, "an extent");
        if (!text)
            continue;
        dims[n].symbol = symbol_of(&r->out->api, text);
        dims[n].extent = dims[n].symbol >= 0 ? -1 : -2;
        dims[n].expr = dims[n].symbol >= 0 ? NULL : text;
    }
    port->ndim = n;
    port->dims = arena_copy(r->f.arena, dims, ((size_t)n + !n) * sizeof *dims);
    return true;
}

static bool read_ports(struct reader *r, const struct json *list, const mcc_port **ports, uint32_t *n)
{
    mcc_port *rows = NEW_ARRAY(r->f.arena, mcc_port, list && list->kind == JSON_LIST ? list->n + 1 : 1);
    *n = 0;
    *ports = rows;
    for (const struct json *p = json_first(list); p; p = p->next) {
        enum elem elem = elem_by_name(text_of(p, "type"));
        mcc_port *row = &rows[(*n)++];
        if (elem == ELEM_NONE)
            return damaged(r, "an element type");
        row->name = text_of(p, "name");
        row->dtype = elem_dlpack(elem);
        if (!read_dims(r, json_get(p, "dims"), row))
            return false;
    }
    return true;
}

static bool read_symbols(struct reader *r, const struct json *list, mcc_api *api)
{
    mcc_symbol *rows = NEW_ARRAY(r->f.arena, mcc_symbol, list && list->kind == JSON_LIST ? list->n + 1 : 1);
    for (const struct json *s = json_first(list); s; s = s->next) {
        mcc_symbol *row = &rows[api->n_sym++];
        row->name = text_of(s, "name");
        if (!json_as_int(json_get(s, "min"), &row->min) || !json_as_int(json_get(s, "max"), &row->max) ||
            !json_as_int(json_get(s, "step"), &row->step) || row->step < 1 || row->min < 0)
            return damaged(r, "a symbol");
        row->max = row->max == WASM_NO_MAX ? 0 : row->max;
    }
    api->sym = rows;
    return true;
}

static void read_build(struct reader *r, const struct json *list)
{
    struct strbuf *out = NEW(r->f.arena, struct strbuf);
    strbuf_init(out, r->f.arena);
    for (const struct json *p = json_first(list); p; p = p->next) {
        const char *text = json_as_text(p);
        strbuf_append(out, text ? text : "", strlen(text ? text : "") + 1);
    }
    r->out->build = (struct span){out->data, out->n};
}

bool artifact_read_wasm(struct reader *r)
{
    struct artifact_file *out = r->out;
    mcc_api *api = &out->api;
    const struct json *d = read_description(r);
    int64_t weights = 0;
    if (!d)
        return false;
    *api = (mcc_api){.abi = MCC_ABI,
                     .size = sizeof *api,
                     .name = text_of(d, "name"),
                     .compiler = text_of(d, "compiler"),
                     .target = "wasm32-unknown-unknown",
                     .features = text_of(d, "target"),
                     .meta = ""};
    if (!json_as_int(json_get(d, "weights"), &weights) || weights < 0)
        return damaged(r, "the size of the weights");
    out->sizes.weights = (uint64_t)weights;
    read_build(r, json_get(d, "build"));
    return read_symbols(r, json_get(d, "symbols"), api) && read_ports(r, json_get(d, "inputs"), &api->in, &api->n_in) &&
           read_ports(r, json_get(d, "outputs"), &api->out, &api->n_out) && measure(r);
}
