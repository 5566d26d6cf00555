/* The command: picks the sub-command, parses its options, reports, and turns the first error's class into the exit
 * code. Signals remove the output under construction and then end the process as they would have.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include "cli/commands/command.h"
#include "cli/commands/command_line.h"
#include "cli/commands/progress.h"
#include "cli/commands/temporary.h"
#include "cli/library/options/cpu.h"
#include "cli/library/json.h"
#include "cli/library/mccc.h"
#include "cli/library/options/nearest.h"

static const struct command {
    const char *name;
    char where;                  /* letter in options.def */
    const char *usage, *help;
    const char *examples;        /* as in struct command_row; a test runs them all */
    command_fn *run;
    bool needs_file;
} commands[] = {
    {"compile", 'C', "[compile] MODEL [-o FILE]", "compiles a network to a shared object that needs only libc",
     "mcc net.onnx\twrites net.so, which needs only libc\n"
     "mcc net.onnx -o net.o --prefix=net\twrites an object to link into a program\n"
     "mcc net.onnx --emit=header -o net.so\talso writes net.h, a C function with typed arguments\n"
     "mcc net.onnx --input='x[n=1..8,3]'\tadds to the shape of an input\n"
     "mcc net.onnx --target=aarch64-linux-gnu -o arm.so\tcompiles for another machine\n",
     command_compile, false},
    {"check", 'K', "check MODEL", "says whether a network compiles, and lists every reason why not",
     "mcc check net.onnx\tprints one line, or every reason why not\n", command_check, true},
    {"run", 'R', "run MODEL [-i NAME=FILE ...] [-o FOLDER]",
     "runs a network once, compiled (.so) or not; inputs without a value are random if it is not compiled",
     "mcc run net.onnx\tcompiles to a temporary file, uses random inputs\n"
     "mcc run net.so -i x=x.npy -o results\twrites y.npy and other outputs to results/\n",
     command_run, true},
    {"bench", 'B', "bench MODEL", "times a network and its kernels, compiled or not",
     "mcc bench net.onnx\tprints times of a run and of each kernel, share of the peak, memory, size\n"
     "mcc bench net.so --threads=1 --trace=run.json\talso records which thread ran what when\n",
     command_bench, true},
    {"inspect", 'I', "inspect MODEL.so | inspect MODEL [-o DRAWING.svg]",
     "prints ports, symbols, kernels and sizes of a compiled network, or draws a network with its kernels",
     "mcc inspect net.so\tprints the use of the file's bytes, ports, kernels\n"
     "mcc inspect net.onnx -o net.dot\tdraws the graph and its kernels\n",
     command_inspect, true},
    {"report", 'P', "report MODEL [-o PAGE.html]",
     "writes one HTML page about a network, compiled or not: its graph, times, memory, bytes, stages",
     "mcc report net.onnx\twrites net.html, which needs no other file\n"
     "mcc report net.so --no-run -o page.html\tdoes not run the network\n",
     command_report, true},
    {"verify", 'V', "verify ARTIFACT MODEL",
     "says whether a compiled network was made of this network: compiles it again and compares all bytes",
     "mcc verify net.so net.onnx\tuses the options that are recorded in net.so\n", command_verify, true},
    {"prove", 'O', "prove MODEL [-o FILE.json]",
     "proves that a network's compiled code computes the network, kernel by kernel, except for rounding",
     "mcc prove net.onnx --march=native\tlists what it proves, and what not and why\n", command_prove, true},
    {"diff", 'D', "diff MODEL [-i NAME=FILE ...] [--against NAME=FILE]",
     "compares a network's compiled code with the reference interpreter, kernel by kernel",
     "mcc diff net.onnx\tuses random inputs; names the first kernel that differs\n", command_diff, true},
    {"quantize", 'Q', "quantize MODEL --sample NAME=FILE ... [-o FILE]",
     "makes an int8 network of a float network; samples of its inputs give the ranges of the values",
     "mcc quantize net.onnx --sample x=x.npy -o int8.so\tquantizes and compiles; nodes that lose too much stay in f32\n"
     "mcc quantize net.onnx --sample x=x.npy -o int8.onnx\twrites the quantized network as ONNX\n",
     command_quantize, true},
    {"reduce", 'X', "reduce MODEL [-o FILE] -- COMMAND ...",
     "finds the smallest part of a network for which COMMAND, given its path, ends with status 0",
     "mcc reduce net.onnx -o small.onnx -- ./fails.sh\tfails.sh gets the path of a network\n", command_reduce, true},
    {"eval", 'E', "eval MODEL -i NAME=FILE ... [-o FOLDER]", "runs a network in the reference interpreter",
     "mcc eval net.onnx -i x=x.npy -o results\twithout code generation\n", command_eval, true},
};

