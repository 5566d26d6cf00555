/* The file and its wire format: what the scanner refuses, where it says so, and that no damage of a good file does more
 * than end in a diagnostic.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/frontend/wire.h"

/* A good model and then some bytes. */
static struct wire with_tail(const char *bytes, size_t n)
{
    struct wire m = model_add();
    wire_append(&m, bytes, n);
    return m;
}

static void test_good(void **state)
{
    struct graph *g = assert_imported(*state, import(*state, model_add()));
    assert_int_equal(g->ir_version, 8);
    assert_int_equal(g->inputs.n, 1);
    assert_int_equal(g->outputs.n, 1);
    assert_string_equal(g->inputs.data[0].name, "x");
}

static void test_tails(void **state)
{
    static const struct {
        const char *bytes;
        size_t n;
        const char *says;
    } rows[] = {
        {"\x00", 1, "field number 0"},
        {"\x08", 1, "ends inside a number"},
        {"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", 12, "64 bits"},
        {"\xe3\x03\x08\x01", 4, "a group"},
        {"\xe4\x03", 2, "a group"},
        {"\xe6\x03", 2, "wire type 6"},
        {"\xe7\x03", 2, "wire type 7"},
        {"\x0a\x01\x08", 3, "not its type"},
        {"\x38\x01", 2, "not its type"},
        {"\x3a\x05\x01", 3, "a length of 5 where 1 bytes are left"},
        {"\x3a\x80\x80\x80\x80\x08\x01", 7, "a length of 2147483648"},
        {"\x3a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 11, "a length of 18446744073709551615"},
        {"\xe5\x03\x01\x02", 4, "4 bytes where 2 are left"},
        {"\xe1\x03\x01\x02", 4, "8 bytes where 2 are left"},
        {"\x42\x03\x0a\x01\xff", 5, "not UTF-8"},
        {"\x42\x04\x0a\x02\x61\x00", 6, "a NUL byte"},
        {"\x42\x05\x0a\x03\xed\xa0\x80", 7, "not UTF-8"},
        {"\x42\x04\x0a\x02\xc0\x80", 6, "not UTF-8"},
        {"\x80\x80\x80\x80\x80\x80\x01\x01", 8, "does not exist"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        assert_refused(*state, with_tail(rows[i].bytes, rows[i].n), FAIL_MODEL, rows[i].says);
}

static void test_legal_oddities(void **state)
{
    struct fixture *f = *state;
    assert_imported(f, import(f, with_tail("\x82\x7d\x05later", 8))); /* unknown field 2000 */
    assert_imported(f, import(f, with_tail("\xe1\x03"
                                           "12345678",
                                           10))); /* unknown, 8 bytes */
    assert_imported(f, import(f, with_tail("\xe5\x03"
                                           "1234",
                                           6))); /* unknown, 4 bytes */
    assert_imported(f, import(f, with_tail("\x08\x88\x80\x80\x00", 5))); /* 8 in four bytes; the last one counts */
    assert_imported(f, import(f, with_tail("\x3a\x80\x00", 3))); /* an empty part of the graph */
    assert_imported(f, import(f, with_tail("\x3a\x80\x80\x80\x80\x80\x00", 7)));
}

static void test_positions(void **state)
{
    struct wire m = model_add();
    char says[64];
    snprintf(says, sizeof says, "byte %zu, in ModelProto", m.n);
    wire_append(&m, "\x08", 1);
    assert_refused(*state, m, FAIL_MODEL, says);
}

static void test_looks(void **state)
{
    static const struct {
        const char *bytes;
        size_t n;
        const char *says;
    } rows[] = {
        {"\x1f\x8b\x08\x00 gzip ", 10, "a gzip archive"},
        {"\x7f"
         "ELF\x02\x01\x01\x00",
         8, "an ELF object"},
        {"\x89PNG\r\n\x1a\n", 8, "a PNG image"},
        {"This is not a model.\n", 21, "text"},
        {"PK\x03\x04 zip", 8, "a zip archive"},
        {"\x40\x00\x00\x00\x00\x00\x00\x00{\"a\":1}", 15, "safetensors"},
        {"\x80\x04\x95 pickle", 10, "pickle"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct wire w = {0};
        wire_append(&w, rows[i].bytes, rows[i].n);
        assert_refused(*state, w, FAIL_MODEL, rows[i].says);
    }
    assert_refused(*state, (struct wire){0}, FAIL_MODEL, "the file is empty");
}

/* Nested as node.attribute.g, `levels` graphs. */
static struct wire nested(uint32_t levels)
{
    struct wire inner = {0};
    for (uint32_t i = 0; i < levels; i++) {
        struct wire attr = {0}, outer = {0};
        wire_message(&attr, 6, &inner);
        wire_message(&outer, 5, &attr);
        wire_message(&inner, 1, &outer);
    }
    return model(inner);
}

static void test_nesting(void **state)
{
    assert_refused(*state, nested(33), FAIL_LIMIT, "nested more than 100 deep");
    assert_refused(*state, nested(5000), FAIL_LIMIT, "nested more than 100 deep");
    assert_refused(*state, nested(32), FAIL_MODEL, "no outputs"); /* 98 deep: decoded, then refused for its content */
}

static void test_many(void **state)
{
    struct wire g = {0}, m = {0};
    for (uint32_t i = 0; i < 1000000; i++)
        wire_data(&g, 1, "", 0);
    assert_refused(*state, model(g), FAIL_LIMIT, "memory");
    wire_int(&m, 1, 8);
    for (uint32_t i = 0; i < 100000; i++)
        wire_data(&m, 7, "\x0a\x00", 2);
    assert_refused(*state, m, FAIL_LIMIT, "parts");
}

static void test_special_files(void **state)
{
    struct fixture *f = *state;
    struct wire m = model_add();
    jmp_buf unwind;
    char path[128];
    snprintf(path, sizeof path, "%s/fifo", f->dir);
    assert_int_equal(mkfifo(path, 0600), 0);
    const char *const paths[] = {path, f->dir, "/dev/zero", "/dev/null", "/nonexistent/model.onnx"};
    import(f, m);
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
        context_free(f->ctx);
        f->ctx = context_new();
        f->ctx->unwind = &unwind;
        f->ctx->model_path = paths[i];
        if (setjmp(unwind))
            fail_msg("unwound");
        assert_null(onnx_import(f->ctx, paths[i], NULL, NULL));
        assert_int_equal(f->ctx->fail, FAIL_ENV);
    }
}

static void length_put(struct wire *w, uint32_t field, size_t n)
{
    uint8_t bytes[7] = {(uint8_t)(field << 3 | 2)};
    for (uint32_t i = 0; i < 5; i++)
        bytes[1 + i] = (uint8_t)((n >> (7 * i) & 0x7F) | (i < 4 ? 0x80 : 0));
    wire_append(w, bytes, 6);
}

/* Lengths of 2^28 and more: a graph whose last initializer is a hole of zeros at the end of the file. */
static void test_large(void **state)
{
    struct fixture *f = *state;
    const size_t n = (size_t)70 << 22;
    struct wire head = {0}, graph = {0}, tensor = {0}, z = {0};
    jmp_buf unwind;
    graph_node_add(&graph, node("Identity", "w", "z"));
    wire_text(&z, 1, "z");
    graph_output(&graph, z);
    wire_int(&tensor, 1, (int64_t)n);
    wire_int(&tensor, 2, 2);
    wire_text(&tensor, 8, "w");
    length_put(&tensor, 9, n);
    length_put(&graph, 5, tensor.n + n);
    wire_append(&graph, tensor.data, tensor.n);
    wire_int(&head, 1, 8);
    opset(&head, 8, "", 17);
    length_put(&head, 7, graph.n + n);
    wire_append(&head, graph.data, graph.n);
    file_put(f, "large.onnx", head.data, head.n);
    snprintf(f->path, sizeof f->path, "%s/large.onnx", f->dir);
    assert_int_equal(truncate(f->path, (off_t)(head.n + n)), 0);
    context_free(f->ctx);
    f->ctx = context_new();
    f->ctx->unwind = &unwind;
    f->ctx->model_path = f->path;
    if (setjmp(unwind))
        fail_msg("unwound");
    struct graph *g = assert_imported(f, onnx_import(f->ctx, f->path, NULL, NULL));
    assert_int_equal(node_attr(constant_of(g, "w"), "data")->u.data.size, n);
    assert_int_equal(truncate(f->path, ((off_t)1 << 31) + 5), 0);
    assert_null(onnx_import(f->ctx, f->path, NULL, NULL));
    assert_int_equal(f->ctx->fail, FAIL_MODEL);
    assert_non_null(strstr(messages(f), "2 GiB"));
    unlink(f->path);
    snprintf(f->path, sizeof f->path, "%s/model.onnx", f->dir);
    wire_free(&tensor);
    wire_free(&graph);
    wire_free(&head);
}

/* Every prefix, and every value of every byte, of a good file. */
static void test_damage(void **state)
{
    struct fixture *f = *state;
    struct wire m = model_add();
    for (size_t n = 0; n < m.n; n++)
        assert_null(import_bytes(f, m.data, n));
    for (size_t i = 0; i < m.n; i++) {
        uint8_t good = m.data[i];
        for (uint32_t v = 0; v < 256; v += 1 + i % 3) {
            m.data[i] = (uint8_t)v;
            import_bytes(f, m.data, m.n);
            assert_int_not_equal(f->ctx->fail, FAIL_INTERNAL);
        }
        m.data[i] = good;
    }
    assert_non_null(import_bytes(f, m.data, m.n));
    wire_free(&m);
}

/* The n-th allocation fails, for every n: a diagnostic each time, nothing lost (the sanitizer build looks). */
static void test_allocation_failures(void **state)
{
    struct fixture *f = *state;
    import(f, model_add());
    for (int64_t n = 1; n < 100000; n++) {
        if (import_file(f, n))
            return;
        assert_int_equal(f->ctx->fail, FAIL_LIMIT);
    }
    fail_msg("the import never succeeded");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good),
        cmocka_unit_test(test_tails),
        cmocka_unit_test(test_legal_oddities),
        cmocka_unit_test(test_positions),
        cmocka_unit_test(test_looks),
        cmocka_unit_test(test_nesting),
        cmocka_unit_test(test_many),
        cmocka_unit_test(test_special_files),
        cmocka_unit_test(test_large),
        cmocka_unit_test(test_damage),
        cmocka_unit_test(test_allocation_failures),
    };
    return cmocka_run_group_tests_name("scan", tests, fixture_open, fixture_close);
}
