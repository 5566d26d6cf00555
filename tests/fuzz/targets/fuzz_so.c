/* An artifact that is damaged, but sealed again: the loader's checks before dlopen, and the reader of `mcc inspect`.
 * Nothing of the file is run: code that was changed on purpose and sealed is a program like any other.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/commands/artifact/artifact.h"
#include "cli/library/graph_map.h"
#include "runtime/mcc_load.c"
#include "tests/fuzz/targets/target.h"

/* The note of the bytes gets the hash that the loader asks for. */
static void seal(uint8_t *data, size_t size)
{
    struct file file = {.fd = open(file_of(data, size), O_RDONLY | O_CLOEXEC), .path = "fuzz"};
    Elf64_Ehdr head;
    mcc_error error;
    file.error = &error;
    if (file.fd < 0)
        return;
    file.size = size;
    if (size >= sizeof head && fstat(file.fd, &file.stat) == 0 && read_at(&file, &head, sizeof head, 0) &&
        check_header(&file, &head) == MCC_OK && check_segments(&file, &head) == MCC_OK) {
        unsigned char *buffer = malloc(READ_BYTES);
        struct hash hash;
        struct mcc_note *note = &file.note;
        note->file_size = size;
        hash_start(&hash);
        memcpy(data + file.note_offset, note, sizeof *note);
        close(file.fd);
        file.fd = open(file_of(data, size), O_RDONLY | O_CLOEXEC);
        if (inside(&file, note->weights_offset, note->weights_size) &&
            hash_range(&file, &hash, buffer, 0, note->weights_offset) &&
            hash_range(&file, &hash, buffer, note->weights_offset + note->weights_size, size))
            note->hash = hash_end(&hash);
        memcpy(data + file.note_offset, note, sizeof *note);
        free(buffer);
    }
    close(file.fd);
}

static void check(struct context *ctx, const char *path)
{
    struct artifact_file artifact;
    struct graph_map map;
    mcc_error error;
    struct file file = {.fd = open(path, O_RDONLY | O_CLOEXEC), .path = path, .error = &error};
    check_file(&file);
    close(file.fd);
    if (artifact_read(ctx, path, true, &artifact) && artifact.graph.size)
        graph_map_unpack(&ctx->session, artifact.graph, &artifact.api, &map);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return fuzz_bytes(data, size, check);
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max, unsigned seed)
{
    size = LLVMFuzzerMutate(data, size, max);
    if (seed % 4)
        seal(data, size);
    return size;
}
