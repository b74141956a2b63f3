"""Training tasks for the models of the catalogue: real digits, otherwise seeded data."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from core_compiler.support.errors import UserError
from sample_models.catalogue import Built

#: The number of examples of a seeded dataset.
EXAMPLES = 64
#: Learning rates with which gradient descent lowers the loss of these models within the first 50
#: iterations of 8 examples; with torch's default of 0.001 the decrease is lost in noise.
RATES = {"digits-cnn": 0.2, "digits-mlp": 0.2, "resnet50": 0.02, "vit-b16": 0.01}
RATE = 0.1


def rate(name: str) -> float:
    """Return the default learning rate of ``sgd`` for a catalogue entry."""
    return RATES.get(name, RATE)


@dataclass(frozen=True)
class Task:
    """A training task.

    ``loss`` by name; ``arrays``: the model's inputs and the targets, examples first.
    """

    loss: str
    arrays: tuple[np.ndarray, ...]


def task(name: str, built: Built, seed: int = 0) -> Task:
    """Return the training task of a catalogue entry, for a model built at any sizes.

    digits-cnn, digits-mlp: the 1,437 training images of the UCI digits and their classes; the
    model's weights are reset to seeded ones (it is built trained). Image classifiers: seeded
    images and classes. Decoders: seeded tokens, each the target of the previous one. bert-base:
    seeded features, by mean squared error.
    """
    from sample_models import seeded

    if name in ("digits-cnn", "digits-mlp"):
        from sample_models.digits import TRAINING_IMAGES, digits

        seeded.fill(built.module, seed)
        images, classes = (t[:TRAINING_IMAGES].numpy() for t in digits())
        shape = tuple(built.example_inputs[0].shape[1:])
        return Task("cross_entropy", (images.reshape(-1, *shape), classes))
    if name == "gpt2-decode":
        raise UserError("not trainable: it only continues a text", name, "train gpt2 instead")
    outputs = built.module(*built.example_inputs)
    first = outputs[0] if isinstance(outputs, tuple) else outputs
    inputs = []
    for place, given in enumerate(built.example_inputs):
        shape = (EXAMPLES, *given.shape[1:])
        if given.is_floating_point():
            inputs.append(seeded.bell(f"training/{place}", seed, shape).numpy())
        elif place == 0:
            table = max(
                int(str(m.num_embeddings))
                for m in built.module.modules()
                if hasattr(m, "num_embeddings")
            )
            inputs.append(seeded.integers("training/tokens", seed, shape, 0, table).numpy())
        else:  # masks and segments of the example
            inputs.append(np.broadcast_to(given[:1].numpy(), shape).copy())
    if first.ndim == 2:
        chosen = seeded.integers("training/classes", seed, (EXAMPLES,), 0, first.shape[-1])
        return Task("cross_entropy", (*inputs, chosen.numpy()))
    if name == "bert-base":
        wanted = seeded.bell("training/features", seed, (EXAMPLES, *first.shape[1:]))
        return Task("mse", (*inputs, wanted.numpy()))
    return Task("cross_entropy", (*inputs, np.roll(inputs[0], -1, axis=1)))
