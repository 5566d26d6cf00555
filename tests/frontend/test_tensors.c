/* TensorProto in every element type, raw and typed; sub-byte packing; sparse tensors; what is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "tests/frontend/wire.h"

/* z = Identity(w) around one initializer message. */
static struct wire around(struct wire tensor, uint32_t field)
{
    struct wire g = {0}, z = {0};
    graph_node_add(&g, node("Identity", "w", "z"));
    wire_message(&g, field, &tensor);
    wire_text(&z, 1, "z");
    graph_output(&g, z);
    return model(g);
}

static struct span data_of(struct fixture *f, struct wire tensor, uint32_t field)
{
    struct graph *g = assert_imported(f, import(f, around(tensor, field)));
    const struct node *c = constant_of(g, "w");
    assert_non_null(c);
    const struct attr *a = node_attr(c, "data");
    assert_non_null(a);
    return a->u.data;
}

static void assert_bytes(struct span got, const void *want, size_t n)
{
    assert_int_equal(got.size, n);
    assert_memory_equal(got.data, want, n);
}

static struct wire typed(int32_t elem, const char *dims, uint32_t field, const void *data, size_t n)
{
    struct wire t = tensor_raw("w", elem, dims, NULL, 0);
    wire_data(&t, field, data, n);
    return t;
}

