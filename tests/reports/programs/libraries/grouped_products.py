import torch
import torch.nn.functional as F
from torch.nn.functional import ScalingType

from tests.reports.programs.libraries.grouped import a, a8, b, b8, experts, offsets, scale_a, scale_b, scaled

found = F.grouped_mm(a, b, offs=offsets)
torch.testing.assert_close(found.float(), experts(a, b), rtol=0.02, atol=0.1)
one = F.scaled_mm(
    a8,
    b8[0],
    scale_a=scale_a[:, None],
    scale_recipe_a=ScalingType.RowWise,
    scale_b=scale_b[:1],
    scale_recipe_b=ScalingType.RowWise,
    output_dtype=torch.bfloat16,
)
torch.testing.assert_close(one[:16].float(), scaled[:16], rtol=0.02, atol=0.1)
