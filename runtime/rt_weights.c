/* Weights of an open model: embedded in the artifact, or in a sidecar file that is mapped read-only and shared, or the
 * sidecar's bytes in the host's memory. The sidecar's size and the hash of its head are checked always, all of the
 * weights with MCC_HOST_VERIFY_WEIGHTS. A sidecar that is truncated in place while mapped cannot be survived; one that
 * is replaced by rename leaves this mapping as it was.
 */
#include "runtime/rt_internal.h"

#include "runtime/rt_libc.h"
#include "runtime/rt_sys.h"

enum { PATH_BYTES = 4096, AT_CWD = -100, OPEN_FLAGS = 02000000 | 04000 /* O_RDONLY | O_CLOEXEC | O_NONBLOCK */ };

struct path {
    char text[PATH_BYTES];
    size_t n;
};

static bool path_add(struct path *path, const char *s, size_t n)
{
    if (n >= sizeof path->text - path->n)
        return false;
    memcpy(path->text + path->n, s, n);
    path->n += n;
    path->text[path->n] = 0;
    return true;
}

static size_t text_length(const char *s)
{
    size_t n = 0;
    while (s[n])
        n++;
    return n;
}

/* ---- the library's own path ----------------------------------------------------------------------------------- */

static const char *hex(const char *p, uint64_t *value)
{
    for (*value = 0;; p++) {
        int digit = *p >= '0' && *p <= '9' ? *p - '0' : *p >= 'a' && *p <= 'f' ? *p - 'a' + 10 : -1;
        if (digit < 0)
            return p;
        *value = *value << 4 | (uint64_t)digit;
    }
}

/* "start-end perms offset dev inode   path" of /proc/self/maps; true when `address` is in it and it names a file. */
static bool line_has(const char *line, const char *end, uintptr_t address, struct path *path)
{
    uint64_t low, high;
    const char *p = hex(line, &low);
    p = hex(p + (*p == '-'), &high);
    if (address < low || address >= high)
        return false;
    while (p < end && *p != '/')
        p++;
    path->n = 0;
    return p < end && path_add(path, p, (size_t)(end - p));
}

/* By the maps, not by the dynamic linker: mcc_load opens artifacts through a descriptor, and that would be the name. */
static bool own_path(const struct mcc_model *model, struct path *path)
{
    enum { BUFFER = 4 * PATH_BYTES };
    long fd = rt_syscall(SYS_openat, AT_CWD, (long)"/proc/self/maps", OPEN_FLAGS, 0, 0, 0);
    char *buffer = fd >= 0 ? rt_alloc(model, BUFFER) : NULL;
    bool found = false;
    size_t have = 0;
    while (buffer && !found) {
        long got = rt_syscall(SYS_read, fd, (long)(buffer + have), (long)(BUFFER - 1 - have), 0, 0, 0);
        if (got == -4 /* EINTR */)
            continue;
        if (got <= 0)
            break;
        have += (size_t)got;
        size_t line = 0;
        for (size_t i = 0; i < have && !found; i++)
            if (buffer[i] == '\n') {
                buffer[i] = 0;
                found = line_has(buffer + line, buffer + i, (uintptr_t)model->desc, path);
                line = i + 1;
            }
        memmove(buffer, buffer + line, have - line);
        have -= line;
        if (have == BUFFER - 1)
            break;
    }
    rt_release(model, buffer, BUFFER);
    if (fd >= 0)
        rt_syscall(SYS_close, fd, 0, 0, 0, 0, 0);
    return found;
}

/* The sidecar beside the library. */
static bool sidecar_path(const struct mcc_model *model, struct path *path)
{
    if (!own_path(model, path))
        return false;
    while (path->n > 0 && path->text[path->n - 1] != '/')
        path->n--;
    const char *name = model->desc->weights_file;
    return path_add(path, name, text_length(name));
}

