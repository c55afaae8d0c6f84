"""`torch.onnx.errors`."""

from __future__ import annotations


class OnnxExporterWarning(UserWarning):
    """Warnings of the exporter."""


class OnnxExporterError(RuntimeError):
    """A model that is not exported, and why."""


class UnsupportedOperatorError(OnnxExporterError):
    """The program has operators without a translation."""


class SymbolicValueError(OnnxExporterError):
    """In PyTorch, an error of the older exporter. Nothing raises it here."""
