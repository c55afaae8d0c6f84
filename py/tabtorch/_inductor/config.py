"""`torch._inductor.config`: its settings may be set, and change nothing, for there is one way to compile here."""

from types import SimpleNamespace

triton, cpp, cuda, trace = SimpleNamespace(), SimpleNamespace(), SimpleNamespace(), SimpleNamespace()
