/* Option table, command lines, configuration files and input specifications: what is accepted, what each refusal
 * says. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "cli/commands/command_line.h"
#include "cli/library/compile/compile.h"

struct fixture {
    struct context *ctx;
    struct options options;
};

static int set_up(void **state)
{
    static struct fixture f;
    f.ctx = context_new();
    options_init(&f.options);
    *state = &f;
    return f.ctx ? 0 : -1;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    context_free(f->ctx);
    return 0;
}

static bool parse(struct fixture *f, char where, const char *line)
{
    static char words[512]; /* the options keep pointers into it */
    char *argv[32];
    int argc = 0;
    snprintf(words, sizeof words, "%s", line);
    for (char *p = words; *p; p += strspn(p, " ")) {
        argv[argc++] = p;
        p += strcspn(p, " ");
        if (*p)
            *p++ = 0;
    }
    return options_parse(f->ctx, &f->options, argc, argv, where);
}

static const char *last_text(const struct fixture *f)
{
    return f->ctx->diags.n ? f->ctx->diags.data[f->ctx->diags.n - 1].text : "";
}

static void assert_says(const struct fixture *f, const char *part)
{
    if (!strstr(last_text(f), part))
        fail_msg("\"%s\" does not say \"%s\"", last_text(f), part);
}

static void test_spellings(void **state)
{
    struct fixture *f = *state;
    assert_true(parse(
        f, 'C', "-O1 net.onnx -o out.so -j4 --layout=NHWC -march=x86-64-v3 -target aarch64-linux-gnu --stats -MD"));
    assert_int_equal(f->options.level, 1);
    assert_string_equal(f->options.output, "out.so");
    assert_int_equal(f->options.jobs, 4);
    assert_int_equal(f->options.layout, OPT_LAYOUT_NHWC);
    assert_string_equal(f->options.march, "x86-64-v3");
    assert_string_equal(f->options.target, "aarch64-linux-gnu");
    assert_true(f->options.stats && f->options.depend);
    assert_int_equal(f->options.files.items.n, 1);
    assert_string_equal(f->options.files.items.data[0], "net.onnx");
}

static void test_separator_and_odd_names(void **state)
{
    struct fixture *f = *state;
    assert_true(parse(f, 'C', "-o @x --stats=false -oy -- -net.onnx"));
    assert_string_equal(f->options.output, "y");
    assert_string_equal(f->options.files.items.data[0], "-net.onnx");
    assert_false(f->options.stats);
}

static void test_lists_grow(void **state)
{
    struct fixture *f = *state;
    assert_true(parse(f, 'C', "--input=a:f32[1] --input b:i64[2]"));
    assert_int_equal(f->options.inputs.items.n, 2);
    assert_string_equal(f->options.inputs.items.data[1], "b:i64[2]");
}

static void test_usage_errors(void **state)
{
    static const struct {
        const char *line, *says;
    } rows[] = {
        {"--nosuch", "unknown option '--nosuch'"},
        {"--layuot=NCHW", "did you mean '--layout'"},
        {"--winograd-weights=open", "option '--winograd-weights=open' is gone: kernels derive the weights"},
        {"-O7", "takes 0 to 2"},
        {"-O", "needs a value"},
        {"--jobs=two", "whole number"},
        {"--jobs=-1", "whole number"},
        {"--jobs=0x10", "whole number"},
        {"--jobs=010", "whole number"},
        {"--limit-nodes=99999999999999999999", "whole number"},
        {"--limit-import-heap=9E", "whole number"},
        {"--layout=nchw", "one of"},
        {"--stats=yes", "true or false"},
        {"--max-constant-growth=1e", "a number such as"},
        {"--max-constant-growth=1e+-2", "a number such as"},
        {"--max-constant-growth=-1.5", "a number such as"},
        {"-i x=y", "unknown option"},
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct fixture *f = *state;
        f->ctx->fail = FAIL_NONE;
        assert_false(parse(f, 'C', rows[i].line));
        assert_says(f, rows[i].says);
        assert_int_equal(f->ctx->fail, FAIL_USAGE);
    }
}

