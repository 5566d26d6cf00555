/* Artifact -> shared object: table, kernels and runtime linked by lld in a worker, then the weights put in place.
 *
 * The linker gets five files, whatever the model: an archive of the model's objects, one of the runtime's, a stub that
 * stands for libc, a linker script and a version script; all nameless, so nothing that a user wrote reaches its command
 * line. The script places a placeholder of the weights in the last segment; image.c makes the file of it.
 */
#include <string.h>

#include "codegen/codegen.h"
#include "codegen/elf.h"
#include "codegen/image.h"
#include "codegen/names.h"
#include "codegen/rt_objects.h"
#include "codegen/table.h"
#include "codegen/wire.h"

/* All that an artifact may take from libc: functions that every libc of Linux has had unchanged from its start,
 * glibc 2.17 at the latest, and in libc.so.6 itself. */
static const char *const libc_names[] = {
    "memcpy",        "memmove",        "memset",       "memcmp", "aligned_alloc", "free", "getauxval",
    "clock_gettime", "pthread_create", "pthread_join", "dlopen", "dlsym" /* weak: absent where glibc is older than
                                                                          * 2.34 */
};

/* Segments: read-only with the headers, code, data that is read-only after relocation, data, and last the weights, so
 * that they can grow without moving anything. Page alignment keeps code apart from what is before it. After the code
 * no segment's bytes are aligned in the file: each starts in a new page of memory at the offset inside the page that
 * the file has reached, so the file holds no padding (twice a page that two segments share is mapped). What is
 * read-only after relocation fills its last page in memory, since the loader protects whole pages only. */
#define NEXT_PAGE(end) "  " end " = .;\n  . = ALIGN(CONSTANT(MAXPAGESIZE)) + (" end " & (CONSTANT(MAXPAGESIZE) - 1));\n"
static const char script[] =
    "PHDRS {\n"
    "  ro PT_LOAD FILEHDR PHDRS FLAGS(4);\n  text PT_LOAD FLAGS(5);\n  late PT_LOAD FLAGS(6);\n  rw PT_LOAD FLAGS(6);\n%s"
    "  dynamic PT_DYNAMIC FLAGS(6);\n  note PT_NOTE FLAGS(4);\n  relro PT_GNU_RELRO FLAGS(4);\n"
    "  stack PT_GNU_STACK FLAGS(6);\n"
    "  frames PT_GNU_EH_FRAME FLAGS(4);\n}\n"
    "SECTIONS {\n"
    "  . = SIZEOF_HEADERS;\n"
    "  .note.mcc : { KEEP(*(.note.mcc)) } :ro :note\n"
    "  .dynsym : { *(.dynsym) } :ro\n"
    "  .gnu.hash : { *(.gnu.hash) } :ro\n"
    "  .dynstr : { *(.dynstr) } :ro\n"
    "  .rela.dyn : { *(.rela.dyn) } :ro\n"
    "  .rela.plt : { *(.rela.plt) } :ro\n"
    "  .eh_frame_hdr : { *(.eh_frame_hdr) } :ro :frames\n"
    "  .eh_frame : { *(.eh_frame) } :ro\n"
    "  .rodata : { *(.rodata .rodata.* .srodata .srodata.*) } :ro\n"
    "  . = ALIGN(CONSTANT(MAXPAGESIZE));\n"
    "  .text : { *(.text .text.*) } :text\n"
    "  .plt : { *(.plt) } :text\n" NEXT_PAGE(
        "text_end") "  .data.rel.ro : { *(.data.rel.ro .data.rel.ro.*) } :late :relro\n"
                    "  .dynamic : { *(.dynamic) } :late :relro :dynamic\n"
                    "  .got : { *(.got) } :late :relro\n"
                    "  .got.plt : { *(.got.plt) } :late :relro\n"
                    "  late_end = .;\n"
                    "  .late.fill (NOLOAD) : { . = ALIGN(CONSTANT(MAXPAGESIZE)); } :late :relro\n"
                    "  . = ALIGN(CONSTANT(MAXPAGESIZE)) + (late_end & (CONSTANT(MAXPAGESIZE) - 1));\n"
                    "  .data : { *(.data .data.* .sdata .sdata.*) } :rw\n"
                    "  data_end = .;\n"
                    "  .bss : { *(.bss .bss.* .sbss .sbss.* COMMON) } :rw\n"
                    "%s"
                    "  /DISCARD/ : { *(.comment) *(.llvm_addrsig) *(.note.GNU-stack) }\n"
                    "}\n";

static struct span text_span(const char *text)
{
    return (struct span){text, strlen(text)};
}

static struct span make_script(struct arena *arena, bool has_weights)
{
    const char *head = has_weights ? "  weights PT_LOAD FLAGS(4);\n" : "";
    const char *section = has_weights
                              ? "  . = ALIGN(CONSTANT(MAXPAGESIZE)) + (data_end & (CONSTANT(MAXPAGESIZE) - 1));\n"
                                "  . = ALIGN(64);\n  .mcc.weights : { KEEP(*(.mcc.weights)) } :weights\n"
                              : "";
    return text_span(arena_printf(arena, script, head, section));
}

