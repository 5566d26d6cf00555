/* Reading the model file, and guessing what a wrong file is. */
#include "frontend/onnx/scan.h"

#include "ir/base/file.h"

bool file_read(struct context *ctx, const char *path, struct span *out)
{
    struct file_bytes file;
    switch (file_whole(ctx, path, MODEL_FILE_MAX, &file)) {
    case FILE_FAILED: return file.why && error_env(ctx, "cannot read the file: %s", file.why);
    case FILE_LARGE:
        return error_model(ctx, (src_id){0},
                           "the file has %lld bytes, the limit is %lld (2 GiB - 1); larger models keep "
                           "their weights in external data",
                           (long long)file.size, (long long)MODEL_FILE_MAX);
    case FILE_OK: break;
    }
    if (file.size == 0)
        return error_model(ctx, (src_id){0}, "the file is empty: save or copy the model again");
    *out = (struct span){file.data, file.size};
    return true;
}

/* ---- what a wrong file is ------------------------------------------------------------------------------ */

static const struct magic {
    uint32_t at, n;
    const char *bytes, *what;
} magics[] = {
    {0, 2, "\x1f\x8b", "a gzip archive"},
    {0, 4,
     "\x7f"
     "ELF",
     "an ELF object or program"},
    {0, 2, "MZ", "a DLL or program of Windows"},
    {0, 4, "\xcf\xfa\xed\xfe", "a library or program of macOS"},
    {0, 4, "\xca\xfe\xba\xbe", "a universal file of macOS"},
    {0, 4, "\x89PNG", "a PNG image"},
    {0, 3, "\xff\xd8\xff", "a JPEG image"},
    {0, 4, "PK\x03\x04", "a zip archive"},
    {0, 8, "\x89HDF\r\n\x1a\n", "an HDF5 file (Keras saves those: export to ONNX first)"},
    {0, 4, "GGUF", "a GGUF model"},
    {4, 4, "TFL3", "a TensorFlow Lite model"},
    {0, 2, "\x80\x02", "a Python pickle"},
    {0, 2, "\x80\x03", "a Python pickle"},
    {0, 2, "\x80\x04", "a Python pickle"},
    {0, 2, "\x80\x05", "a Python pickle"},
    {0, 4, "%PDF", "a PDF document"},
    {0, 6,
     "\xfd"
     "7zXZ\0",
     "an xz archive"},
    {0, 4, "\x28\xb5\x2f\xfd", "a zstd archive"},
    {257, 5, "ustar", "a tar archive"},
    {8, 2, "{\"", "a safetensors file"},
};

static bool is_text(const uint8_t *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if ((p[i] < 0x20 && p[i] != '\n' && p[i] != '\r' && p[i] != '\t') || p[i] >= 0x7f)
            return false;
    return n > 0;
}

const char *file_looks_like(struct span file)
{
    for (uint32_t i = 0; i < COUNT_OF(magics); i++) {
        const struct magic *m = &magics[i];
        if (file.size >= m->at + m->n && memcmp((const char *)file.data + m->at, m->bytes, m->n) == 0)
            return m->what;
    }
    return is_text(file.data, file.size < 64 ? file.size : 64) ? "text" : NULL;
}