static void test_sizes(void **state)
{
    struct fixture *f = *state;
    assert_true(
        parse(f, 'C', "--limit-import-heap=3M --limit-compile-heap=2G --max-constant-growth=1.25 --limit-rank=8"));
    assert_int_equal(f->options.limits.import_heap, 3 << 20);
    assert_true(f->options.limits.compile_heap == (int64_t)2 << 30);
    assert_true(f->options.limits.max_constant_growth == 1.25);
    assert_int_equal(f->options.limits.rank, 8);
}

static void test_exponents(void **state)
{
    static const struct {
        const char *text;
        double value;
    } rows[] = {{"1e-2", 1e-2}, {"2.5E3", 2500}, {"4e+1", 40}, {"0e0", 0}, {"12.5", 12.5}};
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct fixture *f = *state;
        char line[64];
        snprintf(line, sizeof line, "--max-constant-growth=%s", rows[i].text);
        assert_true(parse(f, 'C', line));
        assert_true(f->options.limits.max_constant_growth == rows[i].value);
    }
}

static void test_defaults_are_the_limits(void **state)
{
    struct fixture *f = *state;
    assert_memory_equal(&f->options.limits, &limits_default, sizeof limits_default);
}

/* ---- configuration ---------------------------------------------------------------------------------------- */

static bool load(struct fixture *f, const char *text, size_t size)
{
    char path[] = "/tmp/mcc-config-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0 && write(fd, text, size) == (ssize_t)size);
    close(fd);
    f->ctx->fail = FAIL_NONE;
    f->ctx->diags.n = 0;
    f->ctx->model_path = "";
    bool ok = config_load(f->ctx, &f->options, path, 'C');
    unlink(path);
    return ok;
}

static void test_config_accepts(void **state)
{
    struct fixture *f = *state;
    static const char text[] = "# a comment\n"
                               "O: 1\n"
                               "layout: NC16c\n"
                               "stats: true\n"
                               "limit-import-heap: 5M\n"
                               "overridable: [a, 'b c']\n"
                               "input:\n"
                               "  - x:f32[batch=1..64,3,?]\n"
                               "  - name: y\n"
                               "    dtype: i64\n"
                               "    shape: [batch, 2*n]\n"
                               "  - {name: z}\n";
    assert_true(load(f, text, sizeof text - 1));
    assert_int_equal(f->options.level, 1);
    assert_int_equal(f->options.layout, OPT_LAYOUT_NC16C);
    assert_int_equal(f->options.overridable.items.n, 2);
    assert_string_equal(f->options.overridable.items.data[1], "b c");
    assert_int_equal(f->options.inputs.items.n, 3);
    assert_string_equal(f->options.inputs.items.data[0], "x:f32[batch=1..64,3,?]");
    assert_string_equal(f->options.inputs.items.data[1], "y:i64[batch,2*n]");
    assert_string_equal(f->options.inputs.items.data[2], "z:");
    assert_true(load(f, "", 0));
    assert_true(load(f, "{}\n", 3));
}

