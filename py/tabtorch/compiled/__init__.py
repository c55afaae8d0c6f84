"""`torch.compile`: a function becomes one kept plan, which one call into JavaScript carries out again.

How a call goes:

1. The function *runs*, with the engine's windows held open (capture.py): all its operations, those of a backward pass and of an
   optimizer included, become one graph, which is fused and planned as a whole and sent once. That alone is always right.
2. The run is *recorded* (record.py): which storages were read (arguments; parameters, buffers, optimizer state, captured
   tensors), which have another value now, what is returned, which random numbers were drawn; and which of the numbers in the
   plan come of settings and step counts (symbolic_numbers.py), and of where arguments begin in their storages (storage_offsets.py). What
   was
   overwritten is planned in place, so state stays where it is. What is differentiated outside gets plans for that: history.py.
3. A second run with plain numbers must come out as the recording foretells. From then on calls with equal arguments
   (shapes, dtypes, devices, grad mode, Python values: tree.py) in an unchanged scope (guards.py: what the function's Python
   could see) are *replayed* (replay.py): no Python of the function runs. driver.py decides.

What cannot be replayed (it reads values, prints, changes Python state, draws from `random`) goes on as in 1.
"""
