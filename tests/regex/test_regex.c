/* Tables of regular expressions: what they accept, that they are well formed, and that no pattern, drawn or hostile,
 * takes more than its bounds. What patterns mean is in tests/cases/test_regex.py, beside RE2.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "passes/regex/regex.h"

enum { CLASSES = 256, STATES = 258, ROWS = 260, BYTES_MAX = 3 << 20 };

static uint16_t u16_at(const struct span *t, size_t at)
{
    uint16_t x;
    assert_true(at + sizeof x <= t->size);
    memcpy(&x, (const char *)t->data + at, sizeof x);
    return x;
}

/* As regex.h says, nothing more; every state that an entry names is there. */
static void check_table(const struct span *t)
{
    uint32_t classes = u16_at(t, CLASSES), states = u16_at(t, STATES);
    assert_true(t->size <= BYTES_MAX && states >= 2 && t->size == ROWS + 2 * (size_t)states * (classes + 1));
    for (size_t c = 0; c < 256; c++)
        assert_true(((const uint8_t *)t->data)[c] < classes);
    for (size_t s = 0; s < states; s++)
        for (size_t c = 0; c <= classes; c++)
            assert_true(u16_at(t, ROWS + 2 * (s * (classes + 1) + c)) < (c == 0 ? 2 : s == 0 ? 1 : states));
}

static bool matches(const struct span *t, const char *text)
{
    size_t state = 1, width = u16_at(t, CLASSES) + 1u;
    for (; *text; text++)
        state = u16_at(t, ROWS + 2 * (state * width + 1 + ((const uint8_t *)t->data)[(unsigned char)*text]));
    return u16_at(t, ROWS + 2 * (state * width)) == 1;
}

static void test_match(void **state)
{
    static const struct {
        const char *pattern, *yes, *no;
    } cases[] = {
        {"", "", "a"},
        {"a(b|c)*d", "abcbd", "abcb"},
        {"[^a]", "\xc3\xa9", "\xc3"},
        {".", "\xf0\x9f\x98\x80", "\n"},
        {"\\bab\\b", "ab", "abab"},
        {"(?i)straSSe", "STRasse", "strase"},
        {"x{2,3}", "xxx", "xxxx"},
        {"(?m)a$\nb", "a\nb", "ab"},
        {"[\\w-]+@x\\.y", "a-b@x.y", "@x.y"},
    };
    struct context *ctx = context_bare();
    struct regex_error error;
    struct span table;
    (void)state;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        assert_true(regex_compile(&ctx->session, cases[i].pattern, strlen(cases[i].pattern), &table, &error));
        check_table(&table);
        assert_true(matches(&table, cases[i].yes));
        assert_false(matches(&table, cases[i].no));
    }
    context_free(ctx);
}

/* The memory of the stages is given back; only the table stays. */
static void test_memory(void **state)
{
    struct context *ctx = context_bare();
    struct regex_error error;
    struct span table;
    (void)state;
    assert_true(regex_compile(&ctx->session, ".{100}", 6, &table, &error));
    int64_t used = ctx->heap_used;
    assert_false(regex_compile(&ctx->session, "[ab]*a[ab]{30}", 14, &table, &error));
    assert_false(error.broken);
    assert_int_equal(ctx->heap_used, used);
    context_free(ctx);
}

/* Errors name a character of the pattern and say something. */
static void check(struct context *ctx, const char *pattern, size_t n)
{
    struct regex_error error;
    struct span table;
    struct arena arena;
    arena_init(&arena, ctx);
    if (regex_compile(&arena, pattern, n, &table, &error))
        check_table(&table);
    else
        assert_true(error.text && error.at <= n + 1);
    arena_release(&arena);
}

static void test_drawn(void **state)
{
    static const char *const words[] = {"a",        "b",
                                        "(",        "(?:",
                                        "(?i)",     "(?P<n>",
                                        ")",        ")",
                                        "[",        "[^",
                                        "]",        "[:alpha:]",
                                        "-",        "|",
                                        "*",        "+",
                                        "?",        "{2}",
                                        "{1,",      "3}",
                                        "{9,}",     "{1000}",
                                        "\\",       "\\d",
                                        "\\W",      "\\b",
                                        "\\x{",     "\\x41",
                                        "}",        "^",
                                        "$",        ".",
                                        "\xc3\xa9", "\xf0\x9f\x98\x80",
                                        "\xff",     "(?",
                                        ":",        "<",
                                        ",",        "\\p",
                                        "0",        "\n",
                                        "\\Q"};
    struct context *ctx = context_bare();
    uint64_t seed = 7;
    (void)state;
    for (int round = 0; round < 20000; round++) {
        char pattern[256];
        size_t n = 0;
        for (uint64_t k = 0; k < 1 + (uint64_t)round % 16; k++) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            const char *word = words[(seed >> 33) % COUNT_OF(words)];
            memcpy(pattern + n, word, strlen(word));
            n += strlen(word);
        }
        char *exact = malloc(n); /* so that a byte read behind its end is found */
        assert_non_null(exact);
        memcpy(exact, pattern, n);
        check(ctx, exact, n);
        free(exact);
    }
    context_free(ctx);
}

/* `part` n times. */
static void check_many(struct context *ctx, const char *part, size_t n, const char *end)
{
    size_t size = strlen(part), more = strlen(end);
    char *text = malloc(size * n + more + 1);
    assert_non_null(text);
    for (size_t i = 0; i < n; i++)
        memcpy(text + i * size, part, size);
    memcpy(text + size * n, end, more);
    check(ctx, text, size * n + more);
    free(text);
}

static void test_hostile(void **state)
{
    struct context *ctx = context_bare();
    static const char *const parts[] = {"(",
                                        "(?:",
                                        "[",
                                        "[[:",
                                        "[^",
                                        "a*",
                                        "(a*)*",
                                        "(((){10}){10}){10}",
                                        "a|",
                                        "(?i)",
                                        ".*",
                                        ".{9}",
                                        "[\xc3\xa9-\xe4\xb8\xad]?",
                                        "\\b*a?",
                                        "[^a]{3}|",
                                        "{",
                                        "\\"};
    (void)state;
    for (size_t i = 0; i < COUNT_OF(parts); i++) {
        check_many(ctx, parts[i], 65536 / strlen(parts[i]), "");
        check_many(ctx, parts[i], 2000, "a");
    }
    check_many(ctx, "x", 70000, "");
    check_many(ctx, "(.*a){3}", 100, ".{900}");
    context_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_match), cmocka_unit_test(test_memory),
                                       cmocka_unit_test(test_drawn), cmocka_unit_test(test_hostile)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
