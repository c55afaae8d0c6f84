"""Completion at the prompt, from the running interpreter: attributes, arguments, keys, modules, names.

Where the line is: what stands before the cursor is looked up, never run. Names, attributes and constant subscripts of
built-in containers and of torch's own objects are followed; a property or a `__getattr__` that anybody else wrote is
not asked, and nothing is called. Of a call only the class of its result is known: the class that is called, or the
one that the function's annotation names. So `torch.randn(3).` lists a tensor's attributes and draws no numbers, and
`model(x).` does too: a module gives what its `forward` is annotated with, or a tensor.
"""

import ast
import builtins
import inspect
import keyword
import pkgutil
import re
import sys
import types
import typing
import warnings

from tabtorch.cli import magics

MOST = 100
_UNKNOWN = object()
# functions of torch whose result is no tensor, or several
_GIVES_OTHERS = re.compile(
    r"(is|get|set|use|has|are)_\w+|\w*(seed|state|backward|hook|broadcast_shapes|type|ptr|storage|stride|numel|dtype)|item|tolist|numpy"
    r"|size|dim|n?dimension|nelement|element_size|save|load|compile|synchronize|device|split|chunk|unbind|\w+_split|equal"
    r"|allclose|sort|topk|max|min|aminmax|median|mode|kthvalue|cummax|cummin|unique\w*|meshgrid|broadcast_tensors|nonzero"
    r"|svd|qr|eigh?|slogdet|lu\w*|lstsq|frexp|var_mean|std_mean|histogram\w*|atleast_\w+|children|modules|\w*parameters"
    r"|named_\w+|buffers|apply|train|eval|__\w+__"
)
_GIVE_TUPLES = ("RNNBase", "RNN", "LSTM", "GRU", "LSTMCell", "MultiheadAttention", "AdaptiveLogSoftmaxWithLoss")
_CONTAINERS = (dict, list, tuple, str, range)


class _Found:
    """What an expression is: a value, or only the class of one."""

    def __init__(self, value=_UNKNOWN, cls=None):
        self.value = value
        self.cls = type(value) if cls is None else cls

    @property
    def known(self):
        return self.value is not _UNKNOWN


def _attach_methods():
    """torch.Tensor gets a method when it is first asked for; here all are wanted, and again after a clean start."""
    from tabtorch.core.tensor import Tensor
    from tabtorch.ops.machinery import registry

    for name in registry.all_methods():
        getattr(Tensor, name)


def complete(text, namespace):
    """Names that can stand at the end of `text`: (length of what they replace, names, [signature, summary] of each)."""
    _attach_methods()
    masked, quote = _mask(text)
    with warnings.catch_warnings(action="ignore"):  # of attributes that are deprecated
        for way in (_keys, _magic_names, _imports, _attributes, _names):
            found = way(text, masked, quote, namespace)
            if found is not None:
                replace, names, describe = found
                names = names[:MOST]
                return replace, names, [describe(name) for name in names]
    return 0, [], []


def about(text, namespace):
    """Of the name at the end of `text`: [what it is, the first paragraph about it]; nothing if that is not known."""
    _attach_methods()
    masked, quote = _mask(text)
    name = _word(masked)
    dot = len(text) - len(name) - 1
    with warnings.catch_warnings(action="ignore"):
        found = _look_up(_primary(text, masked, len(text)), namespace) if quote is None and name else None
        if found is None:
            return []
        parent = _look_up(_primary(text, masked, dot), namespace) if dot > 0 and masked[dot] == "." else None
        is_bound = parent is not None and not isinstance(parent.value, (type, types.ModuleType))
        return [_heading(found, name, is_bound), _paragraph(found, name)]


