# SPDX-License-Identifier: Apache-2.0
im_test(test_team SOURCES test_team.c LABELS tsan)
im_test(test_thread SOURCES test_thread.c LABELS tsan)
im_test(test_kv SOURCES test_kv.c)
im_test(test_sampler SOURCES test_sampler.c LINK m)
im_test(test_engine SOURCES test_engine.c engine_fixture.c LINK m LABELS tsan)
im_test(test_engine_life SOURCES test_engine_life.c engine_fixture.c LABELS tsan)
im_test(test_self_check SOURCES test_self_check.c engine_fixture.c)
im_test(test_lower SOURCES test_lower.c random_program.c LINK m)
