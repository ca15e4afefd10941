/* A disk that can be cut off, under a process that does not know: LD_PRELOAD.
 *
 * Every change below one folder goes to the folder as always, and into a journal beside it: what
 * was written where, which names came and went, and up to which point of the journal a sync has
 * reached. Whoever reads the journal after the death of the process (platter.py) can tell what
 * the disk may hold if the power went in that moment. Nothing is really synced.
 *
 * FAULTS_FOLDER   the folder, as the process names it
 * FAULTS_JOURNAL  a file; it is appended to
 * FAULTS_CONTROL  a file of at least sizeof(struct control) bytes; see shim.py
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <unistd.h>

/* What goes wrong; changed by the test while the process runs. */
struct control {
    _Atomic uint64_t syncs;        /* counted here */
    _Atomic uint64_t fail_sync;    /* counts syncs down, and the one that reaches 0 fails; 0 is none */
    _Atomic uint64_t short_one_in; /* one of so many writes comes up short; 0 is none */
    _Atomic uint64_t lies;         /* syncs of files do nothing, and say that all is well */
    _Atomic uint64_t sync_us;      /* how long a sync takes */
    _Atomic uint64_t capacity;     /* room for all files, in bytes; 0 is that of the system */
    _Atomic uint64_t writes;       /* counted here */
};

enum kind { CREATE = 1, WRITE, SIZE, RENAME, UNLINK, SYNC, SYNC_NAMES, SYNC_FAILED };

struct entry {
    uint32_t kind;
    uint32_t bytes; /* of what follows */
    uint64_t file;  /* its inode */
    uint64_t at;    /* WRITE: offset; SIZE: the size; syncs: how much of the journal is covered */
};

