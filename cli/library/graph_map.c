/* Section .mcc.graph: numbers as varints, one after the other (graph_map.h has what they mean).
 *
 *     version
 *     texts:   count, {length, bytes}                       ascending, each once
 *     nodes:   hidden, count, {kind | own << 2 | source << 3, parent, own: name, operator}
 *     edges:   count, {to - the one before, to - from, type}
 *     memory:  known | symbolic << 1, bytes, steps: count, {row}, buffers: count, {name, bytes, offset, first, last}
 */
#include "cli/library/graph_map.h"

/* TEXT_TIMES, TABLE_TIMES: how long all texts that rows name may be, beside the section and the table's own texts: an
 * edge of 4 bytes names a type of some 50. */
enum { TEXT_TIMES = 64, TABLE_TIMES = 4 };
enum { VERSION = 1, NODE_OWN = 4, NODE_SOURCE = 3, MEMORY_KNOWN = 1, MEMORY_SYMBOLIC = 2 };

/* ---- to bytes ---------------------------------------------------------------------------------------------------- */

struct packing {
    VEC(const char *) texts;
    struct strbuf out;
};

static bool is_own(const struct map_node *node, const mcc_node *row, uint32_t n)
{
    return !node->source || node->source >= n || strcmp(node->name, row[node->source].name) != 0 ||
           strcmp(node->op, row[node->source].op) != 0;
}

static void put_number(struct packing *p, uint64_t v)
{
    strbuf_varint(&p->out, v);
}

static void put_text(struct packing *p, const char *text)
{
    const char **found = bsearch(&text, p->texts.data, p->texts.n, sizeof text, by_text);
    put_number(p, (uint64_t)(found - p->texts.data));
}

static void put_texts(struct packing *p, struct arena *arena, const struct graph_map *map, const mcc_node *row,
                      uint32_t n)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < map->nodes.n; i++)
        if (is_own(&map->nodes.data[i], row, n)) {
            VEC_PUSH(arena, &p->texts, map->nodes.data[i].name);
            VEC_PUSH(arena, &p->texts, map->nodes.data[i].op);
        }
    for (uint32_t i = 0; i < map->edges.n; i++)
        VEC_PUSH(arena, &p->texts, map->edges.data[i].type);
    for (uint32_t i = 0; i < map->buffers.n; i++)
        VEC_PUSH(arena, &p->texts, map->buffers.data[i].name);
    if (p->texts.n)
        qsort(p->texts.data, p->texts.n, sizeof *p->texts.data, by_text);
    for (uint32_t i = 0; i < p->texts.n; i++)
        if (!kept || strcmp(p->texts.data[kept - 1], p->texts.data[i]) != 0)
            p->texts.data[kept++] = p->texts.data[i];
    p->texts.n = kept;
    put_number(p, kept);
    for (uint32_t i = 0; i < kept; i++) {
        size_t length = strlen(p->texts.data[i]);
        put_number(p, length);
        strbuf_append(&p->out, p->texts.data[i], length);
    }
}

static void put_nodes(struct packing *p, const struct graph_map *map, const mcc_node *row, uint32_t n)
{
    put_number(p, map->hidden);
    put_number(p, map->nodes.n);
    for (uint32_t i = 0; i < map->nodes.n; i++) {
        const struct map_node *node = &map->nodes.data[i];
        bool own = is_own(node, row, n);
        put_number(p, node->kind | (own ? NODE_OWN : 0) | (uint64_t)node->source << NODE_SOURCE);
        put_number(p, node->parent);
        if (own) {
            put_text(p, node->name);
            put_text(p, node->op);
        }
    }
}

static void put_memory(struct packing *p, const struct graph_map *map)
{
    bool known = map->arena_bytes >= 0;
    put_number(p, (known ? MEMORY_KNOWN : 0) | (map->symbolic ? MEMORY_SYMBOLIC : 0));
    put_number(p, known ? (uint64_t)map->arena_bytes : 0);
    put_number(p, map->steps.n);
    for (uint32_t i = 0; i < map->steps.n; i++)
        put_number(p, map->steps.data[i]);
    put_number(p, map->buffers.n);
    for (uint32_t i = 0; i < map->buffers.n; i++) {
        const struct map_buffer *b = &map->buffers.data[i];
        put_text(p, b->name);
        put_number(p, (uint64_t)b->bytes);
        put_number(p, (uint64_t)b->offset);
        put_number(p, b->first);
        put_number(p, b->last);
    }
}

