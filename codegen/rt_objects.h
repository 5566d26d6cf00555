/* The runtime's object files, embedded when mcc is built (Makefile, cli/embed.sh): what codegen_link() gives to
 * lld beside the kernels. Relocatable ELF, a section per function, compiled by clang for each architecture.
 */
#pragma once

struct rt_object {
    const char *arch;                   /* the column runtime of platform.def; NULL ends the table */
    const char *name;                   /* source file without ".c" */
    const unsigned char *data, *end;    /* the object's bytes, 16-aligned */
};
extern const struct rt_object rt_objects[];
