/* SPDX-License-Identifier: Apache-2.0 */
#include "listener.h"

#include "conn.h"

#include <errno.h>
#include <event2/listener.h>
#include <fcntl.h>
#include <netdb.h>
#include <openssl/err.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum { BACKLOG = 1024, FIRST_INHERITED = 3 };

static im_status failed(im_error *err, const char *format, ...) __attribute__((format(printf, 2, 3)));
static im_status failed(im_error *err, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    err->status = IM_ERR_IO;
    vsnprintf(err->message, sizeof err->message, format, args);
    va_end(args);
    return IM_ERR_IO;
}

/* ---- accepting ------------------------------------------------------------------------------------------------------------------------------------- */

static void on_accept(struct evconnlistener *l, evutil_socket_t fd, struct sockaddr *address, int len, void *user)
{
    (void)l;
    conn_open(user, fd, address, len);
}

/* Out of descriptors: the listener waits a moment in place of spinning. */
static void wake_listener(evutil_socket_t fd, short what, void *user)
{
    server *s = user;
    (void)fd;
    (void)what;
    for (size_t i = 0; i < s->listeners; i++) evconnlistener_enable(s->listener[i]);
}

static void on_accept_error(struct evconnlistener *l, void *user)
{
    server *s = user;
    const struct timeval pause = {.tv_usec = 100000};
    journal_say(&s->journal, IM_LOG_WARNING, "a connection could not be accepted: %s", strerror(errno));
    if (evtimer_add(s->accept_timer, &pause) == 0) evconnlistener_disable(l);
}

static im_status add(server *s, int fd, const char *where, im_error *err)
{
    if (s->listeners == SERVER_MAX_LISTENERS) return failed(err, "too many sockets to listen on");
    evutil_make_socket_nonblocking(fd);
    evutil_make_socket_closeonexec(fd);
    struct evconnlistener *l =
        evconnlistener_new(s->base, on_accept, s, LEV_OPT_CLOSE_ON_FREE | LEV_OPT_CLOSE_ON_EXEC, BACKLOG, fd);
    if (l == NULL) {
        int why = errno;
        close(fd);
        return failed(err, "%s: %s", where, strerror(why));
    }
    evconnlistener_set_error_cb(l, on_accept_error);
    s->listener[s->listeners++] = l;
    journal_say(&s->journal, IM_LOG_INFO, "listening on %s", where);
    return IM_OK;
}

/* ---- addresses ------------------------------------------------------------------------------------------------------------------------------------- */

static int port_of(int fd)
{
    struct sockaddr_storage a;
    socklen_t n = sizeof a;
    char port[16];
    if (getsockname(fd, (struct sockaddr *)&a, &n) != 0) return 0;
    return getnameinfo((struct sockaddr *)&a, n, NULL, 0, port, sizeof port, NI_NUMERICSERV) == 0 ? atoi(port) : 0;
}

/* A descriptor, or -1 with errno. */
static int bind_address(const struct addrinfo *a)
{
    int one = 1, fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one); /* the port is free again at once */
    if (bind(fd, a->ai_addr, a->ai_addrlen) == 0) return fd;
    int why = errno;
    close(fd);
    errno = why;
    return -1;
}

static im_status not_bound(const serve_options *o, int why, im_error *err)
{
    return failed(err, "%s port %d: %s%s", o->host, o->port, strerror(why),
                  why == EADDRINUSE ? "; --port N takes another one" : "");
}

static im_status open_one(server *s, const struct addrinfo *a, im_error *err)
{
    const serve_options *o = s->o;
    char where[300];
    int fd = bind_address(a);
    if (fd < 0) return not_bound(o, errno, err);
    bool v6 = a->ai_family == AF_INET6;
    snprintf(where, sizeof where, "http%s://%s%s%s:%d", s->tls != NULL ? "s" : "", v6 ? "[" : "", o->host, v6 ? "]" : "",
             port_of(fd));
    return add(s, fd, where, err);
}

static im_status find_address(const serve_options *o, struct addrinfo **found, im_error *err)
{
    const struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
    char port[16];
    snprintf(port, sizeof port, "%d", o->port);
    int why = getaddrinfo(o->host, port, &hints, found);
    return why == 0 ? IM_OK : failed(err, "%s: %s", o->host, gai_strerror(why));
}

