/* SPDX-License-Identifier: BSD-3-Clause */
/* Parameters: defaults, values from text and from the environment, and back to text. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* secure_getenv */
#endif
#include "util/param.h"
#include "util/log.h"
#include "util/number.h"
#include "util/spelling.h"

#include <stdlib.h>
#include <string.h>

#define PARAM_TEXT_MAX 256

static void *param_field(mpath_settings_t *settings, const mpath_param_t *param)
{
    return (char *)settings + param->offset;
}

static const void *param_field_const(const mpath_settings_t *settings, const mpath_param_t *param)
{
    return (const char *)settings + param->offset;
}

void mpath_param_env_name(const mpath_param_t *param, char *name, size_t size)
{
    size_t i;

    snprintf(name, size, "MPATH_%s", param->name);
    for (i = 0; name[i] != '\0'; i++) {
        if ((name[i] >= 'a') && (name[i] <= 'z')) {
            name[i] = (char)(name[i] - 'a' + 'A');
        }
    }
}

void mpath_settings_init(mpath_settings_t *settings)
{
    char message[PARAM_TEXT_MAX];
    size_t i;

    memset(settings, 0, sizeof(*settings));
    for (i = 0; i < mpath_params_count; i++) {
        if (mpath_settings_set(settings, &mpath_params[i], mpath_params[i].initial, message, sizeof(message)) !=
            MPATH_OK) {
            mpath_error("default of parameter %s: %s; it stays zero", mpath_params[i].name, message);
        }
    }
}

static mpath_status_t param_set_number(const mpath_param_t *param, const char *text, void *field, char *message,
                                       size_t size)
{
    int is_bytes               = (param->type == MPATH_PARAM_BYTES);
    mpath_number_scale_t scale = is_bytes ? MPATH_NUMBER_BYTES : MPATH_NUMBER_PLAIN;
    char low[32], high[32];
    int64_t value;

    if (mpath_number_parse(text, strlen(text), scale, param->min, param->max, &value) != MPATH_OK) {
        mpath_number_format(param->min, scale, low, sizeof(low));
        mpath_number_format(param->max, scale, high, sizeof(high));
        snprintf(message, size, "'%s' is not %s from %s to %s", text,
                 is_bytes ? "a number of bytes (suffixes k, m, g)" : "a whole number", low, high);
        return MPATH_ERR_PARAM;
    }
    if (is_bytes) {
        *(uint64_t *)field = (uint64_t)value;
    } else {
        *(int *)field = (int)value;
    }
    return MPATH_OK;
}

/* Takes a name or its index. */
static mpath_status_t param_set_enum(const mpath_param_t *param, const char *text, int *field, char *message,
                                     size_t size)
{
    size_t length;
    int64_t index;
    int i, count;

    for (count = 0; param->values[count] != NULL; count++) {
        if (strcmp(param->values[count], text) == 0) {
            *field = count;
            return MPATH_OK;
        }
    }
    if (mpath_number_parse(text, strlen(text), MPATH_NUMBER_PLAIN, 0, count - 1, &index) == MPATH_OK) {
        *field = (int)index;
        return MPATH_OK;
    }
    snprintf(message, size, "'%s' is none of", text);
    for (i = 0; i < count; i++) {
        length = strlen(message);
        snprintf(message + length, size - length, "%s %s", (i > 0) ? "," : "", param->values[i]);
    }
    return MPATH_ERR_PARAM;
}

mpath_status_t mpath_settings_set(mpath_settings_t *settings, const mpath_param_t *param, const char *text,
                                  char *message, size_t size)
{
    void *field = param_field(settings, param);

    switch (param->type) {
    case MPATH_PARAM_INT:
    case MPATH_PARAM_BYTES:
        return param_set_number(param, text, field, message, size);
    case MPATH_PARAM_ENUM:
        return param_set_enum(param, text, field, message, size);
    case MPATH_PARAM_STRING:
        *(const char **)field = text;
        return MPATH_OK;
    }
    snprintf(message, size, "unknown type %d", (int)param->type);
    return MPATH_ERR_INTERNAL;
}

#define PARAM_ROWS_MAX 64

