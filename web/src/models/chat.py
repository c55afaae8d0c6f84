"""What the chat's page runs in its worker. All that it says is lines of JSON, which chat.ts reads."""

import json
import time

import tabtorch
from tabtorch import gguf

LENGTH = 4096  # tokens of a talk, at most: keys and values have room for so many
MOST = 1024  # of an answer

llm = None


def say(**what):
    print(json.dumps(what), flush=True)


on_gpu = tabtorch.accelerator.is_available()


def memory():
    """Bytes of the GPU's that are in use."""
    return tabtorch.accelerator.memory_allocated() if on_gpu else None


def open_model(address, length=LENGTH):
    """A file by its address, in place of the one that was there."""
    global llm
    llm = None
    said = 0.0

    def progress(done, total):
        nonlocal said
        now = time.perf_counter()
        if now - said > 0.1 or done == total:
            said = now
            say(done=done, total=total, memory=memory())

    try:
        file = gguf.load(address, "cuda" if on_gpu else "cpu", progress=progress)
        context = file.metadata.get(f"{file.metadata.get('general.architecture')}.context_length")
        fits = min(length, context) if isinstance(context, int) and context > 0 else length
        made = gguf.model(file, length=fits)
        tokens = len(made.tokenizer)
    except (tabtorch.OutOfMemoryError, MemoryError) as error:
        say(problem=f"It is too large for the memory that is here: {error}")
        return
    except (ValueError, OSError, RuntimeError) as error:  # NotImplementedError is one
        say(problem=f"{type(error).__name__}: {error}")
        return
    llm = made
    facts = file.metadata
    parameters = sum(each.numel() for each in file.tensors.values())
    say(
        facts={
            "Name": str(facts.get("general.name") or "not said"),
            "Architecture": str(facts.get("general.architecture")),
            "Parameters": f"{parameters:,}",
            "Layers": f"{len(made.blocks)}",
            "Vocabulary": f"{tokens:,} tokens",
            "Context": f"{made.length:,} tokens",
            "Chat template": "the file's own" if made.tokenizer.template else "none in the file: ChatML",
        },
        memory=memory(),
    )


def ask(messages, temperature):
    """An answer, a piece at a time; a KeyboardInterrupt ends it."""
    began, count = time.perf_counter(), 0
    try:
        for piece in llm.generate(messages, MOST, temperature=temperature, top_p=0.95 if temperature else 1.0):
            if not count:
                began = time.perf_counter()
            count += 1
            say(piece=piece, count=count, seconds=time.perf_counter() - began, memory=memory())
    except KeyboardInterrupt:
        pass
    except (ValueError, RuntimeError, MemoryError) as error:
        say(problem=f"{type(error).__name__}: {error}")
    say(over=True)
