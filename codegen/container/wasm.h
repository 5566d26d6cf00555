/* WebAssembly modules (wasm.c): a static network linked by lld, then written with its weights in place. Layouts: the
 * WebAssembly specification, section 5; tool-conventions/Linking.md.
 */
#pragma once

#include "codegen/container/container.h"

enum wasm_section {
    WASM_CUSTOM,
    WASM_IMPORT = 2,
    WASM_MEMORY = 5,
    WASM_GLOBAL = 6,
    WASM_EXPORT = 7,
    WASM_START = 8,
    WASM_CODE = 10,
    WASM_DATA = 11,
    WASM_DATA_COUNT = 12
};
enum { WASM_HEAD_BYTES = 8, WASM_PAGE = 0x10000, WASM_PLACEHOLDER = 64, WASM_I32_CONST = 0x41, WASM_END = 0x0b };
#define WASM_HEAD "\0asm\1\0\0\0"
#define WASM_HEAP "__heap_base" /* an exported global: where data ends */
/* The first section, a custom one: its size takes five bytes. The sum of all bytes after it in the file (wasm_sum), as
 * 8 digits, then JSON (cli/library/compile/describe.c). */
#define WASM_DESCRIPTION "\3mcc"
#define WASM_LAUNCH "mcc_launch" /* the function that a module with workers imports */
#define WASM_PAGES "mcc.pages" /* a custom section of a module with workers: pages of memory, as digits */
#define WASM_SUM_BEGIN 0x811c9dc5u
#define WASM_NO_MAX ((INT64_C(1) << 53) - 1) /* of a symbol: JavaScript's largest integer */
enum { WASM_SUM_AT = 18, WASM_SUM_DIGITS = 8 };

/* The bytes in front of `s` that their number precedes; s moves behind them. False: they are not there. */
bool wasm_take_bytes(struct span *s, struct span *bytes);
/* The next section. False: there is none, which is an error unless s is empty. */
bool wasm_take_section(struct span *s, uint32_t *kind, struct span *content);

void wasm_put_bytes(struct strbuf *, const void *, size_t); /* with their number in front */
void wasm_put_section(struct strbuf *, uint32_t kind, const struct strbuf *content);
void wasm_put_address(struct strbuf *, uint64_t); /* an expression that gives it */

uint32_t wasm_sum(uint32_t sum, const void *, size_t); /* FNV-1a: any changed byte changes it */

/* Of the row of container.c. */
bool wasm_head(const unsigned char *head, size_t n);
void wasm_link(struct linking *, const struct static_network *);
bool wasm_library(const struct linked *);
