/* Mach-O objects, the stub of libSystem and the linker's part (macho.h). */
#include "codegen/container/bytes.h"
#include "codegen/container/macho.h"

static const struct macho_machine machines[] = {{"x86_64", 0x01000007, 3, "x86_64", 5, 16},
                                                {"aarch64", 0x0100000c, 0, "arm64", 1, 10}};

const struct macho_machine *macho_machine_of(const struct platform *platform)
{
    return ROW_NAMED(machines, COUNT_OF(machines), platform->arch);
}

const struct macho_machine *macho_machine_by_cpu(uint32_t cpu)
{
    for (size_t i = 0; i < COUNT_OF(machines); i++)
        if (machines[i].cpu == cpu)
            return &machines[i];
    return NULL;
}

bool macho_is_named(const char name[16], const char *word)
{
    return strncmp(name, word, 16) == 0;
}

struct macho_version macho_version_of(const struct platform *platform)
{
    const char *digits = platform->triple + strcspn(platform->triple, "-");
    digits += strcspn(digits, "0123456789");
    uint32_t version = (uint32_t)strtoul(digits, NULL, 10) << 16;
    return (struct macho_version){.command = {MACHO_VERSION, sizeof(struct macho_version)},
                                  .system = strcmp(platform->system, "macos") == 0 ? 1 : 2,
                                  .least = version,
                                  .sdk = version};
}

/* ---- objects ---- */

static const struct {
    const char *segment, *name;
    uint32_t flags, align;
} sections[SECTIONS] = {
    [SECTION_RODATA] = {"__TEXT", "__const", 0, 6},
    [SECTION_RELRO] = {"__DATA_CONST", MACHO_TABLE, 0, 4},
    [SECTION_WEIGHTS] = {MACHO_WEIGHTS_SEGMENT, MACHO_WEIGHTS, 0, 6},
    [SECTION_GRAPH] = {"__TEXT", MACHO_GRAPH, MACHO_KEPT, 0},
    [SECTION_BUILD] = {"__TEXT", MACHO_BUILD, MACHO_KEPT, 0},
};

/* Relocations of the table's pointers; where they lie stands what is added. */
static void put_relocations(struct strbuf *out, struct object *o, const struct macho_section *heads, const int *number)
{
    for (uint32_t i = 0; i < o->pointers.n; i++) {
        const struct object_pointer *p = &o->pointers.data[i];
        bool section = p->symbol < SECTIONS;
        uint64_t value = p->addend + (section ? heads[number[p->symbol] - 1].address : 0);
        uint32_t index = section ? (uint32_t)number[p->symbol] : (p->symbol - SECTIONS) | MACHO_BY_SYMBOL;
        struct macho_relocation r = {(uint32_t)p->at, index | 3u << MACHO_LENGTH_SHIFT};
        memcpy(o->bytes[SECTION_RELRO].data + p->at, &value, sizeof value);
        strbuf_append(out, &r, sizeof r);
    }
}

static struct span symbol_bytes(struct arena *arena, const struct object *o, const struct macho_section *heads,
                                const int *number, struct strbuf *names)
{
    struct macho_symbol *rows = NEW_ARRAY(arena, struct macho_symbol, o->symbols.n + 1);
    strbuf_append(names, " ", 2);
    for (uint32_t i = 0; i < o->symbols.n; i++) {
        const struct object_symbol *s = &o->symbols.data[i];
        rows[i] = (struct macho_symbol){.name = (uint32_t)names->n, .type = MACHO_EXTERNAL};
        if (s->section) {
            rows[i].type |= MACHO_HIDDEN | MACHO_TYPE;
            rows[i].section = (uint8_t)number[s->section];
            rows[i].value = heads[number[s->section] - 1].address + s->offset;
        }
        strbuf_printf(names, "_%s", s->name);
        strbuf_append(names, "", 1);
    }
    return (struct span){rows, o->symbols.n * sizeof *rows};
}

