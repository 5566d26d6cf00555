/* A loader of Mach-O libraries on Linux of their architecture, for mcc_load_macos.c in place of dlopen (load_macho.c).
 */
#ifndef MCC_TESTS_LOAD_MACHO_H
#define MCC_TESTS_LOAD_MACHO_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>

void *macho_open(const char *path, int flags);
void *macho_symbol(void *library, const char *name);
int macho_close(void *library);
char *macho_error(void);
int macho_address(const void *address, Dl_info *);

#define dlopen macho_open
#define dlsym macho_symbol
#define dlclose macho_close
#define dlerror macho_error
#define dladdr macho_address

#endif
