/* What a linker that lies would give for a WebAssembly module, and functions that engines refuse: each is one
 * diagnostic, and nothing outside the file is touched. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "codegen/container/wasm.h"

enum { WEIGHTS = 100, WEIGHTS_AT = 1024, HEAP = WEIGHTS_AT + WASM_PLACEHOLDER };

static void put_global(struct strbuf *globals, uint64_t value)
{
    strbuf_append(globals, "\x7f\0", 2);
    wasm_put_address(globals, value);
}

static void put_export(struct strbuf *exports, const char *name, uint32_t number)
{
    wasm_put_bytes(exports, name, strlen(name));
    strbuf_varint(exports, 3);
    strbuf_varint(exports, number);
}

/* As lld writes it, as far as it is read: one function of so many locals and bytes. */
static struct span make(struct arena *arena, uint64_t locals, uint64_t bytes)
{
    struct strbuf out, memory, globals, exports, code, body;
    struct strbuf *const all[] = {&out, &memory, &globals, &exports, &code, &body};
    for (size_t i = 0; i < COUNT_OF(all); i++)
        strbuf_init(all[i], arena);
    strbuf_append(&memory, "\1\0\1", 3);
    strbuf_varint(&globals, 2);
    put_global(&globals, WEIGHTS_AT);
    put_global(&globals, HEAP);
    strbuf_varint(&exports, 2);
    put_export(&exports, "w", 0);
    put_export(&exports, WASM_HEAP, 1);
    strbuf_varint(&body, 1);
    strbuf_varint(&body, locals);
    strbuf_append(&body, "\x7f", 1);
    while (body.n < bytes)
        strbuf_append(&body, "\x0b", 1);
    strbuf_varint(&code, 1);
    wasm_put_bytes(&code, body.data, body.n);
    strbuf_append(&out, WASM_HEAD, WASM_HEAD_BYTES);
    wasm_put_section(&out, WASM_MEMORY, &memory);
    wasm_put_section(&out, WASM_GLOBAL, &globals);
    wasm_put_section(&out, WASM_EXPORT, &exports);
    wasm_put_section(&out, WASM_CODE, &code);
    return (struct span){out.data, out.n};
}

static bool write_weights(void *user, bool (*put)(void *sink, const void *, size_t), void *sink)
{
    static const char bytes[WEIGHTS];
    (void)user;
    return put(sink, bytes, sizeof bytes);
}

/* FAIL_NONE: it was written. */
static enum fail written(struct span module)
{
    char path[] = "/tmp/mcc-module-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    struct context *ctx = context_bare();
    jmp_buf unwind;
    assert_non_null(ctx);
    ctx->unwind = &unwind;
    if (setjmp(unwind) == 0) {
        struct static_network n = {
            .weights_symbol = "w", .weights = {.size = WEIGHTS, .write = write_weights}, .description = {"{}", 2}};
        struct linked l = {.ctx = ctx, .arena = &ctx->session, .bytes = module, .network = &n, .path = path};
        bool ok = wasm_library(&l);
        assert_true(ok == (ctx->fail == FAIL_NONE));
    }
    enum fail fail = ctx->fail;
    assert_true(ctx->n_errors == (fail != FAIL_NONE));
    context_free(ctx);
    unlink(path);
    return fail;
}

static void test_limits(void **state)
{
    struct context *ctx = *state;
    assert_int_equal(written(make(&ctx->session, 50000, 0)), FAIL_NONE);
    assert_int_equal(written(make(&ctx->session, 50001, 0)), FAIL_LIMIT);
    assert_int_equal(written(make(&ctx->session, 1, 7654321)), FAIL_NONE);
    assert_int_equal(written(make(&ctx->session, 1, 7654322)), FAIL_LIMIT);
}

/* Cut anywhere, and with each byte changed: written, or refused. */
static void test_lies(void **state)
{
    struct context *ctx = *state;
    struct span module = make(&ctx->session, 1, 0);
    unsigned char *copy = arena_copy(&ctx->session, module.data, module.size);
    for (size_t size = 0; size < module.size; size++)
        (void)written((struct span){copy, size});
    for (size_t at = 0; at < module.size; at++)
        for (int bit = 0; bit < 8; bit++) {
            copy[at] ^= (unsigned char)(1 << bit);
            (void)written((struct span){copy, module.size});
            copy[at] ^= (unsigned char)(1 << bit);
        }
}

static int setup(void **state)
{
    *state = context_bare();
    return *state ? 0 : -1;
}

static int teardown(void **state)
{
    context_free(*state);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_limits), cmocka_unit_test(test_lies)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
