/* The file around the functions: what they stand on, the weights, and C's names for the loop IR's. */
#include "codegen/c/c_internal.h"

#include <ctype.h>
#include <inttypes.h>

enum { WEIGHTS_MOST = 64 << 20, WORDS_A_LINE = 5 };

static const char prologue[] =
    "/* a * b + c is two roundings here unless it says fma: -ffp-contract=off, which is what -std=c11 means to GCC. */\n"
    "#if defined __clang__ || !defined __GNUC__\n#pragma STDC FP_CONTRACT OFF\n#else\n"
    "#pragma GCC optimize(\"fp-contract=off\", \"no-strict-aliasing\")\n#pragma GCC diagnostic ignored \"-Wpsabi\"\n#endif\n"
    "#if defined __FAST_MATH__ || (defined __BYTE_ORDER__ && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__)\n"
    "#error \"the code is for little-endian machines and IEEE arithmetic: no -ffast-math\"\n#endif\n\n"
    "/* Vectors are structs of lanes: arrays, or what GCC and Clang compute as a whole (-DMCC_VECTORS=0: arrays). */\n"
    "#if defined __GNUC__\n"
    "#ifndef MCC_VECTORS\n#define MCC_VECTORS 1\n#endif\n"
    "#ifdef __clang__\n#define MAY_ALIAS __attribute__((may_alias))\n#else\n#define MAY_ALIAS\n#endif\n"
    "#define INLINE __attribute__((always_inline, unused)) static inline\n"
    "#define LANES(n) _Pragma(\"GCC unroll 128\") for (int i = 0; i < (n); i++)\n"
    "#define PREFETCH(p, at, level) __builtin_prefetch((const u8 *)(p) + (at), 0, level)\n"
    "#else\n#define MCC_VECTORS 0\n#define MAY_ALIAS\n#define INLINE static inline\n"
    "#define LANES(n) for (int i = 0; i < (n); i++)\n#define PREFETCH(p, at, level) ((void)(p), (void)(at))\n#endif\n"
    "#if MCC_VECTORS\n"
    "#define VECTOR(name, T, n) \\\n"
    "    typedef T name##_lanes __attribute__((vector_size(sizeof(T) * (n)), \\\n"
    "                                          aligned(sizeof(T) * (n) < 16 ? sizeof(T) * (n) : 16))); \\\n"
    "    typedef struct { \\\n        name##_lanes v; \\\n    } name\n"
    "#define WHOLE(vectors, lanes) vectors\n"
    "#if defined __clang__ || __GNUC__ >= 12\n#define SHUFFLE(...) __builtin_shufflevector(__VA_ARGS__)\n#endif\n"
    "#else\n"
    "#define VECTOR(name, T, n) \\\n    typedef struct { \\\n        T v[n]; \\\n    } name\n"
    "#define WHOLE(vectors, lanes) lanes\n#endif\n\n"
    "typedef float MAY_ALIAS f32;\ntypedef double MAY_ALIAS f64;\n"
    "typedef int8_t i8;\ntypedef int16_t MAY_ALIAS i16;\ntypedef int32_t MAY_ALIAS i32;\ntypedef int64_t MAY_ALIAS i64;\n"
    "typedef uint8_t u8;\ntypedef uint16_t MAY_ALIAS u16;\ntypedef uint32_t MAY_ALIAS u32;\n"
    "typedef uint64_t MAY_ALIAS u64;\n\n"
    "/* Instructions for what C has in its library. */\n"
    "#if defined __clang__ && defined __has_builtin\n"
    "#if __has_builtin(__builtin_elementwise_sqrt) && (defined __SSE2_MATH__ || defined __aarch64__)\n"
    "#define SQRT_f32 __builtin_elementwise_sqrt\n#define SQRT_f64 __builtin_elementwise_sqrt\n#endif\n"
    "#elif defined __SSE2_MATH__\n"
    "#define SQRT_f32(a) (__builtin_ia32_sqrtss((f32 __attribute__((vector_size(16)))){a})[0])\n"
    "#define SQRT_f64(a) (__builtin_ia32_sqrtsd((f64 __attribute__((vector_size(16)))){a})[0])\n#endif\n"
    "#if defined __FMA__ || defined __aarch64__ || (defined __riscv_flen && __riscv_flen >= 64)\n"
    "#define FMA_f32 __builtin_fmaf\n#define FMA_f64 __builtin_fma\n"
    "#elif defined __riscv_flen || defined __ARM_FEATURE_FMA\n#define FMA_f32 __builtin_fmaf\n#endif\n";

/* mcc_rt_kept, mcc_rt_arrive: of one thread, which runs indices in order. */
static const char runtime[] =
    "/* Does the scratch still hold what was made for `tag`? */\n"
    "INLINE i64 kept(bool *made, i64 *tag, i64 now)\n{\n    bool is = *made && *tag == now;\n    *made = true;\n"
    "    *tag = now;\n    return is;\n}\n"
    "/* 1 for the last of n. */\n"
    "INLINE i64 arrive(i64 *counter, i64 n)\n{\n    if (++*counter < n)\n        return 0;\n    *counter = 0;\n"
    "    return 1;\n}\n";

