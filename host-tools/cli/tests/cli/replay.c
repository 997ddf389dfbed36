/* Runs a model over the cases in cases.NAME.bin and writes its outputs to outputs.NAME.bin. */

#include <stdio.h>

#include "NAME.h"

extern int replay_NAME(void);

static NAME_model model;
static NAME_arena arena;

int replay_NAME(void) {
    FILE *in = fopen("cases.NAME.bin", "rb");
    FILE *out = fopen("outputs.NAME.bin", "wb");
    if (in == NULL || out == NULL || NAME_infer(&model) != UPPER_ERROR_MODEL || NAME_init(&model, &arena) != UPPER_OK) {
        return 1;
    }
    while (fread(NAME_input(&model), 1, UPPER_INPUT_LENGTH, in) == UPPER_INPUT_LENGTH) {
        if (NAME_infer(&model) != UPPER_OK ||
            fwrite(NAME_output(&model), 1, UPPER_OUTPUT_LENGTH, out) != UPPER_OUTPUT_LENGTH) {
            return 1;
        }
    }
    return fclose(in) != 0 || fclose(out) != 0;
}