static void test_config_refuses(void **state)
{
    static const struct {
        const char *text, *at, *says;
    } rows[] = {
        {"no_such_key: 1\n", ":1:1", "unknown key 'no_such_key'"},
        {"O: 1\nlayuot: NCHW\n", ":2:1", "did you mean layout"},
        {"O: 1\nstrassen: auto\n", ":2:1", "key 'strassen' is gone: it gained too little"},
        {"O: 1\nO: 1\n", ":2:1", "key given twice"},
        {"O: 4\n", ":1:4", "takes 0 to 2"},
        {"O: 1e0\n", ":1:4", "whole number"},
        {"O: '1'\n", ":1:4", "plain value"},
        {"O:\n", ":1:3", "needs a value"},
        {"O: [1]\n", ":1:4", "single value"},
        {"stats: no\n", ":1:8", "true or false"},
        {"stats: True\n", ":1:8", "true or false"},
        {"output: x\n", ":1:1", "unknown key"},
        {"- 1\n", ":1:1", "mapping"},
        {"O: 1\n---\nO: 2\n", ":2:1", "more than one document"},
        {"? [a]\n: 1\n", ":1:3", "key must be a text"},
        {"target: &a x\n", ":1:9", "anchors"},
        {"target: *a\n", ":1:9", "anchors"},
        {"target: !!str x\n", ":1:9", "tags"},
        {"target: \"x\\0y\"\n", ":1:9", "NUL"},
        {"target: \"never\n", ":2:1", "not YAML"},
        {"target:\n\tx: 1\n", ":2:1", "not YAML"},
        {"target: \xff\xfe\n", "", "not YAML"},
        {"input: [[a]]\n", ":1:9", "list of texts"},
        {"input: [{dtype: f32}]\n", ":1:9", "needs a name"},
        {"input: [{name: x, type: f32}]\n", ":1:19", "unknown key"},
        {"input: [{name: x, shape: 3}]\n", ":1:26", "is a list"},
        {"input: [{name: x, shape: [[1]]}]\n", ":1:27", "a dimension is"},
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct fixture *f = *state;
        if (load(f, rows[i].text, strlen(rows[i].text)))
            fail_msg("accepted: %s", rows[i].text);
        assert_int_equal(f->ctx->fail, FAIL_MODEL);
        assert_says(f, rows[i].says);
        char at[32];
        snprintf(at, sizeof at, ":%u:%u", f->ctx->line, f->ctx->column);
        if (*rows[i].at && strcmp(at, rows[i].at) != 0)
            fail_msg("%s: at %s, not %s", rows[i].text, at, rows[i].at);
    }
}

static void test_config_depth(void **state)
{
    struct fixture *f = *state;
    char text[40008];
    memset(text, '[', sizeof text);
    memcpy(text, "input: ", 7);
    assert_false(load(f, text, sizeof text));
}

static void test_command_line_wins(void **state)
{
    struct fixture *f = *state;
    char path[] = "/tmp/mcc-config-XXXXXX", line[128];
    int fd = mkstemp(path);
    assert_true(fd >= 0 && write(fd, "O: 1\nstats: true\n", 17) == 17);
    close(fd);
    snprintf(line, sizeof line, "-O0 --stats=false --config=%s", path);
    assert_true(parse(f, 'C', line));
    unlink(path);
    assert_int_equal(f->options.level, 0);
    assert_false(f->options.stats);
}

static void test_print_config(void **state)
{
    struct fixture *f = *state;
    struct strbuf text = strbuf_of(&f->ctx->session);
    assert_true(parse(f, 'C', "-O1 --input=x:f32[n] --limit-rank=4 --stats"));
    options_print_config(&text, &f->options);
    for (uint32_t i = 0; i < option_count; i++) {
        bool first = true;
        for (uint32_t k = 0; k < i; k++)
            first &= option_table[k].offset != option_table[i].offset;
        char line[100];
        snprintf(line, sizeof line, "%s:", option_table[i].name);
        assert_true(!first || !strchr(option_table[i].where, 'F') || strstr(text.data, line));
    }
    assert_non_null(strstr(text.data, "ferror-limit: 20\n"));
    assert_non_null(strstr(text.data, "# march: CPU\n"));
    options_init(&f->options);
    assert_true(load(f, text.data, text.n));
    assert_int_equal(f->options.level, 1);
    assert_int_equal(f->options.limits.rank, 4);
    assert_true(f->options.stats);
    assert_string_equal(f->options.inputs.items.data[0], "x:f32[n]");
}

static const char *other_value(const struct option *def)
{
    static char text[32];
    bool more = def->kind == OPTION_REAL || def->preset < (double)def->most;
    snprintf(text, sizeof text, "%.0f", more ? def->preset + 1 : (double)def->least);
    return def->kind == OPTION_FLAG ? "true" : def->kind == OPTION_ONE_OF ? strrchr(def->meta, ' ') + 1 : text;
}

