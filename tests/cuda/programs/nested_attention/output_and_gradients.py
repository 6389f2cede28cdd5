import torch
from torch.nn.attention import sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention as attention

from tests.cuda.programs.nested_attention.operands import EFFICIENT, FLASH, check, expected, nested, sequences

for layout in (torch.strided, torch.jagged):
    for kernel, dtype in ((FLASH, torch.float16), (EFFICIENT, torch.float16), (EFFICIENT, torch.float32)):
        for is_causal in (False, True):
            values = [sequences(seed, dtype) for seed in range(3)]
            operands = [nested(each, layout) for each in values]
            trains = layout == torch.jagged or kernel == FLASH  # as CUDA's kernels
            with sdpa_kernel(kernel), torch.set_grad_enabled(trains):
                output = attention(*operands, is_causal=is_causal)
            assert output.is_nested and output.dtype == dtype
            check(output.unbind(), expected(values, is_causal))
            if not trains:
                continue
            sum(x.float().square().sum() for x in output.unbind()).backward()
            leaves = [[x.float().requires_grad_() for x in each] for each in values]
            sum(x.square().sum() for x in expected(leaves, is_causal)).backward()
            for operand, leaf in zip(operands, leaves, strict=True):
                found = [x.transpose(0, 1).float() for x in operand.grad.unbind()]
                for gradient, reference in zip(found, leaf, strict=True):
                    torch.testing.assert_close(gradient, reference.grad, atol=2e-2, rtol=2e-2)
