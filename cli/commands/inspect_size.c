/* The sizes of an artifact: its section table, its note and its symbols say which bytes of the file are weights, code of a
 * variant, code of the runtime, tables, and what is left between them. mcc_load has checked the headers before. */
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/commands/inspect.h"
#include "ir/base/file.h"
#include "runtime/mcc_note.h"

enum { SYMBOLS_MAX = 1 << 22 };

/* The variant whose function `name` is: kernels' symbols end in the last word of the CPU's name ("_v3" of "x86-64-v3 +fma4"),
 * and then comes a dot and the node's name; -1: none. */
static int variant_of(const char *features, const char *name)
{
    size_t symbol = strcspn(name, "."), at = symbol;
    while (at > 0 && name[at - 1] != '_')
        at--;
    const char *suffix = at > 0 ? name + at : NULL;
    int index = 0;
    for (const char *p = features; suffix && *p; index++) {
        size_t n = strcspn(p, ","), end = strcspn(p, " ,"), tail = end;
        while (tail > 0 && p[tail - 1] != '-')
            tail--;
        if (symbol - at == end - tail && memcmp(suffix, p + tail, end - tail) == 0)
            return index < VARIANTS_MAX ? index : -1;
        p += n + (p[n] == ',');
    }
    return -1;
}

/* Adds the code of every variant from a symbol table; second names of shared code have size 0. */
static bool symbols_read(struct session *s, int fd, const Elf64_Ehdr *head, const Elf64_Shdr *section,
                         struct sizes *out)
{
    Elf64_Shdr names;
    uint64_t n = section->sh_size / sizeof(Elf64_Sym);
    if (section->sh_link >= head->e_shnum || n > SYMBOLS_MAX)
        return true;
    if (!fd_pread(fd, &names, sizeof names, head->e_shoff + (uint64_t)section->sh_link * sizeof names) ||
        names.sh_size > out->file)
        return false;
    Elf64_Sym *sym = NEW_ARRAY(&s->ctx->session, Elf64_Sym, n + 1);
    char *text = arena_alloc(&s->ctx->session, (size_t)names.sh_size + 1);
    if (!fd_pread(fd, sym, n * sizeof *sym, section->sh_offset) || !fd_pread(fd, text, names.sh_size, names.sh_offset))
        return false;
    for (uint64_t k = 0; k < n; k++) {
        bool code = ELF64_ST_TYPE(sym[k].st_info) == STT_FUNC && sym[k].st_name < names.sh_size;
        int variant = code ? variant_of(s->api->features, text + sym[k].st_name) : -1;
        if (variant >= 0)
            out->variant[variant] += sym[k].st_size;
    }
    return true;
}

static bool note_read(int fd, const Elf64_Shdr *section, struct sizes *out)
{
    struct mcc_note note;
    if (section->sh_size < sizeof note)
        return true;
    if (!fd_pread(fd, &note, sizeof note, section->sh_offset))
        return false;
    if (memcmp(note.owner, "mcc", 4) == 0) {
        out->weights = note.weights_size;
        out->sidecar = note.sidecar_size;
        out->weights_padding = note.weights_padding;
    }
    return true;
}

static bool section_read(struct session *s, int fd, const Elf64_Ehdr *head, uint32_t index, struct sizes *out)
{
    Elf64_Shdr section;
    if (!fd_pread(fd, &section, sizeof section, head->e_shoff + (uint64_t)index * sizeof section))
        return false;
    if (section.sh_type == SHT_NULL || section.sh_type == SHT_NOBITS)
        return true;
    if (section.sh_type == SHT_NOTE && !note_read(fd, &section, out))
        return false;
    if (section.sh_flags & SHF_EXECINSTR)
        out->code += section.sh_size;
    else if (section.sh_flags & SHF_ALLOC)
        out->tables += section.sh_size;
    else
        out->symbols += section.sh_size;
    return section.sh_type != SHT_SYMTAB || symbols_read(s, fd, head, &section, out);
}

bool sizes_read(struct session *s, const char *path, struct sizes *out)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat st;
    Elf64_Ehdr head;
    *out = (struct sizes){0};
    bool ok = fd >= 0 && fstat(fd, &st) == 0 && fd_pread(fd, &head, sizeof head, 0);
    if (ok) {
        out->file = (uint64_t)st.st_size;
        out->headers = sizeof head + (uint64_t)head.e_phnum * sizeof(Elf64_Phdr) +
                       (uint64_t)head.e_shnum * sizeof(Elf64_Shdr);
    }
    for (uint32_t i = 0; ok && i < head.e_shnum; i++)
        ok = section_read(s, fd, &head, i, out);
    if (fd >= 0)
        close(fd);
    out->tables -= out->weights < out->tables ? out->weights : out->tables;
    return ok;
}

static void put_row(const struct sizes *sizes, uint64_t bytes, const char *what, struct strbuf *out)
{
    strbuf_printf(out, "bytes    %12llu %6.1f%%  %s\n", (unsigned long long)bytes,
                  sizes->file ? 100 * (double)bytes / (double)sizes->file : 0, what);
}

void sizes_print(const mcc_api *api, const struct sizes *s, struct strbuf *out)
{
    uint64_t variants = 0, known = s->weights + s->code + s->tables + s->symbols + s->headers;
    const char *p = api->features;
    put_row(s, s->weights, "weights", out);
    if (s->weights)
        put_row(s, s->weights_padding, "  of these padding", out);
    for (int i = 0; *p && i < VARIANTS_MAX; i++) {
        size_t n = strcspn(p, ",");
        put_row(s, s->variant[i], arena_printf(out->arena, "code of variant %d, %.*s", i + 1, (int)n, p), out);
        variants += s->variant[i];
        p += n + (p[n] == ',');
    }
    put_row(s, s->code > variants ? s->code - variants : 0, "code of the runtime", out);
    put_row(s, s->tables + s->headers, "tables", out);
    put_row(s, s->symbols, "names of functions", out);
    put_row(s, s->file > known ? s->file - known : 0, "padding between the parts", out);
    put_row(s, s->file, "file", out);
    if (!s->sidecar)
        return;
    strbuf_printf(out, "bytes    %12llu          weights file beside it\n", (unsigned long long)s->sidecar);
    strbuf_printf(out, "bytes    %12llu            of these padding\n", (unsigned long long)s->weights_padding);
}
