/* mcc inspect: what an artifact is, from its table, its note and its section table; nothing is run. */
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/command.h"
#include "cli/session.h"
#include "runtime/mcc_note.h"

enum { VARIANTS_MAX = 256, SYMBOLS_MAX = 1 << 22 };

/* Bytes of the file by what they are; code of variants without that of the runtime. */
struct sizes { uint64_t file, weights, sidecar, code, data, variant[VARIANTS_MAX]; };

static bool read_at(int fd, void *out, size_t size, uint64_t offset)
{
    char *to = out;
    while (size) {
        ssize_t n = pread(fd, to, size, (off_t)offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        to += n;
        size -= (size_t)n;
        offset += (uint64_t)n;
    }
    return true;
}

/* The variant whose function `name` is: kernels end in the last word of its name ("_v3" of x86-64-v3); -1: none. */
static int variant_of(const char *features, const char *name)
{
    const char *suffix = strrchr(name, '_');
    int index = 0;
    for (const char *p = features; suffix && *p; index++) {
        size_t n = strcspn(p, ","), tail = n;
        while (tail > 0 && p[tail - 1] != '-')
            tail--;
        if (strlen(suffix + 1) == n - tail && memcmp(suffix + 1, p + tail, n - tail) == 0)
            return index < VARIANTS_MAX ? index : -1;
        p += n + (p[n] == ',');
    }
    return -1;
}

/* Adds the code of every variant from the symbol table; second names of shared code have size 0. */
static bool symbols_read(struct session *s, int fd, const Elf64_Ehdr *head, struct sizes *out)
{
    Elf64_Shdr section, names;
    for (unsigned i = 0; i < head->e_shnum; i++) {
        if (!read_at(fd, &section, sizeof section, head->e_shoff + (uint64_t)i * sizeof section))
            return false;
        if (section.sh_type != SHT_SYMTAB || section.sh_link >= head->e_shnum || section.sh_size / sizeof(Elf64_Sym) > SYMBOLS_MAX)
            continue;
        if (!read_at(fd, &names, sizeof names, head->e_shoff + (uint64_t)section.sh_link * sizeof names) ||
            names.sh_size > out->file)
            return false;
        uint64_t n = section.sh_size / sizeof(Elf64_Sym);
        Elf64_Sym *sym = NEW_ARRAY(&s->ctx->session, Elf64_Sym, n + 1);
        char *text = arena_alloc(&s->ctx->session, (size_t)names.sh_size + 1);
        if (!read_at(fd, sym, n * sizeof *sym, section.sh_offset) || !read_at(fd, text, names.sh_size, names.sh_offset))
            return false;
        for (uint64_t k = 0; k < n; k++) {
            bool code = ELF64_ST_TYPE(sym[k].st_info) == STT_FUNC && sym[k].st_name < names.sh_size;
            int variant = code ? variant_of(s->api->features, text + sym[k].st_name) : -1;
            if (variant >= 0)
                out->variant[variant] += sym[k].st_size;
        }
    }
    return true;
}

/* Adds up the loadable segments; mcc_load has checked the headers already. */
static bool sizes_read(struct session *s, const char *path, struct sizes *out)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat st;
    Elf64_Ehdr head;
    bool ok = fd >= 0 && fstat(fd, &st) == 0 && read_at(fd, &head, sizeof head, 0);
    *out = (struct sizes){0};
    if (ok)
        out->file = (uint64_t)st.st_size;
    ok = ok && symbols_read(s, fd, &head, out);
    for (unsigned i = 0; ok && i < head.e_phnum; i++) {
        Elf64_Phdr segment;
        struct mcc_note note;
        ok = read_at(fd, &segment, sizeof segment, head.e_phoff + (uint64_t)i * sizeof segment);
        if (ok && segment.p_type == PT_LOAD)
            *(segment.p_flags & PF_X ? &out->code : &out->data) += segment.p_filesz;
        if (ok && segment.p_type == PT_NOTE && segment.p_filesz >= sizeof note && read_at(fd, &note, sizeof note, segment.p_offset) &&
            memcmp(note.owner, "mcc", 4) == 0) {
            out->weights = note.weights_size;
            out->sidecar = note.sidecar_size;
        }
    }
    if (fd >= 0)
        close(fd);
    out->data -= out->data > out->weights ? out->weights : out->data;
    return ok;
}

static void print_ports(const struct session *s, const char *title, const mcc_port *ports, uint32_t n, struct strbuf *out)
{
    for (uint32_t i = 0; i < n; i++) {
        strbuf_printf(out, "%-8s %s: ", title, ports[i].name);
        port_describe(s->api, &ports[i], out);
        strbuf_printf(out, "\n");
    }
}