static const char only_f32[] = "#include <float.h>\n#if FLT_EVAL_METHOD == 2\n"
                               "#error \"f64 is computed with more bits here: -msse2 -mfpmath=sse\"\n#endif\n";

struct c_file *c_begin(struct context *ctx, struct arena *arena, const struct c_machine *machine)
{
    struct c_file *c = NEW(arena, struct c_file);
    *c = (struct c_file){.ctx = ctx, .arena = arena, .machine = *machine};
    strbuf_init(&c->types, arena);
    strbuf_init(&c->helpers, arena);
    strbuf_init(&c->weights, arena);
    strbuf_init(&c->body, arena);
    return c;
}

/* ---- names ------------------------------------------------------------------------------------------------------- */

const struct c_function *c_function_find(const struct c_file *c, const char *name)
{
    for (uint32_t i = c->functions.n; i > 0; i--)
        if (strcmp(c->functions.data[i - 1].of, name) == 0)
            return &c->functions.data[i - 1];
    return NULL;
}

/* Kernels' names of mcc's own are C names; others are told apart by a number. No name that the file has begins with
 * "fn_", and none of C's. */
const char *c_function_name(struct c_file *c, const char *name)
{
    char *word = arena_printf(c->arena, "fn_%.80s", name);
    for (char *p = word; *p; p++)
        if (!isalnum((unsigned char)*p) || (unsigned char)*p > 127)
            *p = '_';
    for (uint32_t i = 0; i < c->functions.n; i++)
        if (strcmp(c->functions.data[i].name, word) == 0)
            return arena_printf(c->arena, "fn%u_%s", c->functions.n, word + 3);
    return word;
}

void c_export(struct c_file *c, const char *entry, const char *prototype, const char *const *arguments, uint32_t n)
{
    strbuf_printf(&c->body, "\n%s\n{\n    return %s(", prototype, c_function_find(c, entry)->name);
    for (uint32_t i = 0; i < n; i++)
        strbuf_printf(&c->body, "%s%s", i ? ", " : "", arguments[i]);
    strbuf_printf(&c->body, ");\n}\n");
}

/* ---- weights ----------------------------------------------------------------------------------------------------- */

struct words {
    struct strbuf *out;
    uint64_t word, n; /* n bytes so far */
};

static bool put_bytes(void *sink, const void *data, size_t size)
{
    struct words *w = sink;
    for (size_t i = 0; i < size; i++, w->n++) {
        w->word |= (uint64_t)((const unsigned char *)data)[i] << w->n % 8 * 8;
        if (w->n % 8 != 7)
            continue;
        strbuf_printf(w->out, w->n / 8 % WORDS_A_LINE == 0 ? "\n    0x%016" PRIx64 "," : " 0x%016" PRIx64 ",", w->word);
        w->word = 0;
    }
    return true;
}

bool c_weights(struct c_file *c, const char *name, const struct weights_writer *weights)
{
    struct words w = {&c->weights, 0, 0};
    static const char zeros[8];
    if (weights->size > WEIGHTS_MOST)
        return error_at(c->ctx, FAIL_LIMIT, (src_id){0}, NULL,
                        "--emit=c: the weights have %" PRIu64
                        " bytes, and a C file holds up to %d; --weights-type=i8 and i4 make them smaller",
                        weights->size, WEIGHTS_MOST);
    strbuf_printf(&c->weights, "\nstatic const _Alignas(64) uint64_t %s[%" PRIu64 "] = {", name,
                  weights->size ? (weights->size + 7) / 8 : 1);
    if (weights->size && !weights->write(weights->user, put_bytes, &w))
        return false;
    put_bytes(&w, zeros, (8 - w.n % 8) % 8);
    strbuf_printf(&c->weights, weights->size ? "\n};\n" : "0};\n");
    return true;
}

struct strbuf c_end(struct c_file *c, const char *head, const char *include)
{
    const struct strbuf *parts[] = {&c->types, &c->helpers, &c->weights, &c->body};
    struct strbuf out = strbuf_of(c->arena);
    strbuf_printf(&out, "%s", head);
    if (*include)
        strbuf_printf(&out, "#include \"%s\"\n", include);
    strbuf_printf(&out, "#include <stdbool.h>\n#include <stddef.h>\n#include <stdint.h>\n#include <string.h>\n%s\n%s",
                  c->has_f64 ? only_f32 : "", prologue);
    for (size_t i = 0; i < COUNT_OF(parts); i++) {
        if (i == 1)
            strbuf_printf(&out, "%s", runtime);
        if (parts[i]->n)
            strbuf_append(&out, parts[i]->data, parts[i]->n);
    }
    return out;
}
