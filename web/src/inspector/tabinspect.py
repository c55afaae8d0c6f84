"""What the page's inspector asks of Python: a run under the profiler, and the autograd graph of a value.

It is not there before the inspector is opened, and nothing is recorded but while a run is profiled.
"""

import json
import math
import sys
from array import array
from collections import Counter

import tabpage

from tabtorch import Tensor, nn
from tabtorch.engine import builder, graph, plan, schedules, steps
from tabtorch.interception.code_swapping import Layer
from tabtorch.profiler import _record
from tabtorch.profiler.schedules import apart, forget, nbytes, number, reads

#: of a recording: calls of operations, and dispatches, beyond which they are counted and not listed one by one
MOST_CALLS = 10_000
MOST_DISPATCHES = 20_000
#: of the graph of a tensor
MOST_NODES = 300
#: of what is said of one kernel
MOST_REASONS = 6

_profile = None  # the one that records, or was recorded last


# ---- a run under the profiler


def arm():
    """The next code of the user's is recorded, until `take`."""
    global _profile
    _drop()
    _profile = Profile()
    tabpage.around = _Recording


async def take():
    """What was recorded since `arm`, as JSON: see Profile.report."""
    tabpage.around = tabpage.contextlib.nullcontext
    profile = _profile
    if profile is None or not profile.began:
        return json.dumps(None)
    try:
        profile.stop()
        return json.dumps(profile.report())
    finally:
        _drop()


def _drop():
    """Ends a recording that nobody has taken."""
    global _profile
    tabpage.around = tabpage.contextlib.nullcontext
    left, _profile = _profile, None
    if left is not None and _record.active is left:
        left.stop()


class _Recording:
    """With the user's code in it. Several cells are one recording, which ends when it is taken."""

    def __enter__(self):
        if _profile is not None and not _profile.began:
            _profile.start()

    def __exit__(self, error, *_):
        if _profile is None or not _profile.began:
            return
        if error is None:
            graph.flush()  # what nobody reads is part of the run as well
        _profile.until = _profile.now()


class Launch:
    """A kernel as one plan launches it: what it computes, what it moves."""

    def __init__(self, row, operations=(), read=0, written=0, workgroups=1):
        self.row = row
        self.operations = operations
        self.read = read
        self.written = written
        self.workgroups = workgroups