/* Numbers sections that have bytes from 1, places them from address 0; returns where the first lies in the file. */
static uint64_t place_sections(const struct object *o, struct macho_section *heads, int *number, uint32_t *n)
{
    uint64_t end = 0;
    for (int s = SECTION_RODATA; s < SECTIONS; s++) {
        struct macho_section *h = &heads[*n];
        if (!o->bytes[s].n)
            continue;
        memcpy(h->name, sections[s].name, strlen(sections[s].name));
        memcpy(h->segment, sections[s].segment, strlen(sections[s].segment));
        h->address = (end + 63) / 64 * 64;
        h->size = o->bytes[s].n;
        h->align = sections[s].align;
        h->flags = sections[s].flags;
        end = h->address + h->size;
        number[s] = (int)++*n;
    }
    uint64_t heads_end = sizeof(struct macho_head) + sizeof(struct macho_segment) + *n * sizeof *heads +
                         sizeof(struct macho_symbols);
    return (heads_end + 63) / 64 * 64;
}

struct span macho_object(struct arena *arena, const struct platform *platform, const struct object *object)
{
    struct object *o = arena_copy(arena, object, sizeof *object);
    const struct macho_machine *machine = macho_machine_of(platform);
    struct macho_section heads[SECTIONS] = {0};
    int number[SECTIONS] = {0};
    uint32_t n = 0;
    uint64_t first = place_sections(o, heads, number, &n), end = n ? heads[n - 1].address + heads[n - 1].size : 0;
    if (end + o->pointers.n * sizeof(struct macho_relocation) + o->symbols.n * sizeof(struct macho_symbol) >
            UINT32_MAX / 2 ||
        o->symbols.n > MACHO_NUMBER)
        return (struct span){0};
    struct strbuf out = strbuf_of(arena), relocations = strbuf_of(arena), names = strbuf_of(arena);
    put_relocations(&relocations, o, heads, number);
    struct span symbols = symbol_bytes(arena, o, heads, number, &names);
    for (uint32_t i = 0; i < n; i++)
        heads[i].at = (uint32_t)(first + heads[i].address);
    if (number[SECTION_RELRO]) {
        heads[number[SECTION_RELRO] - 1].relocations_at = (uint32_t)((first + end + 7) / 8 * 8);
        heads[number[SECTION_RELRO] - 1].n_relocations = o->pointers.n;
    }
    struct macho_segment segment = {.command = {MACHO_SEGMENT, (uint32_t)(sizeof segment + n * sizeof *heads)},
                                    .room = end,
                                    .at = first,
                                    .bytes = end,
                                    .most = 7,
                                    .access = 7,
                                    .n_sections = n};
    struct macho_symbols table = {.command = {MACHO_SYMBOLS, sizeof table},
                                  .at = (uint32_t)((first + end + 7) / 8 * 8 + relocations.n),
                                  .n = o->symbols.n};
    table.text_at = (uint32_t)(table.at + symbols.size);
    table.text_bytes = (uint32_t)names.n;
    struct macho_head head = {.magic = MACHO_MAGIC,
                              .cpu = machine->cpu,
                              .kind_of_cpu = machine->kind,
                              .type = MACHO_OBJECT,
                              .n_commands = 2,
                              .commands_bytes = segment.command.bytes + (uint32_t)sizeof table};
    strbuf_append(&out, &head, sizeof head);
    strbuf_append(&out, &segment, sizeof segment);
    strbuf_append(&out, heads, n * sizeof *heads);
    strbuf_append(&out, &table, sizeof table);
    for (int s = SECTION_RODATA; s < SECTIONS; s++) {
        if (!number[s])
            continue;
        put_aligned(&out, 64);
        strbuf_append(&out, o->bytes[s].data, o->bytes[s].n);
    }
    while (out.n < (first + end + 7) / 8 * 8)
        strbuf_append(&out, "", 1);
    strbuf_append(&out, relocations.data, relocations.n);
    strbuf_append(&out, symbols.data, symbols.size);
    strbuf_append(&out, names.data, names.n);
    return (struct span){out.data, out.n};
}

/* ---- linking ---- */

/* What artifacts take of libSystem. */
static const char imports[] =
    "_memcpy, _memmove, _memset, _memcmp, _bzero, ___bzero, ___error, _clock_gettime_nsec_np, _close, _dladdr, _free, "
    "_getpid, _lseek, _mmap, _munmap, _open, _os_sync_wait_on_address, _os_sync_wake_by_address_all, "
    "_os_sync_wake_by_address_any, _posix_memalign, _pthread_cond_broadcast, _pthread_cond_wait, _pthread_create, "
    "_pthread_join, _pthread_mutex_lock, _pthread_mutex_unlock, _pthread_sigmask, _sysconf, _sysctlbyname";

