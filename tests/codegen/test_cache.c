/* The cache of functions where memory ends: whichever allocation fails, no descriptor stays open and nothing unwinds
 * through it. And its hash, against the vectors of its authors. */
#include <elf.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "codegen/cache.h"
#include "codegen/sip.h"
#include "ir/base/file.h"

static void test_sip(void **state)
{
    static const struct {
        size_t size;
        uint64_t hash;
    } vectors[] = {{0, 0x726fdb47dd0e0e31},
                   {1, 0x74f839c593dc67fd},
                   {7, 0xab0200f58b01d137},
                   {8, 0x93f5f5799a932462},
                   {15, 0xa129ca6149be45e5}};
    const struct sip_key key = {{0x0706050403020100, 0x0f0e0d0c0b0a0908}};
    unsigned char text[16];
    (void)state;
    for (unsigned i = 0; i < sizeof text; i++)
        text[i] = (unsigned char)i;
    for (size_t i = 0; i < COUNT_OF(vectors); i++)
        assert_true(sip_hash(&key, text, vectors[i].size) == vectors[i].hash);
}

/* As small as a program with a build id can be. */
static void write_worker(const char *path)
{
    struct {
        Elf64_Ehdr head;
        Elf64_Phdr part;
        Elf64_Nhdr note;
        char name[4], id[20];
    } file = {.part = {.p_type = PT_NOTE, .p_offset = sizeof file.head + sizeof file.part},
              .note = {4, 20, NT_GNU_BUILD_ID},
              .name = "GNU",
              .id = "the id of this build"};
    memcpy(file.head.e_ident, ELFMAG, SELFMAG);
    file.head.e_ident[EI_CLASS] = ELFCLASS64;
    file.head.e_phnum = 1;
    file.head.e_phoff = sizeof file.head;
    file.part.p_filesz = sizeof file - file.part.p_offset;
    int fd = open(path, O_WRONLY | O_CREAT, 0600);
    assert_true(fd >= 0 && fd_write(fd, &file, sizeof file));
    close(fd);
}

static int n_open(void)
{
    int n = 0;
    for (int fd = 0; fd < 256; fd++)
        n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

/* One entry written, read again and trimmed away, while allocation number `failing` fails; 0: none. */
static bool use_cache(const char *folder, const char *worker, int64_t failing)
{
    static const char job[5000] = "a job", result[70000] = "a result";
    struct context *ctx = context_bare();
    struct cache *volatile c = NULL;
    struct span found;
    jmp_buf here;
    volatile bool hit = false;
    assert_non_null(ctx);
    ctx->unwind = &here;
    ctx->fail_alloc = failing;
    if (setjmp(here) == 0) {
        c = cache_open(ctx, &ctx->session, folder, worker, 10);
        cache_put(c, (struct span){job, sizeof job}, (struct span){result, sizeof result});
        hit = cache_get(c, (struct span){job, sizeof job}, &found) && found.size == sizeof result &&
              memcmp(found.data, result, sizeof result) == 0;
    }
    cache_close(c);
    context_free(ctx);
    return hit;
}

static void test_memory(void **state)
{
    char folder[] = "/tmp/mcc-cache-XXXXXX", worker[64], cache[64], command[100];
    (void)state;
    assert_non_null(mkdtemp(folder));
    snprintf(worker, sizeof worker, "%s/worker", folder);
    snprintf(cache, sizeof cache, "%s/cache", folder);
    write_worker(worker);
    int before = n_open();
    uint32_t missed = 0;
    assert_true(use_cache(cache, worker, 0));
    for (int64_t failing = 1; failing < 20; failing++) {
        missed += !use_cache(cache, worker, failing);
        assert_int_equal(n_open(), before);
    }
    assert_true(missed >= 2 && missed < 15);
    snprintf(command, sizeof command, "rm -r '%s'", folder);
    assert_int_equal(system(command), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_sip), cmocka_unit_test(test_memory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
