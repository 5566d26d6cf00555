/* The file's sections that hold data are read as they are; where pointers between them lead says the file's format
 * (codegen/container/reading.h). What it does not name is a NULL. Nothing is believed: each access is inside one
 * section, and all rows and texts together are no more than the file could hold (spend), however many pointers lead to
 * the same bytes. So time and memory are in proportion to the file. */
#include "cli/commands/artifact/artifact.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/commands/artifact/artifact_check.h"
#include "cli/commands/artifact/artifact_reader.h"
#include "codegen/container/wasm.h"
#include "frontend/frontend.h"
#include "ir/base/file.h"

enum { SPEND_TIMES = 4 };

static bool refuse(struct reader *r, const char *why)
{
    return reading_refuse(&r->f, why);
}

static bool damaged(struct reader *r, const char *what)
{
    return reading_damaged(&r->f, what);
}

bool artifact_is(const char *path)
{
    unsigned char head[ARTIFACT_HEAD] = "";
    size_t n = sizeof head;
    while (n > 0 && !file_head(path, head, n))
        n /= 2;
    return (n >= 8 && memcmp(head, "!<arch>\n", 8) == 0) || container_by_head(head, n);
}

bool artifact_is_wasm(const char *path)
{
    unsigned char head[WASM_HEAD_BYTES];
    return file_head(path, head, sizeof head) && wasm_head(head, sizeof head);
}

bool artifact_meant(const char *path)
{
    static const char *const suffixes[] = {".so", ".dll", ".dylib", ".wasm"};
    char first;
    if (artifact_is(path))
        return true;
    for (size_t i = 0; i < COUNT_OF(suffixes); i++)
        if (path_ends(path, suffixes[i]))
            return true;
    return !format_by_suffix(path) && !file_head(path, &first, 1);
}

/* False, after a diagnostic, where it would be more than a whole file has several times. */
static bool spend(struct reader *r, uint64_t bytes)
{
    if (bytes > r->f.size * SPEND_TIMES - r->spent)
        return damaged(r, "tables or texts that share their bytes");
    r->spent += bytes;
    return true;
}

/* ---- addresses --------------------------------------------------------------------------------------------------- */

ASCENDING(by_address, struct file_pointer, at);

static bool sort_tables(struct reader *r)
{
    struct file_pointer key[TABLES_MAX];
    for (uint32_t i = 0; i < r->f.n; i++) {
        if (r->f.parts[i].role != PART_DATA || !r->f.parts[i].size)
            continue;
        if (r->n_tables == TABLES_MAX)
            return damaged(r, "a section of data");
        key[r->n_tables++] = (struct file_pointer){r->f.parts[i].address, i};
    }
    qsort(key, r->n_tables, sizeof *key, by_address);
    for (uint32_t k = 0; k < r->n_tables; k++)
        r->tables[k] = (uint32_t)key[k].to;
    return true;
}

/* What lies at an address, for `bytes` at least; NULL: nothing that was read. *rest: bytes up to the section's end. */
static const char *at_address(const struct reader *r, uint64_t address, uint64_t bytes, uint64_t *rest)
{
    uint32_t low = 0, high = r->n_tables; /* the last section that begins at the address or before it */
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (r->f.parts[r->tables[middle]].address <= address)
            low = middle + 1;
        else
            high = middle;
    }
    if (!low)
        return NULL;
    const struct file_part *p = &r->f.parts[r->tables[low - 1]];
    uint64_t at = address - p->address;
    if (at >= p->size || bytes > p->size - at)
        return NULL;
    if (rest)
        *rest = p->size - at;
    return p->bytes + at;
}

static bool read_pointers(struct reader *r)
{
    if (!sort_tables(r))
        return false;
    for (uint32_t i = 0; i < r->f.pointers.n && r->f.in_place; i++) {
        struct file_pointer *p = &r->f.pointers.data[i];
        uint64_t added;
        const char *from = at_address(r, p->at, sizeof added, NULL);
        if (from)
            memcpy(&added, from, sizeof added);
        p->to = from ? p->to + added - r->f.origin : 0;
    }
    if (r->f.pointers.n)
        qsort(r->f.pointers.data, r->f.pointers.n, sizeof(struct file_pointer), by_address);
    return true;
}

static uint64_t pointer_at(const struct reader *r, uint64_t address)
{
    const struct file_pointer key = {address, 0};
    const struct file_pointer *p = r->f.pointers.n
                                       ? bsearch(&key, r->f.pointers.data, r->f.pointers.n, sizeof key, by_address)
                                       : NULL;
    return p ? p->to : 0;
}

/* A copy of n structures at an address; NULL after a diagnostic. None need no address. */
static void *rows_at(struct reader *r, uint64_t address, uint64_t n, size_t size)
{
    uint64_t rest = 0;
    const char *from = n ? at_address(r, address, size, &rest) : NULL;
    if (n && (!from || n > rest / size)) {
        damaged(r, "a table leaves its section");
        return NULL;
    }
    if (!spend(r, n * size))
        return NULL;
    void *to = arena_alloc_array(r->f.arena, (size_t)n + 1, size);
    if (n)
        memcpy(to, from, (size_t)n * size);
    return to;
}

