/* See cache.h. Nothing here unwinds while a descriptor or a lock is held. */
#include "codegen/cache.h"

#include <dirent.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "codegen/sip.h"
#include "ir/base/file.h"

enum {
    ENTRY_MAX = 64 << 20,        /* bytes of a file */
    NOTES_MAX = 1 << 16,         /* of the worker's notes */
    BUILD_ID_MAX = 64,
    FILES_MAX = 1 << 20,         /* that one look at the folder counts */
    LOCK_TRIES = 20,             /* a millisecond apart: who keeps the lock longer loses it */
    KEY_TRIES = 3
};
#define WHOLE ".net" /* suffix of the entries of cache_put_whole */
static const char magic[8] = "mcc-obj2", tally_magic[8] = "mcc-sum1";

struct cache {
    struct context *ctx;
    struct arena *arena;
    int folder;
    int64_t limit;
    struct sip_key key;
    unsigned char build[BUILD_ID_MAX];
    uint32_t n_build;
    uint32_t found, asked;
    bool stored;
    bool stuck;                  /* somebody keeps the sum's lock: it is left alone */
};

/* A file: this, then build id, job and result, without gaps. */
struct entry_head {
    char magic[8];
    uint64_t build, job, result; /* bytes of each */
    uint64_t hash;               /* with the folder's key, of what follows */
};

/* ---- the worker's build ---- */

static bool build_in_notes(struct cache *c, const char *notes, size_t size)
{
    for (size_t at = 0; at + sizeof(Elf64_Nhdr) <= size;) {
        Elf64_Nhdr note;
        memcpy(&note, notes + at, sizeof note);
        size_t name = at + sizeof note, desc = name + ((size_t)note.n_namesz + 3) / 4 * 4,
               next = desc + ((size_t)note.n_descsz + 3) / 4 * 4;
        if (next > size)
            return false;
        if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 && memcmp(notes + name, "GNU", 4) == 0 &&
            note.n_descsz <= BUILD_ID_MAX) {
            memcpy(c->build, notes + desc, note.n_descsz);
            c->n_build = note.n_descsz;
            return note.n_descsz > 0;
        }
        at = next;
    }
    return false;
}

static bool build_in_file(struct cache *c, int fd)
{
    Elf64_Ehdr head;
    Elf64_Phdr part;
    if (!fd_pread(fd, &head, sizeof head, 0) || memcmp(head.e_ident, ELFMAG, SELFMAG) != 0 ||
        head.e_ident[EI_CLASS] != ELFCLASS64)
        return false;
    for (uint32_t i = 0; i < head.e_phnum; i++) {
        if (!fd_pread(fd, &part, sizeof part, head.e_phoff + i * sizeof part))
            return false;
        if (part.p_type != PT_NOTE || part.p_filesz > NOTES_MAX)
            continue;
        char *notes = arena_try(c->arena, part.p_filesz + 1);
        if (notes && fd_pread(fd, notes, part.p_filesz, part.p_offset) && build_in_notes(c, notes, part.p_filesz))
            return true;
    }
    return false;
}

/* ---- the folder ---- */

/* May nobody else have made it, or change it? Root may do so anyway; a group that has the user's own number is the
 * user's alone. */
static const char *foreign(const struct stat *st)
{
    if (st->st_uid != geteuid() && st->st_uid != 0)
        return "it belongs to another user";
    if ((st->st_mode & S_IWOTH) || ((st->st_mode & S_IWGRP) && (st->st_gid != getegid() || st->st_gid != geteuid())))
        return "others may write to it (chmod go-w)";
    return NULL;
}

static bool folder_open(struct cache *c, const char *folder)
{
    struct stat st;
    if (mkdir(folder, 0700) != 0 && errno != EEXIST)
        return false;
    c->folder = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (c->folder < 0)
        return false;
    const char *why = fstat(c->folder, &st) == 0 ? foreign(&st) : "it cannot be looked at";
    if (!why)
        return true;
    close(c->folder);
    warn_at(c->ctx, (src_id){0}, "cache", "the cache folder '%s' is not used: %s", folder, why);
    return false;
}

