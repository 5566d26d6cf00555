/* What the files of the GGUF importer share. */
#pragma once

#include "frontend/frontend.h"
#include "frontend/names.h"

enum { GGUF_RANK_MAX = 4, GGUF_ALIGNMENT_LEAST = 8, GGUF_ALIGNMENT_MOST = 1 << 20 };

/* The file's numbers. */
enum gguf_kind {
    GGUF_U8,
    GGUF_I8,
    GGUF_U16,
    GGUF_I16,
    GGUF_U32,
    GGUF_I32,
    GGUF_F32,
    GGUF_BOOL,
    GGUF_STRING,
    GGUF_ARRAY,
    GGUF_U64,
    GGUF_I64,
    GGUF_F64,
    GGUF_KINDS
};
struct gguf_key {
    const char *name;
    enum gguf_kind kind, elem; /* elem: of an array's elements; else kind */
    uint64_t n; /* elements; 1: no array */
    const uint8_t *data; /* the first one; a string is 8 bytes of length before its own */
    uint64_t at; /* of the name, in the file */
};
struct gguf_type {
    const char *name;
    uint32_t number;
    int64_t elements, bytes; /* of a block */
    enum elem elem;
};
struct gguf_tensor {
    const char *name;
    const struct gguf_type *type;
    int32_t rank;
    int64_t dims[GGUF_RANK_MAX]; /* elements, the last dim lies together */
    const uint8_t *data;
    int64_t size;
    bool used;
    value_id v; /* its constant; {0}: none yet */
};

/* What an architecture differs in from llama (architectures.def). */
struct architecture {
    const char *name;
    bool halves; /* rotary pairs are elements of the halves of a head, else neighbours */
    const char *activation; /* of feed-forward layers; "swiglu": gpt-oss's, clamped, of experts alone */
    int32_t experts; /* weighed by the softmax of the chosen ones; 1: layers may have some, 2: all have, 0: none */
    bool sinks; /* of attention; and the norm before the feed-forward layer is called post_attention_norm */
    bool head_norms; /* of queries and keys */
    bool post_norms; /* behind attention and feed-forward layers, too */
    bool scaled_embedding; /* by the root of the width */
    int32_t window_every; /* one of so many layers sees all keys, the last; 1: none does; 0: all do */
    double window_base; /* of the rotary angles of layers with a window, unscaled; 0: as everywhere */
    double attention_cap, logits_cap; /* where the file says nothing */
    int32_t scaled_by_width; /* with so many layers, queries are scaled by width / heads; 0: never */
};

/* The numbers of one model. */
struct hyper {
    const struct architecture *arch;
    int64_t layers, width, forward, expert_forward, experts, experts_used, heads, kv_heads, head, rotated, context,
        original_context, window, window_every, vocabulary;
    double epsilon, base, factor, magnitude, attention_cap, logits_cap, scale;
    bool yarn;
    double ramp[2]; /* the pairs between which YaRN goes from angles as they are to those over the factor */
};

struct gguf {
    struct context *ctx;
    struct graph *g;
    struct arena scratch;
    const uint8_t *data;
    uint64_t size, at; /* of the file; read so far */
    struct names key_names, tensor_names; /* -> index + 1 */
    VEC(struct gguf_key) keys;
    VEC(struct gguf_tensor) tensors;
    struct hyper h;
    value_id ids, mask, lengths, total; /* inputs, and what attention reads of them */
    value_id angles[2][3]; /* cosines, sines, places in them; [1]: of layers with a window */
    VEC(value_id) present; /* the caches as they are after the run, key and value of each layer */
};

#define gguf_refuse(p, ...) error_model((p)->ctx, (src_id){0}, __VA_ARGS__)

/* reader.c: keys and tensors of the file's bytes. False after a diagnostic. */
bool gguf_read(struct gguf *);
/* The key, of whatever kind; NULL: the file does not have it. */
const struct gguf_key *gguf_find(struct gguf *, const char *name);
/* The first element of a key of strings; the bytes are the file's. */
struct span gguf_string(const struct gguf_key *);
/* Element i of integers; false: it is not an integer, or above 2^63. */
bool gguf_whole(const struct gguf_key *, uint64_t i, int64_t *out);
double gguf_number(const struct gguf_key *, uint64_t i); /* of integers or floats; NaN: of neither */
/* NULL: the file has no such tensor. */
struct gguf_tensor *gguf_tensor(struct gguf *, const char *name);

/* model.c: p->h of the keys. */
bool gguf_hyper(struct gguf *);
/* The value of "ARCHITECTURE.NAME"; NULL: the file has no such key. */
const struct gguf_key *gguf_own(struct gguf *, const char *name);

/* metadata.c: what the file says in its keys, as texts: numbers and texts as they are, arrays as JSON. */
bool gguf_metadata(struct gguf *);

/* nodes.c: nodes of the imported graph. Every function returns {0} after a diagnostic, and takes {0} for an operand
 * that was reported. */
struct gguf_op {
    const char *domain, *op;
    int32_t version;
    const char *name; /* of the node */
    const value_id *in;
    uint32_t n_in;
    const struct attr *attrs;
    uint32_t n_attrs;
};
bool gguf_append(struct gguf *, const struct gguf_op *, value_id *out, uint32_t n_out);
value_id gguf_unary(struct gguf *, const char *op, const char *name, value_id x);
value_id gguf_binary(struct gguf *, const char *op, const char *name, value_id x, value_id y);
value_id gguf_scaled(struct gguf *, const char *name, value_id x, double by);
value_id gguf_constant(struct gguf *, enum elem, const int64_t *dims, int32_t rank, const void *data, const char *name);
value_id gguf_int(struct gguf *, int64_t); /* i64 [1] */
value_id gguf_floats(struct gguf *, const char *name, const int64_t *dims, int32_t rank); /* a tensor, as f32 */
value_id gguf_vector(struct gguf *, const char *name, int64_t length);
/* x by the transpose of tensor NAME.weight, with the bias NAME.bias if there is one; rows: what the weights have. */
value_id gguf_product(struct gguf *, const char *name, value_id x, int64_t rows, int64_t columns);
/* Tensor NAME as its file has it, [rows, columns], or [many, rows, columns] of experts (many > 0); blocks are bytes. */
value_id gguf_weights(struct gguf *, const char *name, int64_t many, int64_t rows, int64_t columns);
value_id gguf_input(struct gguf *, const char *name, enum elem, const expr_id *dims, int32_t rank);
void gguf_output(struct gguf *, const char *name, value_id);
expr_id gguf_symbol(struct gguf *, const char *name);

/* layers.c: the decoder. */
bool gguf_decoder(struct gguf *);
