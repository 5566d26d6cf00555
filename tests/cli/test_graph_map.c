/* Section .mcc.graph: what was packed is what comes back, and bytes that nobody packed are refused or are a sound map:
 * its numbers lead nowhere outside. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "cli/library/graph_map.h"
#include "ir/expr/expr.h"

static const mcc_node rows[] = {{.name = "", .op = ""},
                                {.name = "conv", .op = "Conv"},
                                {.name = "loop", .op = "Loop"},
                                {.name = "add", .op = "Add"}};

static struct graph_map sample(struct arena *arena)
{
    static const struct map_node nodes[] = {{"x", "input", 0, 0, MAP_INPUT},  {"conv", "Conv", 1, 0, MAP_NODE},
                                            {"loop", "Loop", 2, 0, MAP_NODE}, {"i", "parameter", 0, 3, MAP_INPUT},
                                            {"add", "Sum", 3, 3, MAP_NODE},   {"y", "output", 0, 0, MAP_OUTPUT}};
    static const struct map_edge edges[] = {
        {0, 1, "f32[n,3]"}, {1, 2, "f32[n,3]"}, {3, 4, ""}, {1, 4, ""}, {2, 5, "f32"}};
    static const struct map_buffer buffers[] = {{"relu", 128, 0, 0, 1}, {"", INT64_MAX, 1 << 20, 1, 2}};
    struct graph_map map = {.hidden = 300, .arena_bytes = 1 << 21, .symbolic = true};
    for (size_t i = 0; i < COUNT_OF(nodes); i++)
        VEC_PUSH(arena, &map.nodes, nodes[i]);
    for (size_t i = 0; i < COUNT_OF(edges); i++)
        VEC_PUSH(arena, &map.edges, edges[i]);
    for (size_t i = 0; i < COUNT_OF(buffers); i++)
        VEC_PUSH(arena, &map.buffers, buffers[i]);
    VEC_PUSH(arena, &map.steps, 1);
    VEC_PUSH(arena, &map.steps, 3);
    return map;
}

static mcc_api table(struct arena *arena)
{
    mcc_node *node = NEW_ARRAY(arena, mcc_node, COUNT_OF(rows));
    for (size_t i = 0; i < COUNT_OF(rows); i++)
        node[i] = (mcc_node){.name = rows[i].name, .op = rows[i].op};
    return (mcc_api){.n_node = COUNT_OF(rows), .node = node};
}

static const char *json_of(struct arena *arena, const struct graph_map *map)
{
    struct strbuf text = strbuf_of(arena);
    struct json j = {.out = &text};
    json_open(&j, NULL, '{');
    graph_map_json(map, &j);
    json_close(&j, "}");
    return arena_strndup(arena, text.data, text.n);
}

static void check_sound(const struct graph_map *map, const mcc_api *api)
{
    for (uint32_t i = 0; i < map->nodes.n; i++) {
        const struct map_node *node = &map->nodes.data[i];
        assert_true(node->source < api->n_node && node->parent <= i && node->kind <= MAP_OUTPUT);
        assert_non_null(memchr(node->name, 0, 64));
        assert_non_null(memchr(node->op, 0, 64));
    }
    for (uint32_t i = 0; i < map->edges.n; i++)
        assert_true(map->edges.data[i].from < map->edges.data[i].to && map->edges.data[i].to < map->nodes.n);
    for (uint32_t i = 0; i < map->steps.n; i++)
        assert_true(map->steps.data[i] < api->n_node);
    for (uint32_t i = 0; i < map->buffers.n; i++) {
        const struct map_buffer *b = &map->buffers.data[i];
        assert_true(b->bytes >= 0 && b->offset >= 0 && b->first <= b->last && b->last <= map->steps.n);
    }
}

static void test_there_and_back(void **state)
{
    struct context *ctx = *state;
    struct arena *arena = &ctx->session;
    struct graph_map map = sample(arena), back;
    mcc_api api = table(arena);
    struct span bytes = graph_map_pack(arena, &map, rows, COUNT_OF(rows));
    assert_true(graph_map_unpack(arena, bytes, &api, &back));
    assert_string_equal(json_of(arena, &map), json_of(arena, &back));
    assert_int_equal(back.nodes.data[4].parent, 3);
    /* What the table has is not there again; what differs from it is. */
    assert_null(memmem(bytes.data, bytes.size, "conv", 4));
    assert_non_null(memmem(bytes.data, bytes.size, "Sum", 3));
    assert_in_range(bytes.size, 100, 150);
}

static void test_unknown_memory(void **state)
{
    struct context *ctx = *state;
    struct graph_map map = {.arena_bytes = -1}, back;
    mcc_api api = table(&ctx->session);
    struct span bytes = graph_map_pack(&ctx->session, &map, rows, COUNT_OF(rows));
    assert_true(graph_map_unpack(&ctx->session, bytes, &api, &back));
    assert_int_equal(back.arena_bytes, -1);
    assert_int_equal(back.nodes.n, 0);
}

static void test_damaged(void **state)
{
    struct context *ctx = *state;
    struct arena *arena = &ctx->session;
    struct graph_map map = sample(arena), back;
    mcc_api api = table(arena);
    struct span bytes = graph_map_pack(arena, &map, rows, COUNT_OF(rows));
    unsigned char *copy = arena_alloc(arena, bytes.size + 1);
    uint32_t refused = 0;
    memcpy(copy, bytes.data, bytes.size);
    for (size_t n = 0; n < bytes.size; n++)
        assert_false(graph_map_unpack(arena, (struct span){copy, n}, &api, &back));
    copy[bytes.size] = 0;
    assert_false(graph_map_unpack(arena, (struct span){copy, bytes.size + 1}, &api, &back));
    for (size_t at = 0; at < bytes.size; at++)
        for (int value = 0; value < 256; value++) {
            unsigned char old = copy[at];
            copy[at] = (unsigned char)value;
            if (graph_map_unpack(arena, (struct span){copy, bytes.size}, &api, &back))
                check_sound(&back, &api);
            else
                refused++;
            copy[at] = old;
        }
    assert_true(refused > 128 * bytes.size);
    /* A table with fewer rows than the map speaks of. */
    api.n_node = 2;
    assert_false(graph_map_unpack(arena, bytes, &api, &back));
}

static int begin(void **state)
{
    *state = context_new();
    return *state ? 0 : 1;
}

static int end(void **state)
{
    context_free(*state);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test_setup_teardown(test_there_and_back, begin, end),
                                       cmocka_unit_test_setup_teardown(test_unknown_memory, begin, end),
                                       cmocka_unit_test_setup_teardown(test_damaged, begin, end)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
