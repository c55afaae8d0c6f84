"""Which files of the suite run in Pyodide, on which devices, and what of them cannot."""

from __future__ import annotations

#: a process each: the devices, and its files with how many tests of each have to pass at least. What is on the GPU is the
#: same bytes as from CPython, so webgpu is for what depends on when things are sent and let go, and for the random programs
GROUPS: tuple[tuple[str, dict[str, int]], ...] = (
    (
        "cpu",
        {
            "tests/test_autograd.py": 55,
            "tests/test_compile.py": 30,
            "tests/test_compile_programs.py": 18,
            "tests/test_view_rules.py": 40,
            "tests/test_aliasing.py": 3,
            "tests/test_dispatch.py": 230,
            "tests/test_serialization.py": 95,
            "tests/test_tensorboard.py": 40,
            "tests/test_sparse.py": 100,
            "tests/test_vision_operators.py": 15,
            "tests/test_audio_operators.py": 9,
        },
    ),
    (
        "cpu webgpu",
        {
            "tests/test_tiny.py": 1,
            "tests/test_counts.py": 25,
            "tests/test_non_blocking.py": 58,
            "tests/wasm/test_tasks.py": 4,
            "tests/wasm/test_recorded.py": 2,
            "tests/wasm/test_fuzz.py": 2,
        },
    ),
)

_STAND_IN = "the stand-in for PyTorch cannot carry it: "
#: tests that do not run there, and why. One that is not there any more is an error.
LEFT_OUT = {
    "tests/test_autograd.py::test_scenario[modes-cpu]": _STAND_IN + "a generator decorated by PyTorch",
    "tests/test_autograd.py::test_scenario[gradients_that_are_not_laid_out_in_a_function-cpu]": _STAND_IN
    + "a function here, decorated by PyTorch",
    "tests/test_autograd.py::test_scenario[function_once-cpu]": _STAND_IN + "once_differentiable of a function here",
    "tests/test_dispatch.py::test_expression[np.float32(2) / x-cpu]": _STAND_IN + "NumPy's operators on tensors",
    "tests/test_dispatch.py::test_expression[x + np.ones(3)-cpu]": _STAND_IN + "NumPy's operators on tensors",
    "tests/test_serialization.py::test_numpy_in_checkpoints[cpu]": _STAND_IN + "pickled NumPy objects",
    "tests/test_serialization.py::test_safe_globals": _STAND_IN + "classes made here, in a pickle made there",
    "tests/test_sparse.py::test_expressions[line1-cpu]": _STAND_IN + "sizes come as tuples",
    "tests/test_sparse.py::test_dense_operations_refuse": _STAND_IN + "it goes through all functions of PyTorch",
    "tests/test_serialization.py::test_many_tensors_are_read_with_few_waits[cpu]": "counts messages to a child process",
}
