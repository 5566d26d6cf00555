/* What a linker that lies would give for a DLL: each is one diagnostic, and nothing outside the file is touched. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "codegen/container/coff.h"
#include "codegen/names.h"
#include "runtime/mcc_note.h"
#include "runtime/rt.h"

enum {
    PE = 64,
    OPTIONAL = PE + 24,
    EXPORTS = OPTIONAL + 112,
    HEADS = OPTIONAL + 240,
    UNIT = 512,
    SIZE = 4 * UNIT,
    WEIGHTS = 100
};
enum { NOTE, TABLE, HOLE, RELOC };
enum { VIRTUAL_SIZE = 8, ADDRESS = 12, RAW_SIZE = 16, RAW_AT = 20, FLAGS = 36 };

static unsigned char *head_of(unsigned char *file, int section)
{
    return file + HEADS + 40 * section;
}

static void set(unsigned char *at, uint32_t x)
{
    memcpy(at, &x, sizeof x);
}

/* As lld writes it, as far as it is read. */
static void make(unsigned char *file)
{
    static const struct {
        const char *name;
        uint32_t at, size, bytes;
    } sections[] = {{COFF_NOTE, 1, UNIT, sizeof(struct mcc_note) + sizeof COFF_NAME},
                    {COFF_TABLE, 2, UNIT, sizeof(struct mcc_rt_desc)},
                    {COFF_WEIGHTS, 3, UNIT, 64},
                    {".reloc", 4, 0, 0}};
    memset(file, 0, SIZE);
    memcpy(file, "MZ", 2);
    set(file + 0x3c, PE);
    memcpy(file + PE, "PE\0\0", 4);
    file[PE + 6] = COUNT_OF(sections);
    file[PE + 20] = 240;
    set(file + OPTIONAL + 32, 4096);
    set(file + OPTIONAL + 36, UNIT);
    for (int i = 0; i < (int)COUNT_OF(sections); i++) {
        unsigned char *head = head_of(file, i);
        memcpy(head, sections[i].name, strlen(sections[i].name));
        set(head + VIRTUAL_SIZE, sections[i].bytes);
        set(head + ADDRESS, 4096 * sections[i].at);
        set(head + RAW_SIZE, sections[i].size);
        set(head + RAW_AT, UNIT * sections[i].at);
    }
    set(head_of(file, RELOC) + FLAGS, COFF_DISCARDABLE);
    memcpy(file + UNIT + sizeof(struct mcc_note), COFF_NAME, sizeof COFF_NAME);
    set(file + EXPORTS, 4096 * 2 + UNIT - 40); /* behind the table */
}

static bool write_weights(void *user, bool (*put)(void *sink, const void *, size_t), void *sink)
{
    static const char bytes[WEIGHTS];
    (void)user;
    return put(sink, bytes, sizeof bytes);
}

static bool accepts(const unsigned char *file, size_t size)
{
    char path[] = "/tmp/mcc-image-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    struct context *ctx = context_bare();
    jmp_buf unwind;
    bool ok = false;
    assert_non_null(ctx);
    ctx->unwind = &unwind;
    if (setjmp(unwind) == 0) {
        struct weights_writer weights = {.size = WEIGHTS, .write = write_weights};
        struct linked l = {
            .ctx = ctx, .arena = &ctx->session, .bytes = {file, size}, .weights = &weights, .query = "q", .path = path};
        ok = coff_library(&l);
    }
    assert_true(ok || (ctx->n_errors == 1 && ctx->fail == FAIL_INTERNAL));
    context_free(ctx);
    unlink(path);
    return ok;
}

static void test_good(void **state)
{
    unsigned char file[SIZE];
    (void)state;
    make(file);
    assert_true(accepts(file, SIZE));
}

static void test_lies(void **state)
{
    static const struct {
        int section;
        uint32_t field, value;
    } lies[] = {
        {NOTE, RAW_AT, SIZE - UNIT}, {NOTE, RAW_AT, UNIT + 4},     {NOTE, RAW_AT, UINT32_MAX},
        {NOTE, RAW_SIZE, 8},         {TABLE, RAW_AT, SIZE - UNIT}, {TABLE, RAW_AT, UNIT + 1},
        {TABLE, RAW_SIZE, 8},        {HOLE, RAW_SIZE, 0},          {HOLE, RAW_SIZE, UNIT / 2},
        {HOLE, RAW_AT, 0},           {HOLE, VIRTUAL_SIZE, 0},      {HOLE, VIRTUAL_SIZE, UINT32_MAX},
        {NOTE, VIRTUAL_SIZE, 0},     {NOTE, VIRTUAL_SIZE, UNIT},   {RELOC, FLAGS, 0},
    };
    unsigned char file[SIZE];
    (void)state;
    for (size_t i = 0; i < COUNT_OF(lies); i++) {
        make(file);
        set(head_of(file, lies[i].section) + lies[i].field, lies[i].value);
        assert_false(accepts(file, SIZE));
    }
    for (uint32_t at = UNIT - 39; at < UNIT; at++) {
        make(file);
        set(file + EXPORTS, 4096 * 2 + at);
        assert_false(accepts(file, SIZE));
    }
    make(file);
    file[UNIT + sizeof(struct mcc_note)] = '-';
    assert_false(accepts(file, SIZE));
    for (uint32_t at = 32; at <= 36; at += 4) { /* units of addresses and of the file */
        make(file);
        set(file + OPTIONAL + at, 0);
        assert_false(accepts(file, SIZE));
    }
    make(file);
    for (size_t size = 0; size < SIZE; size += 3)
        assert_false(accepts(file, size));
}

/* Offsets in objects for Windows have 32 bits. */
static void test_large_tables(void **state)
{
    struct context *ctx = context_bare();
    const struct platform *windows = platform_find("x86_64", "windows");
    struct object o;
    (void)state;
    object_init(&o, &ctx->session);
    assert_non_null(container_of(windows)->object(&ctx->session, windows, &o).data);
    o.bytes[SECTION_RODATA].n = (size_t)1 << 31;
    assert_null(container_of(windows)->object(&ctx->session, windows, &o).data);
    context_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_good), cmocka_unit_test(test_lies),
                                       cmocka_unit_test(test_large_tables)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