static im_status open_address(server *s, im_error *err)
{
    struct addrinfo *found;
    im_status status = find_address(s->o, &found, err);
    if (status != IM_OK) return status;
    status = open_one(s, found, err);
    freeaddrinfo(found);
    return status;
}

static im_status check_address(const serve_options *o, char note[SERVE_NOTE], im_error *err)
{
    struct addrinfo *found;
    im_status status = find_address(o, &found, err);
    if (status != IM_OK) return status;
    int fd = bind_address(found), why = errno;
    freeaddrinfo(found);
    if (fd >= 0) close(fd);
    if (fd < 0 && why != EADDRINUSE) return not_bound(o, why, err);
    if (fd < 0) snprintf(note, SERVE_NOTE, "%s port %d is in use at the moment", o->host, o->port);
    return IM_OK;
}

static bool answers(const struct sockaddr_un *a)
{
    int probe = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool alive = probe >= 0 && connect(probe, (const struct sockaddr *)a, sizeof *a) == 0;
    if (probe >= 0) close(probe);
    return alive;
}

/* What stands at the path: nothing, or a socket. */
static im_status find_path(const char *path, struct sockaddr_un *a, bool *there, im_error *err)
{
    struct stat st;
    *a = (struct sockaddr_un){.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof a->sun_path)
        return failed(err, "%s: a socket's path is at most %zu long", path, sizeof a->sun_path - 1);
    strcpy(a->sun_path, path);
    *there = lstat(path, &st) == 0;
    return !*there || S_ISSOCK(st.st_mode) ? IM_OK : failed(err, "%s: there is a file of that name already", path);
}

static im_status check_unix(const char *path, char note[SERVE_NOTE], im_error *err)
{
    struct sockaddr_un a;
    bool there;
    im_status status = find_path(path, &a, &there, err);
    if (status != IM_OK) return status;
    if (there && answers(&a)) snprintf(note, SERVE_NOTE, "%s: another server listens there at the moment", path);
    const char *slash = strrchr(a.sun_path, '/');
    if (slash == NULL)
        strcpy(a.sun_path, ".");
    else
        a.sun_path[slash > a.sun_path ? slash - a.sun_path : 1] = 0;
    return access(a.sun_path, W_OK | X_OK) == 0 ? IM_OK : failed(err, "%s: %s: %s", path, a.sun_path, strerror(errno));
}

/* A file of a server that is gone may be replaced; that of one that answers may not. */
static im_status open_unix(server *s, im_error *err)
{
    struct sockaddr_un a;
    char where[160];
    bool there;
    im_status status = find_path(s->o->unix_path, &a, &there, err);
    if (status != IM_OK) return status;
    if (there && answers(&a)) return failed(err, "%s: another server listens there", a.sun_path);
    if (there) unlink(a.sun_path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    mode_t before = umask(0177); /* for this user alone */
    bool bound = fd >= 0 && bind(fd, (const struct sockaddr *)&a, sizeof a) == 0;
    int why = errno;
    umask(before);
    if (!bound) {
        if (fd >= 0) close(fd);
        return failed(err, "%s: %s", a.sun_path, strerror(why));
    }
    s->unix_made = strdup(a.sun_path);
    snprintf(where, sizeof where, "unix:%s", a.sun_path);
    return add(s, fd, where, err);
}

/* ---- systemd ----------------------------------------------------------------------------------------------------------------------------------------- */

/* How many sockets a supervisor hands over; the variables are for this process alone. */
static int inherited(void)
{
    const char *pid = getenv("LISTEN_PID"), *fds = getenv("LISTEN_FDS");
    int n = pid != NULL && fds != NULL && atol(pid) == (long)getpid() ? atoi(fds) : 0;
    unsetenv("LISTEN_PID");
    unsetenv("LISTEN_FDS");
    unsetenv("LISTEN_FDNAMES");
    return n > 0 ? n : 0;
}

/* Can only this machine reach the socket? */
static bool is_private(int fd)
{
    struct sockaddr_storage a;
    socklen_t n = sizeof a;
    char host[NI_MAXHOST];
    if (getsockname(fd, (struct sockaddr *)&a, &n) != 0) return false;
    if (a.ss_family == AF_UNIX) return true;
    return getnameinfo((struct sockaddr *)&a, n, host, sizeof host, NULL, 0, NI_NUMERICHOST) == 0 && serve_is_loopback(host);
}

static im_status take_inherited(server *s, int n, im_error *err)
{
    for (int i = 0; i < n; i++) {
        char where[64];
        snprintf(where, sizeof where, "socket %d of the supervisor", FIRST_INHERITED + i);
        if (s->guard.keys == 0 && !is_private(FIRST_INHERITED + i))
            return failed(err, "%s can be reached by others: --api-key-env or --api-key-file is needed", where);
        im_status status = add(s, FIRST_INHERITED + i, where, err);
        if (status != IM_OK) return status;
    }
    return IM_OK;
}

void listener_notify(const char *state)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    const char *path = getenv("NOTIFY_SOCKET");
    size_t n = path == NULL ? 0 : strlen(path);
    if (n < 2 || n >= sizeof a.sun_path || (path[0] != '/' && path[0] != '@')) return;
    memcpy(a.sun_path, path, n);
    if (path[0] == '@') a.sun_path[0] = 0;
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return;
    sendto(fd, state, strlen(state), MSG_NOSIGNAL | MSG_DONTWAIT, (struct sockaddr *)&a,
           (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n));
    close(fd);
}

