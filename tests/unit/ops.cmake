# SPDX-License-Identifier: Apache-2.0
im_test(test_ops SOURCES test_ops.c)
