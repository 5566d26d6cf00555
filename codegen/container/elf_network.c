/* The archive of a static network (codegen_static): an index, a member for each function as LLVM made it, and last one
 * that holds the weights, of 32 or 64 bits as the platform has it.
 */
#include "codegen/container/bytes.h"
#include "codegen/container/elf.h"
#include "codegen/sink.h"

enum { ALIGN = 64, MEMBER_HEAD = 60 };
#define MEMBER_MAX 1900000000u /* code reaches what lies 2 GiB away at most */

struct network {
    struct arena *arena;
    const struct static_network *of;
    const struct platform *platform;
    struct strbuf head; /* of the object with the weights: all before them */
};

/* ---- the object with the weights ---- */

struct section_row {
    uint32_t name, type;
    uint64_t flags, at, size;
    uint32_t link, info;
    uint64_t align, entry;
};

static void put_section(struct strbuf *b, uint32_t word, const struct section_row *s)
{
    put_little(b, s->name, 4);
    put_little(b, s->type, 4);
    put_little(b, s->flags, word);
    put_little(b, 0, word);
    put_little(b, s->at, word);
    put_little(b, s->size, word);
    put_little(b, s->link, 4);
    put_little(b, s->info, 4);
    put_little(b, s->align, word);
    put_little(b, s->entry, word);
}

static void put_file_head(struct strbuf *b, const struct elf_machine *m, uint32_t word, uint64_t sections, uint32_t n)
{
    const unsigned char ident[EI_NIDENT] = {
        ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, word == 8 ? ELFCLASS64 : ELFCLASS32, ELFDATA2LSB, EV_CURRENT};
    strbuf_append(b, (const char *)ident, sizeof ident);
    put_little(b, ET_REL, 2);
    put_little(b, m->machine, 2);
    put_little(b, EV_CURRENT, 4);
    put_little(b, 0, word);
    put_little(b, 0, word);
    put_little(b, sections, word);
    put_little(b, m->flags, 4);
    put_little(b, word == 8 ? sizeof(Elf64_Ehdr) : sizeof(Elf32_Ehdr), 2);
    put_little(b, 0, 2);
    put_little(b, 0, 2);
    put_little(b, word == 8 ? sizeof(Elf64_Shdr) : sizeof(Elf32_Shdr), 2);
    put_little(b, n, 2);
    put_little(b, n - 1, 2);
}

static void put_symbol(struct strbuf *b, uint32_t word, uint32_t name, uint64_t size)
{
    unsigned char info = ELF64_ST_INFO(STB_GLOBAL, STT_OBJECT);
    put_little(b, name, 4);
    if (word == 4) {
        put_little(b, 0, word);
        put_little(b, size, word);
    }
    put_little(b, info, 1);
    put_little(b, STV_HIDDEN, 1);
    put_little(b, 1, 2);
    if (word == 8) {
        put_little(b, 0, word);
        put_little(b, size, word);
    }
}

/* Section 1 is the weights. Their section has a name of its own, so that a linker script can place it. */
static void make_head(struct network *n, uint64_t size)
{
    static const char names[] = "\0.symtab\0.strtab\0.note.GNU-stack\0.shstrtab\0";
    uint32_t word = n->platform->pointer_bytes, entry = word == 8 ? sizeof(Elf64_Sym) : sizeof(Elf32_Sym);
    uint32_t file = word == 8 ? sizeof(Elf64_Ehdr) : sizeof(Elf32_Ehdr), count = 6;
    size_t table = word == 8 ? sizeof(Elf64_Shdr) : sizeof(Elf32_Shdr), symbol = strlen(n->of->weights_symbol) + 1;
    const char *own = arena_printf(n->arena, ".rodata.%s", n->of->weights_symbol);
    uint64_t at[5] = {file, file + 2 * entry};
    at[2] = at[1] + 1 + symbol;
    at[3] = at[2] + sizeof names + strlen(own) + 1;
    at[3] = (at[3] + 7) & ~(uint64_t)7;
    at[4] = (at[3] + count * table + ALIGN - 1) & ~(uint64_t)(ALIGN - 1);
    const struct section_row rows[] = {
        {0},
        {sizeof names, SHT_PROGBITS, SHF_ALLOC, at[4], size, 0, 0, ALIGN, 0},
        {1, SHT_SYMTAB, 0, at[0], 2 * (uint64_t)entry, 3, 1, word, entry},
        {9, SHT_STRTAB, 0, at[1], 1 + symbol, 0, 0, 1, 0},
        {17, SHT_PROGBITS, 0, at[2], 0, 0, 0, 1, 0},
        {33, SHT_STRTAB, 0, at[2], sizeof names + strlen(own) + 1, 0, 0, 1, 0},
    };
    struct strbuf *b = &n->head;
    strbuf_init(b, n->arena);
    put_file_head(b, elf_machine_of(n->platform), word, at[3], count);
    put_up_to(b, at[0] + entry);
    put_symbol(b, word, 1, size);
    put_up_to(b, at[1] + 1);
    put_name(b, n->of->weights_symbol);
    strbuf_append(b, names, sizeof names);
    put_name(b, own);
    put_up_to(b, at[3]);
    for (size_t i = 0; i < COUNT_OF(rows); i++)
        put_section(b, word, &rows[i]);
    put_up_to(b, at[4]);
}