class Profile(_record.Recorder):
    """A recording that knows of each kernel what the engine made it of."""

    def __init__(self):
        super().__init__(gpu=True)
        self.began = False
        self.until = 0.0  # when the user's code was over
        self.rows = {}  # kernel -> its row of the table
        self.launches = {}  # schedule -> its launches, in order
        self.order = []  # of what was dispatched: the row
        self.gpu_order = []  # which of these the device times
        self.sent = array("d")
        self.times = None
        self.calls_left_out = 0
        self.extra = _record.FunctionEvent(0, "", 0.0)  # stands for those that are not listed

    def start(self):
        # What is planned already would say nothing of itself: windows are planned anew, their kernels stay.
        with graph.LOCK:
            forget()
        self.first_new = graph.bridge().block.kernels + 1
        self.began = True
        super().start()
        _the_layer().switch(True)

    def stop(self):
        super().stop()
        _the_layer().switch(False)
        with graph.LOCK:
            schedules.forget()  # what looked on asked more of the sizes than a schedule does by itself

    def begin(self, name, args=()):
        if len(self.events) < MOST_CALLS:
            return super().begin(name, args)
        self.calls_left_out += 1
        return self.extra

    def finish(self, e):
        if e is not self.extra:
            super().finish(e)

    def planned(self, builder, made):
        """A schedule was made."""
        self.launches[made] = [
            _described(self.row_of(step, made), builder, step, builder.parts_of[n])
            for n, step in enumerate(builder.steps)
            if type(step) is steps.Launch
        ]

    def dispatched(self, p):
        launches = self.launches.get(p.schedule)
        if launches is None:  # made before: of a function that was compiled then
            launches = [
                Launch(self.row_of(s, p), workgroups=math.prod(map(number, s.grid)))
                for s in p.steps
                if type(s) is steps.Dispatch
            ]
            self.launches[p.schedule] = launches
        at = self.now()
        for launch in launches:
            launch.row.count(launch)
            if not p.device:
                self.gpu_order.append(len(self.order))
            self.order.append(launch.row)
            self.sent.append(at)

    def row_of(self, step, p):
        row = self.rows.get(step.kernel)
        if row is None:
            row = self.rows[step.kernel] = Row(step.label, step.kernel, p.device)
        return row

    def _place(self, times):
        if len(times) != len(self.gpu_order):
            return
        zero = _record.device_zero([self.sent[i] for i in self.gpu_order], times)
        self.times = {i: (zero + begin / 1e3, ns / 1e3) for i, (begin, ns) in zip(self.gpu_order, times)}
        for i, (_, us) in self.times.items():
            self.order[i].us += us

    def report(self):
        """Times are in µs since the recording began.

        calls: [name, start, duration, depth] of operations in Python; dispatches: [kernel, sent, begin, duration], the last
        two None where the device has no clock; kernels: their rows, in the order of their first dispatch.
        """
        sources = {kernel: key[1] for key, kernel in builder._kernels.items()}
        rows = {id(row): at for at, row in enumerate(self.rows.values())}
        times = self.times or {}
        names = {}
        calls = [
            [names.setdefault(e.name, len(names)), round(e.start, 1), round(e.cpu_time_total, 1), _depth(e)]
            for e in self.events
        ]
        dispatches = [
            [rows[id(row)], round(self.sent[i], 1), *(round(x, 3) for x in times[i])]
            if i in times
            else [rows[id(row)], round(self.sent[i], 1), None, None]
            for i, row in enumerate(self.order[:MOST_DISPATCHES])
        ]
        return {
            "duration": self.until or self.now(),
            "timed": self.times is not None,
            "names": list(names),
            "calls": calls,
            "calls_left_out": self.calls_left_out,
            "dispatches": dispatches,
            "dispatches_left_out": max(0, len(self.order) - MOST_DISPATCHES),
            "kernels": [row.report(sources, self.first_new, self.times is not None) for row in self.rows.values()],
        }


class Row:
    """All launches of one kernel."""

    def __init__(self, name, kernel, device):
        self.name = name
        self.kernel = kernel
        self.device = device
        self.calls = self.read = self.written = 0
        self.us = 0.0
        self.first = None
        self.workgroups = set()
        self.known = False
        self.apart = {}

    def count(self, launch):
        self.calls += 1
        self.read += launch.read
        self.written += launch.written
        self.first = self.first or launch
        self.workgroups.add(launch.workgroups)

    def report(self, sources, first_new, timed):
        operations = self.first.operations if self.first else ()
        return {
            "name": self.name,
            "kernel": self.kernel,
            "device": "cpu" if self.device else "webgpu",
            "calls": self.calls,
            "us": self.us if timed and not self.device else None,
            "operations": list(operations) if self.known else None,
            "read": self.read if self.known else None,
            "written": self.written if self.known else None,
            "workgroups": [min(self.workgroups), max(self.workgroups)] if self.workgroups else [0, 0],
            "fresh": self.kernel >= first_new,
            "apart": list(self.apart)[:MOST_REASONS],
            "source": sources.get(self.kernel, ""),
        }


def _depth(e):
    depth = 0
    while e.cpu_parent is not None:
        e = e.cpu_parent
        depth += 1
    return depth


_layer = None


def _the_layer():
    """Looks on where plans are made: outside of a recording no code of the engine's is other than it was."""
    global _layer
    if _layer is None:
        _layer = Layer(2, lambda name: None)
        _layer.meet(plan.Builder.schedule, _planning)
        _layer.meet(schedules.find, _finding)
    return _layer


def _planning(f, args, kw):
    made = f(*args, **kw)
    if isinstance(_record.active, Profile):
        _record.active.planned(args[0], made)
    return made


def _finding(f, args, kw):
    """No schedule: each plan has one of its own while a run is recorded, made for its sizes."""


