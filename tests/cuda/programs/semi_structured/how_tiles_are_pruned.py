import torch
import torch.nn.functional as F

from tests.cuda.programs.semi_structured.common import fails

tile = torch.tensor([[4, 3, 2, 1], [-1, -3, 0.6, 0.5], [1, 2, 3, 4], [10, 2, -1, 5]]).half().cuda()
x = F.pad(tile, (0, 124, 0, 124), value=1)
wanted = {
    "causal1122": [[1, 0, 0, 0], [0, 0, 1, 0], [0, 0, 1, 1], [1, 0, 0, 1]],
    "largest_abs_values_greedy": [[1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 1, 1], [1, 0, 0, 1]],
}
for algorithm, kept in wanted.items():
    masks = torch._sparse_semi_structured_tile(x, algorithm)[4]
    pruned = torch._sparse_semi_structured_apply_dense(x, masks)
    assert (pruned[:4, :4] / tile).int().tolist() == kept, algorithm
fails('Unknown algorithm "none"', lambda: torch._sparse_semi_structured_tile(x, "none"))
fails("only `float16` and `bfloat16`", lambda: torch._sparse_semi_structured_tile(x.float()))
