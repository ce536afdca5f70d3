/* SPDX-License-Identifier: Apache-2.0
 *
 * Where connections come from: an address, a Unix socket, or sockets that systemd hands over (LISTEN_FDS). And TLS.
 */
#ifndef IRONMULE_SERVE_LISTENER_H
#define IRONMULE_SERVE_LISTENER_H

#include "server.h"

/* Opens what the options and the environment say; listens at once. Errors: IM_ERR_IO with the address and the system's reason. */
im_status listener_open(server *s, im_error *err);

/* No new connections; a Unix socket's file is removed. May be called twice. */
void listener_close(server *s);

/* Reads certificate and key; *out is NULL when the options name none, and is freed with SSL_CTX_free. Errors: IM_ERR_IO with the file. */
im_status listener_open_tls(const serve_options *o, SSL_CTX **out, im_error *err);

/* Could listener_open do what the options say? Opens nothing and removes nothing. A place that another program has at the moment is no error: `note` says so, else it
 * is "". */
im_status listener_check(const serve_options *o, char note[SERVE_NOTE], im_error *err);

/* "READY=1" and the like to the supervisor that NOTIFY_SOCKET names; nothing when there is none. */
void listener_notify(const char *state);

#endif