static void add_option(struct strbuf *options, const char *option)
{
    strbuf_append(options, option, strlen(option) + 1);
}

static struct span own_objects(struct arena *arena, const struct elf_machine *m, const struct artifact *a,
                               struct strbuf *options)
{
    uint32_t n = 0;
    struct span *members = NEW_ARRAY(arena, struct span, a->n_units + 1);
    members[n++] = table_object(arena, m, a);
    for (uint32_t i = 0; i < a->n_units; i++) {
        const struct codegen_unit *same = a->units[i].same;
        if (same)
            add_option(options, arena_printf(arena, "--defsym=%s=%s", a->units[i].symbol, same->symbol));
        else
            members[n++] = a->units[i].object;
    }
    return elf_archive(arena, members, n);
}

static struct span runtime_objects(struct arena *arena, const struct elf_machine *m)
{
    uint32_t n = 0, count = 0;
    while (rt_objects[count].arch)
        count++;
    struct span *members = NEW_ARRAY(arena, struct span, count + 1);
    for (uint32_t i = 0; i < count; i++)
        if (strcmp(rt_objects[i].arch, m->arch) == 0)
            members[n++] = (struct span){rt_objects[i].data, (size_t)(rt_objects[i].end - rt_objects[i].data)};
    return elf_archive(arena, members, n);
}

/* Names start at the query function and the note; what of the runtime they reach is taken. */
static void add_options(struct arena *arena, struct strbuf *options, const struct elf_machine *m, enum output_kind kind)
{
    static const char *const both[] = {"--threads=1", "-u", "mcc_query", "-u", "mcc_rt_note"};
    static const char *const shared[] = {"-shared",
                                         "--eh-frame-hdr",
                                         "--gc-sections",
                                         "--hash-style=gnu",
                                         "--build-id=none",
                                         "--fatal-warnings",
                                         "--no-undefined",
                                         "-z",
                                         "noexecstack",
                                         "-z",
                                         "relro",
                                         "-z",
                                         "now"};
    add_option(options, "-m");
    add_option(options, m->emulation);
    for (size_t i = 0; i < COUNT_OF(both); i++)
        add_option(options, both[i]);
    if (kind != OUTPUT_SHARED) {
        add_option(options, "-r");
        add_option(options, "--defsym=dlopen=rt_threads_none"); /* object.c makes threads a must */
        add_option(options, "--defsym=dlsym=rt_threads_none");
        return;
    }
    for (size_t i = 0; i < COUNT_OF(shared); i++)
        add_option(options, shared[i]);
    add_option(options, "-z");
    add_option(options, arena_printf(arena, "max-page-size=%llu", (unsigned long long)m->page));
}

static bool run_linker(struct codegen *g, struct arena *arena, const struct artifact *a, const struct elf_machine *m,
                       enum output_kind kind, const char *query, struct span *image)
{
    struct strbuf list;
    struct span parts[LINK_INPUTS + 3] = {0};
    struct job job = {.what = "linking", .parts = parts};
    bool shared = kind == OUTPUT_SHARED;
    strbuf_init(&list, arena);
    add_options(arena, &list, m, kind);
    if (shared && strcmp(query, "mcc_query") != 0)
        add_option(&list, arena_printf(arena, "--defsym=%s=mcc_query", query));
    parts[LINK_INPUTS] = own_objects(arena, m, a, &list);
    parts[LINK_INPUTS + 1] = runtime_objects(arena, m);
    if (shared) {
        parts[LINK_INPUTS + 2] = elf_stub(arena, m, "libc.so.6", libc_names, COUNT_OF(libc_names));
        parts[LINK_SCRIPT] = make_script(arena, a->weights.size > 0 && !a->weights.sidecar);
        parts[LINK_VERSIONS] = text_span(arena_printf(arena, "{ global: %s; local: *; };\n", query));
    }
    parts[LINK_OPTIONS] = (struct span){list.data, list.n};
    job.head.kind = WIRE_LINK;
    job.head.n_parts = COUNT_OF(parts);
    return codegen_last(g, &job, image);
}

bool codegen_link(struct codegen *g, const struct artifact *a, enum output_kind kind, const char *path)
{
    struct context *ctx = codegen_context(g);
    const struct elf_machine *m = elf_machine(a->variants[0].target->triple);
    struct arena arena;
    struct span image;
    if (!m)
        return error_internal(ctx, (src_id){0}, "no linker for target '%s'", a->variants[0].target->triple);
    arena_init(&arena, ctx);
    const char *prefix = a->prefix && *a->prefix ? a->prefix : NULL;
    const char *query = prefix ? arena_printf(&arena, "%s_mcc_query", prefix) : "mcc_query";
    struct function_names names = names_make(&arena, a);
    bool ok = run_linker(g, &arena, a, m, kind, query, &image);
    if (ok && kind != OUTPUT_SHARED)
        ok = object_write(ctx, &arena, image, &a->weights, &names, query, kind, path);
    else if (ok)
        ok = image_write(ctx, &arena, image, &a->weights, &names, query, path);
    arena_release(&arena);
    return ok;
}
