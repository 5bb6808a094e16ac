/* What the pods of the proofs run: `/program` answers every HTTP client on port 8080 with its node;
 * `/program ADDRESS` asks another one and prints the answer. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { PORT = 8080, SECONDS_MAX = 5 };

static int fail(const char *what) {
    perror(what);
    return 1;
}

static int ask(struct sockaddr_in peer) {
    char answer[512];
    ssize_t length;
    int connection = socket(AF_INET, SOCK_STREAM, 0);
    alarm(SECONDS_MAX);
    if (connect(connection, (struct sockaddr *)&peer, sizeof peer) < 0) return fail("connect");
    if (write(connection, "GET / HTTP/1.0\r\n\r\n", 18) < 0) return fail("write");
    while ((length = read(connection, answer, sizeof answer)) > 0) fwrite(answer, 1, length, stdout);
    return 0;
}

static int serve(struct sockaddr_in own) {
    const char *node = getenv("NODE_NAME");
    char request[2048], answer[256];
    int on = 1, listener = socket(AF_INET, SOCK_STREAM, 0);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(listener, (struct sockaddr *)&own, sizeof own) < 0) return fail("bind");
    if (listen(listener, 64) < 0) return fail("listen");
    node = node ? node : "nowhere";
    snprintf(answer, sizeof answer, "HTTP/1.0 200 OK\r\ncontent-length: %zu\r\n\r\n%s", strlen(node), node);
    signal(SIGPIPE, SIG_IGN);
    for (;;) {
        int connection = accept(listener, 0, 0);
        if (connection < 0) return fail("accept");
        if (read(connection, request, sizeof request) > 0 && write(connection, answer, strlen(answer)) < 0)
            perror("write");
        close(connection);
    }
}

int main(int count, char **words) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(PORT)};
    signal(SIGTERM, _exit);
    if (count < 2) return serve(address);
    if (!inet_aton(words[1], &address.sin_addr)) return fail(words[1]);
    return ask(address);
}
