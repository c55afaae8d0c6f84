"""PyTorch's own tables — `op_db`, `module_db`, `optim_db` — on real PyTorch's device="webgpu", against its CPU.

    cd tests && python -m backend_db [PATTERN ...] [--table operators|modules|optimizers] [--device cpu|webgpu] [-v]

`--device` is what lies under "webgpu": the GPU, or the same kernels in JavaScript. The entries are asked in processes that may
be lost: what reads memory that is not there ends one, and is counted as a crash.
"""
