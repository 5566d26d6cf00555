/* What a linker that lies would give for a Mach-O library: each is one diagnostic, and nothing outside the file is
 * touched. Files above 4 GiB. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "codegen/container/macho.h"
#include "codegen/names.h"
#include "runtime/mcc_note.h"
#include "runtime/rt.h"

enum { TEXT, WEIGHTS_SEGMENT, LINKEDIT, SYMBOLS_COMMAND, ORDER, NAME, SIGNATURE, FIXUPS, COMMANDS };
enum { NAME_BYTES = 24 + MACHO_NAME_BYTES, PAGE = 0x4000, SIZE = 2 * PAGE + 256, WEIGHTS = 100 };

struct file {
    unsigned char bytes[SIZE];
    uint32_t at[COMMANDS]; /* commands */
};

static void put(struct file *f, uint32_t *end, int which, const void *command, size_t bytes)
{
    f->at[which] = *end;
    memcpy(f->bytes + *end, command, bytes);
    *end += (uint32_t)bytes;
}

static struct macho_section section(const char *name, uint64_t at, uint64_t size)
{
    struct macho_section s = {.address = at, .size = size, .at = (uint32_t)at};
    memcpy(s.name, name, strlen(name));
    return s;
}

static struct macho_segment segment(const char *name, uint64_t at, uint64_t bytes, uint32_t n)
{
    struct macho_segment s = {.command = {MACHO_SEGMENT, (uint32_t)(sizeof s + n * sizeof(struct macho_section))},
                              .address = at,
                              .room = bytes,
                              .at = at,
                              .bytes = bytes,
                              .n_sections = n};
    memcpy(s.name, name, strlen(name));
    return s;
}

/* As lld writes it, as far as it is read: the note and the table in the first page, the weights' segment, symbols. */
static void make(struct file *f)
{
    struct {
        struct macho_segment s;
        struct macho_section note, table;
    } text = {segment("__TEXT", 0, PAGE, 2), section(MACHO_NOTE, 4096, sizeof(struct mcc_note)),
              section(MACHO_TABLE, 8192, sizeof(struct mcc_rt_desc))};
    struct {
        struct macho_segment s;
        struct macho_section weights;
    } weights = {segment(MACHO_WEIGHTS_SEGMENT, PAGE, PAGE, 1), section(MACHO_WEIGHTS, PAGE, 64)};
    const struct macho_segment last = segment("__LINKEDIT", 2 * PAGE, SIZE - 2 * PAGE, 0);
    const struct macho_symbols symbols = {{MACHO_SYMBOLS, sizeof symbols}, 2 * PAGE + 64, 1, 2 * PAGE + 80, 16};
    const struct macho_order order = {.command = {MACHO_ORDER, sizeof order}, .n_local = 1};
    const struct macho_piece signature = {{MACHO_SIGNATURE, sizeof signature}, 2 * PAGE + 96, 160};
    const struct macho_piece fixups = {{MACHO_FIXUPS, sizeof fixups}, 2 * PAGE, 64};
    const struct macho_symbol symbol = {.name = 2, .type = MACHO_TYPE, .section = 1};
    const uint32_t name[6] = {MACHO_NAME, NAME_BYTES, 24};
    struct macho_head head = {.magic = MACHO_MAGIC, .type = MACHO_LIBRARY};
    uint32_t end = sizeof head;
    memset(f, 0, sizeof *f);
    put(f, &end, TEXT, &text, sizeof text);
    put(f, &end, WEIGHTS_SEGMENT, &weights, sizeof weights);
    put(f, &end, LINKEDIT, &last, sizeof last);
    put(f, &end, SYMBOLS_COMMAND, &symbols, sizeof symbols);
    put(f, &end, ORDER, &order, sizeof order);
    put(f, &end, NAME, name, sizeof name);
    end += NAME_BYTES - (uint32_t)sizeof name;
    put(f, &end, SIGNATURE, &signature, sizeof signature);
    put(f, &end, FIXUPS, &fixups, sizeof fixups);
    head.n_commands = COMMANDS;
    head.commands_bytes = end - (uint32_t)sizeof head;
    memcpy(f->bytes, &head, sizeof head);
    memcpy(f->bytes + 2 * PAGE + 64, &symbol, sizeof symbol);
    memcpy(f->bytes + 2 * PAGE + 80, " \0_function", 12);
}

static bool write_weights(void *user, bool (*put_bytes)(void *sink, const void *, size_t), void *sink)
{
    static const char bytes[WEIGHTS];
    (void)user;
    return put_bytes(sink, bytes, sizeof bytes);
}

