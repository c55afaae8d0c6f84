"""The sets as `torch.utils.data.Dataset`s: all images in one uint8 tensor on the device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tabtorch as torch
from tabtorch.core.tensor import Tensor
from tabtorch.data import formats
from tabtorch.data.sources import Files
from tabtorch.utils.data import Dataset

Transform = Callable[[Any], Any] | None


class ImageSet(Dataset):
    """`images` (N, …) uint8 and `labels` (N,) uint8. Sample i is (transform(images[i]), target_transform(label as an int)).

    source: a folder's path or URL, a tar archive (path, URL, bytes, file), or the files themselves, as a mapping of their
    names or a list. progress: as for `tabtorch.utils.fetch.read_bytes`. device: where the images lie.
    FileNotFoundError for what is not there, ValueError for files that are damaged or something else.
    """

    classes: Sequence[str] = ()

    def __init__(
        self,
        source: Any,
        train: bool = True,
        transform: Transform = None,
        target_transform: Transform = None,
        *,
        progress: Any = None,
        device: Any = None,
    ) -> None:
        self.train = train
        self.transform = transform
        self.target_transform = target_transform
        self.images, self.labels = self._read(Files(source, progress), device)
        if self.labels.shape != self.images.shape[:1]:
            raise ValueError(
                f"there are {self.images.shape[0]} images and {list(self.labels.shape)} labels: the files do not belong together"
            )
        self._labels: list[int] = self.labels.tolist()

    def _read(self, files: Files, device: Any) -> tuple[Tensor, Tensor]:
        raise NotImplementedError

    @property
    def data(self) -> Tensor:
        """`images`."""
        return self.images

    @property
    def targets(self) -> Tensor:
        """The labels as int64, as losses take them."""
        return self.labels.long()

    def __len__(self) -> int:
        return len(self._labels)

    def __getitem__(self, index: Any) -> tuple[Any, Any]:
        image: Any = self.images[index]
        label: Any = self._labels[index]
        if self.transform is not None:
            image = self.transform(image)
        return image, label if self.target_transform is None else self.target_transform(label)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self)} images of {list(self.images.shape[1:])}, train={self.train})"


class MNIST(ImageSet):
    """Handwritten digits: images (N, 28, 28). Files `train-images-idx3-ubyte`, …, with or without `.gz`."""

    classes: Sequence[str] = tuple(
        "0 - zero,1 - one,2 - two,3 - three,4 - four,5 - five,6 - six,7 - seven,8 - eight,9 - nine".split(",")
    )

    def _read(self, files: Files, device: Any) -> tuple[Tensor, Tensor]:
        out = []
        for what, ndim in (("images", 3), ("labels", 1)):
            stem = f"{'train' if self.train else 't10k'}-{what}"
            names = [f"{stem}{sep}idx{ndim}-ubyte{end}" for sep in "-." for end in (".gz", "")]
            name, data = files.need(*names)
            t = formats.idx(data, name, device)
            if t.ndim != ndim or t.dtype is not torch.uint8:
                raise ValueError(f"{name} holds {list(t.shape)} of {t.dtype}, not {what}")
            out.append(t)
        return out[0], out[1]


class FashionMNIST(MNIST):
    """Clothes, in MNIST's format and file names."""

    classes = ("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot")


class CIFAR10(ImageSet):
    """Photographs of ten kinds of things: images (N, 3, 32, 32). The binary or the Python version, packed or unpacked."""

    classes: Sequence[str] = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
    _labels_before = 1
    _column = 0
    _key = "labels"
    _archives = ("cifar-10-binary.tar.gz", "cifar-10-python.tar.gz")

    def _stems(self) -> list[str]:
        return [f"data_batch_{k}" for k in range(1, 6)] if self.train else ["test_batch"]

    def _read(self, files: Files, device: Any) -> tuple[Tensor, Tensor]:
        stems = self._stems()
        if files.place is not None and files.find([stems[0] + ".bin", stems[0]]) is None:
            packed = files.find(self._archives)
            if packed is not None:
                files = Files(packed[1], files.progress)
        images, labels = [], []
        for stem in stems:
            name, data = files.need(stem + ".bin", stem)
            if name.endswith(".bin"):
                x, y = formats.cifar_binary(data, self._labels_before, name, device)
                labels.append(y[:, self._column])
            else:
                x, lists = formats.cifar_python(data, name, device)
                if self._key not in lists:
                    raise ValueError(f"{name} has no {self._key}: it belongs to another set")
                labels.append(torch.tensor(lists[self._key], dtype=torch.uint8, device=x.device))
            images.append(x)
        return torch.cat(images), torch.cat(labels)


class CIFAR100(CIFAR10):
    """The same of a hundred kinds, in twenty groups: `coarse=True` gives the groups as labels."""

    classes = ()
    _labels_before = 2
    _archives = ("cifar-100-binary.tar.gz", "cifar-100-python.tar.gz")

    def __init__(self, source: Any, train: bool = True, *args: Any, coarse: bool = False, **kwargs: Any) -> None:
        self._column = 0 if coarse else 1
        self._key = "coarse_labels" if coarse else "fine_labels"
        super().__init__(source, train, *args, **kwargs)

    def _stems(self) -> list[str]:
        return ["train" if self.train else "test"]
