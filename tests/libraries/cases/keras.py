"""keras with KERAS_BACKEND=torch: fit, functional models, layers, loops of one's own, saving."""

from __future__ import annotations

import tempfile

import keras
import numpy as np
import torch
from keras import layers


def _known(model):
    """The model with weights that NumPy draws: a GPU's generator has other numbers than the CPU's, in PyTorch too."""
    r = np.random.RandomState(0)
    model.set_weights([(r.randn(*w.shape) * 0.3).astype(w.dtype) if w.ndim > 1 else w for w in model.get_weights()])
    return model


def _rows():
    x = np.random.RandomState(0).randn(32, 6).astype("float32")
    return x, x[:, :3].argmax(-1)


def fitting(device):
    keras.utils.set_random_seed(0)
    x, y = _rows()
    model = keras.Sequential(
        [layers.Input((6,)), layers.Dense(8, activation="relu"), layers.Dense(3, activation="softmax")]
    )
    _known(model)
    model.compile(optimizer=keras.optimizers.Adam(0.01), loss="sparse_categorical_crossentropy", metrics=["accuracy"])
    history = model.fit(x, y, epochs=3, batch_size=8, validation_split=0.25, verbose=0, shuffle=False)
    return {**history.history, "p": model.predict(x[:4], verbose=0), "said": model.evaluate(x, y, verbose=0)}


def functional_models(device):
    keras.utils.set_random_seed(0)
    image, number = keras.Input((8, 8, 1)), keras.Input((2,))
    h = layers.Conv2D(4, 3, padding="same", activation="relu")(image)
    h = layers.MaxPooling2D()(layers.BatchNormalization()(h))
    h = layers.Concatenate()([layers.GlobalAveragePooling2D()(h), layers.Dense(3)(number)])
    model = keras.Model([image, number], [layers.Dense(1, name="a")(h), layers.Dense(2, name="b")(h)])
    _known(model)
    model.compile("sgd", loss={"a": "mse", "b": "mae"})
    r = np.random.RandomState(0)
    inputs = [r.rand(8, 8, 8, 1).astype("float32"), r.rand(8, 2).astype("float32")]
    history = model.fit(inputs, [r.rand(8, 1), r.rand(8, 2)], epochs=2, batch_size=4, shuffle=False, verbose=0)
    return {**history.history, "a": model.predict(inputs, verbose=0)[0], "n": model.count_params()}


def sequences(device):
    keras.utils.set_random_seed(0)
    model = keras.Sequential(
        [
            layers.Input((5,), dtype="int32"),
            layers.Embedding(12, 6),
            layers.Bidirectional(layers.LSTM(4, return_sequences=True)),
            layers.GRU(4),
            layers.Dense(1),
        ]
    )
    _known(model)
    model.compile("rmsprop", loss="mse")
    x = np.random.RandomState(0).randint(12, size=(8, 5))
    history = model.fit(x, x.mean(-1, keepdims=True), epochs=2, batch_size=4, shuffle=False, verbose=0)
    return {**history.history, "y": model.predict(x, verbose=0)}


def attention(device):
    keras.utils.set_random_seed(0)
    x = keras.Input((4, 8))
    h = layers.LayerNormalization()(x + layers.MultiHeadAttention(2, 4)(x, x))
    model = keras.Model(x, layers.Dense(2)(layers.Flatten()(h)))
    _known(model)
    model.compile(keras.optimizers.AdamW(0.01), loss="huber")
    r = np.random.RandomState(0)
    data, target = r.randn(8, 4, 8).astype("float32"), r.randn(8, 2).astype("float32")
    history = model.fit(data, target, epochs=2, batch_size=4, shuffle=False, verbose=0)
    return {**history.history, "y": model.predict(data, verbose=0)}


def loop_in_pytorch(device):
    keras.utils.set_random_seed(0)
    model = keras.Sequential([layers.Input((6,)), layers.Dense(8, activation="gelu"), layers.Dense(3)])
    _known(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    x, y = _rows()
    losses = []
    for i in range(0, 32, 8):
        given = keras.ops.convert_to_tensor(x[i : i + 8])
        logits = model(given)
        loss = torch.nn.functional.cross_entropy(logits, keras.ops.convert_to_tensor(y[i : i + 8], dtype="int64"))
        model.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return {"losses": losses, "weight": model.layers[0].kernel.value}


def operations(device):
    x = keras.ops.convert_to_tensor(np.random.RandomState(0).randn(3, 4).astype("float32"))
    return {
        "softmax": keras.ops.softmax(x, axis=0),
        "einsum": keras.ops.einsum("ij,kj->ik", x, x),
        "top": keras.ops.top_k(x, 2)[1],
        "segment": keras.ops.segment_sum(x, keras.ops.convert_to_tensor([0, 0, 1]), 2),
        "where": keras.ops.where(x > 0, x, keras.ops.zeros_like(x)),
        "norm": keras.ops.norm(x, axis=1),
        "image": keras.ops.image.resize(keras.ops.reshape(x, (1, 3, 4, 1)), (6, 8)),
        "scan": keras.ops.scan(lambda c, v: (c + v, c * 2), keras.ops.zeros(4), x)[1],
    }


def saved_and_loaded(device):
    keras.utils.set_random_seed(0)
    model = keras.Sequential(
        [layers.Input((6,)), layers.Dense(8, activation="relu"), layers.Dropout(0.5), layers.Dense(3)]
    )
    _known(model)
    x, _ = _rows()
    with tempfile.TemporaryDirectory() as folder:
        model.save(f"{folder}/model.keras")
        again = keras.saving.load_model(f"{folder}/model.keras")
        model.save_weights(f"{folder}/model.weights.h5")
        again.load_weights(f"{folder}/model.weights.h5")
    return {
        "y": again.predict(x[:4], verbose=0),
        "same": bool((again.predict(x, verbose=0) == model.predict(x, verbose=0)).all()),
    }
