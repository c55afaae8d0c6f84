"""`torch._subclasses`: subclasses of Tensor that PyTorch's compilers trace with. None is made here."""

from tabtorch._subclasses.fake_tensor import FakeTensor as FakeTensor
