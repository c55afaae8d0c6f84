"""Pictures of tensors, charts, and controls: `tabtorch.show`, `plot`, `canvas`, `slider` and others. In the page, in notebooks and
in terminals.
"""
