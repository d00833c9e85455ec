! SPDX-License-Identifier: BSD-3-Clause
! A skewed MPI_Alltoallv from Fortran: every rank sends half of its values to rank 0.
program skewed
    use mpi
    implicit none
    integer, parameter :: n = 1048576
    integer :: rank, ranks, ierr, r, wrong, all_wrong
    integer, allocatable :: scounts(:), sdispls(:), rcounts(:), rdispls(:), send(:), recv(:)

    call MPI_Init(ierr)
    call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierr)
    call MPI_Comm_size(MPI_COMM_WORLD, ranks, ierr)
    allocate (scounts(ranks), sdispls(ranks), rcounts(ranks), rdispls(ranks))
    scounts = n / (2 * ranks)
    scounts(1) = scounts(1) + n / 2
    rcounts = n / (2 * ranks)
    if (rank == 0) rcounts = rcounts + n / 2
    sdispls(1) = 0
    rdispls(1) = 0
    do r = 2, ranks
        sdispls(r) = sdispls(r - 1) + scounts(r - 1)
        rdispls(r) = rdispls(r - 1) + rcounts(r - 1)
    end do
    allocate (send(sum(scounts)), recv(sum(rcounts)))
    send = rank
    recv = -1
    call MPI_Alltoallv(send, scounts, sdispls, MPI_INTEGER, recv, rcounts, rdispls, MPI_INTEGER, MPI_COMM_WORLD, ierr)
    wrong = 0
    do r = 1, ranks
        wrong = wrong + count(recv(rdispls(r) + 1:rdispls(r) + rcounts(r)) /= r - 1)
    end do
    call MPI_Allreduce(wrong, all_wrong, 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, ierr)
    if (rank == 0) print '(a, i0, a)', 'fortran: ', all_wrong, ' wrong values'
    call MPI_Finalize(ierr)
    if (all_wrong /= 0) stop 1
end program skewed
