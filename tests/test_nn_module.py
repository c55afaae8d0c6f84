"""The machinery of modules, errors, and ``nn.utils``, against real PyTorch: the same program in both, and what it saw."""

import copy
import pickle

import pytest
import torch

import tabtorch as tt
from nn_oracle import DEVICES, close, failure, mine, rand


@pytest.fixture(params=DEVICES, autouse=True)
def device(request):
    """Everything is made on this device."""
    with tt.device(request.param):
        yield request.param


# -- errors: the exception and message of PyTorch


def failed(f, ns):
    return failure(lambda ns: f(ns, ns.nn, ns.nn.functional), ns)


ERRORS = [
    lambda t, nn, F: F.cross_entropy(t.ones(3, 5), t.tensor([1, 2, 3, 4])),
    lambda t, nn, F: F.cross_entropy(t.ones(3, 5), t.tensor([1.0, 2, 3])),
    lambda t, nn, F: F.cross_entropy(t.ones(3, 5), t.zeros(3, 5).long()),
    lambda t, nn, F: F.cross_entropy(t.ones(3, 5), t.zeros(3, 4)),
    lambda t, nn, F: F.cross_entropy(t.ones(3, 5), t.zeros(3, 1).long()),
    lambda t, nn, F: F.cross_entropy(t.ones(2, 5, 4), t.zeros(2, 3).long()),
    lambda t, nn, F: F.cross_entropy(t.ones(2, 5, 4, 4), t.zeros(2, 3, 4).long()),
    lambda t, nn, F: F.cross_entropy(t.ones(2, 5, 4, 4), t.zeros(2, 4).long()),
    lambda t, nn, F: F.cross_entropy(t.ones(3, 5), t.tensor([1, 2, 3]), weight=t.ones(4)),
    lambda t, nn, F: F.cross_entropy(t.ones(3, 5), t.ones(3, 5), ignore_index=2),
    lambda t, nn, F: F.cross_entropy(t.ones(3, 5), t.tensor([1, 2, 3]), label_smoothing=2.0),
    lambda t, nn, F: F.cross_entropy(t.ones(3, 5), t.tensor([1, 2, 3]), reduction="foo"),
    lambda t, nn, F: F.cross_entropy(t.ones(3, 5).long(), t.tensor([1, 2, 3])),
    lambda t, nn, F: F.softmax(t.tensor([1, 2]), 0),
    lambda t, nn, F: F.softmax(t.ones(2, 2), 4),
    lambda t, nn, F: F.binary_cross_entropy(t.ones(2), t.ones(3)),
    lambda t, nn, F: F.binary_cross_entropy_with_logits(t.ones(2), t.ones(3)),
    lambda t, nn, F: F.layer_norm(t.ones(3, 5), (4,)),
    lambda t, nn, F: F.layer_norm(t.ones(3, 5), ()),
    lambda t, nn, F: F.layer_norm(t.ones(3, 5), (5,), t.ones(4)),
    lambda t, nn, F: F.rms_norm(t.ones(3, 5), (4,)),
    lambda t, nn, F: F.batch_norm(t.ones(3, 5), t.zeros(4), t.ones(4), training=True),
    lambda t, nn, F: F.batch_norm(t.ones(3, 5), None, None),
    lambda t, nn, F: F.batch_norm(t.ones(1, 5), None, None, training=True),
    lambda t, nn, F: F.group_norm(t.ones(2, 5, 4), 2),
    lambda t, nn, F: F.instance_norm(t.ones(2, 3, 1)),
    lambda t, nn, F: F.one_hot(t.tensor([1.0]), 3),
    lambda t, nn, F: F.embedding(t.tensor([1.0]), t.ones(5, 3)),
    lambda t, nn, F: F.pad(t.ones(3, 5), (1,)),
    lambda t, nn, F: F.pad(t.ones(3, 5), (1,) * 6),
    lambda t, nn, F: F.pad(t.ones(3, 5), (5, 5), mode="reflect"),
    lambda t, nn, F: F.pad(t.ones(3, 5), (1, 1), mode="foo"),
    lambda t, nn, F: F.pad(t.ones(5), (1, 1), mode="reflect"),
    lambda t, nn, F: F.glu(t.ones(3, 5)),
    lambda t, nn, F: F.linear(t.ones(3, 5), t.ones(4, 3)),
    lambda t, nn, F: F.pixel_shuffle(t.ones(1, 3, 2, 2), 2),
    lambda t, nn, F: F.prelu(t.ones(3, 5), t.ones(3)),
    lambda t, nn, F: F.unfold(t.ones(1, 2, 3, 3), 4),
    lambda t, nn, F: F.fold(t.ones(1, 8, 5), (3, 3), 2),
    lambda t, nn, F: F.dropout(t.ones(2), 2.0),
    lambda t, nn, F: F.hardtanh(t.ones(2), 1, -1),
    lambda t, nn, F: F.multi_margin_loss(t.ones(3, 5), t.tensor([1, 2])),
    lambda t, nn, F: F.margin_ranking_loss(t.ones(3), t.ones(3), t.ones(3, 1)),
    lambda t, nn, F: F.interpolate(t.ones(1, 1, 2, 2), size=(3,)),
    lambda t, nn, F: F.interpolate(t.ones(1, 1, 2, 2)),
    lambda t, nn, F: F.interpolate(t.ones(1, 1, 2, 2), size=3, mode="linear"),
    lambda t, nn, F: F.interpolate(t.ones(1, 1, 2, 2), size=3, align_corners=True),
    lambda t, nn, F: F.scaled_dot_product_attention(*[t.ones(3, 5)] * 3, attn_mask=t.ones(3, 3), is_causal=True),
    lambda t, nn, F: nn.BatchNorm2d(3)(t.ones(3, 3)),
    lambda t, nn, F: nn.BatchNorm1d(3)(t.ones(3)),
    lambda t, nn, F: nn.GroupNorm(3, 4),
    lambda t, nn, F: nn.Conv2d(3, 4, 3, groups=2),
    lambda t, nn, F: nn.Conv2d(4, 3, 3, groups=2),
    lambda t, nn, F: nn.Conv2d(4, 4, 3, groups=0),
    lambda t, nn, F: nn.Conv2d(4, 4, 3, padding="same", stride=2),
    lambda t, nn, F: nn.Dropout(1.5),
    lambda t, nn, F: nn.Embedding(3, 2, padding_idx=3),
    lambda t, nn, F: nn.MultiheadAttention(5, 2),
    lambda t, nn, F: nn.MultiheadAttention(4, 0),
    lambda t, nn, F: nn.MultiheadAttention(4, 2)(*[t.ones(4)] * 3),
    lambda t, nn, F: nn.LSTM(3, 4, dropout=2.0),
    lambda t, nn, F: nn.LSTM(3, 4)(t.ones(2, 2, 5)),
    lambda t, nn, F: nn.GRU(3, 4)(t.ones(2, 2, 3), t.ones(1, 1, 4)),
    lambda t, nn, F: nn.RNN(3, 4, nonlinearity="foo"),
    lambda t, nn, F: nn.LSTMCell(3, 4)(t.ones(2, 5)),
    lambda t, nn, F: nn.Unflatten(1, 3),
    # modules
    lambda t, nn, F: nn.Module(1),
    lambda t, nn, F: nn.Module(a=1),
    lambda t, nn, F: nn.Module()(1),
    lambda t, nn, F: nn.Linear(2, 2).foo,
    lambda t, nn, F: setattr(nn.Linear(2, 2), "weight", t.ones(2)),
    lambda t, nn, F: setattr(nn.Sequential(nn.ReLU()), "0", 3),
    lambda t, nn, F: setattr(nn.BatchNorm1d(2), "running_mean", 3),
    lambda t, nn, F: nn.Module().register_buffer("a.b", None),
    lambda t, nn, F: nn.Module().register_buffer("", None),
    lambda t, nn, F: nn.Module().register_buffer(3, None),
    lambda t, nn, F: nn.Module().register_buffer("training", None),
    lambda t, nn, F: nn.Module().register_buffer("a", 3),
    lambda t, nn, F: nn.Module().register_parameter("a", t.ones(2)),
    lambda t, nn, F: nn.Module().register_parameter("a.b", None),
    lambda t, nn, F: nn.Module().register_parameter("training", None),
    lambda t, nn, F: nn.Module().add_module("a.b", None),
    lambda t, nn, F: nn.Module().add_module("", None),
    lambda t, nn, F: nn.Module().add_module("training", None),
    lambda t, nn, F: nn.Module().add_module("a", 3),
    lambda t, nn, F: nn.Module().add_module(3, None),
    lambda t, nn, F: type("M", (nn.Module,), {"__init__": lambda self: setattr(self, "a", nn.ReLU())})(),
    lambda t, nn, F: type("M", (nn.Module,), {"__init__": lambda self: setattr(self, "a", nn.Parameter(t.ones(1)))})(),
    lambda t, nn, F: nn.Linear(2, 2).train(3),
    lambda t, nn, F: nn.Linear(2, 2).to(t.int64),
    lambda t, nn, F: nn.Linear(2, 2).get_submodule("a"),
    lambda t, nn, F: nn.Linear(2, 2).get_parameter("a"),
    lambda t, nn, F: nn.Linear(2, 2).get_buffer("weight"),
    lambda t, nn, F: nn.Sequential(nn.ReLU())[3],
    lambda t, nn, F: nn.Sequential(nn.ReLU()) + 3,
    lambda t, nn, F: nn.Sequential(nn.ReLU()) * 0,
    lambda t, nn, F: nn.ModuleList(3),
    lambda t, nn, F: nn.ModuleDict(3),
    lambda t, nn, F: nn.ParameterList(t.ones(2)),
    lambda t, nn, F: nn.ParameterDict({3: t.ones(2)}),
    lambda t, nn, F: nn.Linear(2, 2).load_state_dict(3),
    lambda t, nn, F: nn.Linear(2, 2).load_state_dict({"a": t.ones(2)}),
    lambda t, nn, F: nn.Linear(2, 2).load_state_dict({"weight": t.ones(3, 2), "bias": t.ones(2)}),
    lambda t, nn, F: nn.Linear(2, 2).load_state_dict({"weight": 3, "bias": t.ones(2)}),
    lambda t, nn, F: nn.Sequential(nn.Linear(2, 2)).load_state_dict({"0.weight.x": t.ones(2, 2), "1.a": t.ones(1)}),
    lambda t, nn, F: nn.init.xavier_uniform_(t.ones(2)),
    lambda t, nn, F: nn.init.calculate_gain("foo"),
    lambda t, nn, F: nn.init.kaiming_uniform_(t.ones(2, 2), mode="foo"),
]


