/* A file that lives as long as a command. */
#pragma once

#include "cli/library/compile/compile.h"

/* Calls use(user, path) with the path of a file `name` that is not there yet, in a folder of its own below TMPDIR; then
 * end(user), and removes both: also after a signal, and when memory ends. False after a diagnostic, when there is no
 * folder. */
bool with_temporary(struct context *, const char *name, void (*use)(void *user, const char *path),
                    void (*end)(void *user), void *user);

/* Removes the files of a folder, but no folders in it; a signal's handler may call it. */
void folder_clear(const char *folder);

/* Is what --target asks for a library that commands can read, and run if that is asked? False after a diagnostic. */
bool target_serves(struct context *, const struct options *, bool runs);
/* What a library for the target is called. */
const char *library_name(const struct options *);

/* Calls use(user, path, NULL) with the command's file where that is compiled, else use(user, path, compilation) with a
 * library that was made of it for the while, which this machine has to run if `runs`. The options that only compiling
 * takes are refused for a compiled one. */
typedef void library_fn(void *user, const char *library, struct compilation *);
enum fail with_library(struct context *, struct options *, bool runs, library_fn *use, void (*end)(void *user),
                       void *user);
