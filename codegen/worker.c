/* The worker's side: jobs from standard input, results to standard output, until the input ends.
 *
 * A worker may die at any moment (LLVM aborts when memory ends, a limit kills it): the parent copes. What can be told
 * is told: a fatal error of LLVM and a failed allocation send a last frame before the exit. Standard output is moved
 * away at the start, because lld can write its product to descriptor 1 only.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <llvm-c/ErrorHandling.h>

#include "codegen/llvm/llvm.h"
#include "codegen/sandbox.h"
#include "codegen/wire.h"
#include "ir/base/file.h"

#ifdef __has_feature /* clang */
#if __has_feature(address_sanitizer)
#define ADDRESS_SANITIZED 1
#endif
#endif

enum { EXIT_TOLD = 70 };

static int result_fd = -1;      /* the process is a worker: its one connection */
static bool confined;           /* it is in its sandbox */

static bool send_result(enum wire_status status, const void *data, size_t size)
{
    struct wire_result r = {WIRE_MAGIC, status, confined, size};
    return fd_write(result_fd, &r, sizeof r) && fd_write(result_fd, data, size);
}

static bool send_text(enum wire_status status, const char *text)
{
    return send_result(status, text, strlen(text));
}

/* A system call failed: memory files are memory. */
static bool send_failed(void)
{
    return send_text(errno == ENOMEM || errno == ENOSPC ? WIRE_NO_MEMORY : WIRE_ENVIRONMENT, strerror(errno));
}

static void on_fatal(const char *reason)
{
    send_text(WIRE_FATAL, reason);
    _exit(EXIT_TOLD);
}

static void on_no_memory(void)
{
    send_text(WIRE_NO_MEMORY, "out of memory");
    _exit(EXIT_TOLD);
}

/* ---- jobs ---- */

struct parts {
    char **data;
    uint64_t *size;
    uint64_t n;
};

/* Parts get a NUL after them, so strings are strings. */
static bool read_parts(struct parts *p)
{
    p->data = calloc(p->n + 1, sizeof *p->data);
    p->size = calloc(p->n + 1, sizeof *p->size);
    if (!p->data || !p->size)
        on_no_memory();
    for (uint64_t i = 0; i < p->n; i++) {
        if (!fd_read(0, &p->size[i], sizeof p->size[i]) || p->size[i] > SIZE_MAX / 4)
            return false;
        p->data[i] = malloc(p->size[i] + 1);
        if (!p->data[i])
            on_no_memory();
        if (!fd_read(0, p->data[i], p->size[i]))
            return false;
        p->data[i][p->size[i]] = 0;
    }
    return true;
}

static void free_parts(struct parts *p)
{
    for (uint64_t i = 0; i < p->n; i++)
        free(p->data[i]);
    free(p->data);
    free(p->size);
}

/* Parsing unwinds on failure; LLVM's frames come later and never lie under a longjmp. */
static bool parse(struct context *ctx, struct function *function, const char *symbol, const char *text)
{
    jmp_buf unwind;
    ctx->unwind = &unwind;
    *function = (struct function){.symbol = symbol};
    if (setjmp(unwind) != 0)
        return false;
    function->f = lf_parse(ctx, &ctx->session, &text);
    return function->f && lf_finish(function->f);
}

static bool parse_all(struct context *ctx, struct function *functions, const struct parts *p)
{
    for (uint64_t i = COMPILE_FUNCTIONS; i < p->n; i += 2)
        if (!parse(ctx, &functions[(i - COMPILE_FUNCTIONS) / 2], p->data[i], p->data[i + 1]))
            return false;
    const char *origin = p->data[COMPILE_ORIGINS], *end = origin + p->size[COMPILE_ORIGINS];
    for (size_t i = 0; i < p->size[COMPILE_LINES] / sizeof(uint32_t); i++) {
        memcpy(&functions[i].line, p->data[COMPILE_LINES] + i * sizeof(uint32_t), sizeof(uint32_t));
        functions[i].origin = origin < end ? origin : "";
        origin += strlen(functions[i].origin) + 1;
    }
    return true;
}

