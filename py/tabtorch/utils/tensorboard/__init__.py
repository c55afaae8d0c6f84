"""``torch.utils.tensorboard``: TensorBoard's event files, written without TensorBoard; in the page, scalars are live charts too.

Nothing else is needed: no tensorboard, no protobuf, no NumPy. `tensorboard --logdir runs` reads the files on any machine.
"""

from tabtorch.utils.tensorboard._records import RecordWriter
from tabtorch.utils.tensorboard.writer import FileWriter, SummaryWriter

__all__ = ["FileWriter", "RecordWriter", "SummaryWriter"]
