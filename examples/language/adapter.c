/* PEFT's tensors, or those of an .onnx_adapter file, to the network's inputs: by name, turned, scaled, and with zeros
 * for what is not adapted. */
#include <jansson.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "adapter.h"
#include "half.h"
#include "meta.h"
#include "onnx_adapter.h"
#include "safetensors.h"
#include "tokens.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))

enum { NAME_MAX_BYTES = 200, RANK_MAX = 4096 }; /* of inputs without a maximum */

/* What a module of a layer is called by transformers, by onnxruntime-genai's builder behind model.layers.N., and in
 * GGUF files behind blk.N. */
static const struct naming {
    const char *module, *genai, *gguf;
    enum part { WHOLE, QUERIES, KEYS, VALUES } part;
} names[] = {
    {"self_attn.q_proj", "attn.q_proj", "attn_q", QUERIES},
    {"self_attn.k_proj", "attn.k_proj", "attn_k", KEYS},
    {"self_attn.v_proj", "attn.v_proj", "attn_v", VALUES},
    {"self_attn.qkv_proj", "attn.qkv_proj", "attn_qkv", WHOLE},
    {"self_attn.o_proj", "attn.o_proj", "attn_output", WHOLE},
    {"mlp.gate_proj", "mlp.gate_proj", "ffn_gate", WHOLE},
    {"mlp.up_proj", "mlp.up_proj", "ffn_up", WHOLE},
    {"mlp.gate_up_proj", "mlp.gate_up_proj", "ffn_up", WHOLE},
    {"mlp.down_proj", "mlp.down_proj", "ffn_down", WHOLE},
};

/* A pair of matrices of the file, and where it goes. */
struct pair {
    char name[NAME_MAX_BYTES + 64];  /* of the tensor A; letter: its A, to be B of the other one */
    size_t letter;
    uint32_t a, b;                   /* inputs of the network */
    int64_t in, rank, out;
    int64_t row, column;             /* of input B, where it begins; row is input A's column, too */
    int64_t heads;                   /* whose rows the network has as neighbours, not as halves; 0: as they are */
    double scale;
};

struct reading {
    struct adapter *a;
    const struct decoder *d;
    struct safetensors file;
    struct onnx_adapter onnx;        /* instead of the other two */
    json_t *config;
    struct pair *pair;
    size_t n;
    int64_t *ranks;                  /* of each input */
};

__attribute__((format(printf, 2, 3))) static int refuse(struct reading *r, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    vsnprintf(r->a->why, sizeof r->a->why, format, list);
    va_end(list);
    return 0;
}

/* ---- adapter_config.json ----------------------------------------------------------------------------------------- */

/* null, false, "", "none", [] and {}. */
static int is_nothing(const json_t *v)
{
    const char *text = json_string_value(v);
    return !v || json_is_null(v) || json_is_false(v) || (text && (!*text || !strcmp(text, "none"))) ||
           (json_is_array(v) && !json_array_size(v)) || (json_is_object(v) && !json_object_size(v));
}

/* Patterns are read as names, or ends of names, only. */
static int is_plain(const json_t *patterns)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)patterns, key, value)
    {
        if (strpbrk(key, "^$*+?()[]{}|\\") || !json_is_number(value))
            return 0;
    }
    return 1;
}

static int config_check(struct reading *r)
{
    static const char *const undone[] = {"use_dora",
                                         "use_qalora",
                                         "lora_bias",
                                         "bias",
                                         "modules_to_save",
                                         "layer_replication",
                                         "target_parameters",
                                         "trainable_token_indices",
                                         "alora_invocation_tokens"};
    static const char *const starts[] = {"gaussian", "eva", "orthogonal"}; /* that leave the model's weights alone */
    const json_t *c = r->config, *start = json_object_get(c, "init_lora_weights");
    const char *type = json_string_value(json_object_get(c, "peft_type")), *how = json_string_value(start);
    size_t k = 0;
    if (!type || strcmp(type, "LORA"))
        return refuse(r, "adapter_config.json: peft_type is '%.40s', not LORA", type ? type : "none");
    for (size_t i = 0; i < COUNT(undone); i++)
        if (!is_nothing(json_object_get(c, undone[i])))
            return refuse(r, "adapter_config.json: %s is not done here", undone[i]);
    while (how && k < COUNT(starts) && strcmp(how, starts[k]))
        k++;
    if (k == COUNT(starts))
        return refuse(r, "adapter_config.json: init_lora_weights '%.40s' may have changed the model's weights", how);
    if (!json_is_number(json_object_get(c, "lora_alpha")) || !json_is_integer(json_object_get(c, "r")) ||
        !is_plain(json_object_get(c, "alpha_pattern")) || !is_plain(json_object_get(c, "rank_pattern")))
        return refuse(r, "adapter_config.json: lora_alpha, r, alpha_pattern or rank_pattern is not understood");
    return 1;
}

