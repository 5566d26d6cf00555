/* Prints the ports of a compiled model.  usage: show MODEL.so */
#include <stdio.h>

#include "mcc_load.h"

int main(int argc, char **argv)
{
    mcc_lib *lib;
    mcc_error error = {0};
    if (argc != 2 || mcc_load(argv[1], NULL, &lib, &error) != MCC_OK) {
        fprintf(stderr, "usage: show MODEL.so   %s\n", error.text);
        return 1;
    }
    for (uint32_t i = 0; i < lib->api->n_in; i++)
        printf("input %s\n", lib->api->in[i].name);
    for (uint32_t i = 0; i < lib->api->n_out; i++)
        printf("output %s\n", lib->api->out[i].name);
    mcc_unload(lib);
    return 0;
}
