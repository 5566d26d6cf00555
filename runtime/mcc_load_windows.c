/* mcc_load.h on Windows: a file is checked completely before the system's loader sees it, so that a truncated, damaged
 * or foreign one is an error with a text. C11 and KERNEL32 only; paths are UTF-8.
 *
 * In order: PE headers (machine, all sections inside the file), the note (mcc_note.h), its size, its hash over
 * everything but the weights. The file stays open without permission to write or delete it until it is loaded.
 */
#include "mcc_load_file.h"

#include <windows.h>

#if defined(_M_ARM64) || defined(__aarch64__)
#define HOST_MACHINE 0xaa64 /* IMAGE_FILE_MACHINE_ARM64 */
#else
#define HOST_MACHINE IMAGE_FILE_MACHINE_AMD64
#endif

static int fail_system(const struct file *file, const char *what)
{
    char number[32];
    snprintf(number, sizeof number, "error %lu", (unsigned long)GetLastError());
    return fail(file, MCC_E_IO, what, number);
}

/* ---- the checks ---- */

/* The note is the section .mccnote. */
static int check_sections(struct file *file)
{
    IMAGE_DOS_HEADER dos;
    IMAGE_NT_HEADERS64 head;
    bool elf = inside(file, 0, 4) && memcmp(file->data, "\177ELF", 4) == 0;
    if (!inside(file, 0, sizeof dos) || memcmp(file->data, "MZ", 2) != 0)
        return fail(file, MCC_E_IO, elf ? "a file for Linux" : "not a DLL", "");
    memcpy(&dos, file->data, sizeof dos);
    if (dos.e_lfanew < 0 || !inside(file, (uint64_t)dos.e_lfanew, sizeof head))
        return fail(file, MCC_E_IO, "truncated or damaged: headers", "");
    memcpy(&head, file->data + dos.e_lfanew, sizeof head);
    if (head.Signature != IMAGE_NT_SIGNATURE || !(head.FileHeader.Characteristics & IMAGE_FILE_DLL))
        return fail(file, MCC_E_IO, "not a DLL", "");
    if (head.FileHeader.Machine != HOST_MACHINE)
        return fail(file, MCC_E_IO, "compiled for another kind of machine", "");
    uint64_t at = (uint64_t)dos.e_lfanew + offsetof(IMAGE_NT_HEADERS64, OptionalHeader) +
                  head.FileHeader.SizeOfOptionalHeader;
    bool found = false;
    for (int i = 0; i < head.FileHeader.NumberOfSections; i++, at += sizeof(IMAGE_SECTION_HEADER)) {
        IMAGE_SECTION_HEADER section;
        if (!inside(file, at, sizeof section))
            return fail(file, MCC_E_IO, "truncated or damaged: section table", "");
        memcpy(&section, file->data + at, sizeof section);
        if (!inside(file, section.PointerToRawData, section.SizeOfRawData))
            return fail(file, MCC_E_IO, "truncated or damaged: a section leaves the file", "");
        if (memcmp(section.Name, ".mccnote", 8) != 0 || section.SizeOfRawData < sizeof file->note)
            continue;
        note_read(file, section.PointerToRawData, section.VirtualAddress);
        found = note_is_ours(&file->note);
    }
    return found ? MCC_OK : fail(file, MCC_E_IO, "a DLL, but not made by mcc, or damaged", "");
}

static int check_file(struct file *file)
{
    int code = check_sections(file);
    return code ? code : note_check(file);
}

/* ---- loading ---- */

/* In full: of a name without a folder the system's loader would look for another file first. NULL: not UTF-8, or no
 * memory. */
static wchar_t *wide_path(const char *path)
{
    int n = MultiByteToWideChar(CP_UTF8, MB_ERR_INVALID_CHARS, path, -1, NULL, 0);
    wchar_t *wide = n > 0 ? (wchar_t *)calloc((size_t)n, sizeof *wide) : NULL, *full = NULL;
    if (wide) {
        MultiByteToWideChar(CP_UTF8, MB_ERR_INVALID_CHARS, path, -1, wide, n);
        DWORD room = GetFullPathNameW(wide, 0, NULL, NULL);
        full = room ? (wchar_t *)calloc(room, sizeof *full) : NULL;
        if (full && GetFullPathNameW(wide, room, full, NULL) >= room)
            full[0] = 0;
    }
    free(wide);
    return full;
}

/* A file that took the name of one that is still loaded gives the image of that one. */
static bool is_checked(const struct file *file, HMODULE module)
{
    const unsigned char *image = (const unsigned char *)module;
    IMAGE_DOS_HEADER dos;
    IMAGE_NT_HEADERS64 head;
    memcpy(&dos, image, sizeof dos);
    memcpy(&head, image + dos.e_lfanew, sizeof head);
    uint64_t end = file->note_address + sizeof file->note;
    return end <= head.OptionalHeader.SizeOfImage &&
           memcmp(image + file->note_address, &file->note, sizeof file->note) == 0;
}

static int load_checked(const struct file *file, const wchar_t *path, mcc_lib *lib)
{
    HMODULE module = LoadLibraryExW(path, NULL, 0);
    if (!module)
        return fail_system(file, "cannot be loaded: ");
    lib->handle = module;
    if (!is_checked(file, module))
        return fail(file, MCC_E_IO, "an older file of this name is still loaded", "");
    FARPROC found = GetProcAddress(module, file->note.query);
    const void *data = NULL;
    memcpy(&data, &found, sizeof data);
    return take_api(file, lib, data);
}

/* Between check and loading nobody may write to the file, rename or delete it. */
static int load_file(struct file *file, const wchar_t *path, mcc_lib *lib)
{
    LARGE_INTEGER size;
    HANDLE handle = CreateFileW(path, GENERIC_READ, FILE_SHARE_READ, NULL, OPEN_EXISTING, FILE_ATTRIBUTE_NORMAL, NULL);
    if (handle == INVALID_HANDLE_VALUE)
        return fail_system(file, "cannot be opened: ");
    HANDLE mapping = CreateFileMappingW(handle, NULL, PAGE_READONLY, 0, 0, NULL);
    void *data = mapping ? MapViewOfFile(mapping, FILE_MAP_READ, 0, 0, 0) : NULL;
    int code = data && GetFileSizeEx(handle, &size) ? MCC_OK : fail_system(file, "cannot be read: ");
    if (!code) {
        file->data = (const unsigned char *)data;
        file->size = file->end = (uint64_t)size.QuadPart;
        code = check_file(file);
    }
    if (!code)
        code = load_checked(file, path, lib);
    if (data)
        UnmapViewOfFile(data);
    if (mapping)
        CloseHandle(mapping);
    CloseHandle(handle);
    return code;
}

int mcc_load(const char *path, const mcc_host *host, mcc_lib **result, mcc_error *error)
{
    struct file file;
    int code = file_begin(&file, path, result, error);
    if (code)
        return code;
    mcc_lib *lib = (mcc_lib *)calloc(1, sizeof *lib);
    wchar_t *wide = wide_path(path);
    code = !lib || !wide ? fail(&file, lib ? MCC_E_ARG : MCC_E_NOMEM,
                                lib ? "the path is empty or not UTF-8" : "out of memory", "")
                         : load_file(&file, wide, lib);
    free(wide);
    return file_end(code, lib, host, result, error);
}

static void unload_library(mcc_lib *lib)
{
    if (lib->handle)
        FreeLibrary((HMODULE)lib->handle);
}
