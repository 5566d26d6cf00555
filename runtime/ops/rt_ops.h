/* Runtime functions for operators over whole buffers and for values that are not plain tensors. Programs call them with
 * L_CALL: the run first, then pointers and 64-bit integers (doubles travel as their bits); the result is an int64_t.
 * A negative result of a function marked "fails" means that the run has failed and why is recorded; memory can run out
 * in each of those. Tensors are dense, row-major, at graph width (one byte per sub-byte element).
 *
 * node: index into mcc_api.node, for the error text. elem: RT_ELEM_*, a row of ir/ops/elem.def.
 * Only programs call them, one at a time: memory is the run's, and not shared out between threads.
 * An axis is described by three extents: outer (product of the dims before it), n, inner (product of those after).
 */
#pragma once

#include "runtime/rt.h"

enum {
    RT_ELEM_NONE,
#define ELEM(id, ...) RT_ELEM_##id,
#include "ir/ops/elem.def"
    RT_ELEM_COUNT
};
struct rt_string {
    const char *utf8;
    size_t bytes;
}; /* an element of RT_ELEM_STR */

/* ---- values: tensors of unknown rank, sequences, optionals, maps (rt_value.c) -------------------------------------
 * Immutable, owned by the run, gone at its end. Programs carry the address as an index and may load the members. */
struct mcc_rt_value {
    int64_t kind; /* MCC_TENSOR, MCC_SEQUENCE, MCC_OPTIONAL, MCC_MAP */
    int64_t elem; /* of the tensor or of the tensors inside */
    int64_t rank; /* tensor */
    int64_t n; /* tensor: elements; sequence: items; optional: 0 or 1; map: entries */
    const int64_t *dims; /* tensor */
    const void *data; /* tensor */
    struct mcc_rt_value *const *items; /* sequence, optional: n; map: n keys, then n values */
};
/* All of these give a value's address and fail. */
int64_t mcc_rt_tensor(struct mcc_rt_run *, int64_t elem, int64_t rank, const int64_t *dims,
                      const void *data); /* copies */
int64_t mcc_rt_seq_new(struct mcc_rt_run *, int64_t elem);
/* position: -n..n (insert) or -n..n-1; outside: MCC_E_VALUE. */
int64_t mcc_rt_seq_insert(struct mcc_rt_run *, int64_t node, struct mcc_rt_value *seq, struct mcc_rt_value *item,
                          int64_t position);
int64_t mcc_rt_seq_append(struct mcc_rt_run *, struct mcc_rt_value *seq, struct mcc_rt_value *item);
int64_t mcc_rt_seq_erase(struct mcc_rt_run *, int64_t node, struct mcc_rt_value *seq, int64_t position);
int64_t mcc_rt_seq_at(struct mcc_rt_run *, int64_t node, struct mcc_rt_value *seq, int64_t position);
/* Concatenates along axis, or stacks along a new one; MCC_E_SHAPE when the tensors do not fit, or there are none. */
int64_t mcc_rt_seq_concat(struct mcc_rt_run *, int64_t node, struct mcc_rt_value *seq, int64_t axis, int64_t new_axis);
/* Cuts a tensor into a sequence. n_split -1: single slices; 0: pieces of *split, the last may be shorter; else n_split
 * extents, which must add up. keepdims 0 (n_split -1 only): slices lose the axis. */
int64_t mcc_rt_seq_split(struct mcc_rt_run *, int64_t node, struct mcc_rt_value *tensor, const int64_t *split,
                         int64_t n_split, int64_t axis, int64_t keepdims);
int64_t mcc_rt_opt_new(struct mcc_rt_run *, int64_t elem, struct mcc_rt_value *value_or_null);
int64_t mcc_rt_opt_get(struct mcc_rt_run *, int64_t node, struct mcc_rt_value *optional); /* empty: MCC_E_VALUE */
/* Output k, a port that is not a tensor of known rank, gets this value. fails */
int64_t mcc_rt_output_value(struct mcc_rt_run *, int64_t k, struct mcc_rt_value *);
/* Queries that cannot fail; a value that is not an optional counts as a present one. */
int64_t mcc_rt_seq_length(struct mcc_rt_run *, const struct mcc_rt_value *);
int64_t mcc_rt_opt_has(struct mcc_rt_run *, const struct mcc_rt_value *);
int64_t mcc_rt_value_rank(struct mcc_rt_run *, const struct mcc_rt_value *);
int64_t mcc_rt_value_dim(struct mcc_rt_run *, const struct mcc_rt_value *, int64_t axis);
int64_t mcc_rt_value_data(struct mcc_rt_run *, const struct mcc_rt_value *);

