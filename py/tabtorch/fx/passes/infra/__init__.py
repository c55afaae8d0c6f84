"""`torch.fx.passes.infra`: passes, one after another, and nodes in groups."""
