"""Fourier transforms, short-time ones, and the window functions of signal processing."""
