/* The loader on good, truncated, damaged and foreign files: an error code with a text each time, and a library that
 * works where it says so. The artifact is the hand-written model, linked by the C compiler and sealed here. */
#include <dirent.h>
#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <inttypes.h>
#include <link.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/mcc_load.h"
#include "runtime/mcc_note.h"
#include "runtime/rt_internal.h"

static char folder[] = "/tmp/mcc-test-load-XXXXXX";
static char good_path[64], bad_path[64];
static unsigned char *good; /* the sealed artifact */
static size_t good_size, note_at;

static void write_file(const char *path, const void *data, size_t size)
{
    unlink(path); /* a new inode, as a compiler's rename would give */
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, size, f), size);
    fclose(f);
}

static void seal(unsigned char *bytes, size_t size)
{
    struct mcc_note *note = (struct mcc_note *)(void *)(bytes + note_at);
    note->sealed = 1;
    note->file_size = note->weights_offset = size;
    note->weights_size = 0;
    note->hash = 0;
    note->hash = rt_hash(bytes, size);
}

static void compile(const char *path, const char *options)
{
    char command[512];
    const char *cc = getenv("CC");
    snprintf(
        command, sizeof command,
        "%s -std=c11 -D_GNU_SOURCE -O1 -shared -fPIC -I. %s tests/runtime/models.c tests/runtime/runtime_all.c -o %s",
        cc && *cc ? cc : "cc", options, path);
    assert_int_equal(system(command), 0);
}

static int build(void **state)
{
    (void)state;
    assert_non_null(mkdtemp(folder));
    snprintf(good_path, sizeof good_path, "%s/good.so", folder);
    snprintf(bad_path, sizeof bad_path, "%s/bad.so", folder);
    compile(good_path, "");
    FILE *f = fopen(good_path, "rb");
    fseek(f, 0, SEEK_END);
    good_size = (size_t)ftell(f);
    rewind(f);
    good = malloc(good_size);
    assert_int_equal(fread(good, 1, good_size, f), good_size);
    fclose(f);
    for (note_at = 0; note_at + sizeof(struct mcc_note) <= good_size; note_at += 8) {
        struct mcc_note *note = (struct mcc_note *)(void *)(good + note_at);
        if (note->namesz == 4 && note->descsz == sizeof *note - 16 && memcmp(note->owner, "mcc", 4) == 0) {
            strcpy(note->query, "mcc_query");
            break;
        }
    }
    seal(good, good_size);
    write_file(good_path, good, good_size);
    return 0;
}

static int clean(void **state)
{
    (void)state;
    unlink(good_path);
    unlink(bad_path);
    rmdir(folder);
    free(good);
    return 0;
}

static bool runs_right(const mcc_api *api, mcc_model *model)
{
    float x[8] = {1, 2, 3, 4}, y[8] = {10, 20, 30, 40}, z[8], s[2];
    int64_t dims[2] = {2, 4};
    DLTensor t[4];
    void *data[] = {x, y, z, s};
    for (int i = 0; i < 4; i++)
        t[i] = (DLTensor){
            .data = data[i], .device = {kDLCPU, 0}, .ndim = i == 3 ? 1 : 2, .dtype = {kDLFloat, 32, 1}, .shape = dims};
    mcc_ctx *ctx;
    mcc_error error;
    if (api->ctx_new(model, NULL, 0, &ctx, &error))
        return false;
    int code = api->run(ctx, (const DLTensor *const[]){&t[0], &t[1]}, (DLTensor *const[]){&t[2], &t[3]}, &error);
    api->ctx_free(ctx);
    return code == MCC_OK && z[3] == 48 && z[7] == 0 && s[0] == 120 && s[1] == 0;
}

static void check_api(const mcc_api *api, mcc_model *model)
{
    assert_true(runs_right(api, model));
}

static void check_runs(const mcc_lib *lib)
{
    check_api(lib->api, lib->model);
}

static void check_refused(const char *path, const char *word)
{
    mcc_lib *lib = (mcc_lib *)1;
    mcc_error error = {0};
    int code = mcc_load(path, NULL, &lib, &error);
    assert_int_equal(code, MCC_E_IO);
    assert_null(lib);
    assert_int_equal(error.code, code);
    if (!strstr(error.text, word))
        fail_msg("'%s' lacks '%s'", error.text, word);
}

static void bad_file(const unsigned char *bytes, size_t size, const char *word)
{
    write_file(bad_path, bytes, size);
    check_refused(bad_path, word);
}

