/* COFF objects, imports and the linker's part (coff.h). */
#include "codegen/container/bytes.h"
#include "codegen/container/coff.h"

enum { DATA = 0x40000040, ALIGN_16 = 0x500000, ALIGN_64 = 0x700000 };

static const struct coff_machine machines[] = {{"x86_64", 0x8664, 1, "x64"}, {"aarch64", 0xaa64, 14, "arm64"}};

const struct coff_machine *coff_machine_of(const struct platform *platform)
{
    return ROW_NAMED(machines, COUNT_OF(machines), platform->arch);
}

const struct coff_machine *coff_machine_by_number(uint16_t number)
{
    for (size_t i = 0; i < COUNT_OF(machines); i++)
        if (machines[i].machine == number)
            return &machines[i];
    return NULL;
}

/* ---- objects ---- */

void coff_put_symbol(struct strbuf *out, struct strbuf *names, const char *name, uint64_t value, int section,
                     uint16_t type, uint8_t class)
{
    char inlined[8] = {0};
    size_t n = strlen(name);
    if (n <= sizeof inlined) {
        memcpy(inlined, name, n);
        strbuf_append(out, inlined, sizeof inlined);
    } else {
        put_little(out, 0, 4);
        put_little(out, put_name(names, name), 4);
    }
    put_little(out, value, 4);
    put_little(out, (uint64_t)section, 2);
    put_little(out, type, 2);
    strbuf_append(out, (const uint8_t[]){class, 0}, 2);
}

static const struct {
    const char *name;
    uint32_t flags;
} sections[SECTIONS] = {
    [SECTION_RODATA] = {".rdata", DATA | ALIGN_64},          [SECTION_RELRO] = {COFF_TABLE, DATA | ALIGN_16},
    [SECTION_WEIGHTS] = {COFF_WEIGHTS, DATA | ALIGN_64},     [SECTION_GRAPH] = {COFF_GRAPH, DATA | COFF_DISCARDABLE},
    [SECTION_BUILD] = {COFF_BUILD, DATA | COFF_DISCARDABLE},
};

static void put_relocations(struct strbuf *out, const struct object *o, uint16_t type)
{
    if (o->pointers.n >= COFF_MANY) { /* the first says how many */
        put_little(out, o->pointers.n + 1, 4);
        put_little(out, 0, 6);
    }
    for (uint32_t i = 0; i < o->pointers.n; i++) {
        put_little(out, (uint32_t)o->pointers.data[i].at, 4);
        put_little(out, o->pointers.data[i].symbol - 1, 4);
        put_little(out, type, 2);
    }
}

struct span coff_object(struct arena *arena, const struct platform *platform, const struct object *o)
{
    struct coff_section heads[SECTIONS - 1] = {0};
    const struct coff_machine *machine = coff_machine_of(platform);
    struct coff_head head = {
        .machine = machine->machine, .n_sections = SECTIONS - 1, .n_symbols = SECTIONS - 1 + o->symbols.n};
    bool many = o->pointers.n >= COFF_MANY;
    uint64_t all = (uint64_t)o->pointers.n * COFF_RELOCATION_BYTES + (uint64_t)o->symbols.n * COFF_SYMBOL_BYTES;
    for (int s = SECTION_RODATA; s < SECTIONS; s++)
        all += o->bytes[s].n;
    if (all > UINT32_MAX / 2)
        return (struct span){0};
    struct strbuf out = strbuf_of(arena), names = strbuf_of(arena), symbols = strbuf_of(arena);
    put_little(&names, 0, 4);
    for (uint32_t i = 0; i < o->pointers.n; i++) /* addends lie in place */
        memcpy(o->bytes[SECTION_RELRO].data + o->pointers.data[i].at, &o->pointers.data[i].addend, sizeof(uint64_t));
    strbuf_append(&out, &head, sizeof head);
    strbuf_append(&out, heads, sizeof heads);
    for (int s = SECTION_RODATA; s < SECTIONS; s++) {
        struct coff_section *h = &heads[s - 1];
        memcpy(h->name, sections[s].name, strlen(sections[s].name));
        h->flags = sections[s].flags;
        h->at = (uint32_t)out.n;
        h->size = (uint32_t)o->bytes[s].n;
        if (h->size)
            strbuf_append(&out, o->bytes[s].data, o->bytes[s].n);
        coff_put_symbol(&symbols, &names, sections[s].name, 0, s, 0, COFF_STATIC);
    }
    struct coff_section *relro = &heads[SECTION_RELRO - 1];
    relro->relocations_at = (uint32_t)out.n;
    relro->n_relocations = many ? COFF_MANY : (uint16_t)o->pointers.n;
    relro->flags |= many ? COFF_OVERFLOWS : 0;
    put_relocations(&out, o, machine->abs64);
    for (uint32_t i = 0; i < o->symbols.n; i++) {
        const struct object_symbol *s = &o->symbols.data[i];
        coff_put_symbol(&symbols, &names, s->name, s->offset, s->section, 0, COFF_EXTERNAL);
    }
    head.symbols_at = (uint32_t)out.n;
    strbuf_append(&out, symbols.data, symbols.n);
    uint32_t size = (uint32_t)names.n;
    memcpy(names.data, &size, sizeof size);
    strbuf_append(&out, names.data, names.n);
    memcpy(out.data, &head, sizeof head);
    memcpy(out.data + sizeof head, heads, sizeof heads);
    return (struct span){out.data, out.n};
}