/* The first pattern that is the module's name or its end decides. */
static double by_module(const struct reading *r, const char *patterns, const char *otherwise, const char *module)
{
    const char *key;
    json_t *value;
    size_t n = strlen(module);
    json_object_foreach(json_object_get(r->config, patterns), key, value)
    {
        size_t k = strlen(key);
        if (k <= n && !strcmp(module + n - k, key) && (k == n || module[n - k - 1] == '.'))
            return json_number_value(value);
    }
    return json_number_value(json_object_get(r->config, otherwise));
}

/* ---- names ------------------------------------------------------------------------------------------------------- */

static const char *const ends[] = DECODER_LORA_ENDS;
enum { END_OF_PEFT = 1 };

/* The input of that product's matrix A; -1: there is none. */
static int port_find(const struct decoder *d, const char *product, const char *matrix)
{
    char name[2 * NAME_MAX_BYTES];
    for (size_t i = 0; i < COUNT(ends); i++) {
        snprintf(name, sizeof name, "%s.lora_%s%s", product, matrix, ends[i]);
        for (uint32_t k = 0; k < d->api->n_in; k++)
            if (d->in[k].adapts && !strcmp(d->api->in[k].name, name))
                return (int)k;
    }
    return -1;
}

/* How wide the keys of all heads are, by the caches. */
static int64_t keys_width(const struct decoder *d)
{
    for (uint32_t k = 0; k < d->api->n_in; k++)
        if (d->in[k].output >= 0)
            return d->in[k].shape[1] * d->in[k].shape[3];
    return 0;
}

/* A product of queries, keys and values side by side has the part's columns from there on. */
static int64_t part_begin(enum part part, int64_t out, int64_t keys)
{
    return part == QUERIES ? 0 : part == KEYS ? out - 2 * keys : out - keys;
}

/* Llama's files in GGUF have the rows of a head's rotary pairs as neighbours: how many heads the matrix has. */
static int64_t heads_of(const struct decoder *d, enum part part)
{
    const char *architecture = meta_find(d->api->meta, "general.architecture");
    int64_t heads = meta_whole(d->api->meta, "llama.attention.head_count", 0);
    if (!architecture || strcmp(architecture, "llama") || (part != QUERIES && part != KEYS))
        return 0;
    return part == KEYS ? meta_whole(d->api->meta, "llama.attention.head_count_kv", heads) : heads;
}

