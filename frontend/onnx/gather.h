/* Reading a model file together with its external data. */
#pragma once

#include "frontend/frontend.h"
#include "frontend/onnx/scan.h"

/* The file's bytes, session memory, data from beside it as raw_data of their tensors; files: takes
 * the names of the files that it came from. The caller has imported the file
 * before. False after a diagnostic: what is refused on import, and a whole of more than MODEL_FILE_MAX bytes. */
bool file_gather(struct context *, const char *path, const struct import_options *, struct file_list *files,
                 struct span *out);
