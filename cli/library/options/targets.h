/* The CPUs that an artifact has code for, as the options and ir/target/target.def say. */
#pragma once

#include "cli/library/options/options.h"
#include "codegen/codegen.h"
#include "ir/target/platform.h"
#include "ir/target/target.h"
#include "passes/module/module.h"

/* One variant of an artifact: a row of the table, with -mattr's features after its own. */
struct variant {
    const struct target_row *row;
    const char *name;            /* "x86-64-v3", "x86-64-v3 +fma4" */
    struct machine machine;      /* the row's, but in tests, and what the features say */
    struct target target;
    uint64_t needs;              /* what open asks of the CPU (runtime/rt_cpu.h) */
};

/* Can there be code for --target, -march, --variants and -mattr? False after a usage error. */
bool targets_check(struct context *, const struct options *);
/* Do the options ask for the row's code, or the module, where they leave it open? */
bool target_wanted(const struct options *, const struct module *, const struct target_row *);
/* The row for which is decided what all variants share: the best that is part of the artifact whatever the network is,
 * else the best that may be. */
const struct target_row *targets_best(struct context *, const struct options *);
/* May there be code with products of pairs of bf16, if the network has use for them? */
bool targets_pair(struct context *, const struct options *);
/* May there be code of a row whose dot products take signed bytes only, or of a microcontroller, whose networks are of
 * them? All others take those as well. */
bool targets_signed(struct context *, const struct options *);
/* Has it fused multiply-add? */
bool variant_is_fused(const struct variant *);
/* And can its results be those of every other such CPU? */
bool variant_is_strict(const struct variant *);
/* A bit for each dot_kind of which some row that they ask for multiplies rows by columns. */
uint32_t targets_matdot(struct context *, const struct options *);
/* Do its features have multiply-adds of f16? */
bool variant_has_fp16(const struct variant *);
/* Products of tiles of bytes and of bf16, by AMX. */
bool variant_has_tiles(const struct variant *);
/* Is one function made, without a runtime: by --emit=static or c, for WebAssembly, or because there is no system? */
bool targets_static(const struct options *);
bool targets_wasm(const struct options *);
/* Where the code runs: --target's (of a list the first), or this machine's architecture and Linux. */
const struct platform *targets_platform(const struct options *);
/* mattr: as the option has it, NULL for none. False after a diagnostic. */
bool variant_init(struct variant *, struct context *, const struct target_row *, const struct platform *,
                  const char *mattr);
