"""What tests of wasi-nn share: guests in C, built by PyPI's ziglang, and the program that runs one."""