/* ---- open and close ------------------------------------------------------------------------------------------------------------------------------------ */

im_status listener_open(server *s, im_error *err)
{
    int n = inherited();
    s->accept_timer = evtimer_new(s->base, wake_listener, s);
    if (s->accept_timer == NULL) return failed(err, "the event loop cannot be set up");
    if (n > 0) return take_inherited(s, n, err);
    return s->o->unix_path != NULL ? open_unix(s, err) : open_address(s, err);
}

im_status listener_check(const serve_options *o, char note[SERVE_NOTE], im_error *err)
{
    note[0] = 0;
    if (getenv("LISTEN_FDS") != NULL) return IM_OK;
    return o->unix_path != NULL ? check_unix(o->unix_path, note, err) : check_address(o, note, err);
}

void listener_close(server *s)
{
    for (size_t i = 0; i < s->listeners; i++) evconnlistener_free(s->listener[i]);
    s->listeners = 0;
    if (s->accept_timer != NULL) event_free(s->accept_timer);
    s->accept_timer = NULL;
    if (s->unix_made != NULL) unlink(s->unix_made);
    free(s->unix_made);
    s->unix_made = NULL;
}

static im_status read_tls(SSL_CTX *tls, const serve_options *o, im_error *err)
{
    const char *wrong = NULL;
    if (SSL_CTX_use_certificate_chain_file(tls, o->tls_cert) != 1)
        wrong = o->tls_cert;
    else if (SSL_CTX_use_PrivateKey_file(tls, o->tls_key, SSL_FILETYPE_PEM) != 1 || SSL_CTX_check_private_key(tls) != 1)
        wrong = o->tls_key;
    if (wrong == NULL) return IM_OK;
    unsigned long why = ERR_peek_error();
    const char *words = ERR_SYSTEM_ERROR(why) ? strerror(ERR_GET_REASON(why)) : ERR_reason_error_string(why);
    ERR_clear_error();
    return failed(err, "%s: not usable for TLS (%s)", wrong, words != NULL ? words : "no reason was given");
}

im_status listener_open_tls(const serve_options *o, SSL_CTX **out, im_error *err)
{
    *out = NULL;
    if (o->tls_cert == NULL) return IM_OK;
    SSL_CTX *tls = SSL_CTX_new(TLS_server_method());
    if (tls == NULL) return failed(err, "TLS cannot be set up");
    SSL_CTX_set_min_proto_version(tls, TLS1_2_VERSION);
    SSL_CTX_set_options(tls, SSL_OP_NO_RENEGOTIATION | SSL_OP_CIPHER_SERVER_PREFERENCE);
    SSL_CTX_set_mode(tls, SSL_MODE_RELEASE_BUFFERS);
    im_status status = read_tls(tls, o, err);
    if (status == IM_OK)
        *out = tls;
    else
        SSL_CTX_free(tls);
    return status;
}
