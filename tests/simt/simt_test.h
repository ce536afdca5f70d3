/* SPDX-License-Identifier: Apache-2.0
 *
 * cmocka for the C++ tests of kernels.
 */
#ifndef IRONMULE_SIMT_TEST_H
#define IRONMULE_SIMT_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

extern "C" {
#include <cmocka.h>
}

#endif