enum { FDS = 65536, NAME = 256 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const char *folder;
static size_t folder_bytes;
static int journal = -1;
static struct control *control;
static ino_t files[FDS]; /* inode by descriptor; 0 is none of ours */
static ino_t folder_ino;

#define REAL(name) ((__typeof__(&name))real(#name))

static void *real(const char *name)
{
    void *found = dlsym(RTLD_NEXT, name);
    if (!found)
        abort();
    return found;
}

static void fatal(const char *what)
{
    perror(what);
    abort();
}

__attribute__((constructor)) static void begin(void)
{
    const char *path = getenv("FAULTS_FOLDER");
    const char *to = getenv("FAULTS_JOURNAL");
    const char *by = getenv("FAULTS_CONTROL");
    struct stat facts;
    if (!path || !to || !by)
        return;
    journal = REAL(open)(to, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    int page = REAL(open)(by, O_RDWR | O_CLOEXEC);
    if (journal < 0 || page < 0 || stat(path, &facts))
        fatal("faults");
    control = mmap(NULL, sizeof *control, PROT_READ | PROT_WRITE, MAP_SHARED, page, 0);
    if (control == MAP_FAILED)
        fatal("faults: control");
    REAL(close)(page);
    folder_ino = facts.st_ino;
    folder_bytes = strlen(path);
    folder = path;
}

/* The name of a file of the folder, or NULL for anything else. */
static const char *name_of(const char *path)
{
    if (!folder || strncmp(path, folder, folder_bytes) || path[folder_bytes] != '/')
        return NULL;
    const char *name = path + folder_bytes + 1;
    return *name && !strchr(name, '/') ? name : NULL;
}

static ino_t file_of(int fd)
{
    return folder && fd >= 0 && fd < FDS ? files[fd] : 0;
}

static uint64_t journal_end(void)
{
    return (uint64_t)lseek(journal, 0, SEEK_END);
}

static void note(enum kind kind, ino_t file, uint64_t at, const void *data, size_t bytes)
{
    struct entry entry = {kind, (uint32_t)bytes, file, at};
    struct iovec parts[] = {{&entry, sizeof entry}, {(void *)data, bytes}};
    if (writev(journal, parts, 2) != (ssize_t)(sizeof entry + bytes))
        fatal("faults: journal");
}

static ino_t inode(int fd)
{
    struct stat facts;
    if (fstat(fd, &facts))
        fatal("faults: fstat");
    return facts.st_ino;
}

/* What all files take, by their sizes. */
static uint64_t used(void)
{
    uint64_t sum = 0;
    struct stat facts;
    DIR *names = opendir(folder);
    if (!names)
        fatal("faults: opendir");
    for (struct dirent *each; (each = readdir(names));)
        if (!fstatat(dirfd(names), each->d_name, &facts, 0) && S_ISREG(facts.st_mode))
            sum += (uint64_t)facts.st_size;
    closedir(names);
    return sum;
}

/* Whether a file may become so long. */
static int has_room(int fd, uint64_t end)
{
    uint64_t capacity = control->capacity;
    struct stat facts;
    if (!capacity || fstat(fd, &facts) || end <= (uint64_t)facts.st_size)
        return 1;
    return used() + end - (uint64_t)facts.st_size <= capacity;
}

static int opened(int fd, const char *name, int flags, int is_new)
{
    if (fd < 0 || fd >= FDS)
        return fd;
    files[fd] = inode(fd);
    if (is_new)
        note(CREATE, files[fd], 0, name, strlen(name));
    else if (flags & O_TRUNC)
        note(SIZE, files[fd], 0, NULL, 0);
    return fd;
}

#define OPEN(function)                                                                             \
    int function(const char *path, int flags, ...)                                                 \
    {                                                                                              \
        va_list more;                                                                              \
        va_start(more, flags);                                                                     \
        mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(more, mode_t) : 0;                    \
        va_end(more);                                                                              \
        const char *name = name_of(path);                                                          \
        int is_folder = folder && !strcmp(path, folder);                                           \
        if (!name && !is_folder)                                                                   \
            return REAL(function)(path, flags, mode);                                              \
        pthread_mutex_lock(&lock);                                                                 \
        struct stat facts;                                                                         \
        int is_new = name && flags & O_CREAT && stat(path, &facts);                                \
        int fd = opened(REAL(function)(path, flags, mode), name, flags, is_new);                   \
        pthread_mutex_unlock(&lock);                                                               \
        return fd;                                                                                 \
    }

OPEN(open)
OPEN(open64)

int close(int fd)
{
    if (fd >= 0 && fd < FDS)
        files[fd] = 0;
    return REAL(close)(fd);
}

static ssize_t write_at(int fd, const void *data, size_t bytes, off_t offset)
{
    if (!file_of(fd))
        return REAL(pwrite)(fd, data, bytes, offset);
    pthread_mutex_lock(&lock);
    ssize_t written = -1;
    uint64_t odds = control->short_one_in, count = ++control->writes;
    if (odds && bytes > 1 && count % odds == 0)
        bytes = bytes / 2;
    if (!has_room(fd, (uint64_t)offset + bytes))
        errno = ENOSPC;
    else
        written = REAL(pwrite)(fd, data, bytes, offset);
    if (written > 0)
        note(WRITE, files[fd], (uint64_t)offset, data, (size_t)written);
    pthread_mutex_unlock(&lock);
    return written;
}

ssize_t pwrite(int fd, const void *data, size_t bytes, off_t offset)
{
    return write_at(fd, data, bytes, offset);
}

ssize_t pwrite64(int fd, const void *data, size_t bytes, off64_t offset)
{
    return write_at(fd, data, bytes, offset);
}

static int resize(int fd, off_t bytes)
{
    if (!file_of(fd))
        return REAL(ftruncate)(fd, bytes);
    pthread_mutex_lock(&lock);
    int failed = -1;
    if (!has_room(fd, (uint64_t)bytes))
        errno = ENOSPC;
    else if (!(failed = REAL(ftruncate)(fd, bytes)))
        note(SIZE, files[fd], (uint64_t)bytes, NULL, 0);
    pthread_mutex_unlock(&lock);
    return failed;
}

int ftruncate(int fd, off_t bytes)
{
    return resize(fd, bytes);
}

int ftruncate64(int fd, off64_t bytes)
{
    return resize(fd, bytes);
}

static int reserve(int fd, int mode, off_t offset, off_t bytes)
{
    if (!file_of(fd))
        return REAL(fallocate)(fd, mode, offset, bytes);
    pthread_mutex_lock(&lock);
    int failed = -1;
    struct stat facts;
    if (mode)
        errno = EOPNOTSUPP;
    else if (!has_room(fd, (uint64_t)(offset + bytes)))
        errno = ENOSPC;
    else if (!(failed = REAL(fallocate)(fd, mode, offset, bytes)) && !fstat(fd, &facts))
        note(SIZE, files[fd], (uint64_t)facts.st_size, NULL, 0);
    pthread_mutex_unlock(&lock);
    return failed;
}

int fallocate(int fd, int mode, off_t offset, off_t bytes)
{
    return reserve(fd, mode, offset, bytes);
}

int fallocate64(int fd, int mode, off64_t offset, off64_t bytes)
{
    return reserve(fd, mode, offset, bytes);
}

int rename(const char *from, const char *to)
{
    const char *old = name_of(from), *new = name_of(to);
    if (!old || !new)
        return REAL(rename)(from, to);
    char names[2 * NAME];
    int bytes = snprintf(names, sizeof names, "%s/%s", old, new);
    pthread_mutex_lock(&lock);
    int failed = REAL(rename)(from, to);
    if (!failed)
        note(RENAME, 0, 0, names, (size_t)bytes);
    pthread_mutex_unlock(&lock);
    return failed;
}

int unlink(const char *path)
{
    const char *name = name_of(path);
    if (!name)
        return REAL(unlink)(path);
    pthread_mutex_lock(&lock);
    struct stat facts;
    int is_file = !lstat(path, &facts) && S_ISREG(facts.st_mode);
    int failed = REAL(unlink)(path);
    if (!failed && is_file)
        note(UNLINK, 0, 0, name, strlen(name));
    pthread_mutex_unlock(&lock);
    return failed;
}

/* What was noted before it began is covered when it ends: not what came meanwhile. */
static int sync_file(int fd, int (*really)(int))
{
    ino_t file = file_of(fd);
    if (!file)
        return really(fd);
    pthread_mutex_lock(&lock);
    uint64_t covered = journal_end();
    pthread_mutex_unlock(&lock);
    if (control->sync_us)
        usleep((useconds_t)control->sync_us);
    pthread_mutex_lock(&lock);
    control->syncs++;
    int fails = control->fail_sync && --control->fail_sync == 0;
    if (fails)
        note(SYNC_FAILED, file, covered, NULL, 0);
    else if (file == folder_ino)
        note(SYNC_NAMES, file, covered, NULL, 0);
    else if (!control->lies)
        note(SYNC, file, covered, NULL, 0);
    pthread_mutex_unlock(&lock);
    if (fails)
        errno = EIO;
    return fails ? -1 : 0;
}

int fsync(int fd)
{
    return sync_file(fd, REAL(fsync));
}

int fdatasync(int fd)
{
    return sync_file(fd, REAL(fdatasync));
}

#define STATVFS(function, type)                                                                    \
    int function(const char *path, struct type *facts)                                             \
    {                                                                                              \
        int failed = REAL(function)(path, facts);                                                  \
        if (failed || !folder || strcmp(path, folder) || !control->capacity)                       \
            return failed;                                                                         \
        uint64_t all = control->capacity, taken = used();                                          \
        facts->f_blocks = all / facts->f_frsize;                                                   \
        facts->f_bavail = (all > taken ? all - taken : 0) / facts->f_frsize;                       \
        facts->f_bfree = facts->f_bavail;                                                          \
        return 0;                                                                                  \
    }

STATVFS(statvfs, statvfs)
STATVFS(statvfs64, statvfs64)