def _heading(found, name, is_bound):
    """What a name is, in one line. Nobody's code is run for it: of an object that is not torch's only its type is told."""
    value, kind = found.value, found.cls.__name__
    if not found.known:
        return f"{name}: {kind}"
    if isinstance(value, type) or inspect.isroutine(value):
        signature, _ = _describe(value, name, is_bound)
        return f"{'class ' if isinstance(value, type) else ''}{name}{signature}"
    if isinstance(value, types.ModuleType):
        return f"module {value.__name__}"
    if _is_torchs(found.cls) and hasattr(value, "shape") and hasattr(value, "dtype"):
        return f"{name}: {kind} {list(value.shape)} {value.dtype} on {value.device}"
    if type(value) in (*_CONTAINERS, set) and type(value) not in (str, range):
        return f"{name}: {kind} of {len(value)}"
    if value is None or type(value) in (bool, int, float, complex, str, range):
        return f"{name}: {kind} = {_shortened(value)}"
    return f"{name}: {kind}"


def _shortened(value):
    if isinstance(value, int) and value.bit_length() > 300:
        return "..."  # a long one takes long to be written
    text = repr(value[:80] if isinstance(value, str) else value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _paragraph(found, name):
    """What its documentation begins with, after a line that only repeats the signature."""
    documented = found.known and (isinstance(found.value, (type, types.ModuleType)) or inspect.isroutine(found.value))
    if not documented and (found.cls.__module__ == "builtins" or found.cls.__name__ == "Tensor"):
        return ""
    lines = (inspect.getdoc(found.value if documented else found.cls) or "").splitlines()
    while lines and (not lines[0].strip() or lines[0].startswith(f"{name}(")):
        lines.pop(0)
    end = lines.index("") if "" in lines else len(lines)
    return "\n".join(lines[:end])


def _mask(text):
    """`text` with strings and comments blanked, so that brackets can be counted; and where an open string begins."""
    masked = list(text)
    token = re.compile(r"(?P<comment>#[^\n]*)|(?P<quote>'''|\"\"\"|'|\")")
    at = 0
    while found := token.search(text, at):
        start, at = found.span()
        if found["quote"]:
            end = re.compile(rf"(?:\\.|(?!{found['quote']}).)*", re.S).match(text, at).end()
            if end == len(text):
                return "".join(masked), start
            at = end + len(found["quote"])
        masked[start:at] = "_" * (at - start)
    return "".join(masked), None


def _nothing(_):
    return ["", ""]


def _chosen(names, word):
    """Those that begin with `word`; if none does, whatever its case."""
    exact = [name for name in names if name.startswith(word)]
    return exact or [name for name in names if name.lower().startswith(word.lower())]


def _word(text):
    return re.search(r"\w*$", text).group()


def _primary(text, masked, end):
    """The expression that ends at `end`: names, dots, calls and subscripts."""
    at = end
    while at:
        char = masked[at - 1]
        if char in ")]}":
            depth = 1
            while depth and at > 1:
                at -= 1
                depth += (masked[at - 1] in ")]}") - (masked[at - 1] in "([{")
            if depth:
                return None
            at -= 1
        elif char == "." or char == "_" or char.isalnum() or (text[at - 1] in "'\"" and masked[at - 1] == "_"):
            at -= 1
        else:
            break
    return text[at:end]


def _look_up(source, namespace):
    """What an expression is, or None."""
    try:
        return _follow(ast.parse((source or "").strip(), mode="eval").body, namespace)
    except Exception:
        return None  # no expression, or one of torch's own objects that does not answer


def _follow(node, namespace):
    match node:
        case ast.Constant(value=value):
            return _Found(value)
        case ast.Name(id=name):
            value = namespace.get(name, getattr(builtins, name, _UNKNOWN))
            return None if value is _UNKNOWN else _Found(value)
        case ast.Attribute(value=of, attr=name):
            found = _follow(of, namespace)
            return found and _attribute(found, name)
        case ast.Subscript(value=of, slice=key):
            found = _follow(of, namespace)
            return found and _item(found, key)
        case ast.Call(func=function):
            found = _follow(function, namespace)
            return found and _result(found)
        case ast.BinOp(left=left, right=right):
            sides = [_follow(left, namespace), _follow(right, namespace)]
            return next((_Found(cls=side.cls) for side in sides if side and _is_torchs(side.cls)), None)
        case ast.List() | ast.Dict() | ast.Tuple() | ast.Set():
            return _Found(cls={"List": list, "Dict": dict, "Tuple": tuple, "Set": set}[type(node).__name__])
    return None


def _is_torchs(cls):
    """Whether a class is torch's own: then its properties may be read."""
    return _is_torchs_name(cls.__module__)


def _is_torchs_name(module):
    return module.partition(".")[0] in ("torch", "tabtorch")


def _attribute(found, name):
    member = inspect.getattr_static(found.value if found.known else found.cls, name, _UNKNOWN)
    if isinstance(member, property) and (told := _annotated(member.fget)) is not None:
        return told
    if not found.known:
        return None if member is _UNKNOWN else _Found(getattr(found.cls, name))
    value = (_of_module if isinstance(found.value, types.ModuleType) else _static)(found.value, name)
    return None if value is _UNKNOWN else _Found(value)


def _of_module(module, name):
    """What is in a module. torch's own make some of it when it is asked for."""
    return getattr(module, name, _UNKNOWN) if _is_torchs_name(module.__name__) else vars(module).get(name, _UNKNOWN)


def _static(value, name):
    """An attribute that can be read with no code of the user's: it is stored, or it is a method, or torch's."""
    member = inspect.getattr_static(value, name, _UNKNOWN)
    if member is _UNKNOWN:
        return (_parts(value) or {}).get(name, _UNKNOWN)
    if not hasattr(type(member), "__get__"):
        return member
    owner = next((cls for cls in type(value).__mro__ if name in vars(cls)), object)
    runs_code = inspect.isdatadescriptor(member) and not isinstance(member, types.MemberDescriptorType)
    if runs_code and not _is_torchs(owner) and owner.__module__ != "builtins":
        return _UNKNOWN
    return getattr(value, name)


def _parts(value):
    """Parameters, buffers and modules of a torch module, which lie in dicts of their own."""
    own = vars(value) if hasattr(value, "__dict__") else {}
    if "_modules" not in own:
        return None
    return {**own["_parameters"], **own["_buffers"], **own["_modules"]}


def _item(found, key):
    if not found.known:
        return _Found(cls=found.cls) if _is_torchs(found.cls) else None
    try:
        constant = ast.literal_eval(key)
    except ValueError:
        constant = _UNKNOWN
    if type(found.value) in _CONTAINERS and constant is not _UNKNOWN:
        return _Found(found.value[constant])
    modules = _parts(found.value)
    if modules is not None and isinstance(constant, (int, str)):
        keys = list(found.value._modules)
        return _Found(found.value._modules[constant if isinstance(constant, str) else keys[constant]])
    return _Found(cls=found.cls) if found.cls.__name__ in ("Tensor", "Parameter") and _is_torchs(found.cls) else None


def _result(found):
    """The class that a call gives."""
    if found.known and isinstance(found.value, type):
        return _Found(cls=found.value)
    if isinstance(found.value, types.FunctionType) or not _is_module(found.cls):
        return _annotated(found.value) if found.known else None
    return _given_by(found.cls)


def _is_module(cls):
    return any(base.__name__ == "Module" and _is_torchs(base) for base in cls.__mro__)


def _given_by(cls):
    """What a module gives when it is called: what its `forward` is annotated with, else, mostly, a tensor."""
    forward = inspect.getattr_static(cls, "forward", None)
    told = getattr(forward, "__annotations__", {}).get("return", _UNKNOWN)
    if told is not _UNKNOWN:
        return _annotated(forward)
    gives_tuple = any(_is_torchs(base) and base.__name__ in _GIVE_TUPLES for base in cls.__mro__)
    return _Found(cls=tuple if gives_tuple else sys.modules["torch"].Tensor)


def _annotated(function):
    """What its annotation says that it returns. torch's functions, which carry none in a wheel, mostly give tensors."""
    function = inspect.unwrap(getattr(function, "__func__", function))
    told = getattr(function, "__annotations__", {}).get("return", _UNKNOWN)
    if isinstance(told, str):
        told = getattr(function, "__globals__", {}).get(told, told)
    if isinstance(told, type) and told is not typing.Any:
        return _Found(cls=told)
    name, module = getattr(function, "__name__", ""), getattr(function, "__module__", None) or ""
    if told in (_UNKNOWN, typing.Any) and _is_torchs_name(module) and not _GIVES_OTHERS.fullmatch(name):
        return _Found(cls=sys.modules["torch"].Tensor) if inspect.isroutine(function) else None
    return None


# -- the ways, each of which knows or leaves it to the next


def _attributes(text, masked, quote, namespace):
    word = _word(masked)
    dot = len(text) - len(word) - 1
    if quote is not None or dot < 0 or masked[dot] != ".":
        return None
    found = _look_up(_primary(text, masked, dot), namespace)
    if found is None:
        return 0, [], _nothing
    members = _members(found)
    names = sorted(_chosen(members, word), key=lambda name: (_privacy(name), members[name], name.lower(), name))
    is_bound = not isinstance(found.value, (type, types.ModuleType))
    return len(word), names, lambda name: _describe(_member(found, name), name, is_bound)


def _privacy(name):
    """Public names come first, then those that work in place, then private ones, then those of the language."""
    return 3 if name.startswith("__") else 2 if name.startswith("_") else 1 if name.endswith("_") else 0


def _members(found):
    """Names of attributes, each with how far away it is defined: 0 for the value's own, 1 for its class's, and so on."""
    if found.known and isinstance(found.value, types.ModuleType):
        module = found.value
        if _is_torchs_name(module.__name__):
            return dict.fromkeys(dir(module), 0)
        public = vars(module).get("__all__", ())
        return {name: 0 if not public or name in public else 1 for name in vars(module)}
    classes = found.value.__mro__ if found.known and isinstance(found.value, type) else found.cls.__mro__
    members = {}
    for distance, cls in reversed(list(enumerate(classes, 1))):
        members.update(dict.fromkeys(vars(cls), distance - (cls.__name__ == "TensorBase")))  # half of torch.Tensor
    if found.known and not isinstance(found.value, type):
        members.update(dict.fromkeys(getattr(found.value, "__dict__", {}), 0))
        members.update(dict.fromkeys(_parts(found.value) or (), 0))
    return {name: distance for name, distance in members.items() if name.isidentifier()}


def _member(found, name):
    if found.known and isinstance(found.value, types.ModuleType):
        return _of_module(found.value, name)
    parts = (_parts(found.value) if found.known else None) or {}
    return parts[name] if name in parts else inspect.getattr_static(found.value if found.known else found.cls, name)


def _describe(value, name, is_bound=False):
    """Its signature, or its type; and the first line of its documentation."""
    value = value.__func__ if isinstance(value, (classmethod, staticmethod)) else value
    kind = (
        "" if value is _UNKNOWN or isinstance(value, (property, types.ModuleType, type(None))) else type(value).__name__
    )
    if not isinstance(value, type) and not inspect.isroutine(value):
        return [kind, magics.summary(value, name)]
    signature = magics.signature(value, name)
    if is_bound and not isinstance(value, type):
        signature = re.sub(r"^\((self|input|cls)(, |(?=\)))", "(", signature)
    return [signature, magics.summary(value, name)]


def _names(text, masked, quote, namespace):
    word = _word(masked)
    if quote is not None:
        return None
    arguments = _arguments(text, masked, namespace)
    if not word and not arguments:
        return None
    own = sorted(namespace, key=lambda name: (_privacy(name), name.lower()))
    rest = sorted({*dir(builtins), *keyword.kwlist} - {*own}, key=lambda name: (_privacy(name), name.lower()))
    names = [f"{name}=" for name in arguments if name.startswith(word)]
    names += _chosen([*own, *rest], word) if word else []

    def describe(name):
        if name.endswith("="):
            return [arguments[name[:-1]], ""]
        return _describe(namespace.get(name, getattr(builtins, name, None)), name)

    return len(word), names, describe


def _arguments(text, masked, namespace):
    """Parameters that the call around the cursor still takes by name, each with its default."""
    depth, at = 0, len(masked) - len(_word(masked))
    if masked[:at].rstrip()[-1:] not in ("(", ","):
        return {}
    inside = at
    while at and depth >= 0:
        at -= 1
        depth += (masked[at] in ")]}") - (masked[at] in "([{")
    if depth >= 0 or masked[at] != "(":
        return {}
    found = _look_up(_primary(text, masked, at), namespace)
    if found is None or not found.known:
        return {}
    given = set(re.findall(r"(\w+)\s*=(?!=)", masked[at + 1 : inside]))
    return {
        parameter.name: "" if parameter.default is parameter.empty else f"={parameter.default!r}"
        for parameter in _parameters(found.value)
        if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY) and parameter.name not in given
    }


