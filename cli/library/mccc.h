/* The compiler as a library: libmcc.a, libmcc.so. An object holds options and a function for messages. It serves any
 * number of compilations, one at a time. Objects are independent: each thread may use its own.
 *
 *     mccc *c = mccc_new();
 *     mccc_set(c, "input", "x:f32[n=1..64,3,224,224]");
 *     int status = mcc_compile(c, "net.onnx", "net.so");
 *     mccc_free(c);
 *
 * A status is 0, or the class of the first error, which is also the exit code of the command:
 * 1 model or configuration refused, 2 usage, 3 environment (files, disk), 4 a limit was reached (memory included),
 * 5 internal error. The library does not exit, print, or change signal handlers.
 */
#ifndef MCCC_H
#define MCCC_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MCCC_VERSION "0.1.0"

typedef struct mccc mccc;

/* The kind of a message. Each line ends with a newline; texts of MCCC_DATA and MCCC_LOG may have many lines. */
enum {
    MCCC_NOTE,
    MCCC_REMARK,
    MCCC_WARNING,
    MCCC_ERROR,
    MCCC_DATA = 16 /* text that the command prints to standard output */,
    MCCC_LOG /* text that it prints to standard error */
};
/* text: size bytes, valid during the call. */
typedef void mccc_message(void *user, int kind, const char *text, size_t size);

mccc *mccc_new(void);          /* NULL: out of memory; free with mccc_free */
void mccc_free(mccc *);
/* Sets the function that gets this object's messages. It must return. By default messages are dropped. */
void mccc_on_message(mccc *, mccc_message *fn, void *user);
/* Sets an option by its name on the command line, without dashes ("O", "target", "limit-compile-heap", ...). A list
 * option appends the value. value NULL: switches a flag on. Returns a status. */
int mccc_set(mccc *, const char *option, const char *value);
/* Compiles the file `model` to `output`; NULL: to the file of the option "output", else to a file named after the
 * model. Returns a status. */
int mcc_compile(mccc *, const char *model, const char *output);

#ifdef __cplusplus
}
#endif
#endif
