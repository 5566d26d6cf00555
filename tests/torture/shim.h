/* Calls that fail on purpose: see shim.c. */
#ifndef SHIM_H
#define SHIM_H

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define TORTURE_ABSENT 1
#else
#define TORTURE_ABSENT 0
#endif

enum torture_kind { TORTURE_NONE, TORTURE_MEMORY, TORTURE_SYSTEM };

/* From now on calls of this kind are counted, and the at-th fails; 0: none. */
void torture_set(enum torture_kind, long at);
long torture_calls(void);       /* counted since */
long torture_live(void);        /* blocks of memory that are not freed */

#endif
