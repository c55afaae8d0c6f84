"""`torch._dynamo.exc`."""


class TorchDynamoException(RuntimeError):
    """Base class."""


class Unsupported(TorchDynamoException):
    """Something breaks the plan of a function compiled with `fullgraph=True`."""


class InvalidBackend(TorchDynamoException):
    """A backend that nobody knows."""