struct span graph_map_pack(struct arena *arena, const struct graph_map *map, const mcc_node *row, uint32_t n)
{
    struct packing p = {0};
    uint32_t to = 0;
    strbuf_init(&p.out, arena);
    put_number(&p, VERSION);
    put_texts(&p, arena, map, row, n);
    put_nodes(&p, map, row, n);
    put_number(&p, map->edges.n);
    for (uint32_t i = 0; i < map->edges.n; i++) {
        const struct map_edge *e = &map->edges.data[i];
        put_number(&p, e->to - to);
        put_number(&p, e->to - e->from);
        put_text(&p, e->type);
        to = e->to;
    }
    put_memory(&p, map);
    return (struct span){p.out.data, p.out.n};
}

/* ---- from bytes: of whoever wrote the file ----------------------------------------------------------------------- */

struct unpacking {
    struct arena *arena;
    struct span rest;
    const char **texts;
    uint64_t n_texts;
    uint64_t left; /* bytes of texts that rows may still name: one text may be that of many */
    bool bad;
};

/* A number up to `most`; 0 once something was wrong. */
static uint64_t number(struct unpacking *u, uint64_t most)
{
    uint64_t v = 0;
    if (!u->bad && span_varint(&u->rest, &v) && v <= most)
        return v;
    u->bad = true;
    return 0;
}

/* How many rows follow: each has a byte at least, so there are not more of them than bytes. */
static uint32_t count(struct unpacking *u)
{
    return (uint32_t)number(u, u->rest.size < UINT32_MAX ? u->rest.size : UINT32_MAX);
}

static const char *used(struct unpacking *u, const char *text)
{
    size_t n = strnlen(text, u->left);
    u->bad = u->bad || n == u->left;
    u->left -= n;
    return text;
}

static const char *text(struct unpacking *u)
{
    uint64_t i = number(u, u->n_texts);
    if (i < u->n_texts)
        return used(u, u->texts[i]);
    u->bad = true;
    return "";
}

static void get_texts(struct unpacking *u)
{
    uint64_t n = count(u);
    u->texts = NEW_ARRAY(u->arena, const char *, n + 1);
    for (; u->n_texts < n && !u->bad; u->n_texts++) {
        size_t length = (size_t)number(u, u->rest.size);
        u->bad = u->bad || length > u->rest.size || memchr(u->rest.data, 0, length);
        if (u->bad)
            return;
        u->texts[u->n_texts] = arena_strndup(u->arena, u->rest.data, length);
        u->rest = (struct span){(const char *)u->rest.data + length, u->rest.size - length};
    }
}

static void get_nodes(struct unpacking *u, const mcc_api *api, struct graph_map *out)
{
    out->hidden = number(u, UINT32_MAX);
    for (uint32_t i = 0, n = count(u); i < n && !u->bad; i++) {
        uint64_t head = number(u, UINT64_MAX), source = head >> NODE_SOURCE, kind = head & (NODE_OWN - 1);
        bool own = head & NODE_OWN;
        struct map_node node = {.parent = (uint32_t)number(u, i), .kind = (enum map_kind)kind};
        u->bad = u->bad || kind > MAP_OUTPUT || (source >= api->n_node && source) || (!own && !source);
        if (u->bad)
            return;
        node.source = (uint32_t)source;
        node.name = own ? text(u) : used(u, api->node[source].name);
        node.op = own ? text(u) : used(u, api->node[source].op);
        VEC_PUSH(u->arena, &out->nodes, node);
    }
}

static void get_edges(struct unpacking *u, struct graph_map *out)
{
    uint64_t to = 0;
    for (uint32_t i = 0, n = count(u); i < n && !u->bad; i++) {
        to += number(u, UINT32_MAX);
        uint64_t back = number(u, to);
        u->bad = u->bad || !back || to >= out->nodes.n;
        struct map_edge edge = {(uint32_t)(to - back), (uint32_t)to, text(u)};
        if (!u->bad)
            VEC_PUSH(u->arena, &out->edges, edge);
    }
}