def _parameters(function):
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return []


def _keys(text, masked, quote, namespace):
    """`d["`: the keys of a dict, or of a module's parts."""
    before = text[:quote] if quote is not None else text
    if not before.rstrip().endswith("["):
        return None
    bracket = before.rindex("[")
    found = _look_up(_primary(text, masked, bracket), namespace)
    if found is None or not found.known or not isinstance(found.value, dict):
        return None
    word = text[quote:] if quote is not None else ""
    keys = [key for key in dict.keys(found.value) if isinstance(key, (str, int))]
    shown = {_quoted(key, word[:1]): key for key in keys}
    names = [f"{name}]" for name in shown if name.startswith(word)]
    return len(word), names, lambda name: [type(dict.get(found.value, shown[name[:-1]])).__name__, ""]


def _quoted(key, quote):
    text = repr(key)
    return f"{quote}{text[1:-1]}{quote}" if quote == '"' and text[:1] == "'" and '"' not in text else text


def _magic_names(text, masked, quote, namespace):
    found = re.fullmatch(r"\s*%(\w*)", text)
    if found is None:
        return None
    return len(found[1]), _chosen(magics.NAMES, found[1]), _nothing


def _imports(text, masked, quote, namespace):
    """Names of modules after `import` and `from`, and what is in one; nothing is imported to know."""
    line = text.rpartition("\n")[2]
    if found := re.fullmatch(r"\s*from\s+([\w.]+)\s+import\s+\(?(?:.*,\s*)?(\w*)", line):
        module, word = sys.modules.get(found[1]), found[2]
        names = list(_members(_Found(module))) if module is not None else []
        ranked = sorted(set(names) | _submodules(found[1]), key=lambda name: (_privacy(name), name.lower()))
        return (
            len(word),
            _chosen(ranked, word),
            lambda name: _describe(vars(module).get(name), name) if module else ["", ""],
        )
    found = re.fullmatch(r"\s*(?:import\s+(?:.*,\s*)?|from\s+)((?:\w+\.)*)(\w*)", line)
    if found is None:
        return None
    inside, word = found[1].rstrip("."), found[2]
    ranked = sorted(_submodules(inside) if inside else _modules(), key=lambda name: (_privacy(name), name.lower()))
    return len(word), _chosen(ranked, word), _nothing


def _modules():
    loaded = {name for name in sys.modules if "." not in name}
    return loaded | set(sys.stdlib_module_names) | {module.name for module in pkgutil.iter_modules()}


def _submodules(package):
    """Of a package that is loaded, or in Python's library."""
    import tablibrary

    module = sys.modules.get(package)
    loaded = {name[len(package) + 1 :] for name in sys.modules if name.startswith(f"{package}.")}
    there = {found.name for found in pkgutil.iter_modules(getattr(module, "__path__", ()))}
    return {name for name in loaded if "." not in name} | there | tablibrary.below(package)