/* Products one after the other, each with its length in front. */
struct products {
    char *data;
    size_t size;
};

static void products_add(struct products *all, const struct compiled *c)
{
    uint64_t length = c->size;
    char *data = realloc(all->data, all->size + sizeof length + c->size);
    if (!data)
        on_no_memory();
    memcpy(data + all->size, &length, sizeof length);
    memcpy(data + all->size + sizeof length, c->data, c->size);
    all->data = data;
    all->size += sizeof length + c->size;
}

static bool compile_functions(const struct wire_job *head, const struct target *t, const struct debug_text *debug,
                              const struct function *functions, size_t n)
{
    struct products all = {NULL, 0};
    bool failed = false, sent = true;
    for (size_t i = 0; i < n && !failed; i++) {
        struct compiled c = llvm_compile(t, head->opt_level, (enum emit_kind)head->emit, head->is_static != 0, debug,
                                         &functions[i]);
        failed = c.failed;
        if (!c.data ||
            (failed && c.size >= strlen(EMIT_NO_MEMORY) && memcmp(c.data, EMIT_NO_MEMORY, strlen(EMIT_NO_MEMORY)) == 0))
            on_no_memory();
        if (failed)
            sent = send_result(WIRE_REFUSED, c.data, c.size);
        else
            products_add(&all, &c);
        free(c.data);
    }
    if (!failed)
        sent = send_result(WIRE_OK, all.data, all.size);
    free(all.data);
    return sent;
}

static bool compile_job(const struct wire_job *head, const struct parts *p)
{
    struct target t = {p->data[COMPILE_TRIPLE], p->data[COMPILE_CPU], p->data[COMPILE_FEATURES]};
    size_t n = (p->n - COMPILE_FUNCTIONS) / 2;
    const struct debug_text debug = {p->data[COMPILE_FILE], p->data[COMPILE_FOLDER]};
    struct function *functions = calloc(n, sizeof *functions);
    struct context *ctx = context_bare();
    bool sent;
    if (!ctx || !functions)
        on_no_memory();
    if (!parse_all(ctx, functions, p)) {
        enum wire_status status = ctx->fail == FAIL_LIMIT ? WIRE_NO_MEMORY : WIRE_REFUSED;
        sent = send_text(status, ctx->diags.n ? ctx->diags.data[0].text : "the loop IR does not parse");
    } else {
        sent = compile_functions(head, &t, &debug, functions, n);
    }
    free(functions);
    context_free(ctx);
    return sent;
}

/* A file without a name; lld opens it as /proc/self/fd/N. Negative: errno says why. */
static int memory_file(const char *data, size_t size)
{
    int fd = memfd_create("mcc", 0);
    if (fd >= 0 && !fd_write(fd, data, size)) {
        close(fd);
        return -1;
    }
    return fd;
}

/* What lld wrote to descriptor 1. */
static bool send_product(void)
{
    struct stat st;
    void *map = MAP_FAILED;
    bool sent;
    if (fstat(1, &st) != 0)
        return send_failed();
    if (st.st_size == 0)
        return send_text(WIRE_FATAL, "the linker wrote nothing");
    map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, 1, 0);
    if (map == MAP_FAILED)
        return send_failed();
    sent = send_result(WIRE_OK, map, (size_t)st.st_size);
    munmap(map, (size_t)st.st_size);
    return sent;
}

/* The path of the next file after the option, whose last character stands for it. NULL: errno says why. */
static const char *file_option(const char *option, size_t length, const char *data, size_t size)
{
    char *text = malloc(length + 32);
    int fd = memory_file(data, size);
    if (!text)
        on_no_memory();
    if (fd < 0)
        return NULL;
    snprintf(text, length + 32, "%.*s/proc/self/fd/%d", (int)length - 1, option, fd);
    return text;
}

