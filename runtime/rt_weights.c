/* Weights of an open model: embedded in the artifact, or in a sidecar file that is mapped read-only and shared, or the
 * sidecar's bytes in the host's memory. The sidecar's size and the hash of its head are checked always, all of the
 * weights with MCC_HOST_VERIFY_WEIGHTS. A sidecar that is truncated in place while mapped cannot be survived; one that
 * is replaced by rename leaves this mapping as it was.
 */
#include "runtime/os.h"

static size_t text_length(const char *s)
{
    size_t n = 0;
    while (s[n])
        n++;
    return n;
}

/* The sidecar beside the library. */
static bool sidecar_path(const struct mcc_model *model, struct os_path *path)
{
    if (!os_own_path(model, path))
        return false;
    while (path->n > 0 && path->text[path->n - 1] != '/')
        path->n--;
    const char *name = model->desc->weights_file;
    return os_path_add(path, name, text_length(name));
}

/* ---- the sidecar ------------------------------------------------------------------------------------------------- */

static int map_file(struct mcc_model *model, const char *path, mcc_error *error)
{
    int64_t fd = os_file_open(path);
    if (fd < 0)
        return rt_error(error, MCC_E_IO, -1, "weights '%s': cannot open (error %lld)", path, (long long)-fd);
    int64_t size = os_file_size(fd);
    uint64_t expected = model->desc->sidecar_head + model->desc->weights_size;
    int64_t at = -1;
    if (size >= 0 && (uint64_t)size == expected)
        at = os_file_map(fd, size);
    os_file_close(fd);
    if (size < 0 || (uint64_t)size != expected)
        return rt_error(error, MCC_E_IO, -1, "weights '%s': has %lld bytes where %lld are expected", path,
                        (long long)size, (long long)expected);
    if (at < 0) /* Windows has numbers of errors beyond 4096 */
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
    struct os_path *path = NULL;
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
        os_file_unmap(model->map, model->map_size);
}
