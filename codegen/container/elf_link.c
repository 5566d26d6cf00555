/* The linker's part for ELF (elf.h): an archive of the model's objects, one of the runtime's, a stub that stands for
 * libc, a linker script and a version script. The script places a placeholder of the weights in the last segment;
 * elf_image.c makes the file of it.
 */
#include "codegen/container/elf.h"

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

/* Names start at the query function and the note; what of the runtime they reach is taken. */
static void add_options(struct linking *l)
{
    linking_options(l, ARRAY(char *, "ld.lld", "-o", "-", "-m", elf_machine_of(l->platform)->emulation, "--threads=1",
                             "-u", "mcc_query", "-u", "mcc_rt_note"));
    if (l->kind != OUTPUT_SHARED) /* elf_merge.c makes threads a must */
        linking_options(l, ARRAY(char *, "-r", "--defsym=dlopen=rt_threads_none", "--defsym=dlsym=rt_threads_none"));
    else
        linking_options(l, ARRAY(char *, "-shared", "--eh-frame-hdr", "--gc-sections", "--hash-style=gnu",
                                 "--build-id=none", "--fatal-warnings", "--no-undefined", "-z", "noexecstack", "-z",
                                 "relro", "-z", "now", "-z",
                                 arena_printf(l->arena, "max-page-size=%llu", (unsigned long long)l->platform->page)));
}

static void alias(struct linking *l, const char *name, const char *of)
{
    linking_option(l, arena_printf(l->arena, "--defsym=%s=%s", name, of));
}

void elf_link(struct linking *l)
{
    bool shared = l->kind == OUTPUT_SHARED;
    uint32_t n;
    add_options(l);
    if (shared && strcmp(l->query, "mcc_query") != 0)
        alias(l, l->query, "mcc_query");
    struct span *members = linking_units(l, &n, alias), own = archive_of(l->arena, members, n);
    struct span *runtime = linking_runtime(l, &n);
    if (shared) {
        linking_file(l, "--script=", make_script(l->arena, l->weights));
        linking_file(l,
                     "--version-script=", text_span(arena_printf(l->arena, "{ global: %s; local: *; };\n", l->query)));
    }
    linking_file(l, "", own);
    linking_file(l, "", archive_of(l->arena, runtime, n));
    if (shared)
        linking_file(l, "", elf_stub(l->arena, l->platform, libc_names, COUNT_OF(libc_names)));
}