@pytest.mark.parametrize("i", range(len(ERRORS)))
def test_error(i):
    expected = failed(ERRORS[i], torch)
    assert expected is not None
    assert failed(ERRORS[i], tt) == expected


BAD_VALUES = [
    lambda t, nn, F: F.cross_entropy(t.ones(3, 5), t.tensor([1, 2, 7])),
    lambda t, nn, F: F.nll_loss(t.ones(3, 5), t.tensor([1, -2, 3])),
    lambda t, nn, F: F.embedding(t.tensor([7]), t.ones(5, 3)),
    lambda t, nn, F: F.one_hot(t.tensor([1, 5]), 3),
    lambda t, nn, F: F.one_hot(t.tensor([1, -5]), 3),
    lambda t, nn, F: F.binary_cross_entropy(t.ones(2) * 2, t.ones(2)),
]


@pytest.mark.parametrize("i", range(len(BAD_VALUES)))
def test_error_of_values(i, device):
    """Values are looked at at once where the host knows them, else by the device, of which a read tells."""
    kind, text = failed(lambda *a: BAD_VALUES[i](*a).tolist(), tt)
    assert (kind, text.split("\n")[0]) == failed(BAD_VALUES[i], torch)


def test_missing_names():
    assert not isinstance(tt.nn.ReLU(), tt.nn.LazyLinear)
    with pytest.raises(NotImplementedError, match="torch.nn.functional.scaled_mm"):
        tt.nn.functional.scaled_mm(1)
    assert not hasattr(tt.nn, "NoSuchLayer")


