import torch

from tests.cuda.programs.refusals.calls import i, refused
from torch_loom.torch_version import minor_of

L = torch.linalg
for dtype, name in ((torch.float16, "Half"), (torch.complex32, "ComplexHalf")):

    def m(*sizes):
        return torch.eye(*sizes[-2:]).expand(sizes).to(dtype).cuda()

    unit, several, tau = m(3, 3), m(4, 3, 3), m(3, 3)[0]
    pivots = torch.tensor([1, 2, 3], dtype=torch.int32, device="cuda")
    for kernel, calls in {
        "cholesky_cusolver": [
            lambda: L.cholesky(unit),
            lambda: L.cholesky_ex(several),
            *([lambda: torch.cholesky(unit)] if minor_of(torch.__version__) < (2, 14) else []),
        ],
        "cholesky_cuda_potrs": [lambda: torch.cholesky_solve(unit, unit)],
        "cholesky_cuda_potri": [lambda: torch.cholesky_inverse(unit)],
        "lu_factor_cusolver": [
            lambda: L.lu(unit),
            lambda: L.lu_factor(m(4, 3, 5)),
            lambda: L.lu_factor(unit, pivot=False),
            lambda: L.det(unit),
            lambda: L.solve(unit, unit),
            lambda: L.solve(unit, tau),
        ],
        "lu_factor_cublas": [lambda: L.lu_factor_ex(several), lambda: L.solve(several, several)],
        "lu_solve_cublas": [
            lambda: L.lu_solve(unit, pivots, unit),
            lambda: torch.lu_solve(unit, unit, pivots),
        ],
        "lu_solve_cusolver": [lambda: L.lu_solve(m(9, 9), pivots.repeat(3), m(9, 2))],
        "geqrf_cuda": [lambda: L.qr(unit), lambda: torch.geqrf(unit), lambda: L.qr(m(0, 3))],
        "geqrf_batched_cuda": [lambda: L.qr(several)],
        "orgqr_cuda": [lambda: L.householder_product(unit, tau)],
        "orgmr_cuda": [lambda: torch.ormqr(unit, tau, unit)],
        "svd_cuda_gesvdjBatched": [lambda: L.svd(unit), lambda: L.svdvals(unit)],
        "svd_cuda_gesvdj": [lambda: L.svd(m(33, 3))],
        "svd_cuda_gesvd": [lambda: L.svd(unit, driver="gesvd")],
        "linalg_eigh_cuda": [lambda: L.eigh(unit), lambda: L.eigvalsh(unit)],
        "linalg_eig_cuda": [lambda: L.eig(unit), lambda: L.eigvals(unit)],
        "triangular_solve_cuda": [
            lambda: L.solve_triangular(unit, unit, upper=True),
            lambda: torch.triangular_solve(unit, unit),
        ],
        "ldl_factor_looped_cusolver": [lambda: L.ldl_factor(unit)],
        "ldl_solve_looped_cusolver": [lambda: L.ldl_solve(unit, pivots, unit)],
    }.items():
        for call in calls:
            refused(call, kernel, name)
    for nothing in (L.cholesky, L.lu_factor, L.svd, L.eigh):
        nothing(m(0, 3, 3))
refused(lambda: L.eigh(i(3, 3)), "linalg_eigh_cuda")
half = i(3, 4).half()
for call, words in (
    (lambda: L.cholesky(half), "must be batches of square matrices"),
    (lambda: L.eigh(half), "must be batches of square matrices"),
    (lambda: L.qr(i(3, 3)), "Expected a floating point or complex tensor as input. Got Long"),
    (lambda: L.inv(half[:, :3]), "Low precision dtypes not supported. Got Half"),
):
    try:
        call()
    except RuntimeError as error:
        assert words in str(error), error
    else:
        raise AssertionError(words)
