"""What `torch.nn.functional` shows: layers, losses and activations as functions, formulas over public operations; a file a family."""