bool reader_spend_text(struct reader *r, const char *text)
{
    return spend(r, strnlen(text, r->f.size * SPEND_TIMES - r->spent + 1));
}

/* The text that the pointer at an address names; "" where it is NULL or leads nowhere. False after a diagnostic. */
static bool text_at(struct reader *r, uint64_t address, const char **out)
{
    const char *text = at_address(r, pointer_at(r, address), 1, NULL);
    *out = text ? text : "";
    return reader_spend_text(r, *out);
}

/* ---- the table --------------------------------------------------------------------------------------------------- */

#define AT(base, i, type, member) ((base) + (i) * sizeof(type) + offsetof(type, member))

static bool read_dims(struct reader *r, uint64_t from, uint32_t rank, const mcc_dim **out)
{
    mcc_dim *dims = rows_at(r, from, rank, sizeof *dims);
    *out = dims;
    for (uint32_t d = 0; dims && d < rank; d++) {
        if (dims[d].symbol < -1 || dims[d].symbol >= (int64_t)r->out->api.n_sym)
            return damaged(r, "a symbol's number");
        if (!text_at(r, AT(from, d, mcc_dim, expr), &dims[d].expr) ||
            (dims[d].symbol >= 0 && !reader_spend_text(r, r->out->api.sym[dims[d].symbol].name)))
            return false;
    }
    return dims != NULL;
}

/* Symbols come before them, and inputs before outputs, which may name one. */
static bool read_ports(struct reader *r, uint64_t at, uint32_t n, const mcc_port **out)
{
    const mcc_api *api = &r->out->api;
    mcc_port *rows = rows_at(r, at, n, sizeof *rows);
    *out = rows;
    for (uint32_t i = 0; rows && i < n; i++) {
        if (rows[i].ndim > RANK_MAX)
            return damaged(r, "a port's rank");
        uint32_t rank = rows[i].ndim > 0 ? (uint32_t)rows[i].ndim : 0;
        if (!read_dims(r, pointer_at(r, AT(at, i, mcc_port, dims)), rank, &rows[i].dims) ||
            !text_at(r, AT(at, i, mcc_port, name), &rows[i].name))
            return false;
        if (out == &api->out && rows[i].alias > 0 && rows[i].alias <= api->n_in &&
            !reader_spend_text(r, api->in[rows[i].alias - 1].name))
            return false;
    }
    return rows != NULL;
}

static bool read_symbols(struct reader *r, uint64_t at, mcc_api *api)
{
    mcc_symbol *rows = rows_at(r, at, api->n_sym, sizeof *rows);
    bool good = rows != NULL;
    for (uint32_t i = 0; good && i < api->n_sym; i++)
        good = text_at(r, AT(at, i, mcc_symbol, name), &rows[i].name);
    api->sym = rows;
    return good;
}

/* Every node stands in one chain at most, and none that leads kernels in another's: all chains together name each node
 * once. */
static bool chains_apart(struct reader *r, const mcc_node *row, uint64_t n)
{
    bool *taken = NEW_ARRAY(r->f.arena, bool, n + 1);
    for (uint64_t i = 0; i < n; i++) {
        uint64_t next = row[i].next;
        if (!next)
            continue;
        if (next >= n || row[next].kernels || taken[next])
            return damaged(r, "chains of nodes that share a node");
        taken[next] = true;
    }
    return true;
}

static bool read_nodes(struct reader *r, uint64_t at, mcc_api *api)
{
    mcc_node *rows = rows_at(r, at, api->n_node, sizeof *rows);
    bool good = rows != NULL;
    for (uint32_t i = 0; good && i < api->n_node; i++)
        good = text_at(r, AT(at, i, mcc_node, name), &rows[i].name) &&
               text_at(r, AT(at, i, mcc_node, op), &rows[i].op) &&
               text_at(r, AT(at, i, mcc_node, source), &rows[i].source);
    api->node = rows;
    return good && chains_apart(r, rows, api->n_node);
}

static bool read_kernels(struct reader *r, uint64_t at, struct mcc_rt_desc *desc)
{
    struct mcc_rt_kernel *rows = rows_at(r, at, desc->n_kernels, sizeof *rows);
    bool good = rows != NULL;
    for (uint32_t i = 0; good && i < desc->n_kernels; i++)
        good = text_at(r, AT(at, i, struct mcc_rt_kernel, name), &rows[i].name);
    desc->kernels = rows;
    return good;
}

/* Pairs of texts that an empty key ends; without the end there are none. */
static const char *read_meta(struct reader *r, uint64_t address)
{
    uint64_t rest = 0, at = 0;
    const char *meta = at_address(r, address, 1, &rest);
    while (meta && at < rest && meta[at])
        for (int part = 0; part < 2 && at < rest; part++)
            at += strnlen(meta + at, rest - at) + 1;
    return meta && at < rest ? meta : "";
}