/* ---- linking ---- */

static const struct {
    const char *library, *name;
} imports[] = {
#define KERNEL(name) {"KERNEL32.dll", #name},
#define SYNCH(name) {"api-ms-win-core-synch-l1-2-0.dll", #name},
    SYNCH(WaitOnAddress) SYNCH(WakeByAddressSingle) SYNCH(WakeByAddressAll) KERNEL(QueryPerformanceCounter)
        KERNEL(QueryPerformanceFrequency) KERNEL(GetProcessAffinityMask) KERNEL(GetCurrentProcess) KERNEL(GetLastError)
            KERNEL(GetProcessHeap) KERNEL(HeapAlloc) KERNEL(HeapFree) KERNEL(CreateFileW) KERNEL(GetFileSizeEx)
                KERNEL(CreateFileMappingW) KERNEL(MapViewOfFile) KERNEL(UnmapViewOfFile) KERNEL(CloseHandle)
                    KERNEL(GetModuleHandleExW) KERNEL(GetModuleFileNameW) KERNEL(MultiByteToWideChar)
                        KERNEL(WideCharToMultiByte) KERNEL(CreateThread) KERNEL(WaitForSingleObject)
                            KERNEL(IsProcessorFeaturePresent)};

/* An archive of members in the short form: by name. */
static struct span import_library(struct arena *arena, const struct coff_machine *machine)
{
    struct span members[COUNT_OF(imports)];
    for (size_t i = 0; i < COUNT_OF(imports); i++) {
        size_t name = strlen(imports[i].name) + 1, library = strlen(imports[i].library) + 1;
        struct strbuf out = strbuf_of(arena);
        put_little(&out, 0xffff0000u, 4);
        put_little(&out, 0, 2);
        put_little(&out, machine->machine, 2);
        put_little(&out, 0, 4);
        put_little(&out, (uint32_t)(name + library), 4);
        put_little(&out, 0, 2);
        put_little(&out, 1 << 2 /* by name */, 2);
        strbuf_append(&out, imports[i].name, name);
        strbuf_append(&out, imports[i].library, library);
        members[i] = (struct span){out.data, out.n};
    }
    return archive_of(arena, members, COUNT_OF(imports));
}

static void alias(struct linking *l, const char *name, const char *of)
{
    linking_option(l, arena_printf(l->arena, "/alternatename:%s=%s", name, of));
}

void coff_link(struct linking *l)
{
    const struct coff_machine *machine = coff_machine_of(l->platform);
    uint32_t n, n_runtime;
    if (l->kind != OUTPUT_SHARED)
        return;
    linking_options(l, ARRAY(char *, "lld-link", "/dll", "/noentry", "/nodefaultlib", "/Brepro", "/opt:ref,noicf",
                             "/noimplib", "/threads:1", "/out:-", "/include:mcc_rt_note",
                             /* code of states, which others drop again */
                             "/alternatename:mcc_rt_keeping=mcc_rt_model",
                             arena_printf(l->arena, "/machine:%s", machine->option),
                             l->debug ? "/debug:dwarf" : "/debug:symtab",
                             arena_printf(l->arena, "/export:%s=mcc_query", l->query)));
    struct span *members = linking_units(l, &n, alias);
    struct span *runtime = linking_runtime(l, &n_runtime);
    linking_file(l, "/wholearchive:", archive_of(l->arena, members, n));
    linking_file(l, "/wholearchive:", archive_of(l->arena, runtime, n_runtime));
    linking_file(l, "/wholearchive:", import_library(l->arena, machine));
}
