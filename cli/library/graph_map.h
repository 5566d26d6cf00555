/* What a report draws of a network beside what an artifact needs to run: the nodes of the file with what leads from one
 * to the next, and the buffers of the memory plan. A shared object carries it as section .mcc.graph, which is not
 * loaded (cli/library/compile/make_graph_map.c makes it). */
#pragma once

#include "cli/library/json.h"
#include "codegen/codegen.h"
#include "runtime/mcc.h"

enum map_kind { MAP_NODE, MAP_INPUT, MAP_OUTPUT };
struct map_node {
    const char *name, *op;
    uint32_t source; /* its row in the table of nodes; 0: none */
    uint32_t parent; /* from 1 on: the node whose body it is in, an earlier one; 0: none */
    enum map_kind kind;
};
/* Numbers from 0 on; from < to, and to does not fall from edge to edge. */
struct map_edge {
    uint32_t from, to;
    const char *type;
};
/* Lives from kernel `first` to kernel `last`, numbers in the order of the run; at most the number of steps. */
struct map_buffer {
    const char *name;
    int64_t bytes, offset;
    uint32_t first, last;
};
struct graph_map {
    bool rows; /* a table's nodes, of which nothing else is known */
    uint64_t hidden; /* nodes of constants that are left out */
    VEC(struct map_node) nodes;
    VEC(struct map_edge) edges;
    int64_t arena_bytes; /* with every symbol at 1, as the buffers; below 0: unknown */
    bool symbolic;
    VEC(uint32_t) steps; /* by kernel of the run: the node that leads it */
    VEC(struct map_buffer) buffers;
};

/* As bytes, for a table whose rows are row[n]; a name and an operator that are those of the row take none. */
struct span graph_map_pack(struct arena *, const struct graph_map *, const mcc_node *row, uint32_t n);
/* False: the bytes are none that graph_map_pack made for such a table. */
bool graph_map_unpack(struct arena *, struct span, const mcc_api *, struct graph_map *out);
/* The members "graph" and "memory" of the object that is open. */
void graph_map_json(const struct graph_map *, struct json *);
