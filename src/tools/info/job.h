/* SPDX-License-Identifier: BSD-3-Clause */
/* mpath_info --job: what the jobs of this user are doing on this node, from the pages of their processes (record/page.h). */
#ifndef MPATH_TOOLS_INFO_JOB_H
#define MPATH_TOOLS_INFO_JOB_H

/*
 * `pid` 0: a line per job, or all about the only one; else all about the job that this is a process of, mpirun and other
 * ancestors included. 0: there is none, which has been said.
 */
int info_job(long pid);

#endif
