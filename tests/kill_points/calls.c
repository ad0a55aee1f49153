/* Preloaded into a process: counts its system calls that change something outside of it, and at the n-th of them kills
 * it, or has the call fail. Python and SQLite come to these through the C library, whose functions these replace. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

enum { NOTHING, KILL, TEAR, FAIL_IO, FAIL_FULL, FAIL_INTR, SHORT, UNSENT, SENT, RESET, UNANSWERED };
enum { WRITE, SYNC, SIZE, NAME, LOCK, SEND, SERVER, PROCESS, KINDS };

/* The kinds of calls that each fault may strike: only those are counted for it. */
#define BIT(kind) (1 << (kind))
static const int strikes_at[] = {
    [NOTHING] = 0,
    [KILL] = BIT(KINDS) - 1,
    [TEAR] = BIT(WRITE),
    [FAIL_IO] = BIT(WRITE) | BIT(SYNC) | BIT(SIZE),
    [FAIL_FULL] = BIT(WRITE) | BIT(SIZE) | BIT(NAME),
    [FAIL_INTR] = BIT(WRITE) | BIT(SIZE) | BIT(SEND) | BIT(SERVER),
    [SHORT] = BIT(WRITE),
    [UNSENT] = BIT(SERVER),
    [SENT] = BIT(SERVER),
    [RESET] = BIT(SERVER),
    [UNANSWERED] = BIT(SERVER),
};
static const int errors[] = {
    [FAIL_IO] = EIO, [FAIL_FULL] = ENOSPC, [FAIL_INTR] = EINTR, [RESET] = ECONNRESET, [UNANSWERED] = 0
};

static long armed_at, span, count, kinds[KINDS];
static int fault, aside = -1, is_on;

/* at: the call, from 1, at which the fault strikes, and so many (for_calls) from there on; 0: none. */
void kill_points_arm(long at, int what, long for_calls, int ledger)
{
    count = 0;
    for (int kind = 0; kind < KINDS; kind++) kinds[kind] = 0;
    armed_at = at, fault = what, span = for_calls, aside = ledger, is_on = 1;
}
void kill_points_stop(void) { is_on = 0; }
/* Of the calls that the fault may strike. */
long kill_points_count(void) { return count; }
long kill_points_kind(int kind) { return kinds[kind]; }

/* Of those that another fault might strike. */
long kill_points_count_for(int other)
{
    long sum = 0;
    for (int kind = 0; kind < KINDS; kind++) sum += strikes_at[other] & BIT(kind) ? kinds[kind] : 0;
    return sum;
}

static void die(void)
{
    // For those who see only its log (masters.py).
    syscall(SYS_write, 2, "struck\n", 7);
    syscall(SYS_kill, getpid(), SIGKILL);
    for (;;) pause();
}

/* The error with which a call of that kind fails now; 0: it is made. is_struck: set if it is made, yet not as ever. */
static int strikes(int kind, int fd, int *is_struck)
{
    /* What a process prints is not what it stores. */
    if (!is_on || (fd >= 0 && (fd == aside || fd <= STDERR_FILENO))) return 0;
    __atomic_add_fetch(&kinds[kind], 1, __ATOMIC_SEQ_CST);
    if (!(strikes_at[fault] & BIT(kind))) return 0;
    long number = __atomic_add_fetch(&count, 1, __ATOMIC_SEQ_CST);
    if (!armed_at || number < armed_at || number >= armed_at + span) return 0;
    if (fault == KILL || fault == UNSENT) die();
    /* A connection that is reset stays so. */
    if (fault == RESET) shutdown(fd, SHUT_RDWR);
    *is_struck = errors[fault] == 0;
    return errors[fault];
}

#define CALL(kind, fd, ...) \
    do { \
        int is_struck = 0, error = strikes(kind, fd, &is_struck); \
        if (error) { errno = error; return -1; } \
        return syscall(__VA_ARGS__); \
    } while (0)

static ssize_t halved(ssize_t done, int is_struck)
{
    if (is_struck && fault == TEAR) die();
    return done;
}

