/* External data: read where it belongs, confined to the model's folder, every entry checked. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <cmocka.h>

#include "tests/frontend/wire.h"

static const float weights[] = {1, 2, 3};

static void entry(struct wire *t, const char *key, const char *value, size_t n)
{
    struct wire e = {0};
    wire_text(&e, 1, key);
    wire_data(&e, 2, value, n);
    wire_message(t, 13, &e);
}

/* w float[3] at a location; NULL: no such entry. */
static struct wire tensor_at(const char *location, const char *offset, const char *length)
{
    struct wire t = tensor_raw("w", 1, "3", NULL, 0);
    if (location)
        entry(&t, "location", location, strlen(location));
    if (offset)
        entry(&t, "offset", offset, strlen(offset));
    if (length)
        entry(&t, "length", length, strlen(length));
    wire_int(&t, 14, 1);
    return t;
}

static struct wire around(struct wire tensor)
{
    struct wire g = {0}, z = {0};
    graph_node_add(&g, node("Identity", "w", "z"));
    graph_init(&g, tensor);
    wire_text(&z, 1, "z");
    graph_output(&g, z);
    return model(g);
}

static void assert_weights(struct fixture *f, struct wire tensor)
{
    struct graph *g = assert_imported(f, import(f, around(tensor)));
    const struct attr *a = node_attr(constant_of(g, "w"), "data");
    assert_int_equal(a->u.data.size, sizeof weights);
    assert_memory_equal(a->u.data.data, weights, sizeof weights);
}

static void refused(struct fixture *f, struct wire tensor, enum fail fail, const char *says)
{
    assert_refused(f, around(tensor), fail, says);
    assert_non_null(strstr(messages(f), "tensor 'w'"));
}

static void path_in(const struct fixture *f, const char *name, char out[192])
{
    snprintf(out, 192, "%s/%s", f->dir, name);
}

static void test_read(void **state)
{
    struct fixture *f = *state;
    char shifted[16] = "pad";
    memcpy(shifted + 3, weights, 12);
    file_put(f, "w.bin", weights, 12);
    file_put(f, "shifted.bin", shifted, 15);
    assert_weights(f, tensor_at("w.bin", "0", "12"));
    assert_weights(f, tensor_at("w.bin", NULL, NULL));
    assert_weights(f, tensor_at("./w.bin", "000", "12"));
    assert_weights(f, tensor_at("shifted.bin", "3", NULL));
    struct wire extra = tensor_at("w.bin", NULL, NULL);
    entry(&extra, "checksum", "0123", 4);
    assert_weights(f, extra);
    assert_int_equal(f->files.paths.n, 2);
    assert_non_null(strstr(f->files.paths.data[1], "/w.bin"));
}

/* Two tensors over one range share one copy. */
static void test_shared(void **state)
{
    struct fixture *f = *state;
    struct wire g = {0}, z = {0}, b = tensor_at("w.bin", "0", NULL);
    file_put(f, "w.bin", weights, 12);
    wire_text(&b, 8, "v");   /* the last name counts */
    graph_node_add(&g, node("Add", "w v", "z"));
    graph_init(&g, tensor_at("w.bin", NULL, NULL));
    graph_init(&g, b);
    wire_text(&z, 1, "z");
    graph_output(&g, z);
    struct graph *graph = assert_imported(f, import(f, model(g)));
    assert_ptr_equal(node_attr(constant_of(graph, "w"), "data")->u.data.data,
                     node_attr(constant_of(graph, "v"), "data")->u.data.data);
    assert_int_equal(f->files.paths.n, 2);
}