# -- the machinery of modules: the same program in both, and what it saw


def model(ns):
    nn = ns.nn

    class Block(nn.Module):
        def __init__(self, n):
            super().__init__()
            self.linear = nn.Linear(n, n)
            self.scale = nn.Parameter(ns.full((n,), 2.0))
            self.register_buffer("shift", ns.ones(n))
            self.register_buffer("cache", ns.zeros(1), persistent=False)
            self.again = self.linear

        def forward(self, x, gain=1.0):
            return self.linear(x) * self.scale * gain + self.shift

        def extra_repr(self):
            return "two\nlines"

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks = nn.ModuleList([Block(2) for _ in range(2)])
            self.by_name = nn.ModuleDict({"act": nn.ReLU(), "out": nn.Linear(2, 1)})
            self.nothing = None
            self.register_module("empty", None)

        def forward(self, x):
            for block in self.blocks:
                x = self.by_name["act"](block(x, gain=0.5))
            return self.by_name["out"](x)

    ns.manual_seed(0)
    return Net()


def walk(ns):
    net = model(ns)
    yield repr(net)
    for method in ("named_parameters", "named_buffers", "named_modules", "named_children"):
        yield [name for name, _ in getattr(net, method)()]
    for method in ("named_parameters", "named_modules"):
        yield [name for name, _ in getattr(net, method)(remove_duplicate=False)]
    yield [n for n, _ in net.named_parameters(prefix="p", recurse=False)], len(list(net.parameters()))
    yield [(k, tuple(v.shape), v.requires_grad) for k, v in net.state_dict(prefix="x.").items()]
    yield [v.requires_grad for v in net.state_dict(keep_vars=True).values()]
    yield dict(net.state_dict()._metadata)
    yield net.get_submodule("blocks.1.linear") is net.blocks[1].linear, net.get_submodule("") is net
    yield tuple(net.get_parameter("blocks.0.scale").shape), tuple(net.get_buffer("blocks.0.shift").shape)
    net.eval()
    yield [m.training for m in net.modules()]
    seen = []
    net.apply(lambda m: seen.append(type(m).__name__))
    yield seen
    net.requires_grad_(False)
    yield [p.requires_grad for p in net.parameters()]
    block = net.blocks[0]
    del block.scale
    block.scale = ns.ones(2)
    yield "scale" in block._parameters, "scale" in block.__dict__
    block.shift = None
    yield list(block.state_dict())
    block.extra = ns.nn.Buffer(ns.ones(1), persistent=False)
    yield list(block.state_dict()), [n for n, _ in block.named_buffers()]
    block.linear = None
    yield repr(block)
    net.set_submodule("by_name.act", ns.nn.Tanh())
    yield repr(net.by_name), "blocks" in dir(net), "0" in dir(net.blocks)
    seq = ns.nn.Sequential(ns.nn.ReLU(), ns.nn.Tanh(), ns.nn.Linear(2, 2))
    yield repr(seq[1:]), repr(seq[-1]), len(seq), repr(seq + seq[:1]), repr(seq[:2] * 2)
    seq.insert(1, ns.nn.Sigmoid())
    seq.append(ns.nn.ELU()).extend([ns.nn.GELU()])
    yield repr(seq)
    del seq[1]
    yield repr(seq.pop(0)), repr(seq)
    seq[0] = ns.nn.Identity()
    seq += ns.nn.Sequential(ns.nn.Flatten())
    seq *= 2
    yield repr(seq)
    layers = ns.nn.ModuleList([ns.nn.Linear(2, 2), ns.nn.Linear(2, 2), ns.nn.ReLU()])
    layers.insert(0, ns.nn.ReLU())
    yield repr(layers), repr(layers[1:3]), repr(layers.pop(-1)), repr(layers + [ns.nn.Tanh()])
    params = ns.nn.ParameterList([ns.ones(2, 3), ns.nn.Parameter(ns.ones(1)), 3])
    yield [n for n, _ in params.named_parameters()], len(params), params[2]
    params = ns.nn.ParameterDict({"b": ns.ones(2), "a": ns.ones(1)})
    yield list(params), [n for n, _ in params.named_parameters()], "a" in params
    names = ns.nn.ModuleDict([("x", ns.nn.ReLU())])
    names.update({"y": ns.nn.Tanh()})
    yield list(names), repr(names.pop("x")), len(names)


