/* The compiler as a library: libmcc.a, libmcc.so. One object holds options and a place for messages; it may serve any
 * number of compilations, one at a time. Objects are independent: different threads may each use their own.
 *
 *     mccc *c = mccc_new();
 *     mccc_set(c, "input", "x:f32[n=1..64,3,224,224]");
 *     int status = mcc_compile(c, "net.onnx", "net.so");
 *     mccc_free(c);
 *
 * A status is 0, or the class of the first error, which is also the exit code of the command:
 * 1 model or configuration refused, 2 usage, 3 environment (files, disk), 4 a limit was reached (memory included),
 * 5 internal error. Nothing here exits, prints, or changes signal handlers.
 */
#ifndef MCCC_H
#define MCCC_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MCCC_VERSION "0.1.0"

typedef struct mccc mccc;

/* What a message is. A line ends with a newline; MCCC_DATA and MCCC_LOG texts may have many lines. */
enum {
    MCCC_NOTE,
    MCCC_REMARK,
    MCCC_WARNING,
    MCCC_ERROR,
    MCCC_DATA = 16 /* what the command prints on stdout */,
    MCCC_LOG
};
typedef void mccc_message(void *user, int kind, const char *text, size_t size);

mccc *mccc_new(void);          /* NULL: no memory */
void mccc_free(mccc *);
/* Messages of this object go to fn, which must return; none by default. */
void mccc_on_message(mccc *, mccc_message *fn, void *user);
/* Sets an option by its name on the command line, without dashes ("O", "target", "limit-compile-heap", ...); lists
 * grow by one. value NULL: a flag that is switched on. */
int mccc_set(mccc *, const char *option, const char *value);
/* Compiles the file `model`; output NULL: as the option "output" says, else named after the model. */
int mcc_compile(mccc *, const char *model, const char *output);

#ifdef __cplusplus
}
#endif
#endif
