/* Uses every library as a device would, and prints what comes out; like program.rs. */

#include <stdio.h>
#include <string.h>

#include "a_name_u_41.h"
#include "m.h"
#include "odd.h"
#include "only_reset.h"
#include "single.h"
#include "stateful_model.h"

#define CHECK(condition) \
    do { \
        if (!(condition)) { \
            printf("line %d: %s\n", __LINE__, #condition); \
            return 1; \
        } \
    } while (0)

static void fill(void *bytes, unsigned size, unsigned number, unsigned round) {
    unsigned char *place = (unsigned char *)bytes;
    unsigned i;
    for (i = 0; i < size; i++) {
        place[i] = (unsigned char)(i * 37 + number * 59 + round * 101);
    }
}

static void show(const char *title, const void *bytes, unsigned size) {
    const unsigned char *place = (const unsigned char *)bytes;
    unsigned i;
    printf("%s [", title);
    for (i = 0; i < size; i++) {
        printf("%s%u", i == 0 ? "" : ", ", place[i]);
    }
    printf("]\n");
}

/* Steps are counted; C sees no step's output. */
static void count(void *context, uint32_t step) {
    unsigned *next = (unsigned *)context;
    *next = step == *next ? step + 1 : 1000;
}

static single_arena s_arena;
static single_model s;
static stateful_model_arena t_arena;
static stateful_model_model t;
static a_name_u_41_arena a_arena;
static a_name_u_41_model a;
static odd_arena o_arena;
static odd_model o;
static m_arena n_arena;
static m_model n;
static only_reset_arena r_arena;
static only_reset_model r;

static int single(void) {
    static const int shape[SINGLE_INPUT_RANK] = SINGLE_INPUT_SHAPE;
    static const char *const labels[SINGLE_LABEL_COUNT] = SINGLE_LABELS;
    unsigned round;
    CHECK(single_input(&s) == NULL && single_output(&s) == NULL);
    CHECK(single_infer(&s) == SINGLE_ERROR_MODEL && single_reset(&s) == SINGLE_ERROR_MODEL);
    CHECK(single_infer(NULL) == SINGLE_ERROR_MODEL && single_input(NULL) == NULL);
    CHECK(single_init(NULL, &s_arena) == SINGLE_ERROR_POINTER);
    CHECK(single_init(&s, NULL) == SINGLE_ERROR_POINTER);
    CHECK(single_init(&s, (single_arena *)(void *)((char *)&s_arena + 1)) == SINGLE_ERROR_POINTER);
    CHECK(single_init((single_model *)(void *)((char *)&s + 1), &s_arena) == SINGLE_ERROR_POINTER);
    CHECK(single_init(&s, &s_arena) == SINGLE_OK);
    for (round = 0; round < 3; round++) {
        int8_t *input = single_input(&s);
        const int8_t *output = single_output(&s);
        fill(input, SINGLE_INPUT_LENGTH, 0, round);
        CHECK(single_infer(&s) == SINGLE_OK);
        show("single", output, SINGLE_OUTPUT_LENGTH);
    }
    CHECK(shape[0] == 1 && shape[1] == 6 && SINGLE_INPUT_SCALE == 0.5f && SINGLE_OUTPUT_ZERO_POINT == 3);
    CHECK(strcmp(labels[1], "middle") == 0);
    CHECK((char *)single_input(&s) >= (char *)&s_arena);
    CHECK((char *)single_input(&s) + SINGLE_INPUT_LENGTH <= (char *)&s_arena + SINGLE_ARENA_BYTES);
    return 0;
}

static int stateful(void) {
    unsigned round;
    CHECK(stateful_model_init(&t, &t_arena) == STATEFUL_MODEL_OK);
    for (round = 0; round < 6; round++) {
        unsigned steps = 0;
        if (round == 3) {
            CHECK(stateful_model_reset(&t) == STATEFUL_MODEL_OK);
        }
        fill(stateful_model_input0(&t), STATEFUL_MODEL_INPUT0_LENGTH, 0, round);
        fill(stateful_model_input1(&t), STATEFUL_MODEL_INPUT1_LENGTH, 1, round);
        CHECK(stateful_model_infer_with(&t, round == 5 ? NULL : count, &steps) == STATEFUL_MODEL_OK);
        CHECK(steps == (round == 5 ? 0 : STEPS));
        show("stateful", stateful_model_output0(&t), STATEFUL_MODEL_OUTPUT0_LENGTH);
        show("stateful", stateful_model_output1(&t), STATEFUL_MODEL_OUTPUT1_LENGTH);
    }
    return 0;
}

static int awkward(void) {
    static const char *const labels[A_NAME_U_41_LABEL_COUNT] = A_NAME_U_41_LABELS;
    CHECK(strcmp(labels[11], "a`b\"c\\d\n//! #![std]") == 0 && strcmp(labels[10], "\303\251t\303\251 \342\200\256") == 0);
    CHECK(a_name_u_41_init(&a, &a_arena) == A_NAME_U_41_OK);
    fill(a_name_u_41_m_fn_input(&a), A_NAME_U_41_M_FN_INPUT_LENGTH, 0, 0);
    CHECK(a_name_u_41_m_fn(&a) == A_NAME_U_41_OK);
    show("awkward", a_name_u_41_m_fn_output(&a), A_NAME_U_41_M_FN_OUTPUT_LENGTH);
    fill(a_name_u_41_train_step_input(&a), A_NAME_U_41_TRAIN_STEP_INPUT_LENGTH, 0, 1);
    CHECK(a_name_u_41_train_step(&a) == A_NAME_U_41_OK);
    show("awkward", a_name_u_41_train_step_output0(&a), A_NAME_U_41_TRAIN_STEP_OUTPUT0_LENGTH);
    show("awkward", a_name_u_41_train_step_output1(&a), A_NAME_U_41_TRAIN_STEP_OUTPUT1_LENGTH);
    fill(a_name_u_41_train_step_2_input(&a), A_NAME_U_41_TRAIN_STEP_2_INPUT_LENGTH, 0, 2);
    CHECK(a_name_u_41_train_step_2(&a) == A_NAME_U_41_OK);
    show("awkward", a_name_u_41_train_step_2_output(&a), A_NAME_U_41_TRAIN_STEP_2_OUTPUT_LENGTH);
    fill(a_name_u_41_reset_2_input(&a), A_NAME_U_41_RESET_2_INPUT_LENGTH, 0, 3);
    CHECK(a_name_u_41_reset_2(&a) == A_NAME_U_41_OK);
    show("awkward", a_name_u_41_reset_2_output0(&a), A_NAME_U_41_RESET_2_OUTPUT0_LENGTH);
    show("awkward", a_name_u_41_reset_2_output1(&a), A_NAME_U_41_RESET_2_OUTPUT1_LENGTH);
    fill(a_name_u_41_t_input(&a), A_NAME_U_41_T_INPUT_LENGTH, 0, 4);
    CHECK(a_name_u_41_t(&a) == A_NAME_U_41_OK);
    show("awkward", a_name_u_41_t_output(&a), A_NAME_U_41_T_OUTPUT_LENGTH);
    CHECK(a_name_u_41_set_m_fn(&a, 2) == A_NAME_U_41_OK);
    CHECK(a_name_u_41_set_m_fn(&a, 5) == A_NAME_U_41_ERROR_VALUE);
    return 0;
}

static int odd(void) {
    const float *constant;
    unsigned round;
    CHECK(odd_init(&o, &o_arena) == ODD_OK);
    for (round = 0; round < 2; round++) {
        CHECK(odd_set_batch(&o, round == 0 ? 3 : 1) == ODD_OK);
        fill(odd_input0(&o), sizeof(float) * ODD_INPUT0_LENGTH, 0, round);
        fill(odd_input1(&o), ODD_INPUT1_LENGTH, 1, round);
        CHECK(odd_infer(&o) == ODD_OK);
        show("odd", odd_output0(&o), sizeof(float) * ODD_OUTPUT0_LENGTH);
        show("odd", odd_output1(&o), sizeof(float) * ODD_OUTPUT1_LENGTH);
        show("odd", odd_output2(&o), sizeof(float) * ODD_OUTPUT2_LENGTH);
        show("odd", odd_output3(&o), sizeof(float) * ODD_OUTPUT3_LENGTH);
        show("odd", odd_output4(&o), sizeof(int32_t) * ODD_OUTPUT4_LENGTH);
        show("odd", odd_output5(&o), ODD_OUTPUT5_LENGTH);
        show("odd", odd_output6(&o), ODD_OUTPUT6_LENGTH);
    }
    constant = odd_output1(&o);
    CHECK(constant[0] == 1.5f && constant[1] == -2.0f && constant[2] == 3.25f && constant[3] == 1e-9f);
    CHECK(odd_idle(&o) == ODD_OK);
    return 0;
}

int main(void) {
    int failed = single() || stateful() || awkward() || odd();
    CHECK(!failed);
    CHECK(m_init(&n, &n_arena) == M_OK && m_reset(&n) == M_OK);
    CHECK(only_reset_init(&r, &r_arena) == ONLY_RESET_OK && only_reset_reset(&r) == ONLY_RESET_OK);
    show("only reset", only_reset_reset_output(&r), ONLY_RESET_RESET_OUTPUT_LENGTH);
    return 0;
}
