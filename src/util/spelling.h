/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Settings whose names are meant for mpath but are none of its, or go: nobody reads them, and without a word their
 * user believes that they are in force. Looked for in the environment (OMPI_MCA_coll_mpath_..., MPATH_...) and in Open MPI's parameter files.
 */
#ifndef MPATH_UTIL_SPELLING_H
#define MPATH_UTIL_SPELLING_H

/*
 * `place`: "the environment", or "FILE:LINE"; `name`: as it stands there; `nearest`: what is read, spelt in the same form,
 * NULL when nothing is near; `remark`: of a name that was removed or goes, what to say behind it, else NULL. All of them only
 * during the call.
 */
typedef void (*mpath_spelling_found_t)(const char *place, const char *name, const char *nearest, const char *remark,
                                       void *arg);

/* Calls `found` for each. A variable MPATH_... that is near to none of mpath's belongs to somebody else, and is left out. */
void mpath_spelling_check_environment(mpath_spelling_found_t found, void *arg);

/* The same for parameter files of Open MPI, a list with ',' or ':' between them. A file that does not open has none. */
void mpath_spelling_check_files(const char *paths, mpath_spelling_found_t found, void *arg);

/* Of `names`, which NULL ends, the one that `given` is meant for; NULL: none is near. */
const char *mpath_spelling_nearest(const char *given, const char *const *names);

#endif