/* ---- the sidecar ------------------------------------------------------------------------------------------------- */

static int map_file(struct mcc_model *model, const char *path, mcc_error *error)
{
    long fd = rt_syscall(SYS_openat, AT_CWD, (long)path, OPEN_FLAGS, 0, 0, 0);
    if (fd < 0)
        return rt_error(error, MCC_E_IO, -1, "weights '%s': cannot open (error %lld)", path, (long long)-fd);
    long size = rt_syscall(SYS_lseek, fd, 0, 2 /* SEEK_END */, 0, 0, 0);
    uint64_t expected = model->desc->sidecar_head + model->desc->weights_size;
    long at = -1;
    if (size >= 0 && (uint64_t)size == expected)
        at = rt_syscall(SYS_mmap, 0, size, 1 /* PROT_READ */, 1 /* MAP_SHARED */, fd, 0);
    rt_syscall(SYS_close, fd, 0, 0, 0, 0, 0);
    if (size < 0 || (uint64_t)size != expected)
        return rt_error(error, MCC_E_IO, -1, "weights '%s': has %lld bytes where %lld are expected", path,
                        (long long)size, (long long)expected);
    if (at < 0 && at > -4096)
        return rt_error(error, MCC_E_IO, -1, "weights '%s': cannot map (error %lld)", path, (long long)-at);
    model->map = (void *)at;
    model->map_size = (size_t)size;
    return MCC_OK;
}

static int check_sidecar(struct mcc_model *model, const unsigned char *bytes, size_t size, mcc_error *error)
{
    const struct mcc_rt_desc *desc = model->desc;
    if (size != desc->sidecar_head + desc->weights_size)
        return rt_error(error, MCC_E_IO, -1, "weights: %lld bytes where %lld are expected", (long long)size,
                        (long long)(desc->sidecar_head + desc->weights_size));
    if ((uintptr_t)bytes % RT_ALIGN != 0)
        return rt_error(error, MCC_E_ARG, -1, "weights: the address must be a multiple of %lld", (long long)RT_ALIGN);
    if (rt_hash(bytes, desc->sidecar_head) != desc->sidecar_head_hash)
        return rt_error(error, MCC_E_IO, -1, "weights: the file belongs to another model");
    model->weights = bytes + desc->sidecar_head;
    return MCC_OK;
}

static int open_sidecar(struct mcc_model *model, mcc_error *error)
{
    if (model->host.weights)
        return check_sidecar(model, model->host.weights, model->host.weights_size, error);
    struct path *path = NULL;
    const char *name = model->host.weights_path;
    int code = MCC_OK;
    if (!name) {
        path = rt_alloc(model, sizeof *path);
        if (!path)
            return rt_error(error, MCC_E_NOMEM, -1, "open: out of memory");
        name = path->text;
        if (!sidecar_path(model, path))
            code = rt_error(error, MCC_E_IO, -1, "weights: cannot tell where the library is; give weights_path");
    }
    if (!code)
        code = map_file(model, name, error);
    rt_release(model, path, sizeof *path);
    return code ? code : check_sidecar(model, model->map, model->map_size, error);
}

int rt_weights_open(struct mcc_model *model, mcc_error *error)
{
    const struct mcc_rt_desc *desc = model->desc;
    model->weights = desc->weights;
    if (!desc->weights && desc->weights_file) {
        int code = open_sidecar(model, error);
        if (code)
            return code;
    }
    if ((model->host.flags & MCC_HOST_VERIFY_WEIGHTS) && desc->weights_size > 0 &&
        rt_hash(model->weights, desc->weights_size) != desc->weights_hash)
        return rt_error(error, MCC_E_IO, -1, "weights: damaged, the hash differs");
    return MCC_OK;
}

void rt_weights_close(struct mcc_model *model)
{
    if (model->map)
        rt_syscall(SYS_munmap, (long)model->map, (long)model->map_size, 0, 0, 0, 0);
}
