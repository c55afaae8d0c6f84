"""What networks are made of: softmax and normalization, recurrent layers, the CTC loss."""
