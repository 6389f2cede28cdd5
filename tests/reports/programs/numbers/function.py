import torch


def product(of_forward, of_backward):
    class Product(torch.autograd.Function):
        @staticmethod
        @of_forward
        def forward(ctx, x, w):
            ctx.save_for_backward(x, w)
            return x.mm(w)

        @staticmethod
        @of_backward
        def backward(ctx, gradient):
            x, w = ctx.saved_tensors
            return gradient.mm(w.t()), x.t().mm(gradient)

    x, w = (torch.randn(size, device="cuda", requires_grad=True) for size in ((3, 4), (4, 5)))
    with torch.autocast("cuda", torch.float16):
        y = Product.apply(x, w)
    y.float().sum().backward()
    return y.dtype, x.grad.dtype


def plain(method):
    return method
