/* The stages of passes/module/passes.def that are functions of a compilation (compile.c, backend.c, link.c), and what
 * they share. */
#pragma once

#include "cli/library/compile/compile.h"
#include "codegen/codegen.h"
#include "codegen/digest.h"
#include "passes/module/module.h"

struct graph_map; /* cli/library/graph_map.h */

/* The folder of OUTPUT.mcir in the line tables. */
const char *debug_folder(const struct compilation *);

stage_fn run_import, run_legalize, run_settle, run_schedule, run_emit, run_codegen, run_link;
/* The rows of the table's nodes, by source: the kernels that each leads (mcc_node). From schedule on. */
mcc_node *source_rows(struct compilation *, uint32_t *n);
/* What a report draws; row: source_rows (make_graph_map.c). The same packed for the artifact, whose table has these
 * nodes: none where it takes over 1 % of code and weights, and over 1 KiB. */
void graph_map_make(const struct compilation *, const mcc_node *row, uint32_t n, struct arena *, struct graph_map *);
struct span graph_map_section(const struct compilation *, const struct artifact *);
/* Writes OUTPUT.h, a typed function over the table (header.c). */
bool header_write(struct compilation *, const struct artifact *);
/* A static network (static.c): refuses what cannot be one, before and after its program is emitted; makes the unit of
 * the entry; writes the archive and its header. */
bool static_check(struct compilation *);
bool static_entry(struct compilation *, const struct target *);
bool static_write(struct compilation *, const struct artifact *);
/* The compilation's code generation, which the first call begins. */
struct codegen *codegen_of(struct compilation *);
/* Of what is read between the two calls the compilation keeps the hash (recall.c). */
void recall_watch(struct compilation *);
void recall_watched(struct compilation *);
/* Takes from the cache what schedule, emit and codegen would leave for the link. False: it is not there. After the
 * variants are chosen. */
bool recall_take(struct compilation *);
/* After codegen: keeps that for the next time; with --verify-each it is compared. False after a diagnostic. */
bool recall_keep(struct compilation *);
/* Remarks about the scheduled module, and the record of all of them (remarks.c). */
bool remarks_report(struct compilation *);
/* Do -Rpass and its kin name passes that make remarks? False after a usage error. */
bool remarks_check(struct context *, const struct options *);
typedef void kernel_text_fn(const struct module *, uint32_t kernel, struct strbuf *);
void print_graph(const struct compilation *, struct strbuf *);
stage_fn verify_graph, verify_module, verify_loops;
void print_module(const struct compilation *, struct strbuf *);
void print_schedules(const struct compilation *, struct strbuf *out);
void print_loops(const struct compilation *, struct strbuf *);
void print_code(const struct compilation *, struct strbuf *);

/* The weights segment of a module, written in order (weights.c). */
struct weights_writer weights_of(struct module *);
/* Bytes of a stored constant that hold its elements: the rest of weight.bytes is padding. */
uint64_t weight_elements_bytes(const struct module *, const struct weight *);
/* The name of a stored value: its own in the file, else that of the node that makes it. */
const char *weight_name(const struct module *, value_id);
/* Is it stored row-major, as it is? */
bool weight_is_dense(struct module *, const struct weight *);
/* The sidecar's table of tensors: weights_writer.entries (sidecar.c). */
struct span sidecar_entries(struct module *);
