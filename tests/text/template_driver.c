/* SPDX-License-Identifier: Apache-2.0
 *
 *     template_driver CASES.json [FOLDER]
 *
 * Runs a file of template cases by hand: FOLDER has the published texts that are not kept here. Exits 1 when something differs or
 * nothing was compared.
 */
#include "template_cases.h"

#include <stdio.h>

int main(int argc, char **argv)
{
    template_tally sum = {0};
    if (argc < 2 || !run_template_cases(argv[1], argc > 2 ? argv[2] : NULL, &sum)) {
        fprintf(stderr, "usage: template_driver CASES.json [FOLDER]\n");
        return 2;
    }
    printf("%d cases, %d wrong, %d templates left out\n", sum.cases, sum.wrong, sum.left_out);
    return sum.wrong > 0 || sum.cases == 0;
}