/* ---- memory that grows (rt_grow.c) ------------------------------------------------------------------------------- */

/* Makes a slot's memory at least `bytes` long and keeps its first `keep` bytes. A slot is {address, bytes}, zero at
 * first. Gives the address; fails */
int64_t mcc_rt_grow(struct mcc_rt_run *, int64_t *slot, int64_t bytes, int64_t keep);

/* ---- ports (rt_pack.c): n elements of 4 or 2 bits; inside, a signed one is sign-extended to its byte ------------- */
int64_t mcc_rt_unpack(struct mcc_rt_run *, const unsigned char *src, unsigned char *dst, int64_t n, int64_t bits,
                      int64_t is_signed);
int64_t mcc_rt_pack(struct mcc_rt_run *, const unsigned char *src, unsigned char *dst, int64_t n, int64_t bits);

/* ---- order (rt_sort.c) ----------------------------------------------------------------------------------------------
 * One total order everywhere: NaN is the largest and all NaN are equal, -0 equals +0, false < true, strings by bytes.
 */

/* Stable sort along an axis; descending: NaN first, equal elements still by ascending position. The first `count` of
 * each line are stored: values and positions [outer, count, inner], either of which may be NULL. fails */
int64_t mcc_rt_sort(struct mcc_rt_run *, int64_t elem, const void *src, void *values, int64_t *positions, int64_t outer,
                    int64_t n, int64_t inner, int64_t descending, int64_t count);
/* Distinct slices along an axis (flattened: outer = inner = 1). values [outer, count, inner], first [count], inverse
 * [n], counts [count]; each may be NULL and has room for n slices. sorted 0: in order of first occurrence. Gives count;
 * fails */
int64_t mcc_rt_unique(struct mcc_rt_run *, int64_t elem, const void *src, int64_t outer, int64_t n, int64_t inner,
                      int64_t sorted, void *values, int64_t *first, int64_t *inverse, int64_t *counts);

/* ---- selection (rt_select.c) ------------------------------------------------------------------------------------- */

/* Number of elements that are not zero (NaN is not zero; strings: not empty). */
int64_t mcc_rt_nonzero_count(struct mcc_rt_run *, int64_t elem, const void *src, int64_t n);
/* Their indices, i64 [rank, count] in row-major order of src; gives count. */
int64_t mcc_rt_nonzero(struct mcc_rt_run *, int64_t elem, const void *src, int64_t rank, const int64_t *dims,
                       int64_t *indices, int64_t count);
/* Non-maximum suppression over f32 boxes [batches, n, 4], scores [batches, classes, n]: rows {batch, class, box} in
 * order of batch, class, falling score. center 1: boxes are x, y, width, height; 0: two corners. The three scalars may
 * be NULL (0 boxes; 0; no threshold). selected has room for batches * classes * min(n, max) rows. Gives the number of
 * rows; fails */
int64_t mcc_rt_nms(struct mcc_rt_run *, const float *boxes, const float *scores, int64_t batches, int64_t n,
                   int64_t classes, const int64_t *max_per_class, const float *iou, const float *score, int64_t center,
                   int64_t *selected);

/* ---- strings (rt_strings.c): UTF-8, not terminated; results live until the run ends ------------------------------ */

int64_t mcc_rt_str_equal(struct mcc_rt_run *, const struct rt_string *a, const struct rt_string *b, uint8_t *dst,
                         int64_t n);
int64_t mcc_rt_str_concat(struct mcc_rt_run *, const struct rt_string *a, const struct rt_string *b,
                          struct rt_string *dst, int64_t n); /* fails */
/* Broadcasts, aligned at the last dims: each dim of src is 1 or the same in dst. rank at most 32. */
int64_t mcc_rt_str_spread(struct mcc_rt_run *, const struct rt_string *src, int64_t src_rank, const int64_t *src_dims,
                          struct rt_string *dst, int64_t rank, const int64_t *dims);