static enum fail result_of(const unsigned char *bytes, size_t size, uint64_t n_weights)
{
    char path[] = "/tmp/mcc-macho-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    struct context *ctx = context_bare();
    jmp_buf unwind;
    assert_non_null(ctx);
    ctx->unwind = &unwind;
    bool ok = false;
    struct function_names names = {NULL, 0};
    if (setjmp(unwind) == 0) {
        struct weights_writer weights = {.size = n_weights, .write = write_weights};
        struct linked l = {.ctx = ctx,
                           .arena = &ctx->session,
                           .bytes = {bytes, size},
                           .weights = &weights,
                           .names = &names,
                           .query = "q",
                           .path = path};
        ok = macho_library(&l);
    }
    enum fail fail = ctx->fail;
    assert_true(ok == (fail == FAIL_NONE) && ctx->n_errors == !ok);
    context_free(ctx);
    unlink(path);
    return fail;
}

static void test_good(void **state)
{
    struct file f;
    (void)state;
    make(&f);
    assert_int_equal(result_of(f.bytes, SIZE, WEIGHTS), FAIL_NONE);
}

static void test_too_large(void **state)
{
    struct file f;
    (void)state;
    make(&f);
    assert_int_equal(result_of(f.bytes, SIZE, UINT32_MAX), FAIL_LIMIT);
    assert_int_equal(result_of(f.bytes, SIZE, (uint64_t)1 << 40), FAIL_LIMIT);
}

#define SECTION(n, member)                                                         \
    (uint32_t)(sizeof(struct macho_segment) + (n) * sizeof(struct macho_section) + \
               offsetof(struct macho_section, member))
#define SEGMENT(member) (uint32_t)offsetof(struct macho_segment, member)

static void test_lies(void **state)
{
    static const struct {
        int command;
        uint32_t field, value;
    } lies[] = {
        {TEXT, SECTION(0, at), SIZE - 8},
        {TEXT, SECTION(0, at), 4100},
        {TEXT, SECTION(0, at), UINT32_MAX},
        {TEXT, SECTION(0, size), 8},
        {TEXT, SECTION(0, at), PAGE},
        {TEXT, SECTION(1, at), SIZE},
        {TEXT, SECTION(1, at), 8193},
        {TEXT, SECTION(1, size), 8},
        {TEXT, SEGMENT(n_sections), 3},
        {TEXT, SEGMENT(bytes), SIZE + 1},
        {TEXT, SEGMENT(at), UINT32_MAX},
        {TEXT, 4, 0},
        {TEXT, 4, 9},
        {TEXT, 4, UINT32_MAX},
        {WEIGHTS_SEGMENT, SEGMENT(at), 8},
        {WEIGHTS_SEGMENT, SEGMENT(bytes), 8},
        {WEIGHTS_SEGMENT, SEGMENT(room), 2 * PAGE},
        {WEIGHTS_SEGMENT, SECTION(0, size), 65},
        {WEIGHTS_SEGMENT, SECTION(0, at), PAGE + 64},
        {WEIGHTS_SEGMENT, SEGMENT(name), 0},
        {LINKEDIT, SEGMENT(at), 2 * PAGE - 4096},
        {LINKEDIT, SEGMENT(bytes), 255},
        {LINKEDIT, SEGMENT(name), 0},
        {SYMBOLS_COMMAND, 8, SIZE},
        {SYMBOLS_COMMAND, 12, UINT32_MAX},
        {SYMBOLS_COMMAND, 16, SIZE},
        {SYMBOLS_COMMAND, 16, PAGE},
        {SYMBOLS_COMMAND, 20, 0},
        {SYMBOLS_COMMAND, 20, 11},
        {SYMBOLS_COMMAND, 16, 2 * PAGE},
        {ORDER, 4, 72},
        {NAME, 8, NAME_BYTES + 1},
        {NAME, 8, NAME_BYTES - 4},
        {SIGNATURE, 0, 0},
        {FIXUPS, 8, 2 * PAGE + 90},
        {FIXUPS, 12, UINT32_MAX},
    };
    struct file f;
    (void)state;
    for (size_t i = 0; i < COUNT_OF(lies); i++) {
        make(&f);
        memcpy(f.bytes + f.at[lies[i].command] + lies[i].field, &lies[i].value, sizeof lies[i].value);
        if (result_of(f.bytes, SIZE, WEIGHTS) != FAIL_INTERNAL)
            fail_msg("lie %zu is not seen", i);
    }
    make(&f);
    for (size_t size = 0; size < SIZE; size += 97)
        assert_int_equal(result_of(f.bytes, size, WEIGHTS), FAIL_INTERNAL);
    f.bytes[2 * PAGE + 64] = 200; /* a symbol's name */
    assert_int_equal(result_of(f.bytes, SIZE, WEIGHTS), FAIL_INTERNAL);
}

/* Offsets in objects have 32 bits. */
static void test_large_tables(void **state)
{
    struct context *ctx = context_bare();
    const struct platform *macos = platform_find("aarch64", "macos");
    struct object o;
    (void)state;
    object_init(&o, &ctx->session);
    assert_non_null(container_of(macos)->object(&ctx->session, macos, &o).data);
    o.bytes[SECTION_RODATA].n = (size_t)1 << 31;
    assert_null(container_of(macos)->object(&ctx->session, macos, &o).data);
    context_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_good), cmocka_unit_test(test_too_large),
                                       cmocka_unit_test(test_lies), cmocka_unit_test(test_large_tables)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