/* The inputs of a module, by its name and by those that other files give it; p->column, p->heads. */
static int place_find(const struct reading *r, const char *module, struct pair *p)
{
    char name[NAME_MAX_BYTES + 64];
    int layer = -1, at = 0, a = port_find(r->d, module, "A");
    const struct naming *n = names, *end = names + COUNT(names);
    int64_t keys = keys_width(r->d);
    *p = (struct pair){0};
    if (a < 0 && !strcmp(module, "lm_head"))
        module = "output";
    snprintf(name, sizeof name, "%s", module);
    a = a < 0 ? port_find(r->d, name, "A") : a;
    if (a < 0 && sscanf(module, "model.layers.%9d.%n", &layer, &at) == 1 && at > 0 && layer >= 0) {
        while (n < end && strcmp(n->module, module + at) && strcmp(n->genai, module + at))
            n++;
        if (n == end)
            return 0;
        snprintf(name, sizeof name, "model.layers.%d.%s", layer, n->genai);
        a = port_find(r->d, name, "A");
        if (a < 0) {
            snprintf(name, sizeof name, "blk.%d.%s", layer, n->gguf);
            a = port_find(r->d, name, "A");
            p->heads = a >= 0 ? heads_of(r->d, n->part) : 0;
        }
        if (a < 0 && n->part != WHOLE) {
            snprintf(name, sizeof name, "model.layers.%d.attn.qkv_proj", layer);
            a = port_find(r->d, name, "A");
            int b = a < 0 ? -1 : port_find(r->d, name, "B");
            int64_t out = b < 0 ? 0 : r->d->api->in[b].dims[1].extent;
            if (keys < 1 || out <= 2 * keys)
                return 0;
            p->column = part_begin(n->part, out, keys);
            p->out = n->part == QUERIES ? out - 2 * keys : keys;
        }
    }
    int b = a < 0 ? -1 : port_find(r->d, name, "B");
    if (b < 0)
        return 0;
    p->a = (uint32_t)a;
    p->b = (uint32_t)b;
    p->in = r->d->api->in[a].dims[0].extent;
    p->out = p->out ? p->out : r->d->api->in[b].dims[1].extent;
    return 1;
}

/* ---- what the file has ------------------------------------------------------------------------------------------- */

static const char *other(struct pair *p)
{
    p->name[p->letter] = p->name[p->letter] == 'A' ? 'B' : 'A';
    return p->name;
}

static const char *why_not(const struct reading *r)
{
    return r->onnx.data ? r->onnx.why : r->file.why;
}

/* Both as PEFT has them, [out, in]: the other files turn them. */
static int shape_of(struct reading *r, const char *name, int64_t shape[2])
{
    if (!r->onnx.data)
        return safetensors_shape(&r->file, name, shape);
    int ok = onnx_adapter_shape(&r->onnx, name, shape);
    int64_t in = shape[0];
    shape[0] = shape[1];
    shape[1] = in;
    return ok;
}

static float *numbers_of(struct reading *r, const char *name)
{
    return r->onnx.data ? onnx_adapter_read_turned(&r->onnx, name) : safetensors_read(&r->file, name);
}

/* The ranks of several pairs of one product lie behind one another. */
static int pair_check(struct reading *r, struct pair *p, const char *module)
{
    int64_t a[2] = {0}, b[2] = {0};
    if (!shape_of(r, p->name, a) || !shape_of(r, other(p), b))
        return refuse(r, "%.250s", why_not(r));
    other(p);
    p->rank = a[0];
    if (p->rank < 1 || a[1] != p->in || b[0] != p->out || b[1] != p->rank)
        return refuse(r, "%.150s: matrices [%lld, %lld] and [%lld, %lld] for a product of %lld to %lld", module,
                      (long long)a[0], (long long)a[1], (long long)b[0], (long long)b[1], (long long)p->in,
                      (long long)p->out);
    if (r->config && (double)p->rank != by_module(r, "rank_pattern", "r", module))
        return refuse(r, "%.150s has rank %lld, which adapter_config.json does not say", module, (long long)p->rank);
    if (p->heads < 0 || (p->heads && p->out % (2 * p->heads)))
        return refuse(r, "%.150s: %lld rows are not those of %lld heads", module, (long long)p->out,
                      (long long)p->heads);
    double alpha = r->config ? by_module(r, "alpha_pattern", "lora_alpha", module) : (double)p->rank;
    int root = json_is_true(json_object_get(r->config, "use_rslora"));
    p->scale = alpha / (root ? sqrt((double)p->rank) : (double)p->rank);
    p->row = r->ranks[p->a];
    r->ranks[p->a] += p->rank;
    r->a->rank = r->ranks[p->a] > r->a->rank ? r->ranks[p->a] : r->a->rank;
    return 1;
}

