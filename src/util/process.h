/* SPDX-License-Identifier: BSD-3-Clause */
/* Identity of a process, so that others in the same pid namespace can tell whether it still lives. */
#ifndef MPATH_UTIL_PROCESS_H
#define MPATH_UTIL_PROCESS_H

#include <stdint.h>

typedef struct mpath_process {
    int64_t pid;          /* 0: unknown */
    uint64_t start_ticks; /* since boot; tells a reused pid from the process that was meant. 0: unknown */
    uint64_t pid_space;   /* pid namespace (inode); 0: unknown */
} mpath_process_t;

/* The calling process. */
void mpath_process_self(mpath_process_t *process);

/*
 * The calling process in one word, for processes of the same pid namespace; never 0. And of such a word what
 * mpath_process_alive() says.
 */
uint64_t mpath_process_word(void);
int mpath_process_word_alive(uint64_t word);

/* Where the heap of the calling process begins, which ends at its program break; UINTPTR_MAX: nobody tells. */
uintptr_t mpath_process_heap(void);

/* 0 when the process has ended, zombies included; 1 when it lives or nobody can tell (another pid namespace). */
int mpath_process_alive(const mpath_process_t *process);

#endif
