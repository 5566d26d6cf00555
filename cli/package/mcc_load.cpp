// The loader of the system for projects that have C++ only.
#if defined(_WIN32)
#include "mcc_load_windows.c"
#elif defined(__APPLE__)
#include "mcc_load_macos.c"
#else
#include "mcc_load.c"
#endif
