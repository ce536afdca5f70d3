# SPDX-License-Identifier: Apache-2.0
im_test(test_cuda_layout SOURCES test_cuda_layout.c)
