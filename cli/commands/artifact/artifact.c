/* The file's sections that hold data are read as they are; pointers between them come from the relocations: base +
 * addend in a shared object, symbol + addend in an object. What relocations do not name is a NULL. An address is that
 * of the linker in a shared object, and section number and offset in an object. Nothing is believed: each access is
 * inside one section, and all rows and texts together are no more than the file could hold (spend), however many
 * pointers lead to the same bytes. So time and memory are in proportion to the file. */
#include "cli/commands/artifact/artifact.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/commands/artifact/artifact_check.h"
#include "cli/commands/artifact/artifact_reader.h"
#include "codegen/container/elf.h"
#include "codegen/sidecar.h"
#include "codegen/table.h"
#include "frontend/frontend.h"
#include "ir/base/file.h"

enum { SECTION_SHIFT = 40, SYMBOLS_MAX = 1 << 22, ARCHIVE_HEAD = 60, SPEND_TIMES = 4 };

static bool refuse(struct reader *r, const char *why)
{
    return error_env(r->ctx, "%s", why);
}

static bool damaged(struct reader *r, const char *what)
{
    return error_env(r->ctx, "truncated or damaged: %s", what);
}

static bool read_at(struct reader *r, void *to, uint64_t bytes, uint64_t offset)
{
    return offset <= r->size && bytes <= r->size - offset && fd_pread(r->fd, to, (size_t)bytes, r->base + offset);
}

enum artifact_kind artifact_kind(const char *path)
{
    char head[8] = "";
    if (file_head(path, head, sizeof head) && memcmp(head, "!<arch>\n", 8) == 0)
        return ARTIFACT_ARCHIVE;
    return memcmp(head, ELFMAG, SELFMAG) == 0 ? ARTIFACT_ELF : memcmp(head, "MZ", 2) == 0 ? ARTIFACT_PE : ARTIFACT_NONE;
}

bool artifact_meant(const char *path)
{
    size_t n = strlen(path);
    char first;
    if (artifact_kind(path) != ARTIFACT_NONE || (n > 3 && strcmp(path + n - 3, ".so") == 0))
        return true;
    return !format_by_suffix(path) && !file_head(path, &first, 1);
}

/* False, after a diagnostic, where it would be more than a whole file has several times. */
static bool spend(struct reader *r, uint64_t bytes)
{
    if (bytes > r->size * SPEND_TIMES - r->spent)
        return damaged(r, "tables or texts that share their bytes");
    r->spent += bytes;
    return true;
}

/* ---- the file ---------------------------------------------------------------------------------------------------- */

/* mcc's archives have an index and one member (codegen/container/elf_merge.c). */
static bool find_member(struct reader *r)
{
    uint64_t at = 8, file = r->size;
    while (at <= file && file - at >= ARCHIVE_HEAD) {
        char head[ARCHIVE_HEAD + 1] = "", number[11] = "", *end;
        if (!read_at(r, head, ARCHIVE_HEAD, at))
            return damaged(r, "an archive's member");
        memcpy(number, head + 48, 10);
        uint64_t size = strtoull(number, &end, 10);
        if (head[58] != '`' || end == number || *end > ' ' || size > file - at - ARCHIVE_HEAD)
            return damaged(r, "an archive's member");
        if (memcmp(head, "model.o/ ", 9) == 0) {
            r->base = at + ARCHIVE_HEAD;
            r->size = size;
            return true;
        }
        at += ARCHIVE_HEAD + size + size % 2;
    }
    return refuse(r, "an archive, but not made by mcc");
}

static bool read_sections(struct reader *r)
{
    const Elf64_Ehdr *h = &r->head;
    if (!read_at(r, &r->head, sizeof r->head, 0) || memcmp(h->e_ident, ELFMAG, SELFMAG) != 0)
        return damaged(r, "no ELF file");
    r->machine = elf_machine_by_number(h->e_machine);
    if (h->e_ident[EI_CLASS] != ELFCLASS64 || h->e_ident[EI_DATA] != ELFDATA2LSB || !r->machine ||
        (h->e_type != ET_DYN && h->e_type != ET_REL))
        return refuse(r, "not made by mcc: another kind of file or machine");
    r->n = h->e_shnum;
    r->sections = NEW_ARRAY(r->arena, Elf64_Shdr, r->n + 1);
    r->names = NEW_ARRAY(r->arena, const char *, r->n + 1);
    r->data = NEW_ARRAY(r->arena, char *, r->n + 1);
    if (r->n &&
        (h->e_shentsize != sizeof *r->sections || !read_at(r, r->sections, r->n * sizeof *r->sections, h->e_shoff)))
        return damaged(r, "section table");
    for (uint32_t i = 0; i < r->n; i++)
        if (r->sections[i].sh_type != SHT_NOBITS && r->sections[i].sh_type != SHT_NULL &&
            (r->sections[i].sh_offset > r->size || r->sections[i].sh_size > r->size - r->sections[i].sh_offset))
            return damaged(r, "a section leaves the file");
    return true;
}

