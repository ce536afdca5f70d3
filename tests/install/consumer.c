/* SPDX-License-Identifier: Apache-2.0
 *
 * A stranger's program: it knows the installed header and library only.
 */
#include <ironmule/ironmule.h>
#include <stdio.h>
#include <string.h>

int main(void)
{
    char header[32];
    snprintf(header, sizeof header, "%d.%d.%d", IM_VERSION_MAJOR, IM_VERSION_MINOR, IM_VERSION_PATCH);
    printf("%s %s\n", header, im_version());
    return strcmp(header, im_version()) == 0 ? 0 : 1;
}
