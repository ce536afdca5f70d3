/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/ops_levels.h"

void im__ops_avx2(im__ops *ops) { (void)ops; }