/* A regular file of the folder that nobody else may have made; negative: there is none. */
static int file_open(const struct cache *c, const char *name, int flags)
{
    struct stat st;
    int fd = openat(c->folder, name, flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
    if (fd < 0 || (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && !foreign(&st)))
        return fd;
    close(fd);
    return -1;
}

static bool key_read(struct cache *c)
{
    char more;
    int fd = file_open(c, "key", O_RDONLY);
    if (fd < 0)
        return false;
    bool ok = fd_read(fd, &c->key, sizeof c->key) && read(fd, &more, 1) == 0;
    close(fd);
    return ok;
}

/* Takes its name whole; where another process was faster, its key stays. */
static void key_make(const struct cache *c)
{
    char part[32];
    unsigned char fresh[sizeof c->key];
    snprintf(part, sizeof part, "key.%ld.part", (long)getpid());
    if (getrandom(fresh, sizeof fresh, 0) != (ssize_t)sizeof fresh)
        return;
    int fd = openat(c->folder, part, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return;
    bool ok = fd_write(fd, fresh, sizeof fresh);
    if (close(fd) == 0 && ok)
        (void)!linkat(c->folder, part, c->folder, "key", 0);
    unlinkat(c->folder, part, 0);
}

/* The folder's key, made where there is none or none that is whole. */
static bool key_open(struct cache *c)
{
    struct stat st;
    for (int i = 0; i < KEY_TRIES; i++) {
        if (key_read(c))
            return true;
        if (fstatat(c->folder, "key", &st, AT_SYMLINK_NOFOLLOW) == 0)
            unlinkat(c->folder, "key", 0);
        key_make(c);
    }
    return false;
}

struct cache *cache_open(struct context *ctx, struct arena *arena, const char *folder, const char *worker,
                         int64_t limit)
{
    struct cache *c = NEW(arena, struct cache);
    *c = (struct cache){.ctx = ctx, .arena = arena, .limit = limit, .folder = -1};
    int fd = open(worker, O_RDONLY | O_CLOEXEC);
    bool known = fd >= 0 && build_in_file(c, fd);
    if (fd >= 0)
        close(fd);
    if (!known || !folder_open(c, folder))
        return NULL;
    if (key_open(c))
        return c;
    close(c->folder);
    return NULL;
}

/* ---- bytes of all files ---- */

/* The file "total", which spares a look at all the others; only its owner can open it, and so lock it. Whoever adds a
 * file adds its size first, under the lock and while the file has the name of a part: so a look that misses the file
 * finds the sum changed, and the sum may be too large (a file replaced, a process that died), never too small. A look
 * sets it right. */
struct tally {
    char magic[8];
    uint64_t looks; /* 0: what was here before is not in it */
    int64_t bytes;
    uint64_t hash;  /* of both */
};

/* A descriptor that holds the lock; closing it lets go. Negative: none. Nobody is waited for: where somebody keeps the
 * lock, a process that is stopped, the file goes, which makes the sum one that nobody knows, until the next look. */
static int tally_lock(struct cache *c)
{
    int fd = c->stuck ? -1 : file_open(c, "total", O_RDWR | O_CREAT);
    for (int i = 0; fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) != 0; i++) {
        if (errno != EWOULDBLOCK && errno != EINTR)
            break;      /* a file system without locks: the next look mends what gets lost */
        nanosleep(&(struct timespec){0, 1000000}, NULL);
        if (i < LOCK_TRIES)
            continue;
        close(fd);
        fd = -1;
        c->stuck = true;
    }
    if (c->stuck)
        unlinkat(c->folder, "total", 0);
    return fd;
}

static uint64_t tally_hash(const struct tally *t)
{
    return hash_mix(t->looks, (uint64_t)t->bytes);
}

/* What is damaged or not there counts as nothing known. */
static struct tally tally_read(int fd)
{
    struct tally t;
    if (fd >= 0 && fd_pread(fd, &t, sizeof t, 0) && memcmp(t.magic, tally_magic, sizeof t.magic) == 0 &&
        t.hash == tally_hash(&t) && t.bytes >= 0)
        return t;
    return (struct tally){0};
}

static void tally_write(int fd, uint64_t looks, int64_t bytes)
{
    struct tally t = {.looks = looks, .bytes = bytes};
    memcpy(t.magic, tally_magic, sizeof t.magic);
    t.hash = tally_hash(&t);
    if (fd >= 0)
        (void)fd_write(fd, &t, sizeof t);   /* half of it counts as nothing known */
}

static struct tally tally_now(struct cache *c)
{
    int fd = tally_lock(c);
    struct tally t = tally_read(fd);
    if (fd >= 0)
        close(fd);
    return t;
}

static void tally_add(struct cache *c, int64_t bytes)
{
    int fd = tally_lock(c);
    struct tally t = tally_read(fd);
    tally_write(fd, t.looks, t.bytes > INT64_MAX - bytes ? INT64_MAX : t.bytes + bytes);
    if (fd >= 0)
        close(fd);
}

/* A look that began when the sum was `before` found so many bytes. Another one that ended meanwhile stands. */
static void tally_set(struct cache *c, const struct tally *before, int64_t bytes)
{
    int fd = tally_lock(c);
    struct tally t = tally_read(fd);
    int64_t added = t.bytes > before->bytes ? t.bytes - before->bytes : 0;
    if (t.looks == before->looks)
        tally_write(fd, t.looks + 1, bytes > INT64_MAX - added ? INT64_MAX : bytes + added);
    if (fd >= 0)
        close(fd);
}

/* ---- entries ---- */

static uint64_t job_hash(const struct cache *c, struct span job)
{
    return hash_mix(hash_bytes(c->build, c->n_build), hash_bytes(job.data, job.size));
}

static uint64_t entry_hash(const struct cache *c, struct span job, struct span result)
{
    uint64_t parts[] = {sip_hash(&c->key, c->build, c->n_build), sip_hash(&c->key, job.data, job.size),
                        sip_hash(&c->key, result.data, result.size)};
    return sip_hash(&c->key, parts, sizeof parts);
}

/* The entry's bytes after its head are build, job, result. */
static bool entry_fits(const struct cache *c, const struct entry_head *h, const char *body, struct span job)
{
    return memcmp(body, c->build, c->n_build) == 0 && memcmp(body + c->n_build, job.data, job.size) == 0 &&
           entry_hash(c, job, (struct span){body + c->n_build + job.size, h->result}) == h->hash;
}

static bool entry_read(struct cache *c, int fd, struct span job, struct span *result)
{
    struct entry_head h;
    struct stat st;
    if (fstat(fd, &st) != 0 || st.st_size > ENTRY_MAX || !fd_read(fd, &h, sizeof h))
        return false;
    if (memcmp(h.magic, magic, sizeof magic) != 0 || h.build != c->n_build || h.job != job.size || h.result > ENTRY_MAX)
        return false;
    size_t size = c->n_build + job.size + h.result;
    if ((uint64_t)st.st_size != sizeof h + size)
        return false;
    char *body = arena_try(c->arena, size + 1);
    if (!body || !fd_read(fd, body, size) || !entry_fits(c, &h, body, job))
        return false;
    *result = (struct span){body + c->n_build + job.size, h.result};
    return true;
}

static bool entry_get(struct cache *c, const char *suffix, struct span job, struct span *result)
{
    char name[24];
    if (!c)
        return false;
    snprintf(name, sizeof name, "%016llx%s", (unsigned long long)job_hash(c, job), suffix);
    int fd = file_open(c, name, O_RDONLY);
    if (fd < 0)
        return false;
    bool ok = entry_read(c, fd, job, result);
    if (ok)
        futimens(fd, (struct timespec[2]){{0, UTIME_NOW}, {0, UTIME_NOW}});    /* used now: cache_close keeps it */
    close(fd);
    return ok;
}

static void entry_put(struct cache *c, const char *suffix, struct span job, struct span result)
{
    char name[24], part[48];
    if (!c || sizeof(struct entry_head) + c->n_build + job.size + result.size > ENTRY_MAX)
        return;
    uint64_t hash = job_hash(c, job);
    snprintf(name, sizeof name, "%016llx%s", (unsigned long long)hash, suffix);
    snprintf(part, sizeof part, "%s.%ld.part", name, (long)getpid());
    struct entry_head h = {
        .build = c->n_build, .job = job.size, .result = result.size, .hash = entry_hash(c, job, result)};
    memcpy(h.magic, magic, sizeof magic);
    int fd = openat(c->folder, part, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return;
    bool ok = fd_write(fd, &h, sizeof h) && fd_write(fd, c->build, c->n_build) && fd_write(fd, job.data, job.size) &&
              fd_write(fd, result.data, result.size);
    ok = close(fd) == 0 && ok;
    if (ok)
        tally_add(c, (int64_t)(sizeof h + c->n_build + job.size + result.size));
    if (!ok || renameat(c->folder, part, c->folder, name) != 0)
        unlinkat(c->folder, part, 0);
    else
        c->stored = true;
}

bool cache_get(struct cache *c, struct span job, struct span *result)
{
    bool ok = entry_get(c, "", job, result);
    if (c) {
        c->asked++;
        c->found += ok;
    }
    return ok;
}

void cache_put(struct cache *c, struct span job, struct span result)
{
    entry_put(c, "", job, result);
}

bool cache_get_whole(struct cache *c, struct span key, struct span *result)
{
    return entry_get(c, WHOLE, key, result);
}

void cache_put_whole(struct cache *c, struct span key, struct span result)
{
    entry_put(c, WHOLE, key, result);
}

void cache_counts(const struct cache *c, uint32_t *found, uint32_t *asked)
{
    *found = c ? c->found : 0;
    *asked = c ? c->asked : 0;
}

/* ---- the limit ---- */

struct file {
    int64_t used, size;
    char name[48];
};

ASCENDING(by_use, struct file, used);

/* Only files that are called as ours are: a folder that was given by mistake loses nothing. */
static bool is_ours(const char *name)
{
    size_t n = strspn(name, "0123456789abcdef");
    return n == 16 && (!name[16] || strcmp(name + 16, WHOLE) == 0 ||
                       (name[16] == '.' && strlen(name) < 48 && strcmp(name + strlen(name) - 5, ".part") == 0));
}

/* *files is the caller's to free. Where memory ends, the rest counts at the next look. */
static uint32_t list_files(const struct cache *c, DIR *dir, struct file **files, int64_t *total)
{
    uint32_t n = 0, room = 0;
    struct stat st;
    *files = NULL;
    for (struct dirent *d; (d = readdir(dir)) != NULL && n < FILES_MAX;) {
        if (!is_ours(d->d_name) || fstatat(c->folder, d->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(st.st_mode))
            continue;
        if (n == room) {
            struct file *more = realloc(*files, (room + 1024) * sizeof *more);
            if (!more)
                break;
            *files = more;
            room += 1024;
        }
        struct file *f = &(*files)[n++];
        *f = (struct file){.used = (int64_t)st.st_mtime, .size = (int64_t)st.st_size};
        memcpy(f->name, d->d_name, strlen(d->d_name) + 1);
        *total += f->size;
    }
    return n;
}

/* Down to nine tenths of the limit, so that not every compilation has to look and to remove something. */
static void trim(struct cache *c, const struct tally *before)
{
    struct file *files;
    int64_t total = 0;
    int fd = openat(c->folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (!dir)
        return;
    uint32_t n = list_files(c, dir, &files, &total);
    closedir(dir);
    if (total > c->limit) {
        qsort(files, n, sizeof *files, by_use);
        for (uint32_t i = 0; i < n && total > c->limit - c->limit / 10; i++)
            if (unlinkat(c->folder, files[i].name, 0) == 0)
                total -= files[i].size;
    }
    free(files);
    tally_set(c, before, total);
}

void cache_close(struct cache *c)
{
    if (!c || c->folder < 0)
        return;
    if (c->stored) {
        struct tally t = tally_now(c);
        if (!t.looks || t.bytes > c->limit)
            trim(c, &t);
    }
    close(c->folder);
    c->folder = -1;
}