static void test_loads(void **state)
{
    mcc_lib *lib;
    mcc_error error;
    (void)state;
    assert_int_equal(mcc_load(good_path, NULL, &lib, &error), MCC_OK);
    check_runs(lib);
    mcc_unload(lib);
    mcc_unload(NULL);
    mcc_host host = {.size = sizeof host, .flags = 1};
    assert_int_equal(mcc_load(good_path, &host, &lib, &error), MCC_E_CPU);
    assert_int_equal(mcc_load(good_path, NULL, NULL, &error), MCC_E_ARG);
    assert_int_equal(mcc_load(NULL, NULL, &lib, NULL), MCC_E_ARG);
}

static void test_no_artifact(void **state)
{
    (void)state;
    check_refused("/nonexistent/model.so", "cannot be opened");
    check_refused(folder, "not a regular file");
    bad_file((const unsigned char *)"", 0, "not a shared object");
    bad_file((const unsigned char *)"hello, world, this is text and more than sixty-four bytes of it.........", 70,
             "not a shared object");
    unlink(bad_path);
    assert_int_equal(mkfifo(bad_path, 0600), 0);
    check_refused(bad_path, "not a regular file");
    Dl_info libc;
    assert_true(dladdr((void *)(uintptr_t)strlen, &libc) != 0);
    check_refused(libc.dli_fname, "not made by mcc");
}

/* Headers that lie, with a hash that fits. */
static void test_foreign(void **state)
{
    unsigned char *copy = malloc(good_size + 8);
    Elf64_Ehdr *head = (Elf64_Ehdr *)(void *)copy;
    struct mcc_note *note = (struct mcc_note *)(void *)(copy + note_at);
    (void)state;
#define CASE(change, word)         \
    memcpy(copy, good, good_size); \
    change;                        \
    seal(copy, good_size);         \
    bad_file(copy, good_size, word)
    CASE(head->e_machine = EM_S390, "another kind of machine");
    CASE(head->e_ident[EI_CLASS] = ELFCLASS32, "another kind of machine");
    CASE(head->e_ident[EI_DATA] = ELFDATA2MSB, "another kind of machine");
    CASE(head->e_type = ET_REL, "not a shared object");
    CASE(head->e_shoff = good_size, "section table");
    CASE(head->e_shoff = UINT64_MAX - 8, "section table");
    CASE(head->e_phoff = UINT64_MAX - 8, "program headers");
    CASE(head->e_phnum = 0, "program headers");
    CASE(head->e_phnum = 60000, "program headers");
    CASE(note->abi = 2, "newer mcc");
    CASE(note->abi = 0, "not completely written");
    CASE(memset(note->query, 'a', sizeof note->query), "not completely written");
    CASE(strcpy(note->query, "other_query"), "lacks the function other_query");
    CASE(note->descsz = 4, "not made by mcc");
#undef CASE
    memcpy(copy, good, good_size);
    note->sealed = 0;
    bad_file(copy, good_size, "not completely written");
    memcpy(copy, good, good_size);
    note->weights_offset = 100;
    note->weights_size = UINT64_MAX - 50;
    bad_file(copy, good_size, "the size differs");
    memcpy(copy, good, good_size);
    memset(copy + good_size, 0, 8);
    bad_file(copy, good_size + 8, "the size differs");
    free(copy);
}

/* R18: cut at 1000 places, all of the first kilobyte among them. */
static void test_truncated(void **state)
{
    (void)state;
    for (size_t i = 0; i < 1000; i++)
        bad_file(good, i < 800 ? i : 800 + (good_size - 801) * (i - 800) / 199, "");
}

/* One bit changed: every bit of the first kilobyte and of the note, then 4000 places all over. */
static void test_flipped(void **state)
{
    unsigned char *copy = malloc(good_size);
    (void)state;
    memcpy(copy, good, good_size);
    uint32_t random = 12345;
    for (size_t i = 0; i < 8 * 1024 + 8 * sizeof(struct mcc_note) + 4000; i++) {
        size_t bit = i;
        if (i >= 8 * 1024)
            bit = 8 * note_at + i - 8 * 1024;
        if (i >= 8 * 1024 + 8 * sizeof(struct mcc_note)) {
            random = random * 1664525 + 1013904223;
            bit = (size_t)((uint64_t)random * (8 * good_size) >> 32);
        }
        copy[bit / 8] ^= (unsigned char)(1u << bit % 8);
        bad_file(copy, good_size, "");
        copy[bit / 8] ^= (unsigned char)(1u << bit % 8);
    }
    write_file(bad_path, copy, good_size);
    mcc_lib *lib;
    assert_int_equal(mcc_load(bad_path, NULL, &lib, NULL), MCC_OK);
    mcc_unload(lib);
    free(copy);
}

static size_t line_count(const char *path)
{
    FILE *f = fopen(path, "r");
    size_t n = 0;
    for (int c; (c = getc(f)) != EOF;)
        n += c == '\n';
    fclose(f);
    return n;
}

