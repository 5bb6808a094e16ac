/* What this machine can do without a protocol, beside which the KV transfer is measured: 1 GiB in
 * 64 KiB pieces in random order, (1) by writev/readv over one loopback connection between two
 * processes, (2) by memcpy from a shared mapping on one thread. Prints "tcp" and "memcpy" in GB/s,
 * the median of five rounds after one to warm up. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PIECE = 64 << 10, PIECES = 16384, PARTS = 64, ROUNDS = 6 };

static char *memory(void) {
    int fd = memfd_create("raw", MFD_CLOEXEC);
    size_t len = (size_t)PIECE * PIECES;
    if (fd < 0 || ftruncate(fd, len) != 0) exit(1);
    char *at = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED) exit(1);
    memset(at, 1, len);
    return at;
}

static void shuffle(int *order, unsigned seed) {
    srand(seed);
    for (int i = 0; i < PIECES; i++) order[i] = i;
    for (int i = PIECES - 1; i > 0; i--) {
        int j = rand() % (i + 1), t = order[i];
        order[i] = order[j];
        order[j] = t;
    }
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void report(const char *name, double *seconds) {
    qsort(seconds + 1, ROUNDS - 1, sizeof(double), by_value);
    printf("%s %.2f\n", name, (double)PIECE * PIECES / seconds[ROUNDS / 2] / 1e9);
    fflush(stdout);
}

/* Moves all pieces, PARTS in a call, finishing what a call left. */
static void move(int fd, char *at, const int *order, ssize_t (*call)(int, const struct iovec *, int)) {
    for (int i = 0; i < PIECES; i += PARTS) {
        struct iovec parts[PARTS], *next = parts;
        for (int p = 0; p < PARTS; p++)
            parts[p] = (struct iovec){at + (size_t)order[i + p] * PIECE, PIECE};
        for (int left = PARTS; left > 0;) {
            ssize_t moved = call(fd, next, left);
            if (moved <= 0) exit(1);
            while (left > 0 && (size_t)moved >= next->iov_len) {
                moved -= next->iov_len;
                next++, left--;
            }
            if (left > 0) {
                next->iov_base = (char *)next->iov_base + moved;
                next->iov_len -= moved;
            }
        }
    }
}

int main(void) {
    static int src_order[PIECES], dst_order[PIECES];
    static double seconds[ROUNDS];
    shuffle(src_order, 1);
    shuffle(dst_order, 2);
    char *src = memory(), *dst = memory(), ack = 0;

    int listener = socket(AF_INET, SOCK_STREAM, 0), on = 1;
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof addr;
    if (bind(listener, (void *)&addr, len) || listen(listener, 1)) return 1;
    getsockname(listener, (void *)&addr, &len);
    if (fork() == 0) {
        int fd = accept(listener, NULL, NULL);
        for (int round = 0; round < ROUNDS; round++) {
            move(fd, dst, dst_order, readv);
            if (write(fd, &ack, 1) != 1) _exit(1);
        }
        _exit(0);
    }
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(fd, (void *)&addr, len)) return 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    for (int round = 0; round < ROUNDS; round++) {
        double start = now();
        move(fd, src, src_order, writev);
        if (read(fd, &ack, 1) != 1) return 1;
        seconds[round] = now() - start;
    }
    wait(NULL);
    report("tcp", seconds);

    for (int round = 0; round < ROUNDS; round++) {
        double start = now();
        for (int i = 0; i < PIECES; i++)
            memcpy(dst + (size_t)dst_order[i] * PIECE, src + (size_t)src_order[i] * PIECE, PIECE);
        seconds[round] = now() - start;
    }
    report("memcpy", seconds);
    return 0;
}
