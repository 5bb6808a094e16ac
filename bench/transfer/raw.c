/* What this machine can do without a protocol, beside which transfers are measured: pieces in random
 * order, `raw tcp` by writev and readv over one loopback connection between two processes, `raw memcpy`
 * by one thread from a shared mapping. For each line `PIECES PIECE_BYTES` on standard input it moves so
 * many pieces, compares them, and prints a line of JSON: bytes, seconds, processor seconds of both
 * processes. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { POOL = 1 << 30, PIECE_MIN = 64 << 10, PARTS = 64 };

struct shape {
    unsigned pieces, piece_bytes;
};
static int src_order[POOL / PIECE_MIN], dst_order[POOL / PIECE_MIN];
static char *src, *dst;

static void die(const char *what) {
    perror(what);
    exit(1);
}

static char *memory(void) {
    char *at = mmap(NULL, POOL, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) die("mmap");
    return at;
}

static void shuffle(int *order, struct shape shape, unsigned seed) {
    int places = POOL / shape.piece_bytes;
    srand(seed);
    for (int i = 0; i < places; i++) order[i] = i;
    for (int i = places - 1; i > 0; i--) {
        int j = rand() % (i + 1), t = order[i];
        order[i] = order[j];
        order[j] = t;
    }
}

static void scatter(struct shape shape) {
    shuffle(src_order, shape, 1);
    shuffle(dst_order, shape, 2);
}

static double now(clockid_t clock) {
    struct timespec t;
    if (clock_gettime(clock, &t)) die("clock_gettime");
    return t.tv_sec + t.tv_nsec * 1e-9;
}

static void take(int fd, void *bytes, size_t len) {
    if (recv(fd, bytes, len, MSG_WAITALL) != (ssize_t)len) exit(0);
}

static void give(int fd, const void *bytes, size_t len) {
    if (write(fd, bytes, len) != (ssize_t)len) die("write");
}

/* Moves all pieces, PARTS in a call, finishing what a call left. */
static void move(int fd, char *at, const int *order, struct shape shape,
                 ssize_t (*call)(int, const struct iovec *, int)) {
    for (unsigned i = 0; i < shape.pieces; i += PARTS) {
        struct iovec parts[PARTS], *next = parts;
        int left = shape.pieces - i < PARTS ? shape.pieces - i : PARTS;
        for (int p = 0; p < left; p++)
            parts[p] = (struct iovec){at + (size_t)order[i + p] * shape.piece_bytes, shape.piece_bytes};
        while (left > 0) {
            ssize_t moved = call(fd, next, left);
            if (moved <= 0) die("move");
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

/* The reading process: gets the shape, reports that it is ready, reads, and reports the end. */
static void receive(int fd) {
    struct shape shape;
    char ack = 0;
    for (;;) {
        take(fd, &shape, sizeof shape);
        scatter(shape);
        give(fd, &ack, 1);
        move(fd, dst, dst_order, shape, readv);
        give(fd, &ack, 1);
    }
}

/* Two ends of a loopback connection, the other in a process of its own. */
static int connect_child(pid_t *child) {
    int listener = socket(AF_INET, SOCK_STREAM, 0), on = 1;
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof addr;
    if (bind(listener, (void *)&addr, len) || listen(listener, 1)) die("listen");
    if (getsockname(listener, (void *)&addr, &len)) die("getsockname");
    if ((*child = fork()) == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        int fd = accept(listener, NULL, NULL);
        if (fd < 0) die("accept");
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        receive(fd);
    }
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(fd, (void *)&addr, len)) die("connect");
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return fd;
}

static void compare(struct shape shape) {
    for (unsigned i = 0; i < shape.pieces; i++) {
        size_t from = (size_t)src_order[i] * shape.piece_bytes;
        size_t to = (size_t)dst_order[i] * shape.piece_bytes;
        if (memcmp(src + from, dst + to, shape.piece_bytes)) {
            fprintf(stderr, "piece %d did not arrive as piece %d\n", src_order[i], dst_order[i]);
            exit(1);
        }
    }
}

int main(int argc, char **argv) {
    int is_tcp = argc == 2 && !strcmp(argv[1], "tcp");
    if (!is_tcp && (argc != 2 || strcmp(argv[1], "memcpy"))) {
        fprintf(stderr, "usage: raw tcp|memcpy\n");
        return 2;
    }
    src = memory(), dst = memory();
    for (uint64_t i = 0; i < POOL / 8; i++) ((uint64_t *)src)[i] = i + 1;
    pid_t child = 0;
    int fd = is_tcp ? connect_child(&child) : -1;
    clockid_t own = CLOCK_PROCESS_CPUTIME_ID, others = own;
    if (is_tcp && clock_getcpuclockid(child, &others)) die("clock_getcpuclockid");

    struct shape shape;
    while (scanf("%u %u", &shape.pieces, &shape.piece_bytes) == 2) {
        char ack;
        memset(dst, 0, POOL);
        scatter(shape);
        if (is_tcp) {
            give(fd, &shape, sizeof shape);
            take(fd, &ack, 1);
        }
        double cpu = now(own) + (is_tcp ? now(others) : 0), start = now(CLOCK_MONOTONIC);
        if (is_tcp) {
            move(fd, src, src_order, shape, writev);
            take(fd, &ack, 1);
        } else {
            for (unsigned i = 0; i < shape.pieces; i++)
                memcpy(dst + (size_t)dst_order[i] * shape.piece_bytes,
                       src + (size_t)src_order[i] * shape.piece_bytes, shape.piece_bytes);
        }
        double seconds = now(CLOCK_MONOTONIC) - start;
        cpu = now(own) + (is_tcp ? now(others) : 0) - cpu;
        compare(shape);
        printf("{\"bytes\": %zu, \"seconds\": %.9f, \"cpu_seconds\": %.9f}\n",
               (size_t)shape.pieces * shape.piece_bytes, seconds, cpu);
        fflush(stdout);
    }
    return 0;
}