static void get_memory(struct unpacking *u, const mcc_api *api, struct graph_map *out)
{
    uint64_t flags = number(u, MEMORY_KNOWN | MEMORY_SYMBOLIC), bytes = number(u, INT64_MAX);
    out->arena_bytes = flags & MEMORY_KNOWN ? (int64_t)bytes : -1;
    out->symbolic = flags & MEMORY_SYMBOLIC;
    for (uint32_t i = 0, n = count(u); i < n && !u->bad; i++) {
        uint32_t row = (uint32_t)number(u, api->n_node ? api->n_node - 1 : 0);
        VEC_PUSH(u->arena, &out->steps, row);
    }
    for (uint32_t i = 0, n = count(u); i < n && !u->bad; i++) {
        struct map_buffer b = {.name = text(u)};
        b.bytes = (int64_t)number(u, INT64_MAX);
        b.offset = (int64_t)number(u, INT64_MAX);
        b.first = (uint32_t)number(u, out->steps.n);
        b.last = (uint32_t)number(u, out->steps.n);
        u->bad = u->bad || b.first > b.last;
        if (!u->bad)
            VEC_PUSH(u->arena, &out->buffers, b);
    }
}

bool graph_map_unpack(struct arena *arena, struct span bytes, const mcc_api *api, struct graph_map *out)
{
    struct unpacking u = {.arena = arena, .rest = bytes, .left = (uint64_t)bytes.size * TEXT_TIMES + 1};
    for (uint32_t i = 0; i < api->n_node; i++)
        u.left += TABLE_TIMES * (strlen(api->node[i].name) + strlen(api->node[i].op));
    *out = (struct graph_map){0};
    u.bad = number(&u, VERSION) != VERSION;
    get_texts(&u);
    get_nodes(&u, api, out);
    get_edges(&u, out);
    get_memory(&u, api, out);
    return !u.bad && u.rest.size == 0;
}

/* ---- to JSON ----------------------------------------------------------------------------------------------------- */

/* Nodes [name, operator, source, parent, kind], parent -1: none; edges [from, to, type]. */
static void graph_json(const struct graph_map *map, struct json *j)
{
    JSON_GROUP(j, "graph", "{", j_uint("hidden", map->hidden));
    json_open(j, "nodes", '[');
    for (uint32_t i = 0; i < map->nodes.n; i++) {
        const struct map_node *node = &map->nodes.data[i];
        JSON_GROUP(j, NULL, "[]", j_text(NULL, node->name), j_text(NULL, node->op), j_uint(NULL, node->source),
                   j_int(NULL, (int64_t)node->parent - 1), j_int(NULL, node->kind));
    }
    json_close(j, "]");
    if (map->rows)
        json_null(j, "edges");
    else
        json_open(j, "edges", '[');
    for (uint32_t i = 0; i < map->edges.n; i++)
        JSON_GROUP(j, NULL, "[]", j_uint(NULL, map->edges.data[i].from), j_uint(NULL, map->edges.data[i].to),
                   j_text(NULL, map->edges.data[i].type));
    if (!map->rows)
        json_close(j, "]");
    json_close(j, "}");
}

/* [name, bytes, offset, first, last] of each buffer; first and last number `steps`. */
static void memory_json(const struct graph_map *map, struct json *j)
{
    JSON_GROUP(j, "memory", "{", j_known("bytes", map->arena_bytes >= 0, (uint64_t)map->arena_bytes),
               j_bool("symbolic", map->symbolic));
    json_open(j, "steps", '[');
    for (uint32_t i = 0; i < map->steps.n; i++)
        json_uint(j, NULL, map->steps.data[i]);
    json_close(j, "]");
    json_open(j, "buffers", '[');
    for (uint32_t i = 0; i < map->buffers.n; i++) {
        const struct map_buffer *b = &map->buffers.data[i];
        JSON_GROUP(j, NULL, "[]", j_text(NULL, b->name), j_int(NULL, b->bytes), j_int(NULL, b->offset),
                   j_uint(NULL, b->first), j_uint(NULL, b->last));
    }
    json_close(j, "]}");
}

void graph_map_json(const struct graph_map *map, struct json *j)
{
    graph_json(map, j);
    if (!map->rows)
        memory_json(map, j);
}
