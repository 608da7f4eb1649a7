#include "harness/cli/list_interface.h"

#include <stdio.h>
#include <string.h>

static const char *contract_of(const struct op *op, const struct step *step,
                               const struct argument *a)
{
    static const char *const names[] = {
        [ARRAY_EXACT] = "EXACT", [ARRAY_BOUND] = "BOUND", [ARRAY_SELECT] = "SELECT"};
    char name[48];
    const struct array *array = step_array(op, step, a, name, sizeof name);
    return array->kind <= ARRAY_SELECT && names[array->kind] ? names[array->kind] : "not judged";
}

static void list_argument(const struct op *op, const struct step *step, const struct argument *a)
{
    if (!a->shape) {
        printf("    %-20s %s\n", a->name,
               a->kind == ARGUMENT_HOST ? "number, known to the host only" : "number");
        return;
    }
    printf("    %-20s %s [%s]", a->name, dtype_name(a->dtype), a->shape);
    if (a->kind == ARGUMENT_OUT) printf(" out, %s", contract_of(op, step, a));
    if (a->owned) printf(", of which the kernel owns [%s]", a->owned);
    printf("\n");
}

void list_interface(const struct op *op)
{
    for (const struct step *step = op->steps; step->kernel; step++) {
        const struct interface *k = step->kernel;
        printf("\n  kernel %s: grid %s; block %s; shared bytes %s", k->entry, k->grid, k->block,
               k->shared ? k->shared : "as the launcher says");
        printf("%s%s\n", step->when ? "; where " : "", step->when ? step->when : "");
        for (uint32_t i = 0; i < k->n_arguments; i++) list_argument(op, step, &k->arguments[i]);
        if (step->bindings) printf("    with %s\n", step->bindings);
    }
    printf("\n  numbers from the keys:\n");
    for (uint32_t i = 0; i < op->n_numbers; i++)
        printf("    %-20s %s\n", op->numbers[i].name,
               op->numbers[i].text ? op->numbers[i].text : "(code)");
}

static cJSON *argument_json(const struct argument *a)
{
    static const char *const kinds[] = {[ARGUMENT_IN] = "in",
                                        [ARGUMENT_OUT] = "out",
                                        [ARGUMENT_NUMBER] = "number",
                                        [ARGUMENT_HOST] = "host"};
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "name", a->name);
    cJSON_AddStringToObject(object, "kind", kinds[a->kind]);
    if (!a->shape) return object;
    cJSON_AddStringToObject(object, "type", dtype_name(a->dtype));
    cJSON_AddStringToObject(object, "shape", a->shape);
    if (a->owned) cJSON_AddStringToObject(object, "owned", a->owned);
    return object;
}

void list_interface_json(const struct op *op, cJSON *object)
{
    cJSON *kernels = cJSON_AddArrayToObject(object, "kernels");
    for (const struct step *step = op->steps; step->kernel; step++) {
        const struct interface *k = step->kernel;
        cJSON *kernel = cJSON_CreateObject();
        cJSON_AddStringToObject(kernel, "entry", k->entry);
        cJSON_AddStringToObject(kernel, "grid", k->grid);
        cJSON_AddStringToObject(kernel, "block", k->block);
        if (k->shared) cJSON_AddStringToObject(kernel, "shared", k->shared);
        if (step->bindings) cJSON_AddStringToObject(kernel, "bindings", step->bindings);
        cJSON *arguments = cJSON_AddArrayToObject(kernel, "arguments");
        for (uint32_t i = 0; i < k->n_arguments; i++)
            cJSON_AddItemToArray(arguments, argument_json(&k->arguments[i]));
        cJSON_AddItemToArray(kernels, kernel);
    }
    cJSON *numbers = cJSON_AddObjectToObject(object, "numbers");
    for (uint32_t i = 0; i < op->n_numbers; i++) {
        if (op->numbers[i].text)
            cJSON_AddStringToObject(numbers, op->numbers[i].name, op->numbers[i].text);
    }
}
