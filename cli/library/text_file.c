/* Reading a small text file of the user's whole: a configuration, a profile. */
#include "cli/library/compile/compile.h"
#include "ir/base/file.h"

bool text_file_read(struct context *ctx, const char *path, const char *what, size_t most, struct span *out)
{
    struct file_bytes file;
    switch (file_whole(ctx, path, (int64_t)most, &file)) {
    case FILE_FAILED: return file.why && error_env(ctx, "cannot read the %s '%s': %s", what, path, file.why);
    case FILE_LARGE: return error_model(ctx, (src_id){0}, "the file is larger than %zu KiB", most / 1024);
    case FILE_OK: break;
    }
    *out = (struct span){file.data, file.size};
    return true;
}