/* A section's bytes with a NUL behind them; NULL after a diagnostic. */
static char *section_bytes(struct reader *r, uint32_t i)
{
    const Elf64_Shdr *s = &r->sections[i];
    if (r->data[i])
        return r->data[i];
    if ((r->held += s->sh_size) > r->size) {
        damaged(r, "sections overlap");
        return NULL;
    }
    char *bytes = arena_alloc(r->arena, (size_t)s->sh_size + 1);
    if (s->sh_type == SHT_NOBITS || !read_at(r, bytes, s->sh_size, s->sh_offset)) {
        damaged(r, "a section");
        return NULL;
    }
    return r->data[i] = bytes;
}

bool reader_is_weights(const struct reader *r, uint32_t i)
{
    return strcmp(r->names[i], ".mcc.weights") == 0;
}

bool reader_is_graph(const struct reader *r, uint32_t i)
{
    return strcmp(r->names[i], ".mcc.graph") == 0;
}

/* Names, data, the graph and symbols: everything but code and weights. */
static bool read_data(struct reader *r)
{
    uint32_t at = r->head.e_shstrndx;
    const char *names = at < r->n ? section_bytes(r, at) : NULL;
    for (uint32_t i = 0; i < r->n; i++) {
        const Elf64_Shdr *s = &r->sections[i];
        r->names[i] = names && s->sh_name < r->sections[at].sh_size ? names + s->sh_name : "";
        bool plain = s->sh_type == SHT_PROGBITS || s->sh_type == SHT_NOTE;
        if (plain && (s->sh_flags & SHF_ALLOC) && !(s->sh_flags & SHF_EXECINSTR) && !reader_is_weights(r, i)) {
            if (!section_bytes(r, i) || r->n_tables == TABLES_MAX)
                return damaged(r, "a section of data");
            if (s->sh_size)
                r->tables[r->n_tables++] = i;
        }
        if (reader_is_weights(r, i)) {
            r->out->weights_at = r->base + s->sh_offset;
            r->out->sizes.weights = s->sh_size;
        }
        if (reader_is_graph(r, i) && !(r->out->graph = (struct span){section_bytes(r, i), (size_t)s->sh_size}).data)
            return false;
        if (s->sh_type != SHT_SYMTAB || s->sh_link >= r->n || r->symbols)
            continue;
        r->n_symbols = s->sh_size / sizeof(Elf64_Sym);
        if (r->n_symbols > SYMBOLS_MAX)
            return damaged(r, "symbol table");
        r->text = section_bytes(r, s->sh_link);
        r->text_size = r->sections[s->sh_link].sh_size;
        r->symbols = r->text ? (Elf64_Sym *)(void *)section_bytes(r, i) : NULL;
        if (!r->symbols)
            return false;
    }
    return true;
}

/* ---- addresses --------------------------------------------------------------------------------------------------- */

static uint64_t section_address(const struct reader *r, uint32_t i)
{
    return r->head.e_type == ET_REL ? (uint64_t)i << SECTION_SHIFT : r->sections[i].sh_addr;
}

static int by_address(const void *a, const void *b)
{
    uint64_t x = ((const struct pointer *)a)->at, y = ((const struct pointer *)b)->at;
    return (x > y) - (x < y);
}

/* The pointers of one section of relocations; in an object only those into sections that are in memory. */
static bool read_relocations(struct reader *r, uint32_t i)
{
    const Elf64_Shdr *s = &r->sections[i];
    bool object = r->head.e_type == ET_REL;
    if (object && (s->sh_info >= r->n || !r->data[s->sh_info] || !(r->sections[s->sh_info].sh_flags & SHF_WRITE)))
        return true;
    const Elf64_Rela *rela = (const Elf64_Rela *)(const void *)section_bytes(r, i);
    for (uint64_t k = 0; rela && k < s->sh_size / sizeof *rela; k++) {
        struct pointer p = {rela[k].r_offset, (uint64_t)rela[k].r_addend};
        uint64_t type = ELF64_R_TYPE(rela[k].r_info), symbol = ELF64_R_SYM(rela[k].r_info);
        if (type != (object ? r->machine->abs64 : r->machine->relative))
            continue;
        if (object) {
            if (symbol >= r->n_symbols || r->symbols[symbol].st_shndx >= r->n)
                continue;
            p.at += section_address(r, s->sh_info);
            p.to += section_address(r, r->symbols[symbol].st_shndx) + r->symbols[symbol].st_value;
        }
        VEC_PUSH(r->arena, &r->pointers, p);
    }
    return rela != NULL;
}

