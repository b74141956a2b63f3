"""Real models with seeded weights, built from library code; nothing is downloaded.

    from sample_models import CATALOGUE, build
    built = build("resnet50", width=0.25)
    built.module(*built.example_inputs)

Importing this package imports no framework; building a model imports torch.
"""

from sample_models.catalogue import CATALOGUE, Built, Input, SampleModel, build

__all__ = ["CATALOGUE", "Built", "Input", "SampleModel", "build"]
