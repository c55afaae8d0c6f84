"""Event files: records with checksums (https://www.tensorflow.org/tutorials/load_data/tfrecord), and who writes them."""

from __future__ import annotations

import atexit
import functools
import itertools
import os
import socket
import struct
import threading
import time
from typing import Any

from tabtorch import _lazy
from tabtorch.utils.tensorboard._wire import Message


def _table() -> list[int]:
    found = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)  # Castagnoli's polynomial, its bits reversed
        found.append(value)
    return found


_CRC = _table()


def masked_crc32c(data: bytes) -> int:
    """The checksum of a record: CRC-32C, masked because data may hold checksums itself."""
    crc, table = 0xFFFFFFFF, _CRC
    for byte in data:
        crc = table[(crc ^ byte) & 255] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


class RecordWriter:
    """Records into an open binary file: the length and its checksum, the bytes and theirs."""

    def __init__(self, writer: Any) -> None:
        """writer: a file, or what has `write`, `flush` and `close`."""
        self._writer = writer

    def write(self, data: bytes) -> None:
        """A record of these bytes."""
        header = struct.pack("<Q", len(data))
        length, found = masked_crc32c(header), masked_crc32c(data)
        self._writer.write(header + struct.pack("<I", length) + data + struct.pack("<I", found))

    def flush(self) -> None:
        """What was written goes to the file system."""
        self._writer.flush()

    def close(self) -> None:
        """The file is done with."""
        self._writer.close()

    @property
    def closed(self) -> bool:
        """Whether it was."""
        return bool(self._writer.closed)


_numbers = itertools.count()
#: those that are open, kept although their script may have dropped them: what they hold is written when it ends
_open: set[EventFileWriter] = set()


class EventFileWriter:
    """One event file. Events wait until there are more than `max_queue_size`, or `flush_secs` have gone by, or someone flushes: there is
    no thread, because a tab has none. The tensors among what waits are then read from the device in one wait.
    """

    def __init__(
        self, logdir: Any, max_queue_size: int = 10, flush_secs: float = 120, filename_suffix: str = ""
    ) -> None:
        self._logdir = str(logdir)
        self._most, self._seconds, self._suffix = max_queue_size, flush_secs, filename_suffix
        self._lock = threading.RLock()
        self._waiting: list[Any] = []
        self._begin()

    def _begin(self) -> None:
        os.makedirs(self._logdir, exist_ok=True)
        name = f"{int(time.time()):010d}.{socket.gethostname()}.{os.getpid()}.{next(_numbers)}"
        self._file_name = os.path.join(self._logdir, f"events.out.tfevents.{name}{self._suffix}")
        self._writer = RecordWriter(open(self._file_name, "wb"))
        _open.add(self)
        source = Message("SourceMetadata", writer="tensorboard.summary.writer.event_file_writer")
        self.add_event(Message("Event", wall_time=time.time(), file_version="brain.Event:2", source_metadata=source))
        self.flush()

    def get_logdir(self) -> str:
        """The folder of the file."""
        return self._logdir

    def add_event(self, event: Any) -> None:
        """event: an Event of this package, or of the protobuf package. TypeError otherwise, OSError where the file is closed."""
        if not hasattr(event, "SerializeToString"):
            raise TypeError(f"Expected an event_pb2.Event proto,  but got {type(event)}")
        with self._lock:
            if self._writer.closed:
                raise OSError("Writer is closed")
            if isinstance(event, Message) and _tensors([event]):
                _read_before_the_end()
            # another package's may be changed by who gave it
            self._waiting.append(event if isinstance(event, Message) else event.SerializeToString())
            if len(self._waiting) > self._most or time.monotonic() - self._flushed >= self._seconds:
                self.flush()

    _flushed = 0.0

    def flush(self) -> None:
        """All that waits is read and written."""
        with self._lock:
            if self._writer.closed:
                return
            events, self._waiting = self._waiting, []
            try:
                _read(events)
            except BaseException:
                events = [event for event in events if not _tensors([event])]  # the others are there all the same
                raise
            finally:
                for event in events:
                    self._writer.write(event if isinstance(event, bytes) else event.SerializeToString())
                self._writer.flush()
                self._flushed = time.monotonic()

    def close(self) -> None:
        """Flushes, and closes the file."""
        with self._lock:
            try:
                self.flush()
            finally:
                self._writer.close()
                _open.discard(self)

    def reopen(self) -> None:
        """After `close`: events go into a new file of the same folder."""
        if self._writer.closed:
            self._begin()


def _tensors(events: list[Any]) -> list[tuple[Message, str, Any]]:
    return [each for event in events if isinstance(event, Message) for each in event.waiting()]


def _read(events: list[Any]) -> None:
    """Numbers in the place of tensors, of all of them in one wait."""
    tensors = _tensors(events)
    found = _lazy.to_host.tolists([tensor for _, _, tensor in tensors]) if tensors else []
    for (message, field, _), values in zip(tensors, found):
        setattr(message, field, values if isinstance(getattr(message, field), list) else values[0])


def finish() -> None:
    """The end of a script: what waits in open files is written."""
    for writer in list(_open):
        writer.flush()


@functools.cache
def _read_before_the_end() -> None:
    """Exit handlers run last to first: the device's, which is there since the first tensor, comes after this one then."""
    atexit.unregister(finish)
    atexit.register(finish)


atexit.register(finish)