#define WRITE_CALL(number, fd, data, size, ...) \
    do { \
        int is_struck = 0, error = strikes(WRITE, fd, &is_struck); \
        if (error) { errno = error; return -1; } \
        return halved(syscall(number, fd, data, is_struck && size > 1 ? size / 2 : size, ##__VA_ARGS__), is_struck); \
    } while (0)

/* Whether it leads to a server. */
static int kind_of_socket(int fd)
{
    struct sockaddr_storage peer;
    socklen_t length = sizeof peer;
    if (getpeername(fd, (struct sockaddr *)&peer, &length)) return SEND;
    return peer.ss_family == AF_INET || peer.ss_family == AF_INET6 ? SERVER : SEND;
}

/* The server has what was sent, and may do it. */
static ssize_t unanswered(int fd, ssize_t done, int is_struck)
{
    if (is_struck && fault == SENT) die();
    int error = errno;
    if (is_struck) shutdown(fd, SHUT_RDWR);
    errno = error;
    return done;
}

#define SEND_CALL(fd, ...) \
    do { \
        int is_struck = 0, error = strikes(kind_of_socket(fd), fd, &is_struck); \
        if (error) { errno = error; return -1; } \
        return unanswered(fd, syscall(__VA_ARGS__), is_struck); \
    } while (0)

ssize_t write(int fd, const void *data, size_t size) { WRITE_CALL(SYS_write, fd, data, size); }
ssize_t pwrite64(int fd, const void *data, size_t size, off64_t at) { WRITE_CALL(SYS_pwrite64, fd, data, size, at); }
ssize_t pwrite(int fd, const void *data, size_t size, off_t at) { WRITE_CALL(SYS_pwrite64, fd, data, size, at); }
int fsync(int fd) { CALL(SYNC, fd, SYS_fsync, fd); }
int fdatasync(int fd) { CALL(SYNC, fd, SYS_fdatasync, fd); }
int ftruncate64(int fd, off64_t size) { CALL(SIZE, fd, SYS_ftruncate, fd, size); }
int ftruncate(int fd, off_t size) { CALL(SIZE, fd, SYS_ftruncate, fd, size); }
int fallocate64(int fd, int mode, off64_t at, off64_t size) { CALL(SIZE, fd, SYS_fallocate, fd, mode, at, size); }
int rename(const char *from, const char *to) { CALL(NAME, -1, SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0); }
int unlink(const char *path) { CALL(NAME, -1, SYS_unlinkat, AT_FDCWD, path, 0); }
int link(const char *from, const char *to) { CALL(NAME, -1, SYS_linkat, AT_FDCWD, from, AT_FDCWD, to, 0); }
int mkdir(const char *path, mode_t mode) { CALL(NAME, -1, SYS_mkdirat, AT_FDCWD, path, mode); }
int flock(int fd, int what) { CALL(LOCK, fd, SYS_flock, fd, what); }
ssize_t send(int fd, const void *data, size_t size, int flags)
{
    SEND_CALL(fd, SYS_sendto, fd, data, size, flags, 0, 0);
}
ssize_t sendto(int fd, const void *data, size_t size, int flags, const struct sockaddr *to, socklen_t length)
{
    SEND_CALL(fd, SYS_sendto, fd, data, size, flags, to, length);
}
ssize_t sendmsg(int fd, const struct msghdr *message, int flags) { SEND_CALL(fd, SYS_sendmsg, fd, message, flags); }

/* Space that is taken before it is used: an error is the answer, not errno. */
int posix_fallocate64(int fd, off64_t at, off64_t size)
{
    int is_struck = 0, error = strikes(SIZE, fd, &is_struck);
    if (error) return error;
    return syscall(SYS_fallocate, fd, 0, at, size) ? errno : 0;
}

/* Only where a file may be made; what is only opened changes nothing. */
#define OPEN_CALL(directory, path, flags) \
    mode_t mode = 0; \
    if ((flags) & (O_CREAT | __O_TMPFILE)) { \
        va_list rest; \
        va_start(rest, flags); \
        mode = va_arg(rest, mode_t); \
        va_end(rest); \
        CALL(NAME, -1, SYS_openat, directory, path, flags, mode); \
    } \
    return syscall(SYS_openat, directory, path, flags, mode)

int open(const char *path, int flags, ...) { OPEN_CALL(AT_FDCWD, path, flags); }
int open64(const char *path, int flags, ...) { OPEN_CALL(AT_FDCWD, path, flags | O_LARGEFILE); }

/* Locks, between which SQLite writes into memory that it shares with other processes. */
#define FCNTL_CALL(fd, what) \
    va_list rest; \
    va_start(rest, what); \
    void *argument = va_arg(rest, void *); \
    va_end(rest); \
    if (what == F_SETLK || what == F_SETLKW || what == F_OFD_SETLK || what == F_OFD_SETLKW) \
        CALL(LOCK, fd, SYS_fcntl, fd, what, argument); \
    return syscall(SYS_fcntl, fd, what, argument)

int fcntl(int fd, int what, ...) { FCNTL_CALL(fd, what); }
int fcntl64(int fd, int what, ...) { FCNTL_CALL(fd, what); }

/* A socket that gets a name in a directory. */
int bind(int fd, const struct sockaddr *address, socklen_t length)
{
    if (address->sa_family == AF_UNIX && ((const struct sockaddr_un *)address)->sun_path[0])
        CALL(NAME, -1, SYS_bind, fd, address, length);
    return syscall(SYS_bind, fd, address, length);
}

/* Of sockets: what is written to files comes in one piece. */
ssize_t writev(int fd, const struct iovec *parts, int count) { CALL(SEND, fd, SYS_writev, fd, parts, count); }

int kill(pid_t pid, int number) { CALL(PROCESS, -1, SYS_kill, pid, number); }
int killpg(pid_t group, int number) { return kill(-group, number); }
int execve(const char *path, char *const words[], char *const variables[])
{
    CALL(PROCESS, -1, SYS_execve, path, words, variables);
}

/* What is forked is struck no more. */
pid_t fork(void)
{
    int is_struck = 0, error = strikes(PROCESS, -1, &is_struck);
    if (error) { errno = error; return -1; }
    pid_t pid = ((pid_t (*)(void))dlsym(RTLD_NEXT, "fork"))();
    if (!pid) is_on = 0;
    return pid;
}
