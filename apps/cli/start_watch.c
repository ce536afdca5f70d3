/* SPDX-License-Identifier: Apache-2.0 */
#include "start_watch.h"

#include "common.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static int alive = -1; /* the end of a pipe: closed when this process ends */

int watch_free_port(int first)
{
    for (int port = first; port < first + 20; port++) {
        struct sockaddr_in a = {
            .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        int one = 1, s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
        bool is_free = s >= 0 && bind(s, (struct sockaddr *)&a, sizeof a) == 0;
        if (s >= 0) close(s);
        if (is_free) return port;
    }
    return first;
}

/* ---- in the small process --------------------------------------------------------------------------------------------------------------------- */

/* Where a client on this machine finds a server that listens on `host`. */
static const char *client_host(const char *host)
{
    bool any = host == NULL || strcmp(host, "0.0.0.0") == 0 || strcmp(host, "::") == 0 || strcmp(host, "localhost") == 0;
    return any ? "127.0.0.1" : host;
}

static int connect_to(const char *host, int port)
{
    char service[16];
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST}, *found;
    snprintf(service, sizeof service, "%d", port);
    if (getaddrinfo(host, service, &hints, &found) != 0) return -1;
    int s = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (s >= 0 && connect(s, found->ai_addr, found->ai_addrlen) != 0) {
        close(s);
        s = -1;
    }
    freeaddrinfo(found);
    return s;
}

/* Does the server say that it is ready? Through TLS an open door is enough. */
static bool answers(const watch_options *o)
{
    static const char ask[] = "GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n";
    char reply[64] = "";
    struct timeval patience = {.tv_sec = 2};
    int s = connect_to(client_host(o->host), o->port);
    if (s < 0) return false;
    setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    bool good = o->tls || (send(s, ask, sizeof ask - 1, MSG_NOSIGNAL) > 0 && recv(s, reply, sizeof reply - 1, MSG_WAITALL) > 12);
    close(s);
    return good && (o->tls || strncmp(reply, "HTTP/1.1 200", 12) == 0);
}

static bool has_screen(void) { return getenv("DISPLAY") != NULL || getenv("WAYLAND_DISPLAY") != NULL; }

static void open_browser(const char *url)
{
    if (!has_screen() || fork() != 0) return;
    int nothing = open("/dev/null", O_RDWR);
    for (int i = 0; i < 3; i++) dup2(nothing, i);
    execlp("xdg-open", "xdg-open", url, (char *)NULL);
    _exit(127);
}

static void announce(const watch_options *o)
{
    char url[300];
    const char *host = client_host(o->host);
    bool v6 = strchr(host, ':') != NULL;
    snprintf(url, sizeof url, "http%s://%s%.250s%s:%d/", o->tls ? "s" : "", v6 ? "[" : "", host, v6 ? "]" : "", o->port);
    if (o->json)
        print_json(json_pack("{s:s, s:s, s:i}", "url", url, "model", o->model, "port", o->port));
    else
        printf("%s answers; chat at %s\n", shown(o->model), url);
    fflush(stdout);
    if (o->browser) open_browser(url);
}

/* Until the server answers, or the process that has the other end of the pipe is gone. */
static void watch(const watch_options *o, int parent)
{
    struct pollfd gone = {.fd = parent, .events = POLLIN};
    while (poll(&gone, 1, 100) == 0) {
        if (!answers(o)) continue;
        announce(o);
        return;
    }
}

void watch_begin(const watch_options *o)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return;
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) { /* its child is nobody's to wait for */
        close(ends[1]);
        if (fork() == 0) watch(o, ends[0]);
        _exit(0);
    }
    close(ends[0]);
    if (child > 0) waitpid(child, NULL, 0);
    alive = ends[1];
}

void watch_end(void)
{
    if (alive >= 0) close(alive);
    alive = -1;
}
