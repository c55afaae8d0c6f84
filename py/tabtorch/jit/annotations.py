"""`torch.jit.annotations`: the types that annotations of scripted code are written with."""

from __future__ import annotations

from tabtorch._jit_internal import (
    Any,
    BroadcastingList1,
    BroadcastingList2,
    BroadcastingList3,
    BroadcastingList4,
    BroadcastingList5,
    BroadcastingList6,
    Dict,
    Final,
    Future,
    List,
    Optional,
    Tuple,
    Union,
)

__all__ = [
    "Any",
    "BroadcastingList1",
    "BroadcastingList2",
    "BroadcastingList3",
    "BroadcastingList4",
    "BroadcastingList5",
    "BroadcastingList6",
    "Dict",
    "Final",
    "Future",
    "List",
    "Optional",
    "Tuple",
    "Union",
]