/* ---- signals ------------------------------------------------------------------------------------------------ */

static struct context *volatile running;   /* whose temporary file the handler removes */

static void on_signal(int number)
{
    struct context *ctx = running;
    progress_wipe();
    for (const struct context *c = ctx; c; c = c == ctx ? c->apart : NULL)
        for (size_t i = 0; i < COUNT_OF(c->temp_files); i++)
            if (c->temp_files[i])
                unlink(c->temp_files[i]);
    for (const struct context *c = ctx; c; c = c == ctx ? c->apart : NULL)
        if (c->temp_made)
            rmdir(c->temp_made);
    if (ctx && ctx->child)
        kill(ctx->child, SIGTERM);
    if (ctx && ctx->temp_folder) {
        folder_clear(ctx->temp_folder);
        rmdir(ctx->temp_folder);
    }
    signal(number, SIG_DFL);
    raise(number);
}

static void signals_install(struct context *ctx)
{
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGQUIT, SIGALRM, SIGXCPU};
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = (int)SA_NODEFER};
    running = ctx;
    for (size_t i = 0; i < COUNT_OF(numbers); i++) {
        struct sigaction old;
        /* What the caller ignores (nohup, background jobs) stays ignored. */
        if (sigaction(numbers[i], NULL, &old) == 0 && old.sa_handler != SIG_IGN)
            sigaction(numbers[i], &action, NULL);
    }
    signal(SIGXFSZ, SIG_IGN);    /* a file too large is an error of write */
}

/* Descriptors 0 to 2 must exist, or the first files opened become standard output. One that was closed takes no byte
 * that is meant for standard output: what a command prints and nobody can get is an error (terminal_end). */
static void descriptors_fill(void)
{
    for (int fd = 0; fd < 3; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd == 2 ? O_WRONLY : O_RDONLY) != fd)
            return;
}

/* Before main: LLVM's constructors allocate some thousand times, and would abort when memory ends there. */
static void on_no_memory(void)
{
    static const char text[] = "mcc: error: out of memory\n";
    ssize_t ignored = write(2, text, sizeof text - 1);
    (void)ignored;
    _exit(FAIL_LIMIT);
}

__attribute__((constructor(101))) static void before_constructors(void)
{
    lld_on_no_memory(on_no_memory);
}

/* ---- commands -------------------------------------------------------------------------------------------------- */

enum { EXAMPLE_COLUMN = 52 };

static void print_help(struct context *ctx, const struct command *command)
{
    struct strbuf text = strbuf_of(&ctx->session);
    strbuf_printf(&text, "usage: mcc %s\n\nmcc %s %s.\n", command->usage, command->name, command->help);
    strbuf_printf(&text, "\nExamples:\n");
    for (const char *line = command->examples; *line; line += strcspn(line, "\n") + 1) {
        int n = (int)strcspn(line, "\t");
        strbuf_printf(&text, "  %-*.*s%.*s\n", EXAMPLE_COLUMN, n, line, (int)strcspn(line + n + 1, "\n"), line + n + 1);
    }
    if (command == &commands[0]) {
        strbuf_printf(&text, "\nOther commands (mcc help COMMAND):\n");
        for (size_t i = 1; i < COUNT_OF(commands); i++)
            strbuf_printf(&text, "  %-10s%s\n", commands[i].name, commands[i].help);
    }
    strbuf_printf(&text, "\nOptions: one dash or two; @FILE reads arguments from FILE.\n");
    options_help(&text, command->where);
    if (command == &commands[0])
        strbuf_printf(
            &text,
            "\nExit status: 0 done, 1 model or configuration refused, 2 usage, 3 environment (files, disk),"
            "\n4 a limit was reached (memory included), 5 internal error, 6 a claim does not hold\n(verify, prove).\n");
    terminal_print(&text);
}