/* Each element type: packed in raw_data, as entries of its typed field, and what the graph holds. */
static const struct {
    int32_t elem;
    const char *dims;
    uint32_t field;
    size_t n_raw, n_typed, n_wide;
    const char *raw, *typed, *wide;
} rows[] = {
    {1, "2", 4, 8, 8, 8, "\0\0\x80\x3f\0\0\0\x40", "\0\0\x80\x3f\0\0\0\x40", "\0\0\x80\x3f\0\0\0\x40"},
    {2, "2", 5, 2, 3, 2, "\x07\xff", "\x07\xff\x01", "\x07\xff"},
    {3, "2", 5, 2, 11, 2, "\x07\xfe", "\x07\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01", "\x07\xfe"},
    {4, "1", 5, 2, 3, 2, "\x34\x92", "\xb4\xa4\x02", "\x34\x92"},
    {5, "1", 5, 2, 10, 2, "\xff\xff", "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "\xff\xff"},
    {6, "1", 5, 4, 10, 4, "\xff\xff\xff\xff", "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "\xff\xff\xff\xff"},
    {6, "1", 5, 4, 5, 4, "\xff\xff\xff\xff", "\xff\xff\xff\xff\x0f", "\xff\xff\xff\xff"},
    {7, "1", 7, 8, 1, 8, "\x05\0\0\0\0\0\0\0", "\x05", "\x05\0\0\0\0\0\0\0"},
    {9, "3", 5, 3, 3, 3, "\x00\x02\xff", "\x00\x01\x01", "\x00\x01\x01"},
    {10, "1", 5, 2, 2, 2, "\x00\x3c", "\x80\x78", "\x00\x3c"},
    {11, "1", 10, 8, 8, 8, "\0\0\0\0\0\0\xf0\x3f", "\0\0\0\0\0\0\xf0\x3f", "\0\0\0\0\0\0\xf0\x3f"},
    {12, "1", 11, 4, 5, 4, "\xff\xff\xff\xff", "\xff\xff\xff\xff\x0f", "\xff\xff\xff\xff"},
    {13, "1", 11, 8, 10, 8, "\xff\xff\xff\xff\xff\xff\xff\xff", "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
     "\xff\xff\xff\xff\xff\xff\xff\xff"},
    {14, "1", 4, 8, 8, 8, "\0\0\x80\x3f\0\0\0\x40", "\0\0\x80\x3f\0\0\0\x40", "\0\0\x80\x3f\0\0\0\x40"},
    {16, "1", 5, 2, 2, 2, "\x80\x3f", "\x80\x7f", "\x80\x3f"},
    {17, "1", 5, 1, 2, 1, "\xb8", "\xb8\x01", "\xb8"},
    {24, "1", 5, 1, 1, 1, "\x7f", "\x7f", "\x7f"},
    {21, "3", 5, 2, 3, 3, "\xf1\x07", "\xf1\x01\x07", "\x01\x0f\x07"},
    {22, "3", 5, 2, 3, 3, "\xf1\x07", "\xf1\x01\x07", "\x01\xff\x07"},
    {23, "3", 5, 2, 3, 3, "\xf1\x07", "\xf1\x01\x07", "\x01\x0f\x07"},
    {25, "5", 5, 2, 3, 5, "\xe4\x02", "\xe4\x01\x02", "\x00\x01\x02\x03\x02"},
    {26, "5", 5, 2, 3, 5, "\xe4\x02", "\xe4\x01\x02", "\x00\x01\xfe\xff\xfe"},
};

static void test_types(void **state)
{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct span raw = data_of(*state, tensor_raw("w", rows[i].elem, rows[i].dims, rows[i].raw, rows[i].n_raw), 5);
        assert_bytes(raw, rows[i].wide, rows[i].n_wide);
        size_t n = rows[i].n_typed;
        struct span entries = data_of(*state, typed(rows[i].elem, rows[i].dims, rows[i].field, rows[i].typed, n), 5);
        assert_bytes(entries, rows[i].wide, rows[i].n_wide);
        assert_int_equal((uintptr_t)entries.data % elem_size(elem_by_onnx(rows[i].elem)) % 8, 0);
    }
}

/* Entries one by one, and in several packed parts, are the same list. */
static void test_chunks(void **state)
{
    struct wire t = tensor_raw("w", 1, "4", NULL, 0);
    const float parts[] = {2, 3}, want[] = {1, 2, 3, 4};
    wire_f32(&t, 4, 1);
    wire_data(&t, 4, parts, sizeof parts);
    wire_f32(&t, 4, 4);
    assert_bytes(data_of(*state, t, 5), want, sizeof want);
    struct wire u = tensor_raw("w", 7, "2", NULL, 0);
    const int64_t ints[] = {-1, 300};
    wire_int(&u, 7, -1);
    wire_int(&u, 7, 300);
    assert_bytes(data_of(*state, u, 5), ints, sizeof ints);
}

static void test_strings(void **state)
{
    struct wire t = tensor_raw("w", 8, "2", NULL, 0);
    wire_data(&t, 6, "a\0b", 3);
    wire_data(&t, 6, "", 0);
    const struct span got = data_of(*state, t, 5);
    const struct span *s = got.data;
    assert_int_equal(got.size, 2 * sizeof *s);
    assert_int_equal(s[0].size, 3);
    assert_memory_equal(s[0].data, "a\0b", 3);
    assert_int_equal(s[1].size, 0);
}

/* Wherever in the file the bytes lie, the graph sees them aligned, and right. */
static void test_alignment(void **state)
{
    static const double want[] = {1.5, -2.5, 1e300};
    for (size_t pad = 0; pad < 17; pad++) {
        struct wire t = {0};
        char name[32];
        snprintf(name, sizeof name, "%.*s", (int)pad, "0123456789abcdefg");
        wire_text(&t, 12, name);
        wire_int(&t, 1, 3);
        wire_int(&t, 2, 11);
        wire_text(&t, 8, "w");
        wire_data(&t, 9, want, sizeof want);
        struct span got = data_of(*state, t, 5);
        assert_bytes(got, want, sizeof want);
        assert_int_equal((uintptr_t)got.data % 8, 0);
    }
}

static void test_empty(void **state)
{
    assert_int_equal(data_of(*state, tensor_raw("w", 1, "0 3", "", 0), 5).size, 0);
    assert_int_equal(data_of(*state, tensor_raw("w", 1, "0 3", NULL, 0), 5).size, 0);
    assert_int_equal(data_of(*state, tensor_raw("w", 1, "0 9223372036854775807", NULL, 0), 5).size, 0);
    assert_int_equal(data_of(*state, tensor_floats("w", "", (const float[]){7}, 1), 5).size, 4);
}

static void refused_raw(struct fixture *f, int32_t elem, const char *dims, size_t n, const char *says)
{
    static const char zeros[64];
    assert_refused(f, around(tensor_raw("w", elem, dims, zeros, n), 5), FAIL_MODEL, says);
    assert_non_null(strstr(messages(f), "tensor 'w'"));
}

static void test_refused_sizes(void **state)
{
    refused_raw(*state, 1, "3", 8, "raw_data has 8 bytes, the dims want 12");
    refused_raw(*state, 1, "3", 16, "raw_data has 16 bytes");
    refused_raw(*state, 1, "3", 11, "raw_data has 11 bytes");
    refused_raw(*state, 1, "1000000000", 12, "the dims want 4000000000");
    refused_raw(*state, 1, "4294967296 4294967296", 0, "64 bits");
    refused_raw(*state, 1, "4611686018427387907", 12, "64 bits");
    refused_raw(*state, 1, "-3", 12, "dim 0 is -3");
    refused_raw(*state, 1, "-1 -3", 12, "dim 0 is -1");
    refused_raw(*state, 1, "0 9223372036854775807", 12, "has no elements, and data");
    refused_raw(*state, 8, "3", 12, "strings cannot be in raw_data");
    refused_raw(*state, 0, "3", 12, "data_type 0");
    refused_raw(*state, 99, "3", 12, "data_type 99");
    refused_raw(*state, -1, "3", 12, "data_type -1");
    assert_refused(*state, around(tensor_raw("w", 1, "3", NULL, 0), 5), FAIL_MODEL,
                   "the tensor has no data, and its dims want 3");
}

static void test_refused_fields(void **state)
{
    static const char zeros[12];
    struct wire two = tensor_raw("w", 1, "3", zeros, 12), segment = tensor_raw("w", 1, "3", zeros, 12);
    struct wire wide = tensor_raw("w", 1, "", NULL, 0), bytes = {0};
    wire_data(&two, 4, zeros, 12);
    assert_refused(*state, around(two, 5), FAIL_MODEL, "float_data and in raw_data");
    wire_data(&segment, 3, "\x08\x00\x10\x03", 4);
    assert_refused(*state, around(segment, 5), FAIL_MODEL, "segments");
    assert_refused(*state, around(typed(1, "3", 4, zeros, 8), 5), FAIL_MODEL, "has 2 entries, the dims want 3");
    assert_refused(*state, around(typed(1, "3", 4, zeros, 10), 5), FAIL_MODEL, "no whole number");
    assert_refused(*state, around(typed(1, "3", 7, "\1\2\3", 3), 5), FAIL_MODEL,
                   "elements of f32 cannot be in int64_data");
    assert_refused(*state, around(typed(3, "1", 5, "\xac\x02", 2), 5), FAIL_MODEL, "holds 300, which is no i8");
    assert_refused(*state, around(typed(2, "1", 5, "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 10), 5), FAIL_MODEL,
                   "holds -1");
    assert_refused(*state, around(typed(12, "1", 11, "\x80\x80\x80\x80\x10", 5), 5), FAIL_MODEL, "4294967296");
    for (uint32_t i = 0; i < 40; i++)
        wire_int(&wide, 1, 1);
    wire_append(&bytes, zeros, 4);
    wire_message(&wide, 9, &bytes);
    assert_refused(*state, around(wide, 5), FAIL_LIMIT, "rank is 40");
}

/* ---- sparse ------------------------------------------------------------------------------------------------------ */

static struct wire sparse(const char *index_dims, const int64_t *indices, size_t n_indices, const char *dims)
{
    static const float values[] = {5, 6};
    struct wire s = {0}, v = tensor_floats("w", "2", values, 2);
    struct wire i = tensor_raw("wi", 7, index_dims, indices, n_indices * sizeof *indices);
    wire_message(&s, 1, &v);
    wire_message(&s, 2, &i);
    for (const char *p = dims; *p; p++)
        if (*p == 'G')
            wire_int(&s, 3, 1 << 20);
        else
            wire_int(&s, 3, *p == '-' ? -3 : *p - '0');
    return s;
}

static void test_sparse(void **state)
{
    static const int64_t flat[] = {1, 3}, rowwise[] = {0, 1, 1, 0};
    const float want[] = {0, 5, 0, 6}, want2[] = {0, 5, 6, 0};
    assert_bytes(data_of(*state, sparse("2", flat, 2, "4"), 15), want, sizeof want);
    assert_bytes(data_of(*state, sparse("2", flat, 2, "22"), 15), want, sizeof want);
    assert_bytes(data_of(*state, sparse("2 2", rowwise, 4, "22"), 15), want2, sizeof want2);
}

static void test_sparse_refused(void **state)
{
    static const struct {
        int64_t i[3];
        size_t n;
        const char *shape, *dims;
        enum fail fail;
        const char *says;
    } bad[] = {
        {{0, 3}, 2, "2", "3", FAIL_MODEL, "outside the dims"},
        {{-1, 2}, 2, "2", "3", FAIL_MODEL, "outside the dims"},
        {{1, 1}, 2, "2", "3", FAIL_MODEL, "not above"},
        {{2, 0}, 2, "2", "3", FAIL_MODEL, "not above"},
        {{0, 1, 2}, 3, "3", "3", FAIL_MODEL, "3 sparse indices for 2 values"},
        {{0, 1}, 2, "2", "-", FAIL_MODEL, "dim 0 is -3"},
        {{0, 1}, 2, "2", "GG", FAIL_LIMIT, "4398046511104 bytes when dense"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_refused(*state, around(sparse(bad[i].shape, bad[i].i, bad[i].n, bad[i].dims), 15), bad[i].fail,
                       bad[i].says);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_types),          cmocka_unit_test(test_chunks), cmocka_unit_test(test_strings),
        cmocka_unit_test(test_alignment),      cmocka_unit_test(test_empty),  cmocka_unit_test(test_refused_sizes),
        cmocka_unit_test(test_refused_fields), cmocka_unit_test(test_sparse), cmocka_unit_test(test_sparse_refused),
    };
    return cmocka_run_group_tests_name("tensors", tests, fixture_open, fixture_close);
}
