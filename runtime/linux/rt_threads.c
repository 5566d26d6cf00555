/* Threads of whatever libc there is. glibc before 2.34 has them in a library of their own, which a program that starts
 * no threads has not loaded. The artifact cannot need that library (musl and later glibc have none, or an empty one),
 * so both functions are weak references: where they are not there, libpthread.so.0 is loaded when the first worker
 * starts. Such a glibc has dlopen in libdl, which a program that loaded this artifact by dlopen has; with neither there
 * are no workers.
 */
#include "runtime/os.h"

/* What dlopen and dlsym are in objects and archives, whose program is linked with threads: nothing is left to load, and
 * a static link should not take the dynamic linker for it. */
void *rt_threads_none(void)
{
    return NULL;
}

struct rt_threads rt_threads_find(void)
{
    struct rt_threads found = {pthread_create, pthread_join};
    if ((found.create && found.join) || !dlopen || !dlsym)
        return found;
    void *library = dlopen("libpthread.so.0", 2 /* RTLD_NOW */); /* stays: it can never be unloaded */
    if (library) {
        *(void **)&found.create = dlsym(library, "pthread_create");
        *(void **)&found.join = dlsym(library, "pthread_join");
    }
    return found;
}
