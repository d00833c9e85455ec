/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a program is at, for who waits at a terminal: one line on standard error that is written over, and gone in the end.
 * Nothing where standard error is no terminal, unless lines are asked for: then a line for each step. One thread calls.
 */
#ifndef MPATH_TOOLS_PROGRESS_H
#define MPATH_TOOLS_PROGRESS_H

typedef enum progress_kind {
    PROGRESS_AUTO,  /* at a terminal */
    PROGRESS_LINES, /* at a terminal, and elsewhere a line for each step */
    PROGRESS_NEVER
} progress_kind_t;

void progress_start(const char *program, progress_kind_t kind);
/* A step begins. */
void progress_step(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Within the step: at a terminal alone, and not more often than eyes can read. */
void progress_more(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Shows after each second how long this step takes, from a thread of its own, until the next step or the end. */
void progress_count(void);
/* Takes the line away; before the program prints what it has found. */
void progress_stop(void);

#endif
