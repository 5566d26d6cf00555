/* Failures as text, the run's error slot, and the two ways to memory. No stdio: the few formats are written here. */
#include "runtime/rt_internal.h"

#include "runtime/os.h"

#include <stdarg.h>

enum { NAME_MAX_BYTES = 80 };

struct text {
    char *at, *end;
};

static void text_put(struct text *text, char c)
{
    if (text->at < text->end)
        *text->at++ = c;
}

static void text_name(struct text *text, const char *s)
{
    if (!s)
        s = "";
    for (int i = 0; s[i]; i++) {
        if (i == NAME_MAX_BYTES) {
            for (int k = 0; k < 3; k++)
                text_put(text, '.');
            return;
        }
        text_put(text, (unsigned char)s[i] < 32 || s[i] == 127 ? '?' : s[i]);
    }
}

static void text_number(struct text *text, long long value)
{
    char digits[20];
    int n = 0;
    unsigned long long rest = value < 0 ? 0 - (unsigned long long)value : (unsigned long long)value;
    do
        digits[n++] = (char)('0' + rest % 10);
    while (rest /= 10);
    if (value < 0)
        text_put(text, '-');
    while (n)
        text_put(text, digits[--n]);
}

int rt_error(mcc_error *error, int code, int64_t node, const char *format, ...)
{
    if (!error)
        return code;
    error->code = code;
    error->node = (int32_t)node;
    struct text text = {error->text, error->text + sizeof error->text - 1};
    va_list list;
    va_start(list, format);
    for (const char *f = format; *f; f++) {
        if (*f != '%') {
            text_put(&text, *f);
        } else if (f[1] == 's') {
            text_name(&text, va_arg(list, const char *));
            f++;
        } else {
            text_number(&text, va_arg(list, long long));
            f += 3;
        }
    }
    va_end(list);
    *text.at = 0;
    return code;
}

int rt_error_run(const struct mcc_rt_run *run, mcc_error *error)
{
    int32_t stop = __atomic_load_n(&run->stop, __ATOMIC_ACQUIRE);
    if (stop == 0 || run->code == 0)
        return stop == 0 ? MCC_OK : rt_error(error, stop, -1, "the run was cancelled");
    const mcc_api *api = run->model->api;
    const mcc_node *node = run->node < api->n_node ? &api->node[run->node] : NULL;
    bool named = node && node->name && node->name[0];
    if (!named && !(node && node->op && node->op[0]))
        return rt_error(error, run->code, -1, "%s", run->text);
    const char *op = node->op ? node->op : "", *line = node->source ? node->source : "";
    for (const char *p = line; *p; p++)
        line = *p == '/' ? p + 1 : line; /* without folders */
    const char *comma = *line ? ", " : "";
    if (!named)
        return rt_error(error, run->code, run->node, "a node (%s%s%s): %s", op, comma, line, run->text);
    return rt_error(error, run->code, run->node, "node '%s' (%s%s%s): %s", node->name, op, comma, line, run->text);
}

void mcc_rt_fail(struct mcc_rt_run *run, int32_t code, uint32_t node, const char *text, int64_t index)
{
    while (__atomic_exchange_n(&run->lock, 1, __ATOMIC_ACQUIRE))
        ;
    /* Kernels run one after the other and a failed run starts no further one: the index alone decides. Indices below a
     * failing one are still run (rt_pool.c), so the smallest failing index always gets here. */
    if (run->code == 0 || index < run->index) {
        __atomic_store_n(&run->code, code, __ATOMIC_RELAXED);
        __atomic_store_n(&run->index, index, __ATOMIC_RELAXED);
        run->node = node;
        run->text = text;
    }
    __atomic_store_n(&run->stop, code, __ATOMIC_RELEASE);
    __atomic_store_n(&run->lock, 0, __ATOMIC_RELEASE);
}

int64_t mcc_rt_poll(struct mcc_rt_run *run)
{
    return __atomic_load_n(&run->stop, __ATOMIC_RELAXED);
}

/* Where one page spans megabytes, a kernel that walks through many places of a workspace at once misses no
 * translations. */
enum { LARGE_PAGE = 2 << 20 };

void *rt_alloc(const struct mcc_model *model, size_t bytes)
{
    if (bytes == 0)
        bytes = RT_ALIGN;
    if (bytes > (size_t)INT64_MAX - LARGE_PAGE)
        return NULL;
    if (model->host.alloc)
        return model->host.alloc(model->host.user, bytes, RT_ALIGN);
    size_t whole = bytes / LARGE_PAGE * LARGE_PAGE;
    size_t align = whole > LARGE_PAGE ? LARGE_PAGE : RT_ALIGN;
    void *p = os_memory(align, (bytes + align - 1) / align * align);
    if (p && whole > LARGE_PAGE)
        os_large_pages(p, whole); /* the rest stays on small pages: nothing is committed that was not asked for */
    return p;
}

void rt_release(const struct mcc_model *model, void *p, size_t bytes)
{
    if (!p)
        return;
    if (bytes == 0)
        bytes = RT_ALIGN;
    if (model->host.alloc) {
        if (model->host.release)
            model->host.release(model->host.user, p, bytes);
    } else {
        os_memory_free(p);
    }
}
