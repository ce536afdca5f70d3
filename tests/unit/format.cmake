# SPDX-License-Identifier: Apache-2.0
im_test(test_file_map SOURCES test_file_map.c)
im_test(test_half SOURCES test_half.c)
im_test(test_group SOURCES test_group.c)
