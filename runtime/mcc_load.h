/* Loads an artifact of mcc into a program, checked first: see mcc_load.c (mcc_load_windows.c, mcc_load_macos.c), the
 * one file to compile in (with -ldl where libc is older than glibc 2.34). Needs mcc.h, mcc_load_file.h
 * and mcc_note.h in the same folder.
 *
 *     mcc_lib *lib;
 *     mcc_error error;
 *     if (mcc_load("model.so", NULL, &lib, &error)) { puts(error.text); return 1; }
 *     lib->api->ctx_new(lib->model, NULL, 0, &ctx, &error);
 *     ...
 *     mcc_unload(lib);
 */
#ifndef MCC_LOAD_H
#define MCC_LOAD_H

#include "mcc.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mcc_lib {
    const mcc_api *api;      /* valid until mcc_unload */
    mcc_model *model;        /* opened with the given host services */
    void *handle;            /* of dlopen */
} mcc_lib;

/* Checks, loads and opens the artifact at `path`. A file that is missing, truncated, damaged, for another machine or of
 * a newer mcc gives MCC_E_IO, a CPU that lacks what the code needs MCC_E_CPU; error->text says which. host may be NULL,
 * so may error. On failure *lib is NULL and nothing stays loaded. */
int mcc_load(const char *path, const mcc_host *host, mcc_lib **lib, mcc_error *error);

/* Closes the model and unloads the library. All contexts and run_dlpack's tensors must be gone. NULL is fine. */
void mcc_unload(mcc_lib *lib);

#ifdef __cplusplus
}
#endif

#endif