/* The pair that tensor `key` is A of. */
static int pair_add(struct reading *r, const char *key)
{
    static const char head[] = "base_model.model.", letters[] = ".lora_A";
    struct pair *p = &r->pair[r->n];
    char module[NAME_MAX_BYTES + 64];
    size_t n = strlen(key), end = END_OF_PEFT, front = r->onnx.data ? 0 : sizeof head - 1, tail = sizeof letters - 1;
    if (n >= NAME_MAX_BYTES)
        return refuse(r, "tensor '%.200s' is not understood", key);
    for (size_t i = 0; r->onnx.data && i < COUNT(ends); i++) /* the longest is the last */
        if (i == 0 || (n > strlen(ends[i]) && !strcmp(key + n - strlen(ends[i]), ends[i])))
            end = i;
    tail += strlen(ends[end]);
    if (n <= front + tail || strncmp(key, head, front) || strcmp(key + n - strlen(ends[end]), ends[end]))
        return refuse(r, "tensor '%.200s' is not understood", key);
    snprintf(module, sizeof module, "%s", key);
    size_t letter = n - strlen(ends[end]) - 1;
    int second = module[letter] == 'B';
    if (second)
        module[letter] = 'A';
    if (strncmp(module + n - tail, letters, sizeof letters - 1))
        return refuse(r, "tensor '%.200s' is not understood", key);
    if (second) {
        int64_t shape[2];
        int there = r->onnx.data ? onnx_adapter_shape(&r->onnx, module, shape)
                                 : json_object_get(r->file.header, module) != NULL;
        return there || refuse(r, "there is no tensor '%.200s'", module);
    }
    module[n - tail] = 0;
    if (!place_find(r, module + front, p))
        return refuse(r, "the network has no input for an adapter of '%.150s': mcc --lora=RANK, with its name if any",
                      module + front);
    snprintf(p->name, sizeof p->name, "%s", key);
    p->letter = letter;
    r->n++;
    return pair_check(r, p, module + front);
}

static int pairs_find(struct reading *r)
{
    const char *key;
    json_t *value;
    r->pair = calloc((r->onnx.data ? r->onnx.n : json_object_size(r->file.header)) + 1, sizeof *r->pair);
    r->ranks = calloc(r->d->api->n_in + 1, sizeof *r->ranks);
    if (!r->pair || !r->ranks)
        return refuse(r, "no memory");
    for (uint32_t i = 0; i < r->onnx.n; i++) {
        const char *name = onnx_adapter_name(&r->onnx, i);
        if (!name)
            return refuse(r, "%.250s", r->onnx.why);
        if (!pair_add(r, name))
            return 0;
    }
    json_object_foreach(r->file.header, key, value)
    {
        if (strcmp(key, "__metadata__") && !pair_add(r, key))
            return 0;
    }
    int64_t most = r->n ? r->d->api->sym[r->d->api->in[r->pair[0].a].dims[1].symbol].max : 0;
    if (r->n == 0)
        return refuse(r, "the file has no adapter");
    return r->a->rank <= (most ? most : RANK_MAX) ||
           refuse(r, "the adapter needs a rank of %lld, the network has room for %lld", (long long)r->a->rank,
                  (long long)(most ? most : RANK_MAX));
}

/* ---- matrices ---------------------------------------------------------------------------------------------------- */

static int is_b(const struct decoder *d, uint32_t k)
{
    return d->in[k].adapts == 1;
}

static size_t bytes_of(const struct reading *r, uint32_t k)
{
    const mcc_port *port = &r->d->api->in[k];
    return (size_t)(port->dims[is_b(r->d, k)].extent * r->a->rank) * (port->dtype.bits / 8u);
}

static int room_make(struct reading *r)
{
    size_t most = 1;
    for (uint32_t k = 0; k < r->d->api->n_in; k++)
        if (r->d->in[k].adapts && bytes_of(r, k) > most)
            most = bytes_of(r, k);
    r->a->zeros = calloc(most, 1);
    int ok = r->a->zeros != NULL;
    for (uint32_t k = 0; ok && k < r->d->api->n_in; k++)
        r->a->data[k] = r->d->in[k].adapts ? r->a->zeros : NULL;
    for (size_t i = 0; ok && i < r->n; i++) {
        const uint32_t ports[] = {r->pair[i].a, r->pair[i].b};
        for (int j = 0; j < 2; j++)
            if (r->a->data[ports[j]] == r->a->zeros) {
                void *made = calloc(bytes_of(r, ports[j]), 1);
                ok = ok && made;
                r->a->data[ports[j]] = made ? made : r->a->zeros;
            }
    }
    return ok || refuse(r, "no memory for matrices of rank %lld", (long long)r->a->rank);
}