/* Every row: an option that trials do not keep has its default in them, and the others what was given. */
static void test_trials(void **state)
{
    struct fixture *f = *state;
    struct options preset;
    uint32_t n_kept = 0;
    options_init(&preset);
    for (uint32_t i = 0; i < option_count; i++) {
        const struct option *def = &option_table[i];
        char *now = (char *)&f->options + def->offset;
        bool kept = strchr(def->where, 'T') != NULL;
        options_init(&f->options);
        if (!option_set(f->ctx, &f->options, def, other_value(def), FAIL_USAGE))
            fail_msg("%s=%s: %s", def->name, other_value(def), last_text(f));
        assert_memory_not_equal(now, (char *)&preset + def->offset, def->size);
        options_reset(&f->options, 'T');
        if ((memcmp(now, (char *)&preset + def->offset, def->size) != 0) != kept)
            fail_msg("'%s' is %s", def->name, kept ? "not kept" : "kept");
        for (uint32_t k = 0; k < i; k++) /* another name of an option */
            assert_true(option_table[k].offset != def->offset || !kept == !strchr(option_table[k].where, 'T'));
        n_kept += kept;
    }
    assert_true(n_kept > 0 && n_kept < option_count);
}

/* ---- input specifications ------------------------------------------------------------------------------------ */

static bool specs(struct fixture *f, const char *a, const char *b, struct input_spec **out, uint32_t *n)
{
    struct text_list list = {0};
    VEC_PUSH(&f->ctx->session, &list.items, a);
    if (b)
        VEC_PUSH(&f->ctx->session, &list.items, b);
    f->ctx->fail = FAIL_NONE;
    return input_specs_parse(f->ctx, &list, out, n);
}

static void test_spec(void **state)
{
    struct fixture *f = *state;
    struct input_spec *s;
    uint32_t n;
    assert_true(specs(f, "onnx::x:0:f32[batch=1..64,3,?,2*h]", "y[batch,h=32..1024%32]", &s, &n));
    assert_int_equal(n, 2);
    assert_string_equal(s[0].name, "onnx::x:0");
    assert_int_equal(s[0].elem, ELEM_F32);
    assert_int_equal(s[0].rank, 4);
    assert_int_equal(s[0].dims[2].i, 0);
    assert_true(ex_is(f->ctx->exprs, s[0].dims[1], 3));
    assert_int_equal(s[0].dims[0].i, s[1].dims[0].i);
    const struct symbol *batch = sym_get(f->ctx->exprs, ex_as_sym(f->ctx->exprs, s[1].dims[0]));
    assert_int_equal(batch->lo, 1);
    assert_int_equal(batch->hi, 64);
    const struct symbol *h = sym_get(f->ctx->exprs, ex_as_sym(f->ctx->exprs, s[1].dims[1]));
    assert_int_equal(h->divisor, 32);
    assert_int_equal(s[1].elem, ELEM_NONE);
}

static void test_spec_short_forms(void **state)
{
    struct fixture *f = *state;
    struct input_spec *s;
    uint32_t n;
    assert_true(specs(f, "x:f16", "x:i8[]", &s, &n));
    assert_int_equal(n, 1);
    assert_int_equal(s[0].elem, ELEM_I8);
    assert_int_equal(s[0].rank, 0);
    assert_true(specs(f, "x", "y:f32", &s, &n));
    assert_int_equal(s[0].rank, RANK_UNKNOWN);
    assert_int_equal(s[1].elem, ELEM_F32);
}

static void test_spec_errors(void **state)
{
    static const char *const bad[] = {
        "",
        ":f32[1]",
        "x:f23[1]",
        "x:f32[1,2",
        "x:f32 1]",
        "x:f32[-1]",
        "x:f32[n=5..2]",
        "x:f32[n=..2]",
        "x:f32[n=1-2]",
        "x:f32[3=1..2]",
        "x:f32[n=1..2%0]",
        "x:f32[1,,2]",
        "x:f32[99999999999999999999]",
        "x:f32[n=1..4 x]",
        "x:f32[3<=4]",
    };
    struct fixture *f = *state;
    struct input_spec *s;
    uint32_t n;
    for (size_t i = 0; i < COUNT_OF(bad); i++)
        if (specs(f, bad[i], NULL, &s, &n) && strcmp(bad[i], "x:f32[1,2") != 0)
            fail_msg("accepted: %s", bad[i]);
    assert_int_equal(f->ctx->fail, FAIL_USAGE);
    assert_false(specs(f, "x[k=1..4]", "y[k=5..9]", &s, &n));
    assert_says(f, "exclude each other");
}

