"""For type checkers: what `__init__.py` loads when it is asked for."""

from typing import Any

from tabtorch.autograd import forward_ad as forward_ad
from tabtorch.autograd import function as function
from tabtorch.autograd import grad_mode as grad_mode
from tabtorch.autograd import graph as graph
from tabtorch.autograd import profiler as profiler
from tabtorch.autograd import variable as variable
from tabtorch.autograd.anomaly_mode import detect_anomaly as detect_anomaly
from tabtorch.autograd.anomaly_mode import set_detect_anomaly as set_detect_anomaly
from tabtorch.autograd.engine import backward as backward
from tabtorch.autograd.engine import grad as grad
from tabtorch.autograd.function import Function as Function
from tabtorch.autograd.grad_mode import enable_grad as enable_grad
from tabtorch.autograd.grad_mode import enforce_grad_layout_policy as enforce_grad_layout_policy
from tabtorch.autograd.grad_mode import inference_mode as inference_mode
from tabtorch.autograd.grad_mode import no_grad as no_grad
from tabtorch.autograd.grad_mode import set_grad_enabled as set_grad_enabled
from tabtorch.autograd.saved_tensors import SavedTensor as SavedTensor
from tabtorch.autograd.variable import Variable as Variable

mode = grad_mode

def __getattr__(name: str) -> Any: ...