/* The address of as many strings as a constant holds: u32 count, then for each u32 bytes and the bytes; fails. */
int64_t mcc_rt_str_list(struct mcc_rt_run *, const uint8_t *packed);
/* dst[i]: which string of such a constant src[i] is, from 1; the last one if several are; 0: none. */
int64_t mcc_rt_str_find(struct mcc_rt_run *, const struct rt_string *src, int64_t n, const uint8_t *packed,
                        int64_t *dst);
/* dst[i]: number src[i] of a list of `count` strings; another number fails. */
int64_t mcc_rt_str_pick(struct mcc_rt_run *, const int64_t *src, int64_t n, const struct rt_string *list, int64_t count,
                        struct rt_string *dst);
/* dst[i]: whether src[i] as a whole matches the regular expression of a table. u8 class[256] of the bytes, u16 classes,
 * u16 states, then for each state u16 accepts (0 or 1) and u16 next[classes]; state 0 leads nowhere, 1 is the start. */
int64_t mcc_rt_str_match(struct mcc_rt_run *, const struct rt_string *src, int64_t n, const uint8_t *table,
                         uint8_t *dst);
/* Numbers as text and back (rt_text.c); elem: f64, i64 or u64. Written as "%.8g" does, with INF, -INF and NaN. Read: a
 * number with point and exponent as you like, inf, infinity or nan, in white space; rounded to nearest. For integers it
 * is cut, and must be below 2^63 (u64: 2^64) in size; a sign wraps for u64. Anything else is MCC_E_VALUE. Both fail. */
int64_t mcc_rt_str_format(struct mcc_rt_run *, int64_t elem, const void *src, int64_t n, struct rt_string *dst);
int64_t mcc_rt_str_parse(struct mcc_rt_run *, int64_t node, int64_t elem, const struct rt_string *src, int64_t n,
                         void *dst);
/* Substrings of each of n strings, at most max_splits + 1 (negative: all). delimiter NULL or empty: runs of white space
 * delimit, none at the ends. counts[n]; gives the largest count. */
int64_t mcc_rt_str_split_count(struct mcc_rt_run *, const struct rt_string *src, int64_t n,
                               const struct rt_string *delimiter, int64_t max_splits, int64_t *counts);
/* The substrings, [n, width], filled up with empty ones. */
int64_t mcc_rt_str_split(struct mcc_rt_run *, const struct rt_string *src, int64_t n, const struct rt_string *delimiter,
                         int64_t max_splits, int64_t width, struct rt_string *dst);
/* StringNormalizer of n strings: drops stop words (compared without case unless case_sensitive), then maps ASCII
 * letters: mapping 0 none, 1 lower, 2 upper; other letters fail. Nothing left: one empty string. dst has room for
 * max(n, 1); gives the count; fails */
int64_t mcc_rt_str_normalize(struct mcc_rt_run *, const struct rt_string *src, int64_t n, int64_t mapping,
                             const struct rt_string *stop, int64_t n_stop, int64_t case_sensitive,
                             struct rt_string *dst);

/* ---- linear algebra, signals, random numbers --------------------------------------------------------------------- */

/* Determinants of `batch` n x n matrices (any float element); computed in f64. fails */
int64_t mcc_rt_det(struct mcc_rt_run *, int64_t elem, const void *src, void *dst, int64_t batch, int64_t n);
/* Discrete Fourier transform along an axis of f32 or f64 (any float element). src [outer, n, inner, parts_in], dst
 * [outer, n_out, inner, parts_out], parts 1 (real) or 2 (complex). The signal is cut or zero-padded to `length`; with
 * parts_in 2 and half 1 it is the first half of a Hermitian spectrum. n_out: how many of the `length` results are kept.
 * fails */
int64_t mcc_rt_dft(struct mcc_rt_run *, int64_t elem, const void *src, void *dst, int64_t outer, int64_t n,
                   int64_t inner, int64_t parts_in, int64_t length, int64_t n_out, int64_t parts_out, int64_t inverse,
                   int64_t half);
/* n random numbers of a float element: uniform in [a, b), or normal with mean a and deviation b. The stream depends on
 * the low 32 bits of seed alone; a and b are the bits of doubles. fails */
int64_t mcc_rt_rng(struct mcc_rt_run *, int64_t elem, void *dst, int64_t n, int64_t is_normal, int64_t seed,
                   int64_t a_bits, int64_t b_bits);
double mcc_rt_fmod(double, double); /* exact, sign of the dividend; called by code, not by L_CALL */
float mcc_rt_fmodf(float, float);