/* ---- the archive ---- */

static bool put_member_head(struct network *n, struct sink *s, const char *name, uint64_t size)
{
    const char *text = arena_printf(n->arena, "%-16s%-12d%-6d%-6d%-8s%-10llu`\n", name, 0, 0, 0, "644",
                                    (unsigned long long)size);
    return sink_put(s, text, MEMBER_HEAD);
}

static bool put_even(struct sink *s, uint64_t size)
{
    return size % 2 == 0 || sink_put(s, "\n", 1);
}

/* Each member defines one symbol. */
static struct span make_index(struct network *n)
{
    const struct static_network *of = n->of;
    uint32_t count = of->n_units + (of->weights.size > 0);
    struct strbuf b = strbuf_of(n->arena), names = strbuf_of(n->arena);
    for (uint32_t i = 0; i < of->n_units; i++)
        put_name(&names, of->units[i].symbol);
    if (of->weights.size)
        put_name(&names, of->weights_symbol);
    put_big(&b, count, 4);
    uint64_t size = 4 + 4 * (uint64_t)count + names.n, at = 8 + MEMBER_HEAD + size + size % 2;
    for (uint32_t i = 0; i < count; i++) {
        put_big(&b, at, 4);
        if (i < of->n_units)
            at += MEMBER_HEAD + of->units[i].object.size + of->units[i].object.size % 2;
    }
    strbuf_append(&b, names.data, names.n);
    return (struct span){b.data, b.n};
}

static bool put_weights(struct network *n, struct sink *s)
{
    uint64_t hash, size = n->of->weights.size;
    if (!size)
        return true;
    make_head(n, size);
    return put_member_head(n, s, "weights.o/", n->head.n + size) && sink_put(s, n->head.data, n->head.n) &&
           sink_weights(s, &n->of->weights, &hash) && put_even(s, n->head.n + size);
}

static bool write_archive(void *user, struct sink *s)
{
    struct network *n = user;
    struct span index = make_index(n);
    bool ok = sink_put(s, "!<arch>\n", 8) && put_member_head(n, s, "/", index.size) &&
              sink_put(s, index.data, index.size) && put_even(s, index.size);
    for (uint32_t i = 0; ok && i < n->of->n_units; i++) {
        struct span object = n->of->units[i].object;
        ok = put_member_head(n, s, arena_printf(n->arena, "m%u.o/", i), object.size) &&
             sink_put(s, object.data, object.size) && put_even(s, object.size);
    }
    return ok && put_weights(n, s) && sink_fits(s, 0);
}

bool elf_network(struct context *ctx, const struct static_network *of, const struct platform *platform,
                 const char *path)
{
    struct network n = {.arena = &ctx->session, .of = of, .platform = platform};
    if (of->weights.size > MEMBER_MAX)
        return error_limit(ctx, (src_id){0},
                           "a static network has at most %u bytes of weights, this one %llu; "
                           "write a shared object",
                           MEMBER_MAX, (unsigned long long)of->weights.size);
    return sink_file(ctx, &ctx->session, path, write_archive, &n);
}
