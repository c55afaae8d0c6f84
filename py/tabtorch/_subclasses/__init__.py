"""`torch._subclasses`: subclasses of Tensor that PyTorch's compilers trace with. None is made here."""

from .fake_tensor import FakeTensor as FakeTensor