static const mpath_param_t *param_find_key(const char *name)
{
    for (size_t i = 0; i < mpath_params_count; i++) {
        if (mpath_params[i].kind == MPATH_PARAM_KEY && strcmp(mpath_params[i].name, name) == 0) {
            return &mpath_params[i];
        }
    }
    return NULL;
}

static const char *param_nearest_key(const char *name)
{
    const char *names[PARAM_ROWS_MAX + 1];
    size_t count = 0;

    for (size_t i = 0; i < mpath_params_count && count < PARAM_ROWS_MAX; i++) {
        if (mpath_params[i].kind == MPATH_PARAM_KEY) {
            names[count++] = mpath_params[i].name;
        }
    }
    names[count] = NULL;
    return mpath_spelling_nearest(name, names);
}

/* `item`: "KEY=VALUE", which is cut in two. */
static void param_set_item(mpath_settings_t *settings, char *item, mpath_param_refused_t refused, void *arg)
{
    char *value = strchr(item, '='), message[PARAM_TEXT_MAX], kept[PARAM_TEXT_MAX];
    const mpath_param_t *param;
    const char *nearest;

    if (value != NULL) {
        *value++ = '\0';
    }
    param = param_find_key(item);
    if (param == NULL) {
        nearest = param_nearest_key(item);
        snprintf(message, sizeof(message), "there is no such key%s%s", nearest != NULL ? ", the nearest is " : "",
                 nearest != NULL ? nearest : "");
        refused(item, message, "the rest", arg);
    } else if (mpath_settings_set(settings, param, value != NULL ? value : "", message, sizeof(message)) != MPATH_OK) {
        mpath_settings_get(settings, param, kept, sizeof(kept));
        refused(item, message, kept, arg);
    }
}

void mpath_settings_read_internals(mpath_settings_t *settings, mpath_param_refused_t refused, void *arg)
{
    char *list = strdup(settings->internals != NULL ? settings->internals : ""), *rest = NULL;

    if (list == NULL) {
        refused("", "no memory to read it", "none of it", arg);
        return;
    }
    for (char *item = strtok_r(list, ",", &rest); item != NULL; item = strtok_r(NULL, ",", &rest)) {
        param_set_item(settings, item, refused, arg);
    }
    free(list);
}

static void param_warn_item(const char *key, const char *problem, const char *used, void *arg)
{
    mpath_warn("environment variable %s: %s: %s; using %s", (const char *)arg, key, problem, used);
}

void mpath_settings_from_env(mpath_settings_t *settings)
{
    char name[64], message[PARAM_TEXT_MAX], kept[PARAM_TEXT_MAX];
    const mpath_param_t *param;
    const char *text;
    size_t i;

    for (i = 0; i < mpath_params_count; i++) {
        param = &mpath_params[i];
        mpath_param_env_name(param, name, sizeof(name));
        text = secure_getenv(name);
        if (text == NULL) {
            continue;
        }
        if (mpath_settings_set(settings, param, text, message, sizeof(message)) != MPATH_OK) {
            mpath_settings_get(settings, param, kept, sizeof(kept));
            mpath_warn("environment variable %s: %s; using %s", name, message, kept);
        }
    }
    snprintf(name, sizeof(name), "MPATH_INTERNALS");
    mpath_settings_read_internals(settings, param_warn_item, name);
}

void mpath_settings_get(const mpath_settings_t *settings, const mpath_param_t *param, char *text, size_t size)
{
    const void *field = param_field_const(settings, param);
    const char *string;

    switch (param->type) {
    case MPATH_PARAM_INT:
        snprintf(text, size, "%d", *(const int *)field);
        break;
    case MPATH_PARAM_BYTES:
        mpath_number_format((int64_t) * (const uint64_t *)field, MPATH_NUMBER_BYTES, text, size);
        break;
    case MPATH_PARAM_ENUM:
        snprintf(text, size, "%s", param->values[*(const int *)field]);
        break;
    case MPATH_PARAM_STRING:
        string = *(const char *const *)field;
        snprintf(text, size, "%s", (string != NULL) ? string : "");
        break;
    }
}
