/* The note in an artifact of how it was made, by which `mcc verify` makes it again (build_note.c).
 *
 * Texts that each end in a NUL: "blake3=HEX", the hash of the network's file and of its external data, in the order in
 * which they are read; then "NAME=VALUE" for each option that decides bytes and has not its default; then what --prove
 * has proved. The target is the table's. Libraries, objects and archives have it as section .mcc.build (.mccb for
 * Windows, __mccb for macOS), WebAssembly modules as list `build` of their description.
 */
#pragma once

#include "cli/library/compile/compile.h"
#include "cli/library/json.h"
#include "codegen/digest.h"

#define NOTE_NETWORK "blake3"
#define NOTE_PROOF "proof" /* of --prove, for each CPU variant: what was proved of it */
#define NOTE_SCHEDULES "schedules" /* the hash of the file of --schedules */
/* The output's file name: with -g, whose line tables have it, and of a .dylib, which is called by it. */
#define NOTE_OUTPUT "output"

/* The hash of what was read. False after a diagnostic. */
bool build_note_network(struct compilation *, char out[DIGEST_TEXT]);
/* The note of the compilation at hand. False after a diagnostic. */
bool build_note_make(struct compilation *, struct span *out);
/* Takes one entry off the front of a note that was read; false: there is none that is whole. */
bool build_note_next(struct arena *, struct span *left, const char **name, const char **value);
/* The member "build" of the object that is open: NAME=VALUE of each entry. */
void build_note_json(struct span note, struct json *);
/* The value of an entry; NULL: the note has none of this name. */
const char *build_note_find(struct arena *, struct span note, const char *name);
/* Gives the options what the note says of options. False after a diagnostic: this mcc knows no such option,
 * or one that does not belong there. */
bool build_note_apply(struct context *, struct span note, struct options *);
