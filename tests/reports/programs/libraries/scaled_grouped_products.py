import torch
import torch.nn.functional as F
from torch.nn.functional import ScalingType

from tests.reports.programs.libraries.grouped import a8, b8, offsets, scale_a, scale_b, scaled

found = torch._scaled_grouped_mm(a8, b8, scale_a, scale_b, offs=offsets, out_dtype=torch.bfloat16)
torch.testing.assert_close(found.float(), scaled, rtol=0.02, atol=0.1)
found = F.scaled_grouped_mm(
    a8,
    b8,
    scale_a=scale_a,
    scale_recipe_a=ScalingType.RowWise,
    scale_b=scale_b,
    scale_recipe_b=ScalingType.RowWise,
    offs=offsets,
    output_dtype=torch.bfloat16,
)
torch.testing.assert_close(found.float(), scaled, rtol=0.02, atol=0.1)