static bool read_states(struct reader *r, uint64_t at, mcc_api *api)
{
    const mcc_state *found = rows_at(r, at, 1, sizeof *found);
    if (!found)
        return false;
    api->state = (uint32_t)(offsetof(struct artifact_file, state) - offsetof(struct artifact_file, api));
    r->out->state = (mcc_state){.size = sizeof *found, .n = found->n};
    return read_ports(r, pointer_at(r, AT(at, 0, mcc_state, port)), found->n, &r->out->state.port);
}

static bool read_api(struct reader *r, uint64_t at)
{
    mcc_api *found = rows_at(r, at, 1, sizeof *found), *api = &r->out->api;
    if (!found)
        return false;
    if (found->abi != MCC_ABI || found->size < sizeof *found)
        return refuse(r, "made by another version of mcc; compile the network again");
    *api = (mcc_api){.abi = found->abi,
                     .n_in = found->n_in,
                     .n_out = found->n_out,
                     .n_sym = found->n_sym,
                     .n_node = found->n_node,
                     .size = sizeof *api,
                     .meta = read_meta(r, pointer_at(r, AT(at, 0, mcc_api, meta)))};
    return text_at(r, AT(at, 0, mcc_api, name), &api->name) &&
           text_at(r, AT(at, 0, mcc_api, compiler), &api->compiler) &&
           text_at(r, AT(at, 0, mcc_api, target), &api->target) &&
           text_at(r, AT(at, 0, mcc_api, features), &api->features) &&
           read_symbols(r, pointer_at(r, AT(at, 0, mcc_api, sym)), api) &&
           read_ports(r, pointer_at(r, AT(at, 0, mcc_api, in)), api->n_in, &api->in) &&
           read_ports(r, pointer_at(r, AT(at, 0, mcc_api, out)), api->n_out, &api->out) &&
           (!found->state || read_states(r, at + found->state, api)) &&
           read_nodes(r, pointer_at(r, AT(at, 0, mcc_api, node)), api);
}

static bool read_model(struct reader *r)
{
    uint64_t at = r->f.model;
    if (!at)
        return refuse(r, r->f.symbols ? "not made by mcc" : "not made by mcc, or without its symbols (strip)");
    struct mcc_rt_desc *desc = rows_at(r, at, 1, sizeof *desc), *out = &r->out->desc;
    if (!desc)
        return false;
    *out = *desc;
    out->api = NULL, out->plan = NULL, out->variants = NULL, out->weights = NULL, out->port_flags = NULL;
    out->weights_file = NULL;
    if (pointer_at(r, AT(at, 0, struct mcc_rt_desc, weights_file)) &&
        !text_at(r, AT(at, 0, struct mcc_rt_desc, weights_file), &out->weights_file))
        return false;
    return read_kernels(r, pointer_at(r, AT(at, 0, struct mcc_rt_desc, kernels)), out) &&
           read_api(r, pointer_at(r, AT(at, 0, struct mcc_rt_desc, api)));
}

/* What mcc_load checks of a file for this machine is asked of those for others, too. */
static bool check_seal(struct reader *r)
{
    return !r->f.linked || artifact_check_seal(&r->f, &r->out->note);
}

static bool read_all(void *user)
{
    struct reader *r = user;
    struct stat st;
    if (fstat(r->f.fd, &st) != 0 || !S_ISREG(st.st_mode))
        return error_env(r->f.ctx, "not a regular file");
    r->f.size = r->out->sizes.file = (uint64_t)st.st_size;
    if (artifact_is_wasm(r->path))
        return artifact_read_wasm(r);
    if (!file_reading_all(&r->f) || !read_pointers(r) || !read_model(r) || !reader_measure(r))
        return false;
    if (r->f.slice)
        r->out->sizes.file = r->f.size;
    const struct platform *platform = platform_of_triple(r->out->api.target);
    r->out->linked = r->f.linked;
    r->out->archive = r->f.base > 0 && !r->f.slice;
    r->out->slice = r->f.slice;
    r->out->runs_here = r->f.linked && r->f.here && (!platform || platform == platform_find(platform->arch, NULL));
    return check_seal(r) && (!r->weights || artifact_check_weights(r->f.ctx, r->path, r->f.fd, r->out));
}

static void reader_end(void *user)
{
    close(((struct reader *)user)->f.fd);
}

bool artifact_read(struct context *ctx, const char *path, bool weights, struct artifact_file *out)
{
    *out = (struct artifact_file){0};
    struct reader r = {.f = {.ctx = ctx, .arena = &ctx->session}, .path = path, .weights = weights, .out = out};
    ctx->model_path = path;
    r.f.fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (r.f.fd < 0)
        return error_env(ctx, "cannot be opened: %s", strerror(errno));
    return run_guarded(ctx, read_all, reader_end, &r);
}
