"""The trained models of a vector index, sent from the driver to the tasks as the files of an empty index."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from pennon.format.snapshot import Pin
from pennon.format.store import Location, Store, open_store
from pennon.index.vector.files.storage import VectorFiles, write_auxiliary, write_index
from pennon.index.vector.ivf import Ivf, Layout
from pennon.index.vector.kinds import SubIndex, VectorKind
from pennon.index.vector.quantizers.base import Quantizer


@dataclass(frozen=True)
class TrainedModels:
    """The models that all tasks of a build share."""

    ivf: Ivf
    quantizer: Quantizer

    def same_as(self, other: TrainedModels) -> bool:
        """Whether codes of both may share a segment."""
        same_centroids = np.array_equal(self.ivf.centroids, other.ivf.centroids)
        return same_centroids and self.quantizer.agrees_with(other.quantizer)


@dataclass(frozen=True)
class ModelFiles:
    """The place of the models for tasks: the files of a segment, possibly an empty one. Closures stay small, and a
    worker reads the files once for all its tasks."""

    location: Location
    directory: str

    def load(self) -> TrainedModels:
        return _load(self)


def write_models(store: Store, pin: Pin, directory: str, models: TrainedModels, storage_version: str) -> ModelFiles:
    kind = VectorKind(SubIndex.FLAT, type(models.quantizer))
    empty = Layout.empty(models.ivf.num_partitions)
    write_auxiliary(store, directory, models.quantizer, empty, (), storage_version)
    write_index(store, directory, kind, models.ivf, storage_version)
    return ModelFiles(pin.location, directory)


@lru_cache(maxsize=8)
def _load(files: ModelFiles) -> TrainedModels:
    found = VectorFiles(open_store(files.location), files.directory)
    return TrainedModels(found.ivf, found.quantizer)