/* R17, R19: many at once, and again and again; descriptor numbers return, libraries must not be confused. A file that
 * is replaced while it is loaded does not matter to what was loaded. */
static void test_many(void **state)
{
    enum { MANY = 40 };
    mcc_lib *libs[MANY], *first;
    (void)state;
    assert_int_equal(mcc_load(good_path, NULL, &first, NULL), MCC_OK);
    size_t maps = 0;
    for (int round = 0; round < 10; round++) {
        for (int i = 0; i < MANY; i++) {
            write_file(bad_path, good, good_size);
            assert_int_equal(mcc_load(bad_path, NULL, &libs[i], NULL), MCC_OK);
            assert_true(libs[i]->api != first->api && (i == 0 || libs[i]->api != libs[i - 1]->api));
        }
        for (int i = 0; i < MANY; i++) {
            check_runs(libs[i]);
            mcc_unload(libs[i]);
        }
        check_runs(first);
        if (round == 2)
            maps = line_count("/proc/self/maps");
    }
    for (int i = 0; i < 1000; i++) {
        assert_int_equal(mcc_load(bad_path, NULL, &libs[0], NULL), MCC_OK);
        mcc_unload(libs[0]);
    }
    mcc_unload(first);
    assert_true(line_count("/proc/self/maps") <= maps + 8);
}

static size_t entry_count(const char *path)
{
    size_t n = 0;
    DIR *entries = opendir(path);
    while (readdir(entries))
        n++;
    closedir(entries);
    return n;
}
static size_t descriptor_count(void)
{
    return entry_count("/proc/self/fd");
}

static const char *loaded_as(const mcc_lib *lib)
{
    struct link_map *map;
    assert_int_equal(dlinfo(lib->handle, RTLD_DI_LINKMAP, &map), 0);
    return map->l_name;
}

/* Debuggers open the name by which a library was loaded: it must be the file for them, too, whatever their own
 * descriptors are. A file with a path is loaded by it; one without keeps its descriptor, and both give everything back.
 */
static void test_names(void **state)
{
    mcc_lib *lib;
    char link[80], name[80];
    struct stat wanted, found;
    size_t before = descriptor_count();
    (void)state;
    snprintf(link, sizeof link, "%s/link.so", folder);
    snprintf(name, sizeof name, "%s/$ORIGIN.so", folder);
    assert_int_equal(symlink("good.so", link), 0);
    const char *const paths[] = {good_path, link};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(mcc_load(paths[i], NULL, &lib, NULL), MCC_OK);
        assert_true(strncmp(loaded_as(lib), folder, strlen(folder)) == 0 && !strstr(loaded_as(lib), "link"));
        assert_int_equal(stat(loaded_as(lib), &found) || stat(good_path, &wanted), 0);
        assert_true(found.st_ino == wanted.st_ino && found.st_dev == wanted.st_dev);
        check_runs(lib);
        mcc_unload(lib);
    }
    unlink(link);
    write_file(name, good, good_size); /* dlopen would put a folder in the place of $ORIGIN */
    assert_int_equal(mcc_load(name, NULL, &lib, NULL), MCC_OK);
    unlink(name);
    char process[40];
    snprintf(process, sizeof process, "/proc/%d/fd/", (int)getpid());
    assert_true(strncmp(loaded_as(lib), process, strlen(process)) == 0);
    assert_int_equal(stat(loaded_as(lib), &found), 0);
    assert_int_equal(found.st_size, good_size);
    check_runs(lib);
    mcc_unload(lib);
    assert_int_equal(descriptor_count(), before);
}

/* A host that has the artifact in memory only. */
static void test_memory_file(void **state)
{
    mcc_lib *lib;
    char name[40];
    struct stat found;
    int fd = memfd_create("model", MFD_CLOEXEC);
    (void)state;
    assert_true(fd >= 0 && write(fd, good, good_size) == (ssize_t)good_size);
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    assert_int_equal(mcc_load(name, NULL, &lib, NULL), MCC_OK);
    close(fd);
    assert_int_equal(stat(loaded_as(lib), &found), 0);
    assert_int_equal(found.st_size, good_size);
    check_runs(lib);
    mcc_unload(lib);
}

enum { LOADERS = 8 };
static uint64_t replaced;

static void *replace(void *stop)
{
    char beside[80];
    snprintf(beside, sizeof beside, "%s/beside.so", folder);
    while (!__atomic_load_n((int *)stop, __ATOMIC_RELAXED)) {
        FILE *f = fopen(beside, "wb");
        fwrite(good, 1, good_size, f);
        fclose(f);
        rename(beside, bad_path);
        replaced++;
    }
    return NULL;
}

