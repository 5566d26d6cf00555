/* .npy headers: what is read, what is refused, and that the scanner never looks beyond the bytes it was given, which
 * end at a page that cannot be read. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "cli/commands/artifact/file_tensor.h"
#include "ir/base/file.h"
#include "ir/expr/expr.h"

enum { ROOM = 1 << 12 };

/* A file of the version with this header, and so many zeros behind it. */
static size_t npy_file(char *out, int version, const char *header, size_t length, size_t data)
{
    size_t prefix = version > 1 ? 12 : 10;
    memset(out, 0, prefix + length + data);
    memcpy(out, "\x93NUMPY", 6);
    out[6] = (char)version;
    out[8] = (char)(length & 255);
    out[9] = (char)(length >> 8);
    memcpy(out + prefix, header, length);
    return prefix + length + data;
}

/* Reads the bytes where they end at a page that cannot be read; the text of the error, "" where there is none. */
static const char *read_at_edge(const char *bytes, size_t n, struct file_tensor *out)
{
    static char *edge, why[200];
    if (!edge) {
        char *map = mmap(NULL, 2 * ROOM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        assert_true(map != MAP_FAILED && mprotect(map + ROOM, ROOM, PROT_NONE) == 0);
        edge = map + ROOM;
    }
    struct context *ctx = context_new();
    struct file_tensor packed = {0};
    jmp_buf here;
    assert_true(ctx && n <= ROOM);
    memcpy(edge - n, bytes, n);
    ctx->unwind = &here;
    if (setjmp(here))
        fail_msg("unwound");
    bool good = npy_parse(ctx, "x.npy", (struct span){edge - n, n}, &packed);
    assert_int_equal(good, ctx->fail == FAIL_NONE);
    snprintf(why, sizeof why, "%s", good ? "" : ctx->diags.data[0].text);
    if (out)
        *out = packed;
    context_free(ctx);
    return why;
}

static const char *const headers[] = {
    "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }\n",
    "{\"shape\":(2,3),\"fortran_order\":False,\"descr\":\"=f4\"}",
    "{'descr': '<c16', 'fortran_order': False, 'shape': (), }",
    "{'descr': '|b1', 'fortran_order': False, 'shape': (7,), }",
};

static void test_prefixes(void **state)
{
    char file[ROOM];
    (void)state;
    for (int version = 1; version <= 3; version++)
        for (size_t i = 0; i < COUNT_OF(headers); i++) {
            size_t length = strlen(headers[i]), whole = strcspn(headers[i], "}") + 1;
            size_t n = npy_file(file, version, headers[i], length, 64);
            assert_string_equal(read_at_edge(file, n, NULL), "");
            for (size_t cut = 6; cut < n - 64; cut++)
                assert_string_not_equal(read_at_edge(file, cut, NULL), "");
            for (size_t cut = 0; cut < length; cut++) { /* a header that says that it ends there */
                n = npy_file(file, version, headers[i], cut, 0);
                assert_string_not_equal(read_at_edge(file, n, NULL), "");
                n = npy_file(file, version, headers[i], cut, 64);
                assert_int_equal(*read_at_edge(file, n, NULL) == 0, cut >= whole);
            }
        }
}

static void test_values(void **state)
{
    char file[ROOM];
    struct file_tensor b;
    (void)state;
    size_t n = npy_file(file, 1, headers[0], strlen(headers[0]), 24);
    assert_string_equal(read_at_edge(file, n, &b), "");
    assert_true(b.elem == ELEM_F32 && b.rank == 2 && b.dims[0] == 2 && b.dims[1] == 3 && b.size == 24);
    n = npy_file(file, 2, headers[2], strlen(headers[2]), 16);
    assert_string_equal(read_at_edge(file, n, &b), "");
    assert_true(b.elem == ELEM_C128 && b.rank == 0 && b.size == 16);
}

static void test_refused(void **state)
{
    static const struct {
        int version;
        const char *header, *word;
    } rows[] = {
        {1, "{'descr': '', 'fortran_order': False, 'shape': (), }", "element type"},
        {1, "{'descr': '<', 'fortran_order': False, 'shape': (), }", "element type"},
        {1, "{'descr': '>f4', 'fortran_order': False, 'shape': (), }", "element type"},
        {1, "{'descr': '<f44', 'fortran_order': False, 'shape': (), }", "element type"},
        {1, "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (), }", "element type"},
        {1, "{'descr': '<f4', 'fortran_order': True, 'shape': (), }", "Fortran order"},
        {1, "{'descr': '<f4', 'fortran_order': False, 'shape': (-1,), }", "a shape"},
        {1, "{'descr': '<f4', 'fortran_order': False, 'shape': (9223372036854775808,), }", "a shape"},
        {1, "{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296), }", "a shape"},
        {1, "{'descr': '<f4', 'fortran_order': False, 'shape': (1 2), }", "a shape"},
        {1, "{'descr': '<f4', 'fortran_order': False, 'shape': (1000,), }", "fewer bytes"},
        {1, "{'descr': '<f4', 'shape': (), }", "without"},
        {1, "{}", "without"},
        {1, "", "header"},
        {1, "{'descr'; '<f4'}", "header"},
        {0, "{'descr': '<f4', 'fortran_order': False, 'shape': (), }", "version"},
        {4, "{'descr': '<f4', 'fortran_order': False, 'shape': (), }", "version"},
    };
    char file[ROOM], many[1000] = "{'descr': '<f4', 'fortran_order': False, 'shape': (";
    (void)state;
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        size_t n = npy_file(file, rows[i].version, rows[i].header, strlen(rows[i].header), 64);
        const char *why = read_at_edge(file, n, NULL);
        if (!strstr(why, rows[i].word))
            fail_msg("%s: '%s' lacks '%s'", rows[i].header, why, rows[i].word);
    }
    for (int i = 0; i < 100; i++)
        strcat(many, "1,");
    strcat(many, "), }");
    assert_non_null(strstr(read_at_edge(file, npy_file(file, 1, many, strlen(many), 64), NULL), "a shape"));
}

/* A header so long that its copy would have memory of its own: what reads one byte more is seen by AddressSanitizer. */
static void test_long_header(void **state)
{
    enum { LENGTH = (4 << 20) - 1 };
    char name[] = "/tmp/mcc-npy-XXXXXX", *bytes = calloc(1, LENGTH + 12);
    struct context *ctx = context_new();
    struct file_tensor packed = {0};
    jmp_buf here;
    int fd = mkstemp(name);
    (void)state;
    assert_true(ctx && bytes && fd >= 0);
    memset(bytes, ' ', LENGTH + 12);
    memcpy(bytes, "\x93NUMPY\2\0\xff\xff\x3f", 12);
    bytes[12] = '{';
    memcpy(bytes + 12 + LENGTH - 10, "'descr': '", 10);
    assert_true(fd_write(fd, bytes, LENGTH + 12));
    close(fd);
    ctx->unwind = &here;
    if (setjmp(here))
        fail_msg("unwound");
    assert_false(file_tensor_read(ctx, name, &packed));
    assert_int_equal(ctx->fail, FAIL_ENV);
    context_free(ctx);
    unlink(name);
    free(bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_prefixes), cmocka_unit_test(test_values),
                                       cmocka_unit_test(test_refused), cmocka_unit_test(test_long_header)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