def test_walk():
    for ours, theirs in zip(walk(tt), walk(torch), strict=True):
        assert ours == theirs


def hooks(ns):
    """A log of everything that hooks are called with."""
    log = []

    def shapes(x):
        if isinstance(x, ns.Tensor):
            return tuple(x.shape)
        return tuple(shapes(v) for v in x) if isinstance(x, (tuple, list)) else x

    net = model(ns)
    block = net.blocks[0]
    handles = [
        block.register_forward_pre_hook(lambda m, a: log.append(("pre", shapes(a)))),
        block.register_forward_pre_hook(
            lambda m, a, k: (log.append(("pre kwargs", shapes(a), k)), (a, {"gain": 2.0}))[1], with_kwargs=True
        ),
        block.register_forward_hook(lambda m, a, o: log.append(("post", shapes(a), shapes(o)))),
        block.register_forward_hook(lambda m, a, k, o: (log.append(("post kwargs", k)), o * 2)[1], with_kwargs=True),
        block.register_forward_hook(lambda m, a, o: log.append("first"), prepend=True),
        block.register_full_backward_hook(lambda m, i, o: log.append(("back", shapes(i), shapes(o)))),
        block.register_full_backward_pre_hook(lambda m, o: (o[0] * 3,)),
        net.blocks[1].register_full_backward_hook(lambda m, i, o: (i[0] * 10,)),
        ns.nn.modules.module.register_module_forward_hook(lambda m, a, o: log.append(type(m).__name__)),
    ]
    x = ns.ones(2, 2, requires_grad=True)
    out = net(x)
    out.sum().backward()
    log.append([round(v, 4) for v in x.grad.reshape(-1).tolist()])
    log.append([round(v, 4) for p in net.parameters() for v in p.grad.reshape(-1).tolist()])
    for handle in handles:
        handle.remove()
    log.append(len(block._forward_hooks) + len(block._forward_hooks_with_kwargs) + len(block._backward_hooks))
    n = len(log)
    net(x)
    assert len(log) == n

    # An input that needs no gradient; a hook that must run though forward raises.
    with block.register_full_backward_hook(lambda m, i, o: log.append(("no input", shapes(i), shapes(o)))):
        block(ns.ones(2)).sum().backward()
    block.register_forward_hook(lambda m, a, o: log.append(("always", o)), always_call=True)
    try:
        block(ns.ones(5))
    except RuntimeError as error:
        log.append(str(error)[:40])
    try:
        block.register_backward_hook(print)
    except RuntimeError as error:
        log.append(str(error))

    # State hooks.
    layer = ns.nn.Linear(1, 1)
    layer.register_state_dict_pre_hook(lambda m, p, k: log.append(("state pre", p, k)))
    layer.register_state_dict_post_hook(lambda m, s, p, meta: log.append(("state post", list(s), p)))
    layer.register_load_state_dict_pre_hook(lambda m, s, *rest: log.append(("load pre", list(s), rest[0])))
    layer.register_load_state_dict_post_hook(lambda m, keys: keys.missing_keys.clear())
    state = ns.nn.Sequential(layer).state_dict()
    del state["0.bias"]
    log.append(repr(ns.nn.Sequential(layer).load_state_dict(state)))
    log.append(repr(ns.nn.Linear(1, 1).load_state_dict({"weight": ns.ones(1, 1)}, strict=False)))
    return log