static void put(void *data, DLDataType type, int64_t i, double x)
{
    if (type.bits == 32)
        ((float *)data)[i] = (float)x;
    else
        ((uint16_t *)data)[i] = type.code == kDLBfloat ? float_bf16((float)x) : float_half((float)x);
}

/* Row i of the file's B is this column of the network's. */
static int64_t column_of(const struct pair *p, int64_t i)
{
    if (!p->heads)
        return p->column + i;
    int64_t head = p->out / p->heads, half = head / 2, at = i % head;
    return p->column + i - at + 2 * (at % half) + at / half;
}

static int pair_fill(struct reading *r, struct pair *p)
{
    const mcc_port *in = r->d->api->in;
    int64_t rank = r->a->rank, width = in[p->b].dims[1].extent;
    float *a = numbers_of(r, p->name), *b = a ? numbers_of(r, other(p)) : NULL;
    for (int64_t j = 0; b && j < p->rank; j++)
        for (int64_t i = 0; i < p->in; i++)
            put(r->a->data[p->a], in[p->a].dtype, i * rank + p->row + j, a[j * p->in + i]);
    for (int64_t i = 0; b && i < p->out; i++)
        for (int64_t j = 0; j < p->rank; j++)
            put(r->a->data[p->b], in[p->b].dtype, (p->row + j) * width + column_of(p, i),
                p->scale * b[i * p->rank + j]);
    int ok = b != NULL;
    free(a);
    free(b);
    return ok || refuse(r, "%.250s", why_not(r));
}

/* ---- for others -------------------------------------------------------------------------------------------------- */

static int paths_of(struct reading *r, const char *path, char file[4096], char config[4096])
{
    struct stat s;
    int folder = stat(path, &s) == 0 && S_ISDIR(s.st_mode);
    const char *slash = strrchr(path, '/');
    int n = snprintf(file, 4096, folder ? "%s/adapter_model.safetensors" : "%s", path);
    if (n < 0 || n > 4000)
        return refuse(r, "the path is too long");
    if (folder)
        snprintf(config, 4096, "%s/adapter_config.json", path);
    else
        snprintf(config, 4096, "%.*sadapter_config.json", slash ? (int)(slash - path + 1) : 0, path);
    return 1;
}

static int peft_open(struct reading *r, const char *path)
{
    char file[4096], config[4096], why[TOKENS_WHY] = "";
    if (!paths_of(r, path, file, config))
        return 0;
    if (!safetensors_open(&r->file, file))
        return refuse(r, "%.250s", r->file.why);
    r->config = json_read(config, why);
    return r->config ? config_check(r) : refuse(r, "%.250s", why);
}

int adapter_read(struct adapter *a, const struct decoder *d, const char *path)
{
    struct reading r = {.a = a, .d = d};
    *a = (struct adapter){.n = d->api->n_in, .data = calloc(d->api->n_in + 1, sizeof *a->data)};
    int ok = a->data ? 1 : refuse(&r, "no memory");
    if (ok && onnx_adapter_is(path))
        ok = onnx_adapter_open(&r.onnx, path) || refuse(&r, "%.250s", r.onnx.why);
    else
        ok = ok && peft_open(&r, path);
    ok = ok && pairs_find(&r) && room_make(&r);
    for (size_t i = 0; ok && i < r.n; i++)
        ok = pair_fill(&r, &r.pair[i]);
    safetensors_close(&r.file);
    onnx_adapter_close(&r.onnx);
    json_decref(r.config);
    free(r.pair);
    free(r.ranks);
    if (!ok)
        adapter_free(a);
    return ok;
}

void adapter_free(struct adapter *a)
{
    for (uint32_t k = 0; a->data && k < a->n; k++)
        if (a->data[k] != a->zeros)
            free(a->data[k]);
    free(a->data);
    free(a->zeros);
    a->data = NULL;
    a->zeros = NULL;
}
