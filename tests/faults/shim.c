/* Preloaded into a program: lets the n-th call that touches files below a directory fail. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

static unsigned long long *count; /* of such calls, by all processes that were forked since */
static char root[PATH_MAX];
static unsigned long long at;
static int error_number, once, writes, reads;

/* From now on, count calls on files below a directory: whatever takes space on a disk, or whatever reads contents.
 * The one with the number `first` fails, and all later ones do as well unless `only` is given. */
void shim_arm(const char *directory, int are_writes, unsigned long long first, int error, int only) {
    if (!count)
        count = mmap(NULL, sizeof *count, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    *count = 0;
    snprintf(root, sizeof root, "%s", directory);
    at = first, error_number = error, once = only, writes = are_writes, reads = !are_writes;
}

unsigned long long shim_count(void) { return *count; }

static int fails(void) {
    unsigned long long n = __sync_add_and_fetch(count, 1);
    return once ? n == at : n >= at;
}

static int below(const char *path) {
    char whole[PATH_MAX];
    if (!count || !path) return 0;
    if (path[0] != '/') {
        if (!getcwd(whole, sizeof whole)) return 0;
        path = whole; /* relative paths are below the working directory, or climb out of it: near enough */
    }
    return strncmp(path, root, strlen(root)) == 0;
}

static int below_fd(int fd) {
    char link[64], path[PATH_MAX];
    if (!count) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof path - 1);
    if (n <= 0) return 0;
    path[n] = 0;
    return path[0] == '/' && strncmp(path, root, strlen(root)) == 0;
}

#define REAL(name) __typeof__(&name) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)
#define GUARD(applies, touched) \
    if ((applies) && (touched) && fails()) { errno = error_number; return -1; }

ssize_t write(int fd, const void *data, size_t n) {
    REAL(write); GUARD(writes, below_fd(fd)); return real(fd, data, n);
}
ssize_t pwrite(int fd, const void *data, size_t n, off_t offset) {
    REAL(pwrite); GUARD(writes, below_fd(fd)); return real(fd, data, n, offset);
}
ssize_t pwrite64(int fd, const void *data, size_t n, off64_t offset) {
    REAL(pwrite64); GUARD(writes, below_fd(fd)); return real(fd, data, n, offset);
}
ssize_t writev(int fd, const struct iovec *parts, int n) {
    REAL(writev); GUARD(writes, below_fd(fd)); return real(fd, parts, n);
}
int ftruncate(int fd, off_t length) {
    REAL(ftruncate); GUARD(writes, below_fd(fd)); return real(fd, length);
}
int ftruncate64(int fd, off64_t length) {
    REAL(ftruncate64); GUARD(writes, below_fd(fd)); return real(fd, length);
}
int fsync(int fd) {
    REAL(fsync); GUARD(writes, below_fd(fd)); return real(fd);
}
int mkdir(const char *path, mode_t mode) {
    REAL(mkdir); GUARD(writes, below(path)); return real(path, mode);
}
int link(const char *from, const char *to) {
    REAL(link); GUARD(writes, below(to)); return real(from, to);
}
int rename(const char *from, const char *to) {
    REAL(rename); GUARD(writes, below(to)); return real(from, to);
}
ssize_t sendfile(int out, int in, off_t *offset, size_t n) {
    REAL(sendfile); GUARD(writes, below_fd(out)); GUARD(reads, below_fd(in)); return real(out, in, offset, n);
}
ssize_t sendfile64(int out, int in, off64_t *offset, size_t n) {
    REAL(sendfile64); GUARD(writes, below_fd(out)); GUARD(reads, below_fd(in)); return real(out, in, offset, n);
}
ssize_t copy_file_range(int in, off64_t *from, int out, off64_t *to, size_t n, unsigned flags) {
    REAL(copy_file_range); GUARD(writes, below_fd(out)); GUARD(reads, below_fd(in));
    return real(in, from, out, to, n, flags);
}

ssize_t read(int fd, void *data, size_t n) {
    REAL(read); GUARD(reads, below_fd(fd)); return real(fd, data, n);
}
ssize_t pread(int fd, void *data, size_t n, off_t offset) {
    REAL(pread); GUARD(reads, below_fd(fd)); return real(fd, data, n, offset);
}
ssize_t pread64(int fd, void *data, size_t n, off64_t offset) {
    REAL(pread64); GUARD(reads, below_fd(fd)); return real(fd, data, n, offset);
}

static int opened(const char *name, const char *path, int flags, mode_t mode) {
    int (*real)(const char *, int, ...) = dlsym(RTLD_NEXT, name);
    GUARD(writes && (flags & O_CREAT), below(path));
    return real(path, flags, mode);
}
static mode_t mode_of(int flags, va_list arguments) {
    return flags & (O_CREAT | O_TMPFILE) ? va_arg(arguments, mode_t) : 0;
}
int open(const char *path, int flags, ...) {
    va_list arguments;
    va_start(arguments, flags);
    mode_t mode = mode_of(flags, arguments);
    va_end(arguments);
    return opened("open", path, flags, mode);
}
int open64(const char *path, int flags, ...) {
    va_list arguments;
    va_start(arguments, flags);
    mode_t mode = mode_of(flags, arguments);
    va_end(arguments);
    return opened("open64", path, flags, mode);
}
