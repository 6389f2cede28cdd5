import torch
from torch.sparse import SparseSemiStructuredTensor, to_sparse_semi_structured

from tests.cuda.programs.semi_structured.common import fails, sparse, whole

SparseSemiStructuredTensor._FORCE_CUTLASS = True
own = to_sparse_semi_structured(sparse(128, 256, torch.float16))
fails(
    "sparse_semi_structured_mad_op : Supported only on GPUs with compute capability 8.x",
    lambda: own @ whole(256, 8, dtype=torch.float16),
)
