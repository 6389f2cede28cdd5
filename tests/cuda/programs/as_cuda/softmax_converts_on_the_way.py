import torch
import torch.nn.functional as F

torch.manual_seed(0)
cotangent = torch.randn(4, 5)
for function in (F.softmax, F.log_softmax):
    x = torch.randn(4, 5).half()
    on_cpu, on_device = x.clone().requires_grad_(), x.cuda().requires_grad_()
    expected, found = function(on_cpu.float(), -1), function(on_device, -1, dtype=torch.float32)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.cpu(), expected)
    expected.backward(cotangent)
    found.backward(cotangent.cuda())
    assert on_device.grad.dtype == torch.float16
    torch.testing.assert_close(on_device.grad.cpu(), on_cpu.grad)
with torch.autocast("cuda", torch.float16):
    assert F.softmax(x.cuda(), -1).dtype == torch.float32
