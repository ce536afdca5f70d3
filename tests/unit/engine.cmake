# SPDX-License-Identifier: Apache-2.0
im_test(test_team SOURCES test_team.c LABELS tsan)
im_test(test_kv SOURCES test_kv.c)
im_test(test_sampler SOURCES test_sampler.c LINK m)
