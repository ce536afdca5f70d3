/* SPDX-License-Identifier: Apache-2.0 */
#include "hub/hub_net.h"

const char *hub_net_missing(void) { return "this program was built without libcurl and OpenSSL, which downloads need"; }

static im_status missing(im_error *err)
{
    return hub_fail(err, IM_ERR_UNSUPPORTED, "%s; install their development packages and build again", hub_net_missing());
}

im_status hub_list(hub_listing *out, const hub_env *e, const hub_id *id, const hub_hooks *h, im_error *err)
{
    (void)out;
    (void)e;
    (void)id;
    (void)h;
    return missing(err);
}

im_status hub_fetch(const hub_env *e, const hub_id *id, const hub_listing *l, const hub_choice *c, const hub_hooks *h,
                    im_error *err)
{
    (void)e;
    (void)id;
    (void)l;
    (void)c;
    (void)h;
    return missing(err);
}
