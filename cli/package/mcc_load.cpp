// mcc_load.c, or that of Windows, for projects that have C++ only.
#ifdef _WIN32
#include "mcc_load_windows.c"
#else
#include "mcc_load.c"
#endif
