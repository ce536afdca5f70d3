/* SPDX-License-Identifier: Apache-2.0
 *
 * The machine of gk.h that is a real device.
 */
#ifndef GK_DEVICE_H
#define GK_DEVICE_H

#include "gk.h"

/* NULL, with a message on stderr: no driver, no device, or no kernels for it. */
gk_machine *gk_device_open(void);

#endif
