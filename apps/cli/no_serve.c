/* SPDX-License-Identifier: Apache-2.0 */
#include "common.h"

int cmd_serve(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    return say("serve", "this program was built without libevent and OpenSSL, which the server needs; install their development "
                        "packages and build again");
}
