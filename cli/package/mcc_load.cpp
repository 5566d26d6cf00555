// mcc_load.c for projects that have C++ only.
#include "mcc_load.c"
