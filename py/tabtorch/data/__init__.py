"""`tabtorch.data`: the public image sets in their own file formats, from a URL, bytes, a file or a folder.

    train = tabtorch.data.MNIST("https://…/mnist/", train=True, transform=lambda image: image / 255)

Nothing is downloaded that was not asked for, and no file is trusted: what is not of its format is a ValueError that says so.
"""

from tabtorch.data.datasets import CIFAR10, CIFAR100, MNIST, FashionMNIST, ImageSet
from tabtorch.data.formats import cifar_binary, cifar_python, idx

__all__ = ["CIFAR10", "CIFAR100", "MNIST", "FashionMNIST", "ImageSet", "cifar_binary", "cifar_python", "idx"]
