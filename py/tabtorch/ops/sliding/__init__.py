"""Windows that slide over an image: convolution, pooling, sampling by a grid."""