@pytest.mark.filterwarnings("ignore:Full backward hook is firing")
def test_hooks():
    assert hooks(tt) == hooks(torch)


def test_registration_hooks():
    def run(ns):
        log = []
        module = ns.nn.modules.module
        handles = [
            module.register_module_parameter_registration_hook(lambda m, n, p: log.append(("param", n))),
            module.register_module_buffer_registration_hook(lambda m, n, p: log.append(("buffer", n))),
            module.register_module_module_registration_hook(lambda m, n, p: log.append(("module", n))),
        ]
        model(ns)
        for handle in handles:
            handle.remove()
        return log

    assert run(tt) == run(torch)


def test_extra_state():
    def run(ns):
        class Counter(ns.nn.Module):
            n = 1

            def get_extra_state(self):
                return {"n": self.n}

            def set_extra_state(self, state):
                self.n = state["n"]

        counter = Counter()
        counter.n = 7
        state = ns.nn.Sequential(counter).state_dict()
        fresh = ns.nn.Sequential(Counter())
        fresh.load_state_dict(state)
        return list(state), fresh[0].n

    assert run(tt) == run(torch)


def test_state_dict_exchange():
    """A state_dict of one loads into the other, and the models agree."""
    ours, theirs = model(tt), model(torch)
    theirs.blocks[0].linear.weight.data.fill_(0.25)
    ours.load_state_dict({k: mine(v) for k, v in theirs.state_dict().items()})
    x = rand(3, 2)
    close(ours(mine(x)), theirs(x))
    taken = tt.nn.Linear(2, 2)
    weight = tt.ones(2, 2)
    taken.load_state_dict({"weight": weight, "bias": tt.ones(2)}, assign=True)
    assert isinstance(taken.weight, tt.nn.Parameter) and taken.weight.requires_grad
    weight.fill_(3.0)
    close(taken.weight, torch.full((2, 2), 3.0))