/* -mcpu=help: the table, and the features that -mattr takes. */
static void print_cpus(struct strbuf *out)
{
    const char *arch = "";
    target_print(out);
    for (uint32_t i = 0; i < target_count; i++)
        if (strcmp(arch, target_rows[i].arch) != 0) {
            arch = target_rows[i].arch;
            strbuf_printf(out, "-mattr for %s: ", arch);
            cpu_list(arch, out);
            strbuf_printf(out, "\n");
        }
}

enum fail command_compile(struct context *ctx, struct options *o)
{
    struct command_row rows[COUNT_OF(commands)];
    for (size_t i = 0; i < COUNT_OF(commands); i++)
        rows[i] = (struct command_row){commands[i].name, commands[i].where, commands[i].usage, commands[i].help,
                                       commands[i].examples};
    struct strbuf text = strbuf_of(&ctx->session);
    const char *model = o->files.items.n ? o->files.items.data[0] : NULL;
    if (o->version)
        strbuf_printf(&text, "mcc %s\n", MCCC_VERSION);
    else if (o->autocomplete)
        generate_completions(ctx, o->autocomplete, &o->files, rows, COUNT_OF(rows), &text);
    else if (o->generate && !generate_text(o->generate, rows, COUNT_OF(rows), &text))
        error_usage(ctx, "'generate' makes mcc.1, mcc.yaml.5, schedules.md, bash, zsh or fish, not '%s'", o->generate);
    else if (o->reference)
        options_reference(&text);
    else if (o->list_ops)
        list_ops(ctx, o->list_ops, &text);
    else if (o->march && !strcmp(o->march, "help"))
        print_cpus(&text);
    else if (o->list_stages || o->dry_run)
        for (uint32_t i = 0; i < stage_count; i++)
            strbuf_printf(&text, "%s\n", stage_table[i].name);
    if (o->dry_run && model)
        strbuf_printf(&text, "%s -> %s\n", model, o->output ? o->output : output_default(ctx, o, model));
    if (text.n || o->autocomplete || ctx->fail != FAIL_NONE) {
        terminal_print(&text);
        return ctx->fail;
    }
    if (!model) {
        error_usage(ctx, "no model given; see mcc --help");
        report_diagnostics(ctx, terminal_report(), o);
        return FAIL_USAGE;
    }
    if (o->prove)
        return compile_proved(ctx, o, model);
    return o->target && strchr(o->target, ',') ? compile_universal(ctx, o, model)
                                               : compile_model(ctx, o, model, NULL, terminal_report());
}

enum fail command_check(struct context *ctx, struct options *o)
{
    const char *model = o->files.items.data[0];
    enum fail fail = compile_check(ctx, o, model, terminal_report());
    if (o->document) {
        struct json *j = &o->document->result;
        JSON_GROUP(j, NULL, "{}", j_bool("supported", fail == FAIL_NONE));
    } else if (fail == FAIL_NONE && !o->stop_after && !o->quiet) {
        struct strbuf text = strbuf_of(&ctx->session);
        strbuf_printf(&text, "%s: supported\n", model);
        terminal_print(&text);
    }
    return fail;
}

/* A first word that is neither a command nor a file, in the place of a command: another word follows, or it could be no
 * file's. */
static bool word_check(struct context *ctx, const struct command *command, const struct options *o)
{
    const char *word = o->files.items.n ? o->files.items.data[0] : "";
    if (strcmp(word, "help") == 0 && o->files.items.n > 1)
        word = o->files.items.data[1];
    struct nearest near = nearest_to(word);
    if (command != &commands[0] || strpbrk(word, "./") || access(word, F_OK) == 0)
        return true;
    nearest_try(&near, "help");
    for (size_t i = 0; i < COUNT_OF(commands); i++)
        nearest_try(&near, commands[i].name);
    if (near.found)
        return error_usage(ctx, "there is no command and no file '%s'; did you mean 'mcc %s'?", word, near.found);
    return o->files.items.n < 2 || error_usage(ctx,
                                               "there is no command and no file '%s' (mcc help lists the "
                                               "commands)",
                                               word);
}

