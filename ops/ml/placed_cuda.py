"""Classical models run on the CPU."""

from __future__ import annotations

from ...runtime.cuda.place import on_cpu, within
from . import category, feature, linear, map, scores, svm, tree, tree_ensemble

on_cpu("it takes or gives maps and texts", *within(category, map))
on_cpu("classical models are too small for a card, no kernel has been written for them", *within(feature, linear, scores, svm, tree, tree_ensemble))
