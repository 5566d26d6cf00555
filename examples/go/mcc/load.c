/* mcc's loader, compiled into the Go program: cgo takes the C files of a package. */
#include "mcc_load.c"