static enum fail command_start(struct context *ctx, const struct command *command, bool named, struct options *o)
{
    if (o->help) {
        print_help(ctx, command);
        return FAIL_NONE;
    }
    if (o->print_config) {
        struct strbuf text = strbuf_of(&ctx->session);
        options_print_config(&text, o);
        terminal_print(&text);
        return FAIL_NONE;
    }
    if (o->autocomplete)
        return command->run(ctx, o);
    if (!named && !word_check(ctx, command, o))
        return ctx->fail;
    if (o->files.items.n > (command->run == command_verify ? 2 : 1) && command->run != command_reduce)
        error_usage(ctx, "one file at a time: '%s' and '%s'", o->files.items.data[0], o->files.items.data[1]);
    else if (o->files.items.n == 0 && command->needs_file && !o->calibrate)
        error_usage(ctx, "usage: mcc %s", command->usage);
    else if (o->files.items.n && (!strcmp(o->files.items.data[0], "-") || !*o->files.items.data[0]))
        error_usage(ctx, "a file's name is needed: nothing is read from standard input");
    if (ctx->fail == FAIL_NONE && (command->run == command_quantize || error_settle(ctx, o)))
        return command->run(ctx, o);
    return ctx->fail;
}

static void document_print(struct context *ctx, const struct command *command, const struct options *o)
{
    if (!o->document)
        return;
    struct strbuf text = strbuf_of(&ctx->session);
    json_finish(o->document, command->name, o->files.items.n ? o->files.items.data[0] : NULL, (int)ctx->fail, &text);
    terminal_options(false, -1);
    terminal_print(&text);
}

static enum fail no_memory(void)
{
    fputs("mcc: error: out of memory\n", stderr);
    return FAIL_LIMIT;
}

/* Parsing and the command itself, below one unwind point. named: the command line says which it is. */
static enum fail command_run_guarded(struct context *ctx, const struct command *command, bool named, int argc,
                                     char **argv)
{
    struct options *options = calloc(1, sizeof *options);
    jmp_buf here;
    if (!options)
        return no_memory();
    options_init(options);
    options->self = "/proc/self/exe";
    ctx->model_path = "mcc";
    ctx->unwind = &here;
    if (setjmp(here) == 0) {
        enum fail fail = ctx->fail;
        bool parsed = options_parse(ctx, options, argc, argv, command->where);
        options->document = options->json && !options->help && !options->print_config ? json_document(ctx) : NULL;
        terminal_options(options->json, options->no_color ? 0 : options->color ? 1 : -1);
        if (parsed)
            fail = command_start(ctx, command, named, options);
        if (fail != FAIL_NONE)
            ctx->fail = fail;
    }
    if (setjmp(here) == 0) {
        report_diagnostics(ctx, terminal_report(), options);
        document_print(ctx, command, options);
    } else {
        no_memory();
    }
    ctx->unwind = NULL;
    free(options);
    return ctx->fail;
}

static const struct command *command_find(const char *name)
{
    return ROW_NAMED(commands, COUNT_OF(commands), name);
}

int main(int argc, char **argv)
{
    descriptors_fill();
    if (argc == 2 && strcmp(argv[1], "--worker") == 0)
        return codegen_worker();
    struct context *ctx = context_new();
    if (!ctx)
        return (int)no_memory();
    signals_install(ctx);
    char *ask[] = {(char[]){"--help"}};
    bool help = argc > 1 && argc < 4 && strcmp(argv[1], "help") == 0 && (argc == 2 || command_find(argv[2]));
    const struct command *command = argc > 1 ? command_find(argv[help ? argc - 1 : 1]) : NULL;
    int skip = command ? 2 : 1, status;
    if (help)
        status = (int)command_run_guarded(ctx, command ? command : &commands[0], true, 1, ask);
    else
        status = (int)command_run_guarded(ctx, command ? command : &commands[0], command, argc > skip ? argc - skip : 0,
                                          argv + skip);
    status = terminal_end(status);
    running = NULL;
    context_free(ctx);
    return status;
}