/* Loads, runs and unloads, *loads times; then the text of what went wrong, or NULL. */
static void *load_often(void *loads)
{
    mcc_error error;
    mcc_lib *lib;
    for (long i = *(const long *)loads; i > 0; i--) {
        if (mcc_load(bad_path, NULL, &lib, &error))
            return strdup(error.text);
        if (!runs_right(lib->api, lib->model))
            return strdup("a wrong result");
        mcc_unload(lib);
    }
    return NULL;
}

/* A compiler that replaces the file again and again while eight threads load it: every load has one whole file.
 * MCC_LOADS: how many each of them does. */
static void test_replaced(void **state)
{
    pthread_t thread, loaders[LOADERS];
    int stop = 0;
    const char *said = getenv("MCC_LOADS");
    long loads = said ? atol(said) : 60;
    size_t before = descriptor_count();
    (void)state;
    write_file(bad_path, good, good_size);
    assert_int_equal(pthread_create(&thread, NULL, replace, &stop), 0);
    for (int i = 0; i < LOADERS; i++)
        assert_int_equal(pthread_create(&loaders[i], NULL, load_often, &loads), 0);
    for (int i = 0; i < LOADERS; i++) {
        void *wrong;
        pthread_join(loaders[i], &wrong);
        if (wrong)
            fail_msg("%s", (char *)wrong);
    }
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    pthread_join(thread, NULL);
    print_message("%ld loads, %" PRIu64 " replacements\n", LOADERS * loads, replaced);
    assert_int_equal(descriptor_count(), before);
}

/* A needed library that is not there: the reason is in the text, not cut off behind a long name. */
static void test_reason(void **state)
{
    unsigned char *copy = malloc(good_size);
    char deep[512];
    mcc_error error;
    mcc_lib *lib;
    (void)state;
    memcpy(copy, good, good_size);
    for (size_t i = 0; i + 9 < good_size; i++)
        if (memcmp(copy + i, "libc.so.6", 10) == 0)
            memcpy(copy + i, "libX", 4);
    seal(copy, good_size);
    int n = snprintf(deep, sizeof deep, "%s", folder);
    for (int i = 0; i < 100; i++)
        n += snprintf(deep + n, sizeof deep - (size_t)n, "/.");
    snprintf(deep + n, sizeof deep - (size_t)n, "/bad.so");
    write_file(bad_path, copy, good_size);
    const char *const paths[] = {bad_path, deep};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(mcc_load(paths[i], NULL, &lib, &error), MCC_E_IO);
        if (!strstr(error.text, "libX.so.6") || !strstr(error.text, "No such file") || !strstr(error.text, "bad.so: "))
            fail_msg("'%s' lacks the reason", error.text);
    }
    free(copy);
}

/* As with a glibc that has its threads in libpthread.so.0, in a program that has not loaded it: the functions have
 * names here that no library has, so the weak references stay empty. Without dlopen as well, the run goes on without
 * workers. */
static void test_threads_apart(void **state)
{
    char path[80];
    size_t before = entry_count("/proc/self/task");
    (void)state;
    snprintf(path, sizeof path, "%s/apart.so", folder);
    for (int with = 1; with >= 0; with--) {
        mcc_model *model;
        mcc_host host = {.size = sizeof host, .threads = 4};
        compile(path, with ? "-Dpthread_create=no_create -Dpthread_join=no_join"
                           : "-Dpthread_create=no_create -Dpthread_join=no_join -Ddlopen=no_dlopen -Ddlsym=no_dlsym");
        void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        assert_non_null(library);
        const mcc_api *(*query)(uint32_t);
        *(void **)&query = dlsym(library, "mcc_query");
        int64_t *knob = dlsym(library, "knob_ns");
        *knob = 1 << 30; /* every launch is worth threads */
        assert_int_equal(query(MCC_ABI)->open(&host, &model, NULL), MCC_OK);
        check_api(query(MCC_ABI), model);
        assert_int_equal(entry_count("/proc/self/task") > before, with);
        query(MCC_ABI)->close(model);
        assert_int_equal(entry_count("/proc/self/task"), before);
        dlclose(library);
        unlink(path);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_loads),     cmocka_unit_test(test_no_artifact),   cmocka_unit_test(test_foreign),
        cmocka_unit_test(test_truncated), cmocka_unit_test(test_flipped),       cmocka_unit_test(test_many),
        cmocka_unit_test(test_names),     cmocka_unit_test(test_memory_file),   cmocka_unit_test(test_replaced),
        cmocka_unit_test(test_reason),    cmocka_unit_test(test_threads_apart),
    };
    return cmocka_run_group_tests(tests, build, clean);
}
