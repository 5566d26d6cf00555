/* Mach-O objects, dynamic libraries and universal files (macho*.c): the little of them that mcc writes, patches and
 * reads itself. Layouts: the headers of Apple's xnu and dyld (loader, nlist, reloc, fixup-chains, fat, cs_blobs).
 */
#pragma once

#include "codegen/container/container.h"

/* The section of the table's pointers, whose first bytes are mcc_rt_model; of the note (runtime/darwin/os_darwin.h); of
 * the graph; of how it was made. The weights have a segment of their own, the last one except for the linker's. */
#define MACHO_TABLE "__mccrt"
#define MACHO_NOTE "__mccnote"
#define MACHO_GRAPH "__mccg"
#define MACHO_BUILD "__mccb"
#define MACHO_WEIGHTS "__weights"
#define MACHO_WEIGHTS_SEGMENT "__MCC"
#define MACHO_TOO_LARGE                                                                                        \
    "a file of macOS or iOS is at most 4 GiB, weights included: store them in a file of their own (--weights=" \
    "sidecar)"

struct macho_head {
    uint32_t magic, cpu, kind_of_cpu, type, n_commands, commands_bytes, flags, reserved;
};
struct macho_command {
    uint32_t kind, bytes;
};
struct macho_segment {
    struct macho_command command;
    char name[16];
    uint64_t address, room, at, bytes; /* room: in memory */
    uint32_t most, access, n_sections, flags;
};
struct macho_section {
    char name[16], segment[16];
    uint64_t address, size;
    uint32_t at, align, relocations_at, n_relocations, flags, index, index2, index3;
};
struct macho_symbols {
    struct macho_command command;
    uint32_t at, n, text_at, text_bytes;
};
struct macho_symbol {
    uint32_t name;
    uint8_t type, section;
    uint16_t flags;
    uint64_t value;
};
struct macho_relocation {
    uint32_t at, info; /* info: symbol or section in 24 bits, then as below */
};
struct macho_piece { /* of the last segment */
    struct macho_command command;
    uint32_t at, bytes;
};
struct macho_version {
    struct macho_command command;
    uint32_t system, least, sdk, n_tools;
};
struct macho_order { /* LC_DYSYMTAB: which symbols are local, defined and undefined, then offsets of tables */
    struct macho_command command;
    uint32_t local, n_local, defined, n_defined, undefined, n_undefined, rest[12];
};
_Static_assert(sizeof(struct macho_head) == 32 && sizeof(struct macho_segment) == 72 &&
                   sizeof(struct macho_section) == 80 && sizeof(struct macho_symbol) == 16 &&
                   sizeof(struct macho_order) == 80,
               "as in the file");

#define MACHO_MAGIC 0xfeedfacfu
#define MACHO_FAT 0xcafebabeu /* big-endian, as all of its header */
#define MACHO_EXPORTS 0x80000033u /* kinds of commands */
#define MACHO_FIXUPS 0x80000034u
#define MACHO_CODE 0x80000400u /* of a section's flags */
enum {
    MACHO_OBJECT = 1, /* types of files */
    MACHO_LIBRARY = 6,
    MACHO_NAME_BYTES = 264, /* "@rpath/", the name of a file, a NUL and more */
    MACHO_PAGE = 0x4000, /* of arm64; a multiple of that of x86-64 */
    /* kinds of commands */
    MACHO_SYMBOLS = 2,
    MACHO_ORDER = 11,
    MACHO_NAME = 13,
    MACHO_SEGMENT = 0x19,
    MACHO_SIGNATURE = 0x1d,
    MACHO_STARTS = 0x26, /* of functions */
    MACHO_DATA_IN_CODE = 0x29,
    MACHO_VERSION = 0x32,
    /* of sections' flags */
    MACHO_TYPE_BITS = 0xff,
    MACHO_ZERO_FILLED = 1,
    MACHO_KEPT = 0x10000000, /* though nothing refers to it */
    /* of symbols' types */
    MACHO_EXTERNAL = 1,
    MACHO_TYPE = 0xe,
    MACHO_HIDDEN = 0x10,
    MACHO_STAB = 0xe0,
    MACHO_WEAK_REFERENCE = 0x40, /* a symbol's flag */
    /* of relocations */
    MACHO_RELATIVE = 1 << 24,
    MACHO_LENGTH_SHIFT = 25,
    MACHO_BY_SYMBOL = 1 << 27,
    MACHO_KIND_SHIFT = 28,
    MACHO_NUMBER = (1 << 24) - 1,
    MACHO_UNSIGNED = 0, /* an address: the same of both machines */
};

struct macho_machine {
    const char *arch; /* as in platform.def */
    uint32_t cpu, kind;
    const char *option; /* of the linker */
    uint32_t subtractor; /* the relocation's kind */
    uint32_t number; /* that of a relocation that says a number; 16: there is none */
};
const struct macho_machine *macho_machine_of(const struct platform *);
const struct macho_machine *macho_machine_by_cpu(uint32_t cpu); /* NULL: not one of ours */
/* The system and its least version, as a command of a file. */
struct macho_version macho_version_of(const struct platform *);

/* Is the command's, segment's or section's name this one? */
bool macho_is_named(const char name[16], const char *word);

/* The row of container.c. */
struct span macho_object(struct arena *, const struct platform *, const struct object *);
void macho_link(struct linking *);
bool macho_library(const struct linked *);
bool macho_merged(const struct linked *);

/* ---- universal files (macho_fat.c) ---- */

/* A library in a file. */
struct macho_slice {
    const struct platform *platform;
    int fd;
    uint64_t size;
};
/* Opens a library, which its owner closes. False after a diagnostic. */
bool macho_slice_open(struct context *, const char *path, struct macho_slice *);
/* Writes them as one file, atomically. */
bool macho_fat(struct context *, const struct macho_slice *, uint32_t n, const char *path);

/* ---- signatures (macho_sign.c) ---- */

enum { MACHO_SIGNED_PAGE = 4096, MACHO_DIGEST = 32 };
/* Bytes of an ad-hoc signature of a file's first `limit` bytes. */
uint64_t macho_signature_bytes(uint64_t limit);
/* digests: of each page of the file. code: bytes of the first segment. */
struct span macho_signature(struct arena *, uint64_t limit, uint64_t code, const unsigned char *digests);
void sha256(const void *data, size_t size, unsigned char digest[MACHO_DIGEST]); /* LLVM's (lld.cpp) */