static void sort_tables(struct reader *r)
{
    struct pointer key[TABLES_MAX];
    for (uint32_t k = 0; k < r->n_tables; k++)
        key[k] = (struct pointer){section_address(r, r->tables[k]), r->tables[k]};
    qsort(key, r->n_tables, sizeof *key, by_address);
    for (uint32_t k = 0; k < r->n_tables; k++)
        r->tables[k] = (uint32_t)key[k].to;
}

static bool read_pointers(struct reader *r)
{
    sort_tables(r);
    for (uint32_t i = 0; i < r->n; i++)
        if (r->sections[i].sh_type == SHT_RELA && !read_relocations(r, i))
            return false;
    if (r->pointers.n)
        qsort(r->pointers.data, r->pointers.n, sizeof(struct pointer), by_address);
    return true;
}

/* What lies at an address, for `bytes` at least; NULL: nothing that was read. *rest: bytes up to the section's end. */
static const char *at_address(const struct reader *r, uint64_t address, uint64_t bytes, uint64_t *rest)
{
    uint32_t low = 0, high = r->n_tables; /* the last section that begins at the address or before it */
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (section_address(r, r->tables[middle]) <= address)
            low = middle + 1;
        else
            high = middle;
    }
    if (!low)
        return NULL;
    uint32_t i = r->tables[low - 1];
    uint64_t at = address - section_address(r, i), size = r->sections[i].sh_size;
    if (at >= size || bytes > size - at)
        return NULL;
    if (rest)
        *rest = size - at;
    return r->data[i] + at;
}

static uint64_t pointer_at(const struct reader *r, uint64_t address)
{
    const struct pointer key = {address, 0};
    const struct pointer *p = r->pointers.n ? bsearch(&key, r->pointers.data, r->pointers.n, sizeof key, by_address)
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
    void *to = arena_alloc_array(r->arena, (size_t)n + 1, size);
    if (n)
        memcpy(to, from, (size_t)n * size);
    return to;
}

bool reader_spend_text(struct reader *r, const char *text)
{
    return spend(r, strnlen(text, r->size * SPEND_TIMES - r->spent + 1));
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
    bool *taken = NEW_ARRAY(r->arena, bool, n + 1);
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
        return refuse(r, "made by another version of mcc");
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

const char *reader_symbol_name(const struct reader *r, uint64_t i)
{
    return r->symbols[i].st_name < r->text_size ? r->text + r->symbols[i].st_name : "";
}

static bool read_model(struct reader *r)
{
    uint64_t at = 0;
    for (uint64_t i = 0; i < r->n_symbols; i++)
        if (strcmp(reader_symbol_name(r, i), TABLE_MODEL) == 0 && r->symbols[i].st_shndx < r->n)
            at = r->symbols[i].st_value + (r->head.e_type == ET_REL ? section_address(r, r->symbols[i].st_shndx) : 0);
    if (!at)
        return refuse(r, r->n_symbols ? "not made by mcc" : "not made by mcc, or without its symbols (strip)");
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
    uint64_t field = 0;
    for (uint32_t i = 0; i < r->n; i++)
        if (strcmp(r->names[i], ".note.mcc") == 0)
            field = r->sections[i].sh_offset + offsetof(struct mcc_note, hash);
    return r->head.e_type == ET_REL || artifact_check_seal(r->ctx, r->fd, r->size, &r->out->note, field);
}

static bool read_all(void *user)
{
    struct reader *r = user;
    struct stat st;
    if (fstat(r->fd, &st) != 0 || !S_ISREG(st.st_mode))
        return error_env(r->ctx, "not a regular file");
    r->size = r->out->sizes.file = (uint64_t)st.st_size;
    if (artifact_kind(r->path) == ARTIFACT_PE)
        return refuse(r, ARTIFACT_PE_REFUSED);
    if ((artifact_kind(r->path) == ARTIFACT_ARCHIVE && !find_member(r)) || !read_sections(r) || !read_data(r) ||
        !read_pointers(r) || !read_model(r) || !reader_measure(r))
        return false;
    const struct platform *platform = platform_of_triple(r->out->api.target);
    r->out->runs_here = r->head.e_type == ET_DYN && r->head.e_machine == elf_machine_here() &&
                        (!platform || platform == platform_find(platform->arch, NULL));
    return check_seal(r) && (!r->weights || artifact_check_weights(r->ctx, r->path, r->fd, r->out));
}

static void reader_end(void *user)
{
    close(((struct reader *)user)->fd);
}

bool artifact_read(struct context *ctx, const char *path, bool weights, struct artifact_file *out)
{
    *out = (struct artifact_file){0};
    struct reader r = {.ctx = ctx, .arena = &ctx->session, .path = path, .weights = weights, .out = out};
    ctx->model_path = path;
    r.fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (r.fd < 0)
        return error_env(ctx, "cannot be opened: %s", strerror(errno));
    return run_guarded(ctx, read_all, reader_end, &r);
}