def test_parameter():
    p = tt.nn.Parameter(tt.ones(2))
    assert isinstance(p, tt.nn.Parameter) and isinstance(p, tt.Tensor) and p.requires_grad and p.is_leaf
    assert not isinstance(tt.ones(2), tt.nn.Parameter)
    assert type(p + 1) is tt.Tensor
    assert repr(p).startswith("Parameter containing:\n")
    with tt.no_grad():
        assert tt.nn.Parameter(tt.ones(2)).requires_grad
    data = tt.zeros(2)
    shared = tt.nn.Parameter(data, requires_grad=False)
    data.fill_(5.0)
    close(shared, torch.full((2,), 5.0))
    again = copy.deepcopy(p)
    assert isinstance(again, tt.nn.Parameter) and again is not p
    assert tuple(tt.nn.Parameter().shape) == (0,)


def test_copies():
    net = tt.nn.Sequential(tt.nn.Linear(2, 3), tt.nn.BatchNorm1d(3), tt.nn.Linear(3, 3))
    net[2].weight = net[0].bias  # shared, of whatever shape
    for twin in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        assert twin[2].weight is twin[0].bias and twin[0].bias is not net[0].bias
        close(list(twin.state_dict().values()), list(net.state_dict().values()), 0)
        assert repr(twin) == repr(net)


def test_to(device):
    net = tt.nn.Sequential(tt.nn.Linear(2, 2), tt.nn.BatchNorm1d(2))
    weight = net[0].weight
    net(tt.ones(3, 2)).sum().backward()
    assert net.half() is net and net[0].weight is weight
    assert weight.dtype == weight.grad.dtype == net[1].running_mean.dtype == tt.float16
    assert net[1].num_batches_tracked.dtype == tt.int64
    assert net.to(tt.float32)[0].bias.dtype == tt.float32
    assert net.to(device, tt.float16)[0].bias.dtype == tt.float16
    assert net.to(tt.ones(1))[0].bias.dtype == tt.float32
    assert net.to("cpu")[0].weight.device.type == "cpu" and net[0].weight is weight
    assert net.cpu().double()[0].weight.dtype == tt.float64
    net.zero_grad()
    assert weight.grad is None
    with pytest.raises(TypeError, match="invalid combination of arguments"):
        net.to(1.5)


def test_zero_grad_to_zero():
    layer = tt.nn.Linear(2, 2)
    layer(tt.ones(2)).sum().backward()
    layer.zero_grad(set_to_none=False)
    close(layer.weight.grad, torch.zeros(2, 2))


# -- nn.utils


def test_clip_grad():
    for norm_type in (2.0, 1.0, float("inf")):
        out = []
        for ns in (tt, torch):
            params = [ns.ones(3, requires_grad=True), ns.ones(2, requires_grad=True), ns.ones(1)]
            (params[0] * ns.tensor([1.0, 2.0, 3.0])).sum().backward()
            (params[1] * 4).sum().backward()
            total = ns.nn.utils.clip_grad_norm_(params, 1.5, norm_type)
            out.append([total, params[0].grad, params[1].grad])
            ns.nn.utils.clip_grad_value_(params, 0.3)
            out[-1].append(params[1].grad)
        close(*out)
    close(tt.nn.utils.clip_grad_norm_([tt.ones(1)], 1.0), torch.tensor(0.0))


def test_parameters_to_vector():
    layer = tt.nn.Linear(3, 2)
    vector = tt.nn.utils.parameters_to_vector(layer.parameters())
    assert tuple(vector.shape) == (8,)
    tt.nn.utils.vector_to_parameters(tt.arange(8.0), layer.parameters())
    close(layer.weight, torch.arange(6.0).reshape(2, 3))
    close(layer.bias, torch.tensor([6.0, 7.0]))


def test_pad_sequence():
    rows = [rand(n, 2, seed=n) for n in (3, 1, 2)]
    for arguments in ({}, {"batch_first": True, "padding_value": 1.5, "padding_side": "left"}):
        close(tt.nn.utils.rnn.pad_sequence(mine(rows), **arguments), torch.nn.utils.rnn.pad_sequence(rows, **arguments))