def _described(row, builder, step, parts):
    row.known = True
    dealer = builder.graph
    operations = []
    read = written = 0
    seen = Counter()
    regions = {}  # of what is written in part
    for group, name in parts:
        if group.kind == "custom" or name == builder.label(
            group
        ):  # else it helps a kernel, and computes nothing by itself
            again = dealer.deep(group.nodes) - set(group.nodes)
            operations += [_operation(builder.nodes[p], p in again) for p in sorted(dealer.deep(group.nodes))]
        for source, words in apart(builder, group):
            row.apart.setdefault(f"reads what {builder.label(source)} writes: {words}")
        for source, covered in reads(builder, group):
            seen[builder.key_of(source)] += covered
        if group.kind == "write":
            node = builder.nodes[group.nodes[0]]
            regions[builder.key_of(node)] = nbytes(node.inst.static)
    sizes = {builder.key_of(builder.nodes[p]): nbytes(builder.nodes[p].inst.out) for p in builder.stored}
    for key, how in step.touches():
        size = number(builder.temps[key.number]) if key.kind == "temporary" else sizes.get(key)
        if how != "r":
            written += regions.get(key, size or 0)
        else:  # of an input a schedule knows only how it is seen
            read += seen.get(key, size or 0) if size is None else min(size, seen.get(key, size))
    return Launch(row, operations, read, written, math.prod(map(number, step.grid)))


def _operation(node, again):
    out = node.inst.out
    return [node.inst.op.name, [number(n) for n in out.shape], out.dtype.name, again]


# ---- the autograd graph of a value


def tape(expression):
    """The graph behind a tensor, as JSON: nodes [kind, name, what is known of it] from the result on, edges from a node to
    the inputs of its operation, and how many nodes there are besides. Or `problem`: why there is none."""
    try:
        value = eval(expression, sys.modules["__main__"].__dict__)
    except BaseException as error:
        return json.dumps({"problem": f"{type(error).__name__}: {error}"})
    if not isinstance(value, Tensor):
        return json.dumps({"problem": f"{expression} is of type {type(value).__name__}, and no tensor"})
    if not value.requires_grad:
        return json.dumps({"problem": f"{expression} requires no gradient: nothing was recorded of how it came to be"})
    return json.dumps(_walk(value))


def _walk(value):
    leaves, made = _names()
    root = value.grad_fn if value.grad_fn is not None else value
    found = {_identity(root): 0}
    order = [root]  # breadth first, so that what is left out is what is farthest
    edges = []
    for at, fn in enumerate(order):
        if at >= MOST_NODES:
            break
        for following, _ in getattr(fn, "next_functions", ()):
            if following is None:
                continue
            key = _identity(following)
            if key not in found:
                found[key] = len(order)
                order.append(following)
            edges.append([at, found[key]])
    kept = min(len(order), MOST_NODES)
    return {
        "nodes": [_shown(fn, leaves, made) for fn in order[:kept]],
        "edges": [edge for edge in edges if max(edge) < kept],
        "left_out": _count(order, found) - kept,
    }


def _count(order, found):
    """How many nodes there are in all."""
    for fn in order:
        for following, _ in getattr(fn, "next_functions", ()):
            if following is not None and _identity(following) not in found:
                found[_identity(following)] = len(order)
                order.append(following)
    return len(order)


def _leaf(fn):
    return fn if isinstance(fn, Tensor) else getattr(fn, "variable", None)


def _identity(fn):
    """Leaves are their tensors: what stands for one in the graph is made anew each time that it is asked for."""
    return id(_leaf(fn)) if _leaf(fn) is not None else id(fn)


def _shown(fn, leaves, made):
    leaf = _leaf(fn)
    if leaf is None:
        return ["operation", fn.name().rpartition("::")[2], made.get(id(fn), "")]
    shape = " × ".join(map(str, leaf.shape)) or "scalar"
    return ["leaf", leaves.get(id(leaf), "a leaf"), f"{shape} {leaf.dtype}".replace("torch.", "")]


def _names():
    """What the script calls its tensors: names of leaves, by their ids, and of results, by those of their functions."""
    leaves, made = {}, {}
    for name, value in list(sys.modules["__main__"].__dict__.items()):
        if name.startswith("_"):
            continue
        if isinstance(value, nn.Module):
            for path, parameter in value.named_parameters():
                leaves.setdefault(id(parameter), f"{name}.{path}")
        elif isinstance(value, Tensor) and value.grad_fn is None:
            leaves[id(value)] = name
        elif isinstance(value, Tensor):
            made[id(value.grad_fn)] = name
    return leaves, made
