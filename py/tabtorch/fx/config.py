"""`torch.fx.config`: whether an Interpreter shows its progress."""

disable_progress = True
verbose_progress = False