static struct span stub(struct linking *l)
{
    const char *option = macho_machine_of(l->platform)->option, *system = l->platform->system;
    struct strbuf out = strbuf_of(l->arena);
    strbuf_printf(&out, "--- !tapi-tbd\ntbd-version: 4\ntargets: [ %s-%s ]\ninstall-name: '%s'\nexports:\n", option,
                  system, l->platform->library);
    strbuf_printf(&out, "  - targets: [ %s-%s ]\n    symbols: [ %s ]\n...\n", option, system, imports);
    return (struct span){out.data, out.n};
}

/* The linker loads all members; it wants an index, which is empty. */
static struct span whole_archive(struct linking *l, const struct span *members, uint32_t n)
{
    const size_t magic = 8;
    struct span archive = archive_of(l->arena, members, n);
    struct strbuf out = strbuf_of(l->arena);
    strbuf_append(&out, archive.data, magic);
    strbuf_printf(&out, "%-16s%-12d%-6d%-6d%-8s%-10d`\n", "/", 0, 0, 0, "0", 4);
    strbuf_append(&out, "\0\0\0", 4);
    strbuf_append(&out, (const char *)archive.data + magic, archive.size - magic);
    return (struct span){out.data, out.n};
}

/* Objects of the runtime are those of macOS: the linker asks that all be for one system. */
static void set_system(struct linking *l, struct span *object)
{
    const struct macho_version version = macho_version_of(l->platform);
    char *copy = arena_copy(l->arena, object->data, object->size);
    struct macho_head head;
    struct macho_command command;
    uint64_t at = sizeof head;
    memcpy(&head, copy, sizeof head);
    for (uint32_t i = 0; i < head.n_commands && at + sizeof version <= object->size; i++, at += command.bytes) {
        memcpy(&command, copy + at, sizeof command);
        if (command.kind == MACHO_VERSION && command.bytes == sizeof version)
            memcpy(copy + at, &version, sizeof version);
    }
    object->data = copy;
}

/* _of is _name, too. */
static void alias(struct linking *l, const char *name, const char *of)
{
    linking_options(l, ARRAY(char *, "-alias", arena_printf(l->arena, "_%s", of), arena_printf(l->arena, "_%s", name)));
}

static void put_objects(struct linking *l)
{
    uint32_t n, n_runtime;
    struct span *members = linking_units(l, &n, alias), *runtime = linking_runtime(l, &n_runtime);
    for (uint32_t i = 0; i < n_runtime; i++)
        set_system(l, &runtime[i]);
    linking_option(l, "-force_load");
    linking_file(l, "", whole_archive(l, members, n));
    linking_option(l, "-force_load");
    linking_file(l, "", whole_archive(l, runtime, n_runtime));
    linking_file(l, "", stub(l));
}

/* The library's name has room for each that a file can have: macho_image.c writes it there. */
void macho_link(struct linking *l)
{
    char name[MACHO_NAME_BYTES];
    const struct macho_version version = macho_version_of(l->platform);
    const char *least = arena_printf(l->arena, "%u.0", version.least >> 16);
    if (l->kind != OUTPUT_SHARED)
        return;
    memset(name, 'x', sizeof name - 1);
    name[sizeof name - 1] = 0;
    linking_options(l, ARRAY(char *, "ld64.lld", "-dylib", "-dead_strip", "-reproducible", "--threads=1", "-o", "-",
                             "-undefined", "error", "-fixup_chains", "-segprot", MACHO_WEIGHTS_SEGMENT, "r", "r", "-u",
                             "_mcc_rt_note", "-adhoc_codesign", "-arch", macho_machine_of(l->platform)->option,
                             "-platform_version", l->platform->system, least, least, "-install_name", name,
                             "-exported_symbol", arena_printf(l->arena, "_%s", l->query)));
    if (strcmp(l->query, "mcc_query") != 0)
        alias(l, l->query, "mcc_query");
    put_objects(l);
}