static void print_symbols(const struct session *s, struct strbuf *out)
{
    for (uint32_t i = 0; i < s->api->n_sym; i++) {
        const mcc_symbol *sym = &s->api->sym[i];
        strbuf_printf(out, "symbol   %s: %lld..", sym->name, (long long)sym->min);
        if (sym->max)
            strbuf_printf(out, "%lld", (long long)sym->max);
        if (sym->step > 1)
            strbuf_printf(out, " in steps of %lld", (long long)sym->step);
        strbuf_printf(out, "\n");
    }
}

static void print_nodes(const struct session *s, struct strbuf *out)
{
    for (uint32_t i = 0; i < s->api->n_node; i++) {
        const mcc_node *node = &s->api->node[i];
        if (!node->kernels)
            continue;
        strbuf_printf(out, "kernel   ");
        session_node(s, node, out);
        strbuf_printf(out, ": %llu flops, %llu bytes", (unsigned long long)node->flops, (unsigned long long)node->bytes);
        strbuf_printf(out, node->kernels > 1 ? ", %llu kernels\n" : "\n", (unsigned long long)node->kernels);
    }
}

/* Workspace for the shapes that --dim gives. */
static bool print_plan(struct session *s, struct strbuf *out)
{
    size_t bytes = 0;
    for (uint32_t i = 0; i < s->api->n_in; i++)
        if (s->api->in[i].ndim < 0 || (s->api->in[i].flags & ~(uint64_t)MCC_PORT_DYNAMIC))
            return true;
    if (!session_feed(s, true))
        return false;
    if (s->api->plan(s->lib->model, s->in_pointer, NULL, &bytes, &s->error) != MCC_OK)
        return session_error(s, "plan");
    int64_t *symbols = NEW_ARRAY(&s->ctx->session, int64_t, s->api->n_sym + 1);
    strbuf_printf(out, "plan     workspace %zu bytes", bytes);
    for (uint32_t i = 0; session_symbols(s, symbols) && i < s->api->n_sym; i++)
        strbuf_printf(out, "%s%s=%lld", i ? ", " : " at ", s->api->sym[i].name, (long long)symbols[i]);
    strbuf_printf(out, "\n");
    return true;
}

static void print_variants(const struct session *s, const struct sizes *sizes, struct strbuf *out)
{
    const char *p = s->api->features;
    for (int i = 0; *p && i < VARIANTS_MAX; i++) {
        size_t n = strcspn(p, ",");
        strbuf_printf(out, "variant  %d %.*s: %llu bytes of code\n", i + 1, (int)n, p, (unsigned long long)sizes->variant[i]);
        p += n + (p[n] == ',');
    }
}

/* Long values, or those of several lines, are cut: a program reads them whole. */
static void print_meta(const char *meta, struct strbuf *out)
{
    while (meta && *meta) {
        const char *value = meta + strlen(meta) + 1;
        size_t bytes = strlen(value), line = strcspn(value, "\r\n"), shown = line < 60 ? line : 60;
        strbuf_printf(out, "meta     %.60s: %.*s", meta, (int)shown, value);
        if (shown < bytes)
            strbuf_printf(out, " ... (%zu bytes)", bytes);
        strbuf_printf(out, "\n");
        meta = value + bytes + 1;
    }
}

static bool inspect(struct session *s)
{
    struct strbuf out;
    struct sizes sizes;
    const mcc_api *api = s->api;
    strbuf_init(&out, &s->ctx->session);
    if (!sizes_read(s, s->ctx->model_path, &sizes))
        return error_env(s->ctx, "cannot read the file: %s", strerror(errno));
    strbuf_printf(&out, "name     %s\ncompiler %s\ntarget   %s\n", api->name, api->compiler, api->target);
    strbuf_printf(&out, "bytes    %llu file, %llu weights, %llu code, %llu data\n", (unsigned long long)sizes.file,
                  (unsigned long long)sizes.weights, (unsigned long long)sizes.code, (unsigned long long)sizes.data);
    if (sizes.sidecar)
        strbuf_printf(&out, "bytes    %llu weights file beside it\n", (unsigned long long)sizes.sidecar);
    print_variants(s, &sizes, &out);
    print_ports(s, "input", api->in, api->n_in, &out);
    print_ports(s, "output", api->out, api->n_out, &out);
    print_symbols(s, &out);
    if (!print_plan(s, &out))
        return false;
    print_nodes(s, &out);
    print_meta(api->meta, &out);
    if (s->options->verify)
        strbuf_printf(&out, "verified the hash of the weights\n");
    terminal_print(&out);
    return true;
}

enum fail command_inspect(struct context *ctx, struct options *o)
{
    struct session s;
    mcc_host host = {.size = sizeof host, .threads = 1, .flags = o->verify ? MCC_HOST_VERIFY_WEIGHTS : 0};
    if (session_open(&s, ctx, o, o->files.items.data[0], &host))
        (void)inspect(&s);
    session_close(&s);
    return ctx->fail;
}