static void test_entries(void **state)
{
    struct fixture *f = *state;
    file_put(f, "w.bin", weights, 12);
    static const struct {
        const char *offset, *length, *says;
    } rows[] = {
        {"4096", "12", "past the end"},
        {"12", NULL, "past the end"},
        {"4", "12", "past the end"},
        {"18446744073709551612", NULL, "offset '18446744073709551612'"},
        {"9223372036854775807", NULL, "past the end"},
        {"-12", NULL, "offset '-12'"},
        {"0x0", NULL, "offset '0x0'"},
        {"0 and more", NULL, "offset"},
        {"", NULL, "offset ''"},
        {"+0", NULL, "offset '+0'"},
        {NULL, "-1", "length '-1'"},
        {NULL, "8", "8 bytes, and the tensor 12"},
        {NULL, "16", "16 bytes, and the tensor 12"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        refused(f, tensor_at("w.bin", rows[i].offset, rows[i].length), FAIL_MODEL, rows[i].says);
    struct wire twice = tensor_at("w.bin", NULL, NULL), offsets = tensor_at("w.bin", "0", NULL);
    struct wire nul = tensor_at(NULL, NULL, NULL), raw = tensor_at("w.bin", NULL, NULL);
    struct wire unmarked = tensor_at("w.bin", NULL, NULL), odd = tensor_at("w.bin", NULL, NULL);
    entry(&twice, "location", "w.bin", 5);
    refused(f, twice, FAIL_MODEL, "two locations");
    entry(&offsets, "offset", "0", 1);
    refused(f, offsets, FAIL_MODEL, "offset twice");
    entry(&nul, "location", "w.bin\0.txt", 10);
    refused(f, nul, FAIL_MODEL, "NUL");
    wire_data(&raw, 9, weights, 12);
    refused(f, raw, FAIL_MODEL, "external and in raw_data");
    wire_int(&unmarked, 14, 0);
    refused(f, unmarked, FAIL_MODEL, "not marked");
    wire_int(&odd, 14, 7);
    refused(f, odd, FAIL_MODEL, "data_location 7");
}

static void test_confined(void **state)
{
    struct fixture *f = *state;
    char from[192], to[192];
    static const char *const locations[] = {
        "../outside.bin", "sub/../../outside.bin", ".//..//outside.bin",
        "/etc/hostname",  "/proc/self/environ",    "/dev/zero",
        "out.link",       "up/outside.bin",
    };
    path_in(f, "sub", to);
    mkdir(to, 0700);
    path_in(f, "out.link", to);
    assert_int_equal(symlink("/etc/hostname", to), 0);
    path_in(f, "up", to);
    assert_int_equal(symlink("..", to), 0);
    for (size_t i = 0; i < sizeof locations / sizeof locations[0]; i++)
        refused(f, tensor_at(locations[i], NULL, NULL), FAIL_MODEL, "outside the model's directory");
    file_put(f, "w.bin", weights, 12);
    path_in(f, "inside.link", to);
    assert_int_equal(symlink("w.bin", to), 0);
    assert_weights(f, tensor_at("inside.link", NULL, NULL));
    static const char *const nothing[] = {"nothere.bin", "..\\w.bin", "file:w.bin", "*/_ORT_MEM_ADDR_/*"};
    for (size_t i = 0; i < sizeof nothing / sizeof nothing[0]; i++)
        refused(f, tensor_at(nothing[i], NULL, NULL), FAIL_MODEL, "cannot open");
    refused(f, tensor_at("", NULL, NULL), FAIL_MODEL, "names no file");
    refused(f, tensor_at(".", NULL, NULL), FAIL_MODEL, "names no file");
    refused(f, tensor_at(NULL, NULL, NULL), FAIL_MODEL, "has no location");
    path_in(f, "w.bin", from);
    path_in(f, "hard.bin", to);
    assert_int_equal(link(from, to), 0);
    refused(f, tensor_at("hard.bin", NULL, NULL), FAIL_MODEL, "hard links");
    f->options.allow_hard_links = true;
    assert_weights(f, tensor_at("hard.bin", NULL, NULL));
    f->options.allow_hard_links = false;
    unlink(to);
}

/* From here on the kernel seems not to know openat2. */
static bool forbid_openat2(void)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat2, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof code / sizeof code[0], code};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

static bool is_read(struct fixture *f, const char *location)
{
    return import(f, around(tensor_at(location, NULL, NULL))) != NULL;
}

/* Without openat2 the walk over the components refuses every way out, and links altogether. */
static void test_old_kernel(void **state)
{
    struct fixture *f = *state;
    static const char *const bad[] = {"../outside.bin", "deep/../../outside.bin", "/etc/hostname", "link",
                                      "up/outside.bin"};
    char path[192];
    path_in(f, "deep", path);
    mkdir(path, 0700);
    path_in(f, "link", path);
    assert_int_equal(symlink("w.bin", path), 0);
    file_put(f, "w.bin", weights, 12);
    file_put(f, "deep/w.bin", weights, 12);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        int failures = !forbid_openat2() || !is_read(f, "w.bin") || !is_read(f, "deep//w.bin") ||
                       !is_read(f, "./deep/w.bin");
        for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
            failures += is_read(f, bad[i]);
        _exit(failures);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void test_special(void **state)
{
    struct fixture *f = *state;
    char path[192];
    path_in(f, "fifo.bin", path);
    assert_int_equal(mkfifo(path, 0600), 0);
    refused(f, tensor_at("fifo.bin", NULL, NULL), FAIL_ENV, "not a regular file");
    path_in(f, "folder", path);
    mkdir(path, 0700);
    refused(f, tensor_at("folder", NULL, NULL), FAIL_ENV, "not a regular file");
}

/* The same confinement for tensors that are no initializers. */
static void test_everywhere(void **state)
{
    struct fixture *f = *state;
    struct wire g = {0}, z = {0}, n = node("Constant", "", "z");
    struct wire a = attribute_tensor("value", tensor_at("../outside.bin", NULL, NULL));
    wire_message(&n, 5, &a);
    graph_node_add(&g, n);
    wire_text(&z, 1, "z");
    graph_output(&g, z);
    assert_refused(f, model(g), FAIL_MODEL, "node 'Constant'");
    assert_non_null(strstr(messages(f), "outside the model's directory"));
}

static int n_open(void)
{
    int n = 0;
    for (int fd = 0; fd < 256; fd++)
        n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

/* The n-th allocation fails, for every n, also those of what a refusal says: the file is closed. */
static void test_closed(void **state)
{
    struct fixture *f = *state;
    int before = n_open();
    for (size_t stored = 8; stored <= 12; stored += 4) { /* bytes: too few, enough */
        file_put(f, "w.bin", weights, stored);
        import(f, around(tensor_at("w.bin", NULL, NULL)));
        enum fail fail = f->ctx->fail;
        int64_t n = 0;
        do {
            import_file(f, ++n);
            assert_int_equal(n_open(), before);
        } while (!f->ctx->fail_alloc);
        assert_int_equal(f->ctx->fail, fail);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_read),       cmocka_unit_test(test_shared),  cmocka_unit_test(test_entries),
        cmocka_unit_test(test_confined),   cmocka_unit_test(test_special), cmocka_unit_test(test_everywhere),
        cmocka_unit_test(test_old_kernel), cmocka_unit_test(test_closed),
    };
    return cmocka_run_group_tests_name("external", tests, fixture_open, fixture_close);
}
