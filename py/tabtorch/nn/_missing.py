"""Names that PyTorch has and tabtorch does not have yet: using one says so."""


def missing_function(module, names):
    """A module ``__getattr__``: a name of ``names`` gives a function that raises NotImplementedError."""
    known = frozenset(names.split())

    def __getattr__(name):
        if name not in known:
            raise AttributeError(f"module '{module}' has no attribute '{name}'")

        def missing(*args, **kwargs):
            raise NotImplementedError(f"{module}.{name} is not in tabtorch yet")

        missing.__name__ = missing.__qualname__ = name
        return missing

    return __getattr__


def missing_class(module, names, base=object):
    """A module ``__getattr__``: a name of ``names`` gives a class that raises NotImplementedError when it is made.

    A class, so that ``isinstance(layer, nn.EmbeddingBag)`` in a loop over layers still works.
    """
    known = frozenset(names.split())
    made: dict = {}

    def __getattr__(name):
        if name not in known:
            raise AttributeError(f"module '{module}' has no attribute '{name}'")

        def __init__(self, *args, **kwargs):
            raise NotImplementedError(f"{module}.{name} is not in tabtorch yet")

        if name not in made:
            made[name] = type(name, (base,), {"__init__": __init__, "__module__": module})
        return made[name]

    return __getattr__