static void test_spec_maximum(void **state)
{
    static const struct {
        const char *spec, *says;
    } bad[] = {
        {"x[a<=]", "a maximum is a number from 1 to 2147483647, as in n<=2048, not 'a<=' (character 3)"},
        {"x[a<=0]", "from 1 to 2147483647"},
        {"x[a<=-1]", "from 1 to 2147483647"},
        {"x[a<=2147483648]", "from 1 to 2147483647"},
        {"x[a<=99999999999999999999]", "from 1 to 2147483647"},
        {"x[a<=4 5]", "from 1 to 2147483647"},
        {"x[2*a<=4]", "only a name can have a maximum"},
        {"x[a<4]", "a maximum is written with <=, as in n<=2048, not 'a<4' (character 3)"},
        {"x[a=<4]", "a maximum is written with <="},
        {"x[b<=4,b<=5]", "two maxima of one name exclude each other: 'b<=5'"},
        {"x[c=1..4,c<=5]", "two maxima of one name"},
        {"x[d<=5,d=1..4]", "two maxima of one name"},
    };
    struct fixture *f = *state;
    struct input_spec *s;
    uint32_t n;
    assert_true(specs(f, "x:f32[1,len<=2048,64]", "y[len]", &s, &n));
    assert_int_equal(s[0].dims[1].i, s[1].dims[0].i);
    const struct symbol *len = sym_get(f->ctx->exprs, ex_as_sym(f->ctx->exprs, s[1].dims[0]));
    assert_true(len->room && len->lo == 0 && len->hi == 2048);
    assert_true(specs(f, "x[ len <= 2048, len<=2048]", "y[len=1..4096]", &s, &n));
    assert_true(len->lo == 1 && len->hi == 2048);
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        assert_false(specs(f, bad[i].spec, NULL, &s, &n));
        assert_says(f, bad[i].says);
    }
}

static void test_help_names_every_option(void **state)
{
    struct fixture *f = *state;
    struct strbuf help = strbuf_of(&f->ctx->session), reference = strbuf_of(&f->ctx->session);
    for (char c = 'A'; c <= 'Z'; c++) /* a letter is a command, or nobody's */
        options_help(&help, c);
    options_reference(&reference);
    for (uint32_t i = 0; i < option_count; i++) {
        if (strchr(option_table[i].where, 'h'))
            continue;
        assert_non_null(strstr(help.data, option_table[i].name));
        assert_non_null(strstr(reference.data, option_table[i].name));
    }
}

/* A title stands once, above options of its own. */
static void test_groups_are_contiguous(void **state)
{
    const char *titles[32];
    size_t n = 0;
    (void)state;
    for (uint32_t i = 0; i < option_count; i++) {
        const char *group = option_group(&option_table[i]);
        if (n && titles[n - 1] == group)
            continue;
        for (size_t k = 0; k < n; k++)
            assert_string_not_equal(titles[k], group);
        assert_true(n < COUNT_OF(titles));
        titles[n++] = group;
    }
    assert_string_equal(option_group(option_find("output", 'C')), "What is written");
    assert_string_equal(option_group(option_find("limit-rank", 'C')), "Limits");
    assert_string_equal(option_group(option_find("version", 'C')), "Help");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_groups_are_contiguous),
        cmocka_unit_test_setup_teardown(test_spellings, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_separator_and_odd_names, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_lists_grow, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_usage_errors, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_sizes, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_exponents, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_defaults_are_the_limits, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_config_accepts, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_config_refuses, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_config_depth, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_command_line_wins, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_print_config, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_trials, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_spec, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_spec_short_forms, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_spec_errors, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_spec_maximum, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_help_names_every_option, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