/* Descriptors stay open: it is the worker's last job. */
static bool link_job(const struct parts *p)
{
    size_t n_options = 0, n = 0, file = LINK_FILES;
    char *text = NULL;
    int failed = 0;
    for (uint64_t i = 0; i < p->size[LINK_OPTIONS]; i++)
        n_options += p->data[LINK_OPTIONS][i] == 0;
    const char **argv = calloc(n_options + 1, sizeof *argv);
    if (!argv)
        on_no_memory();
    for (const char *o = p->data[LINK_OPTIONS]; n < n_options; o += strlen(o) + 1) {
        size_t length = strlen(o);
        bool takes = length > 0 && o[length - 1] == '%' && file < p->n;
        argv[n++] = takes ? file_option(o, length, p->data[file], p->size[file]) : o;
        if (!argv[n - 1])
            return send_failed();
        file += takes;
    }
    int product = memory_file("", 0);
    if (product < 0 || dup2(product, 1) < 0)
        return send_failed();
    if (!lld_link(argv, (unsigned)n, &text, &failed))
        return send_text(WIRE_REFUSED, text ? text : "the linker failed");
    free(text);
    errno = failed;
    return failed ? send_failed() : send_product();
}

static bool run_job(const struct wire_job *head, const struct parts *p)
{
    if (head->kind == WIRE_COMPILE && p->n > COMPILE_FUNCTIONS && (p->n - COMPILE_FUNCTIONS) % 2 == 0 &&
        p->size[COMPILE_LINES] <= (p->n - COMPILE_FUNCTIONS) / 2 * sizeof(uint32_t))
        return compile_job(head, p);
    if (head->kind == WIRE_LINK && p->n > LINK_FILES && p->size[LINK_OPTIONS] > 0 &&
        p->data[LINK_OPTIONS][p->size[LINK_OPTIONS] - 1] == 0)
        return link_job(p);
    return send_text(WIRE_REFUSED, "a job that this worker does not know");
}

static void set_limits(int64_t memory, int64_t seconds)
{
    struct rlimit core = {0, 0}, cpu = {(rlim_t)seconds, (rlim_t)seconds + 5};
    struct rlimit space = {(rlim_t)memory, (rlim_t)memory};
    setrlimit(RLIMIT_CORE, &core);
    if (seconds > 0)
        setrlimit(RLIMIT_CPU, &cpu);
    if (memory > 0)
        setrlimit(RLIMIT_AS, &space);
}

/* AddressSanitizer's look for leaks at the end is a process that looks at this one, which the sandbox forbids: with it
 * on (the default) workers do without the sandbox, and nobody is told. */
static bool leaks_wanted(void)
{
#if defined(__SANITIZE_ADDRESS__) || defined(ADDRESS_SANITIZED)
    const char *options = getenv("ASAN_OPTIONS");
    return !options || !strstr(options, "detect_leaks=0");
#else
    return false;
#endif
}

/* Before the first job is looked at: its limits, then the sandbox, in which limits stay. False: the job asks for a
 * sandbox and there is none. */
static bool confine(const struct wire_job *head)
{
    set_limits(head->memory, head->seconds);
    confined = leaks_wanted() ? !head->confine : sandbox_enter();
    return confined || !head->confine;
}

/* FAIL_ENV: the connection failed, and nothing can be told any more; spawn.c reads it from the status. */
int codegen_worker(void)
{
    bool begun = false;
    result_fd = fcntl(1, F_DUPFD_CLOEXEC, 3);
    if (result_fd < 0)
        return FAIL_ENV;
    LLVMInstallFatalErrorHandler(on_fatal);
    lld_on_no_memory(on_no_memory);
    llvm_start();
    for (;;) {
        struct wire_job head;
        errno = 0;
        if (!fd_read(0, &head, sizeof head))
            return errno ? FAIL_ENV : FAIL_NONE;
        struct parts p = {NULL, NULL, head.n_parts};
        if (head.magic != WIRE_MAGIC || head.n_parts > WIRE_PARTS_MAX)
            return FAIL_USAGE;
        if (!begun && !confine(&head))
            return send_text(WIRE_UNCONFINED, "") ? FAIL_NONE : FAIL_ENV;
        begun = true;
        bool good = read_parts(&p) && run_job(&head, &p);
        free_parts(&p);
        if (!good)
            return FAIL_ENV;
        if (head.kind == WIRE_LINK) /* lld changed LLVM's options, and left its files open */
            return FAIL_NONE;
    }
}
